package redisstore_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// The parallel tests wait for servers of their own and use little of a processor, so more
// of them run at a time than there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redisstore.LogClientTo(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// logBuffer is a log that the test reads.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// count returns how many records have a text in them.
func (j *logBuffer) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

const policyRules = `
version: 1
rules:
  - {name: open, match: {path: "^/open"}, limits: [30/day], on_unreachable: open}
  - {name: local, match: {path: "^/local"}, limits: [30/day], on_unreachable: local}
  - {name: closed, match: {path: "^/closed"}, limits: [30/day], on_unreachable: closed}
`

// patient is a node whose every check must end; a check that hangs makes the test fail.
type patient struct {
	*weir.Node
	tb  testing.TB
	log *logBuffer
	was time.Duration // the longest wait

	byPolicy int // decisions
}

// faultTimeout is how long checks wait for Redis in tests in which that time passes.
const faultTimeout = 2 * time.Second

func newPatient(tb testing.TB, c redisstore.Config) *patient {
	tb.Helper()
	p := &patient{tb: tb, log: &logBuffer{}}
	c.Log = slog.New(slog.NewJSONHandler(p.log, nil))
	p.Node = newNode(tb, openStore(tb, c), policyRules)
	return p
}

// ask checks, and returns the decision.
func (p *patient) ask(path string) *weir.Decision {
	p.tb.Helper()
	return p.askAs(path, "ada")
}

// askAs is ask for a user.
func (p *patient) askAs(path, user string) *weir.Decision {
	p.tb.Helper()
	d, err := make(chan *weir.Decision, 1), make(chan error, 1)
	began := time.Now()
	go func() {
		got, failed := p.Node.Check(context.Background(), weir.Request{Path: path, User: user})
		d <- &got
		err <- failed
	}()
	select {
	case got := <-d:
		p.was = max(p.was, time.Since(began))
		if failed := <-err; failed != nil {
			p.tb.Fatal(failed)
		}
		if got.Source != limiter.SourceRedis {
			p.byPolicy++
		}
		return got
	case <-time.After(4 * patience):
		p.tb.Fatal("a check waits longer than any may")
		return nil
	}
}

// untilFrom asks until decisions come from the given source.
func (p *patient) untilFrom(path string, s limiter.Source) {
	p.tb.Helper()
	began := time.Now()
	await(p.tb, "decisions from "+s.String(), func() bool { return p.ask(path).Source == s })
	p.tb.Logf("decisions from %s after %v; the longest wait was %v", s, time.Since(began).Round(time.Millisecond),
		p.was.Round(time.Microsecond))
}

// outage verifies what must hold while Redis cannot be used, for whatever reason, and
// after it can be used again. wrong and mend start and end the outage.
func outage(t *testing.T, c redisstore.Config, wrong, mend func()) {
	t.Helper()
	p := newPatient(t, c)
	if d := p.ask("/local"); d.Source != limiter.SourceRedis || !d.Allowed {
		t.Fatalf("before the fault %s decides; the log has %s", d.Source, p.log)
	}
	wrong()
	p.untilFrom("/open", limiter.SourceFallbackOpen)
	for _, row := range []struct {
		path    string
		source  limiter.Source
		allowed int
	}{
		{"/local", limiter.SourceFallbackLocal, 10}, // a third of 30: there are three nodes
		{"/closed", limiter.SourceFallbackClosed, 0},
	} {
		allowed := 0
		for range 40 {
			d := p.ask(row.path)
			if d.Source != row.source {
				t.Fatalf("%s decides on %s", d.Source, row.path)
			}
			if d.Allowed {
				allowed++
			} else if d.RetryAfter <= 0 || d.BlockedBy() == nil {
				t.Errorf("a denial on %s says retry after %v, by %v", row.path, d.RetryAfter, d.BlockedBy())
			}
		}
		if allowed != row.allowed {
			t.Errorf("the policy of %s admits %d, want %d", row.path, allowed, row.allowed)
		}
	}
	// A probe decides that there is an outage. Errors that come at once may all be there before its end.
	await(t, "the outage is noticed", func() bool { return p.log.count("redis is unavailable") > 0 })
	mend()
	// A check that is decided while the outage ends would be counted in the next one.
	await(t, "the end of the outage is noticed", func() bool { return p.log.count("redis is available again") > 0 })
	p.untilFrom("/open", limiter.SourceRedis)
	for _, line := range []string{"redis is unavailable", "redis is available again"} {
		if n := p.log.count(line); n != 1 {
			t.Errorf("the log says %d times that %s:\n%s", n, line, p.log)
		}
	}
	if p.log.count(fmt.Sprintf(`"decided_by_policy":%d}`, p.byPolicy)) != 1 { // with the check that found the outage
		t.Errorf("policies decided %d checks:\n%s", p.byPolicy, p.log)
	}
	// The policy's counts remain, in addition to those in Redis.
	if d := p.ask("/local"); d.Source != limiter.SourceRedis {
		t.Errorf("after the fault %s decides", d.Source)
	}
}

func faultConfig(srv *server) redisstore.Config {
	return redisstore.Config{Addrs: []string{srv.addr()}, Nodes: 3}
}

func TestStoppedRedis(t *testing.T) {
	srv := startServer(t)
	outage(t, faultConfig(srv), srv.stop, srv.start)
}

func TestPausedRedis(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	c := faultConfig(srv)
	c.Timeout = faultTimeout
	outage(t, c, func() { srv.do("CLIENT", "PAUSE", 60_000, "WRITE") }, func() { srv.do("CLIENT", "UNPAUSE") })
}

// A pause that blocks all commands ends by itself only.
func TestWhollyPausedRedis(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	c := faultConfig(srv)
	c.Timeout = faultTimeout
	outage(t, c, func() { srv.do("CLIENT", "PAUSE", 10_000, "ALL") }, func() {})
}

func TestRedisOutOfMemory(t *testing.T) {
	srv := startServer(t)
	outage(t, faultConfig(srv), func() {
		srv.do("CONFIG", "SET", "maxmemory", "1")
	}, func() { srv.do("CONFIG", "SET", "maxmemory", "0") })
}

// A server that was made a replica refuses to write.
func TestReadOnlyRedis(t *testing.T) {
	srv := startServer(t, "--replica-serve-stale-data", "yes")
	outage(t, faultConfig(srv), func() {
		srv.do("REPLICAOF", "127.0.0.1", freePort(t))
	}, func() { srv.do("REPLICAOF", "NO", "ONE") })
}

// A store opens even if the server is not reachable.
func TestOpenWithoutRedis(t *testing.T) {
	port := freePort(t)
	srv := &server{tb: t, dir: t.TempDir(), port: port}
	t.Cleanup(srv.stop)
	p := newPatient(t, redisstore.Config{Addrs: []string{srv.addr()}})
	if d := p.ask("/open"); d.Source != limiter.SourceFallbackOpen || !d.Allowed {
		t.Errorf("%s decides", d.Source)
	}
	if p.log.count("redis is unavailable") != 1 {
		t.Errorf("the log has %s", p.log)
	}
	srv.start()
	p.untilFrom("/open", limiter.SourceRedis)
}

// B6: when Redis has forgotten the script it is loaded again, and the check that
// met it is decided by Redis, with what was counted.
func TestScriptFlush(t *testing.T) {
	srv := startServer(t)
	p := newPatient(t, faultConfig(srv))
	for i := range 10 {
		d := p.ask("/local")
		if left := d.Limit(0).Remaining; d.Source != limiter.SourceRedis || left != uint64(29-i) {
			t.Fatalf("check %d: %s decides, %d left", i, d.Source, left)
		}
		srv.do("SCRIPT", "FLUSH")
	}
	if text := p.log.String(); text != "" {
		t.Errorf("the log has %s", text)
	}
}

// A restarted Redis starts empty, and is used as soon as it is available.
func TestRestartedRedis(t *testing.T) {
	srv := startServer(t)
	p := newPatient(t, faultConfig(srv))
	for range 5 {
		p.ask("/local")
	}
	srv.stop()
	srv.start()
	p.untilFrom("/local", limiter.SourceRedis)
	if d := p.ask("/local"); d.Limit(0).Remaining < 27 {
		t.Errorf("%d are left after a restart", d.Limit(0).Remaining)
	}
}

// A value that something else has written is no outage, and not for ever: its counter begins anew, and
// the log says so once. The other counters of the key are as they were.
func TestForeignValue(t *testing.T) {
	srv := startServer(t)
	p := newPatient(t, faultConfig(srv))
	for range 3 {
		p.ask("/open")
	}
	key := srv.do("KEYS", "*open*:day").([]any)[0]
	whole := srv.do("GET", key).(string)
	held := strings.TrimSuffix(key.(string), ":day")
	for name, write := range map[string][]any{
		"a list":                     {"LPUSH", key, "a list"},
		"a hash":                     {"HSET", key, "a", "hash"},
		"text":                       {"SET", key, "some text"},
		"no form":                    {"SET", key, "[]"},
		"another form":               {"SET", key, "[\"a\",1]garbage"},
		"a family that is not known": {"SET", key, "[77,1,1]garbage"},
		"the form and nothing":       {"SET", key, whole[:strings.IndexByte(whole, ']')+1]},
		"a part":                     {"SET", key, whole[:len(whole)-2]},
		"holds that are text":        {"SET", held + "!holds", "text"},
	} {
		srv.do("DEL", key)
		srv.do(write...)
		r := weir.Request{Path: "/open", User: "ada"}
		if strings.HasPrefix(name, "holds") {
			r.ID, r.Hold, r.Cost = name, time.Minute, weir.Units(0)
			if d, err := p.Check(t.Context(), r); err != nil || d.Source != limiter.SourceRedis {
				t.Errorf("%s: %+v, %v", name, d, err)
			}
		}
		for i := range 3 {
			if d := p.ask("/open"); d.Source != limiter.SourceRedis || d.Limit(0).Remaining != uint64(29-i) {
				t.Errorf("%s: %s decides, %d left", name, d.Source, d.Limit(0).Remaining)
			}
		}
		if d := p.ask("/local"); d.Source != limiter.SourceRedis {
			t.Errorf("%s: %s decides on another", name, d.Source)
		}
	}
	if p.log.count("could not be read") != 1 || p.log.count("not decided by redis") != 0 ||
		p.log.count("redis is unavailable") != 0 {
		t.Errorf("the log has %s", p.log)
	}
}

// A receipt from a policy takes back the policy's charge and no other.
func TestRefundOfAPolicysCharge(t *testing.T) {
	srv := startServer(t)
	p := newPatient(t, redisstore.Config{Addrs: []string{srv.addr()}})
	p.ask("/local")
	srv.stop()
	p.untilFrom("/open", limiter.SourceFallbackOpen)
	first := p.ask("/local")
	second := p.ask("/local")
	r := weir.Request{Path: "/local", User: "ada"}
	if err := p.Refund(context.Background(), r, first.Receipt); err != nil {
		t.Errorf("refund: %v", err)
	}
	if left := p.ask("/local").Limit(0).Remaining; second.Limit(0).Remaining != 28 || left != 28 {
		t.Errorf("after two charges %d are left, after a refund and a third %d", second.Limit(0).Remaining, left)
	}
	srv.start()
	p.untilFrom("/local", limiter.SourceRedis)
	d := p.ask("/local")
	srv.stop()
	p.untilFrom("/open", limiter.SourceFallbackOpen)
	if err := p.Refund(context.Background(), r, d.Receipt); err == nil {
		t.Error("a refund that cannot reach Redis is no error")
	}
	if _, err := p.Reset(context.Background(), r); err == nil {
		t.Error("a reset that cannot reach Redis is no error")
	}
}

// A frozen process answers nothing, and does not make checks wait longer.
func TestCancelledContext(t *testing.T) {
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: time.Minute})
	node := newNode(t, store, policyRules)
	srv.do("CLIENT", "PAUSE", 60_000, "WRITE")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		var d weir.Decision
		done <- node.CheckInto(ctx, &weir.Request{Path: "/open", User: "ada"}, &d)
	}()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a check whose caller went is decided")
		}
	case <-time.After(10 * time.Second):
		t.Error("a check goes on although its caller went")
	}
	srv.do("CLIENT", "UNPAUSE")
}

// When the queue is full, policies answer at once. Redis answers what is in the queue
// when it continues. Neither is an outage.
func TestFullQueue(t *testing.T) {
	srv := startServer(t)
	log := &logBuffer{}
	node := newNode(t, openStore(t, redisstore.Config{
		Addrs: []string{srv.addr()}, Timeout: time.Minute, Queue: 1, Log: slog.New(slog.NewJSONHandler(log, nil)),
	}), policyRules)
	sources := make(chan limiter.Source, 64)
	ask := func() {
		d, err := node.Check(context.Background(), weir.Request{Path: "/open", User: "ada"})
		if err != nil {
			t.Error(err)
			sources <- limiter.SourceNone
			return
		}
		sources <- d.Source
	}
	ask()
	if s := <-sources; s != limiter.SourceRedis {
		t.Fatalf("%s decides", s)
	}
	srv.do("CLIENT", "PAUSE", 60_000, "WRITE")
	for range cap(sources) {
		go ask()
	}
	// Two round trips are under way, of some checks each, and one check waits: the
	// others were answered by now.
	if s := <-sources; s != limiter.SourceFallbackOpen {
		t.Errorf("%s decides", s)
	}
	srv.do("CLIENT", "UNPAUSE")
	byRedis, byPolicy := 0, 1
	for range cap(sources) - 1 {
		switch <-sources {
		case limiter.SourceRedis:
			byRedis++
		case limiter.SourceFallbackOpen:
			byPolicy++
		}
	}
	if byRedis == 0 || byRedis+byPolicy != cap(sources) {
		t.Errorf("%d are decided by Redis, %d by policy", byRedis, byPolicy)
	}
	if log.count("too many checks are waiting") != 1 || log.count("redis is unavailable") != 0 {
		t.Errorf("the log has %s", log)
	}
}
