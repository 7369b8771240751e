package cluster

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
)

// pace is what a node knows of its own delays, and the numbers of its messages. It is a
// [replica.Pace].
type pace struct {
	sched     Scheduler
	pings     atomic.Uint32
	easeUntil atomic.Int64 // end of the period of longer waits after a late tick; scheduler time, 0 if none
	// awakeAt is the start of the time in which this node is known to have run without a
	// pause. awakePing is the last ping sent before that.
	awakeAt   atomic.Int64
	awakePing atomic.Uint32
}

// NextPing numbers a message that is to be answered. It is never 0.
func (p *pace) NextPing() uint32 {
	for {
		if n := p.pings.Add(1); n != 0 {
			return n
		}
	}
}

// LastPing returns the number of the last such message.
func (p *pace) LastPing() uint32 { return p.pings.Load() }

// wakeUp records that this node may have been paused until now.
func (p *pace) wakeUp(now limiter.Tick) {
	p.awakePing.Store(p.pings.Load())
	p.awakeAt.Store(int64(now))
}

// Awake returns the start of the time in which this node is known to have run without a
// pause, and the last ping sent before that.
func (p *pace) Awake() (since limiter.Tick, ping uint32) {
	return limiter.Tick(p.awakeAt.Load()), p.awakePing.Load()
}

// Stretched returns the wait before a message is sent again: eight times span for
// [replica.EaseFor] after this node was late. The nodes are overloaded then, and most
// missing answers are only late, not lost.
func (p *pace) Stretched(span limiter.Tick) limiter.Tick {
	if until := p.easeUntil.Load(); until != 0 && int64(p.sched.Now()) < until {
		return 8 * span
	}
	return span
}

// random is a generator that many goroutines share.
type random struct {
	mu   sync.Mutex
	rand *rand.Rand
}

// below returns a number from 0 up to, but not including, most.
func (r *random) below(most limiter.Tick) limiter.Tick {
	r.mu.Lock()
	defer r.mu.Unlock()
	return limiter.Tick(r.rand.Int64N(int64(most)))
}
