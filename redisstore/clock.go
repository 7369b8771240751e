package redisstore

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// serverClock is the instant that stands for the server's own clock.
const serverClock = -1

// How long counters are kept beyond their use, in milliseconds.
const (
	// A clock given by the caller may stand still.
	callersSlack = 3_600_000
	// The store's own estimate of the server's clock may be ahead of it.
	estimateSlack = 1000
)

// clock estimates the clock of the servers from what they answered. Where several servers have clocks that differ, the
// estimate is of the one that answered last. It is safe for concurrent use.
type clock struct {
	opened time.Time
	start  limiter.Tick // opened, as a tick
	ages   bool         // the estimate is asked for again: of a Cluster

	ahead atomic.Int64 // of the server's clock over the local one, in ticks
	timed atomic.Int64 // if it ages: when the server's clock was last learnt, since opened
}

func newClock() *clock {
	k := &clock{opened: time.Now()}
	k.start = limiter.TickOf(k.opened)
	k.timed.Store(-int64(clockEvery)) // never
	return k
}

// clockEvery is the age of the estimate of a Cluster's clock from which on round trips ask
// for the clock. Answers to checks of one key have it, too, but there may be none.
const clockEvery = 10 * time.Second

// due reports whether the round trip that is about to be made is to ask for the
// server's clock. All ask until one has the answer, since that of another may be lost.
func (k *clock) due() bool {
	return k.ages && int64(time.Since(k.opened))-k.timed.Load() >= int64(clockEvery)
}

// now returns an estimate of the server's clock.
func (k *clock) now() limiter.Tick {
	return k.start + limiter.Tick(time.Since(k.opened)/limiter.TickDuration) + limiter.Tick(k.ahead.Load())
}

// learn updates that estimate with an instant from the server.
func (k *clock) learn(now limiter.Tick) {
	since := time.Since(k.opened)
	k.ahead.Store(int64(now - k.start - limiter.Tick(since/limiter.TickDuration)))
	if k.ages {
		k.timed.Store(int64(since))
	}
}

// when is the instant of a call: the server's, or a given one.
type when struct {
	now   limiter.Tick
	slack int64
}

func (w when) append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, '['), int64(w.now), 10)
	return strconv.AppendInt(append(dst, ','), w.slack, 10)
}

// when returns the instant of a check with so many parts. If the server's clock is to
// be used but several servers are asked, all are given the same estimated instant, so
// that one receipt is valid for all. Where the servers' clocks differ, the estimate is of
// the one that answered last.
func (k *clock) when(now arith.Instant, parts int) when {
	switch {
	case now.Given():
		return when{now.Or(k.now), callersSlack}
	case parts > 1:
		return when{k.now(), estimateSlack}
	default:
		return when{serverClock, 0}
	}
}

// around returns the instant of a call, estimated if it is the server's.
func (k *clock) around(w when) limiter.Tick {
	if w.now == serverClock {
		return k.now()
	}
	return w.now
}
