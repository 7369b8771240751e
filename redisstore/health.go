package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/seldom"
	"github.com/weirlimit/weir/limiter"
)

// health is the state of a server. While the server is down, only one goroutine tries
// to reach it; checks do not wait for it.
type health struct {
	store *Store

	outage    atomic.Pointer[outage]
	suspected atomic.Bool // a probe is under way that decides whether there is an outage
	// Decisions by policy that this server caused, and how many they were when it last worked: a call that finds an
	// outage is decided by policy before that is known.
	answered, before atomic.Int64

	// Of the outages before the present one; only what begins or ends one uses them.
	ended    time.Time // when the last one ended
	logged   time.Time // when one was last logged
	unlogged int       // how many were not, since then
}

type outage struct {
	since   time.Time
	because error
	logged  bool
}

// An outage that begins within flapWithin of the end of another one is logged only if it lasts for
// lastsFor, or if none was logged for a minute: a server that comes and goes would fill the log.
const (
	flapWithin = 10 * time.Second
	lastsFor   = time.Second
)

func (h *health) down() bool { return h.outage.Load() != nil }

// worthLogging reports whether an outage is logged at an instant.
func (h *health) worthLogging(o *outage, now time.Time) bool {
	return o.since.Sub(h.ended) > flapWithin || now.Sub(h.logged) > seldom.Every || now.Sub(o.since) >= lastsFor
}

// policy counts a decision by policy that this server caused.
func (h *health) policy() { h.answered.Add(1) }

// worked notes that the server has answered.
func (h *health) worked() {
	if n := h.answered.Load(); n != h.before.Load() && !h.down() {
		h.before.Store(n)
	}
}

// probeEvery is the interval between two attempts to write.
const probeEvery = 100 * time.Millisecond

// suspect probes a server after a call to it failed, and starts an outage if the probe
// fails, too. One slow call or lost connection is no outage, because during an outage
// policies decide all other checks. Checks are still sent during the probe, and wait at
// most their timeout.
func (h *health) suspect(failed *call, err error) {
	if h.down() || !h.suspected.CompareAndSwap(false, true) {
		return
	}
	about := call{kind: failed.kind, route: failed.route} // whoever waits for it may go on with it
	h.store.spawn(func() {
		defer h.suspected.Store(false)
		if h.store.probe(about.route) != nil {
			h.fail(about.route, err)
			return
		}
		h.store.failures.call(&about, err)
	})
}

// fail starts an outage of the server of a key, logs it, and begins to probe.
func (h *health) fail(route string, err error) {
	o := &outage{since: time.Now(), because: err}
	if !h.outage.CompareAndSwap(nil, o) {
		return
	}
	if h.worthLogging(o, o.since) {
		h.log(o)
	}
	h.store.spawn(func() { h.recover(o, route) })
}

func (h *health) log(o *outage) {
	facts := []any{"address", strings.Join(h.store.config.Addrs, ","), "because", reason(o.because)}
	if h.unlogged > 0 {
		facts = append(facts, "short_outages_before", h.unlogged)
	}
	h.store.config.Log.Warn("redis is unavailable: the rules' policies answer until it is back", facts...)
	o.logged, h.logged, h.unlogged = true, time.Now(), 0
}

// end ends an outage. What was not logged is counted.
func (h *health) end(o *outage) {
	if o.logged {
		h.store.config.Log.Info("redis is available again", "address", strings.Join(h.store.config.Addrs, ","),
			"after", time.Since(o.since).Round(time.Millisecond), "decided_by_policy",
			h.answered.Load()-h.before.Load())
	} else {
		h.unlogged++
	}
	h.ended = time.Now()
	h.outage.Store(nil)
	h.worked()
}

// recover ends the outage when the server accepts a write.
func (h *health) recover(o *outage, route string) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-h.store.closing:
			return
		case <-wait.C:
		}
		if h.store.probe(route) == nil {
			h.end(o)
			return
		}
		if !o.logged && h.worthLogging(o, time.Now()) {
			h.log(o)
		}
		wait.Reset(probeEvery)
	}
}

// probe runs a script that uses every command of the others, in the slot of a key: it writes, and
// returns the clock. So a server that cannot be written to, or an access list that lacks a
// command, is found before a check is. A slot without an owner is no reason for an outage:
// the server that was asked does answer. It uses a client of its own, since the one in use pauses for a second after
// many refused connections. It first tries to connect by itself, because the client logs each refused
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
	client := s.config.newClient(nil)
	defer func() { _ = client.Close() }() // no call is under way
	tag := (&call{route: route}).tag()
	args := []any{"EVALSHA", s.calls.scripts.probe.sha, 3, tag + "!probe", tag + "!probe:hash", tag + "!probe:set"}
	now := redis.NewIntCmd(ctx, args...)
	if err = client.Process(ctx, once{now}); isMissing(err) {
		args[0], args[1] = "EVAL", s.calls.scripts.probe.text
		now = redis.NewIntCmd(ctx, args...)
		err = client.Process(ctx, once{now})
	}
	if isUnserved(err) {
		return nil
	}
	if err == nil {
		s.clock.learn(limiter.Tick(now.Val()))
		err = s.config.copied(ctx, client, tag)
	}
	if err == nil {
		s.servers.worked.Store(true)
	}
	return err
}

// errNotCopied reports that fewer replicas than [Config.Replicas] have what was written.
var errNotCopied = errors.New("too few replicas of Redis have the charge (--redis-replicas)")

// waitFor returns the command that waits for the replicas, for at most half of the time that
// a check may take.
func (c *Config) waitFor(ctx context.Context) *redis.IntCmd {
	return redis.NewIntCmd(ctx, "wait", c.Replicas, max(1, c.Timeout.Milliseconds()/2))
}

// copied waits until enough replicas have what was last written to the server of a key over the same
// connection, by writing once more.
func (c *Config) copied(ctx context.Context, client redis.UniversalClient, tag string) error {
	if c.Replicas == 0 {
		return nil
	}
	node, ok := client.(*redis.Client)
	if cluster, is := client.(*redis.ClusterClient); is {
		var err error
		if node, err = cluster.MasterForKey(ctx, tag); err != nil {
			return err
		}
		ok = true
	}
	if !ok {
		return nil
	}
	pipe := node.Pipeline()
	pipe.Set(ctx, tag+"!probe", "", time.Second)
	wait := c.waitFor(ctx)
	_ = pipe.Process(ctx, wait) // adds it to the pipeline
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if int(wait.Val()) < c.Replicas {
		return errNotCopied
	}
	return nil
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
	text, _ := said(err)
	return slices.ContainsFunc([]string{"MOVED ", "ASK ", "TRYAGAIN"}, func(p string) bool {
		return strings.HasPrefix(text, p)
	})
}

// said returns what Redis said, and whether an error is of Redis.
func said(err error) (text string, is bool) {
	if e := redis.Error(nil); errors.As(err, &e) {
		return e.Error(), true
	}
	return "", false
}

// errClustered reports that a single server is a node of a Redis Cluster.
var errClustered = errors.New("it is a node of a Redis Cluster")

// noCommand is what a server says of a script that uses a command which its user may not.
const noCommand = "can't run this command"

// refusal returns what to do about an error by which Redis refuses a configuration, whenever it is
// asked; empty for another error.
func (s *Store) refusal(err error) (advice string) {
	var untrusted *tls.CertificateVerificationError
	text, is := said(err)
	switch {
	case errors.As(err, &untrusted):
		return "give the authority that issued its certificate"
	case strings.Contains(err.Error(), "remote error: tls: "): // crypto/tls exports no type of it
		return "give a certificate that Redis accepts"
	case errors.Is(err, errClustered):
		return "treat it as one"
	case !is, s.cluster != nil && isElsewhere(err):
		return ""
	}
	for _, known := range []struct{ says, advice string }{
		{"WRONGPASS", "check the user name and the password"},
		{"NOAUTH", "give the password"},
		{"NOPERM", "allow this user the commands and keys that the documentation of Redis mode lists"},
		{noCommand, "allow this user the commands and keys that the documentation of Redis mode lists"},
		{"DB index is out of range", "check the number of the database"},
		{"cluster support disabled", "it is not a node of a Redis Cluster: do not treat it as one"},
		{"MOVED ", errClustered.Error() + ": treat it as one"},
	} {
		if strings.Contains(text, known.says) {
			return known.advice
		}
	}
	return ""
}

// isUnserved reports that the slot of the key has no owner. It says nothing of other
// slots, unlike the CLUSTERDOWN of a cluster that is down as a whole.
func isUnserved(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Hash slot not served")
}

// isDown reports whether an error will affect the next calls, too, and not only this
// one.
func isDown(err error) bool {
	text, is := said(err)
	switch {
	case err == nil, errors.Is(err, errReply), errors.Is(err, errChanged), isElsewhere(err), isUnserved(err),
		isDamage(err):
		return false
	case !is:
		return true
	}
	// Older servers wrap the error of a script in other text.
	return slices.ContainsFunc([]string{
		"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MISCONF", "NOREPLICAS",
		"BUSY", "NOAUTH", "WRONGPASS", "NOPERM", noCommand, "max number of clients",
	}, func(p string) bool { return strings.Contains(text, p) })
}

// isDamage reports that a script could not read a value: it is of another type, or shorter than its
// form.
func isDamage(err error) bool {
	text, _ := said(err)
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "data string too short")
}

// reason returns why a call failed, in words.
func reason(err error) string {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return errLate.Error() + ": " + err.Error()
	}
	return err.Error()
}

// failures logs errors of single calls: of each kind, and of damage, one in [seldom.Every]. It is safe for concurrent
// use.
type failures struct {
	log   *slog.Logger
	lines seldom.Lines
}

// call logs an error of a single call.
func (f *failures) call(c *call, err error) { f.write(c, c.kind.failure(), err) }

// damage logs that a value is not readable.
func (f *failures) damage(c *call) {
	f.write(c, "a value in redis could not be read, as if something else had written it: its counter begins anew", c.err)
}

func (f *failures) write(c *call, what string, err error) {
	if _, due := f.lines.Due(what, time.Now()); due {
		f.log.Error(what, "key", c.route, "error", err.Error())
	}
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
		return "redis did not confirm a settlement or an extension: the reservation may be as it was, and its caller has " +
			"the error"
	default:
		return "a check was not decided by redis: the rule's policy answered"
	}
}
