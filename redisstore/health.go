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

	"github.com/weirlimit/weir/internal/guard"
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
func (s *Store) suspect(h *health, failed *call, err error) {
	if h.down() || !h.suspected.CompareAndSwap(false, true) {
		return
	}
	about := call{kind: failed.kind, route: failed.route} // whoever waits for it may go on with it
	s.spawn(func() {
		defer h.suspected.Store(false)
		if s.probe(about.route) != nil {
			s.fail(h, about.route, err)
			return
		}
		s.logCallError(&about, err)
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
// the server that was asked does answer. Then probe asks the slot's server for its clock. It
// uses a client of its own, since the one in use pauses for a second after many refused
// connections. It first tries to connect by itself, because the client logs each refused
// connection. It ends within [Config.Timeout].
func (s *Store) probe(route string) (err error) {
	defer s.guard.Recover(guard.Redis, func(caught error) { err = caught })
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
	defer cancel()
	if s.single != nil && s.config.SentinelMaster == "" {
		if err := dial(ctx, s.config.Addrs[0]); err != nil {
			return err
		}
	}
	client := s.newClient(nil)
	defer func() { _ = client.Close() }() // no call is under way
	err = client.Process(ctx, once{redis.NewStatusCmd(ctx, "set", route[:strings.IndexByte(route, '}')+1]+"!probe", "", "ex", 1)})
	if isUnserved(err) {
		return nil
	}
	if err == nil {
		if now, untold := serverTime(ctx, client, route); untold == nil {
			s.learn(now)
		}
	}
	return err
}

// serverTime asks for the clock of the server that has a key. A client of a Cluster would
// ask any server, which may be down.
func serverTime(ctx context.Context, client redis.UniversalClient, key string) (limiter.Tick, error) {
	var server interface {
		Time(ctx context.Context) *redis.TimeCmd
	} = client
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return 0, err
		}
		server = master
	}
	t, err := server.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	return limiter.TickOf(t), nil
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

// logCallEvery is the shortest interval between two logged errors of single calls of one
// kind.
const logCallEvery = time.Minute

// logCallError logs an error of a single call, rate-limited.
func (s *Store) logCallError(c *call, err error) {
	now, logged := time.Now().UnixNano(), &s.lastLogged[c.kind]
	last := logged.Load()
	if last != 0 && now-last < int64(logCallEvery) || !logged.CompareAndSwap(last, now) {
		return
	}
	s.config.Log.LogAttrs(context.Background(), slog.LevelError, c.kind.failure(),
		slog.String("key", c.route), slog.String("error", err.Error()))
}

// failure describes for the log what it means that a call of a kind failed.
func (k kind) failure() string {
	switch k {
	case kindCancel:
		return "a reservation of a denied check was not cancelled in redis: it counts until its counter has recovered"
	case kindRemains:
		return "redis did not say what remains after a denied check: the answer has what remained during it"
	case kindRefund:
		return "redis did not confirm a refund: it may be lost, and its caller has the error"
	case kindReset:
		return "redis did not confirm a reset: the counters may be as they were, and its caller has the error"
	case kindAmend:
		return "redis did not confirm a settlement or an extension: the reservation may be as it was, and its caller has the error"
	default:
		return "a check was not decided by redis: the rule's policy answered"
	}
}
