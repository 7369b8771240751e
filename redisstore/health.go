package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// health tells whether a server takes calls. While it does not, nobody waits for
// it but the one goroutine that finds out when it does again.
type health struct {
	outage    atomic.Pointer[outage]
	suspected atomic.Bool // a probe is under way that decides whether there is one
}

type outage struct {
	since    time.Time
	answered atomic.Int64 // decisions by policy meanwhile
}

func (h *health) down() bool { return h.outage.Load() != nil }

// policy counts a decision that the policy made because of this server.
func (h *health) policy() {
	if o := h.outage.Load(); o != nil {
		o.answered.Add(1)
	}
}

// probeEvery is how long to wait between two attempts to write.
const probeEvery = 100 * time.Millisecond

// suspect has a server probed after a call to it failed, and begins an outage if the
// probe fails too. One slow call or lost connection is no outage: all others would be
// decided by their policies. While the probe is under way checks are still sent, and
// none waits longer than it may.
func (s *Store) suspect(h *health, route string, err error) {
	if h.down() || !h.suspected.CompareAndSwap(false, true) {
		return
	}
	s.spawn(func() {
		defer h.suspected.Store(false)
		if failed := s.probe(route); failed != nil {
			s.fail(h, route, err)
			return
		}
		s.complain(route, err)
	})
}

// fail notes that the server of a key cannot be used, says so once, and begins to
// look for when it can.
func (s *Store) fail(h *health, route string, err error) {
	o := &outage{since: time.Now()}
	if !h.outage.CompareAndSwap(nil, o) {
		return
	}
	s.config.Log.Warn("redis cannot be used: rules are decided by their policies until it can",
		"address", strings.Join(s.config.Addrs, ","), "because", reason(err))
	s.spawn(func() { s.recover(h, o, route) })
}

// recover ends the outage when the server takes a write.
func (s *Store) recover(h *health, o *outage, route string) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-wait.C:
		}
		if s.probe(route) == nil {
			h.outage.Store(nil)
			s.config.Log.Info("redis can be used again", "address", strings.Join(s.config.Addrs, ","),
				"after", time.Since(o.since).Round(time.Millisecond), "decided_by_policy", o.answered.Load())
			return
		}
		wait.Reset(probeEvery)
	}
}

// probe writes into the slot of a key. It takes a client of its own: those in
// use pause for a second after many connections were refused. And it looks first
// whether there is anyone to connect to, because the client logs each time that
// there is not.
func (s *Store) probe(route string) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
	defer cancel()
	if s.single != nil && s.config.SentinelMaster == "" {
		if err := dial(ctx, s.config.Addrs[0]); err != nil {
			return err
		}
	}
	client := redis.NewUniversalClient(s.options())
	defer func() { _ = client.Close() }() // nothing of it is in use
	return client.Set(ctx, route[:strings.IndexByte(route, '}')+1]+"!probe", "", time.Second).Err()
}

// dial connects to an address, and no more.
func dial(ctx context.Context, addr string) error {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// LogClientTo has what the Redis client library logs by itself written to a
// logger, at level debug, instead of to standard error. It is for programs: there
// is one such logger for all that use the library, stores or not.
func LogClientTo(l *slog.Logger) { redis.SetLogger(clientLog{l}) }

type clientLog struct{ to *slog.Logger }

// Printf is called by the library.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.to.Enabled(ctx, slog.LevelDebug) {
		l.to.DebugContext(ctx, fmt.Sprintf(format, v...))
	}
}

// isMissing tells that Redis does not have the script: it was not executed.
func isMissing(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// isElsewhere tells that the slot is not, or not wholly, on the server that was
// asked: the call was not executed.
func isElsewhere(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return false
	}
	text := said.Error()
	for _, p := range []string{"MOVED ", "ASK ", "TRYAGAIN"} {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// isDown tells an error that the next call will meet too, from one that is of
// this call.
func isDown(err error) bool {
	var said redis.Error
	switch {
	case err == nil, errors.Is(err, errReply), errors.Is(err, errChanged), isElsewhere(err):
		return false
	case !errors.As(err, &said):
		return true
	}
	// An error within a script is quoted behind other words by older servers.
	text := said.Error()
	for _, p := range []string{
		"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MISCONF", "NOREPLICAS",
		"BUSY", "NOAUTH", "WRONGPASS", "NOPERM", "max number of clients",
	} {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// reason says in words why a call failed.
func reason(err error) string {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return errLate.Error() + ": " + err.Error()
	}
	return err.Error()
}

// complainEvery bounds how often errors of single calls are logged.
const complainEvery = time.Minute

// complain logs an error that is of one call, once in a while.
func (s *Store) complain(route string, err error) {
	now := time.Now().UnixNano()
	last := s.complained.Load()
	if last != 0 && now-last < int64(complainEvery) || !s.complained.CompareAndSwap(last, now) {
		return
	}
	s.config.Log.LogAttrs(context.Background(), slog.LevelError, "a check was not decided by redis: the rule's policy answered",
		slog.String("key", route), slog.String("error", err.Error()))
}
