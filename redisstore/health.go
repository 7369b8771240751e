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

	"github.com/weirlimit/weir/limiter"
)

// health is the state of a server. While the server is down, only one goroutine tries
// to reach it; checks do not wait for it.
type health struct {
	outage    atomic.Pointer[outage]
	suspected atomic.Bool // a probe is under way that decides whether there is an outage
}

type outage struct {
	since    time.Time
	answered atomic.Int64 // decisions by policy during the outage
}

func (h *health) down() bool { return h.outage.Load() != nil }

// policy counts a decision by policy that this server caused.
func (h *health) policy() {
	if o := h.outage.Load(); o != nil {
		o.answered.Add(1)
	}
}

// probeEvery is the interval between two attempts to write.
const probeEvery = 100 * time.Millisecond

// suspect probes a server after a call to it failed, and starts an outage if the probe
// fails, too. One slow call or lost connection is no outage, because during an outage
// policies decide all other checks. Checks are still sent during the probe, and wait at
// most their timeout.
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

// fail starts an outage of the server of a key, logs it once, and begins to probe.
func (s *Store) fail(h *health, route string, err error) {
	o := &outage{since: time.Now()}
	if !h.outage.CompareAndSwap(nil, o) {
		return
	}
	s.config.Log.Warn("redis is unavailable: the rules' policies answer until it is back",
		"address", strings.Join(s.config.Addrs, ","), "because", reason(err))
	s.spawn(func() { s.recover(h, o, route) })
}

// recover ends the outage when the server accepts a write.
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
			s.config.Log.Info("redis is available again", "address", strings.Join(s.config.Addrs, ","),
				"after", time.Since(o.since).Round(time.Millisecond), "decided_by_policy", o.answered.Load())
			return
		}
		wait.Reset(probeEvery)
	}
}

// probe writes to the slot of a key. A slot without an owner is no reason for an outage:
// the server that was asked does answer. Then probe asks for the server's clock. It uses a client of its own, since the one in
// use pauses for a second after many refused connections. It first tries to connect by
// itself, because the client logs each refused connection.
func (s *Store) probe(route string) (err error) {
	defer s.guard.Recover(guardPlace, func(caught error) { err = caught })
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
	defer cancel()
	if s.single != nil && s.config.SentinelMaster == "" {
		if err := dial(ctx, s.config.Addrs[0]); err != nil {
			return err
		}
	}
	client := redis.NewUniversalClient(s.options())
	defer func() { _ = client.Close() }() // no call is under way
	err = client.Process(ctx, once{redis.NewStatusCmd(ctx, "set", route[:strings.IndexByte(route, '}')+1]+"!probe", "", "ex", 1)})
	if isUnserved(err) {
		return nil
	}
	if err == nil {
		if t, untold := client.Time(ctx).Result(); untold == nil {
			s.learn(limiter.TickOf(t))
		}
	}
	return err
}

// dial connects to an address and closes the connection.
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

// LogClientTo redirects the Redis client library's own log from standard error to l, at
// level debug. It is for programs: the setting applies to all users of the library in
// the process.
func LogClientTo(l *slog.Logger) { redis.SetLogger(clientLog{l}) }

type clientLog struct{ to *slog.Logger }

// Printf is called by the library.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.to.Enabled(ctx, slog.LevelDebug) {
		l.to.DebugContext(ctx, fmt.Sprintf(format, v...))
	}
}

// isMissing reports that Redis does not have the script, so it was not executed.
func isMissing(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// isElsewhere reports that the slot is not, or not completely, on the server that was
// asked, so the call was not executed.
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

// isUnserved reports that the slot of the key has no owner. It says nothing of other
// slots, unlike the CLUSTERDOWN of a cluster that is down as a whole.
func isUnserved(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Hash slot not served")
}

// isDown reports whether an error will affect the next calls, too, and not only this
// one.
func isDown(err error) bool {
	var said redis.Error
	switch {
	case err == nil, errors.Is(err, errReply), errors.Is(err, errChanged), isElsewhere(err), isUnserved(err):
		return false
	case !errors.As(err, &said):
		return true
	}
	// Older servers wrap the error of a script in other text.
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

// reason returns why a call failed, in words.
func reason(err error) string {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return errLate.Error() + ": " + err.Error()
	}
	return err.Error()
}

// complainEvery is the shortest interval between two logged errors of single calls.
const complainEvery = time.Minute

// complain logs an error of a single call, rate-limited.
func (s *Store) complain(route string, err error) {
	now := time.Now().UnixNano()
	last := s.complained.Load()
	if last != 0 && now-last < int64(complainEvery) || !s.complained.CompareAndSwap(last, now) {
		return
	}
	s.config.Log.LogAttrs(context.Background(), slog.LevelError, "a check was not decided by redis: the rule's policy answered",
		slog.String("key", route), slog.String("error", err.Error()))
}
