package redisstore_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// relay forwards connections to a Redis, and disturbs them as a test defines.
type relay struct {
	net.Listener
	to   string
	trap atomic.Pointer[trap]

	mu   sync.Mutex
	open []net.Conn
	done sync.WaitGroup
}

// trap catches messages of clients or of the server. It catches one message; with all
// it holds up every message until it is released.
type trap struct {
	all     bool
	replies bool          // of the server, which then has executed what it was sent
	cut     bool          // the connection is closed; else the message waits
	caught  chan struct{} // closed when the first is caught
	once    sync.Once
	release chan struct{}
}

func newTrap() *trap { return &trap{caught: make(chan struct{}), release: make(chan struct{})} }

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: to}
	r.done.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for _, c := range r.open {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.done.Wait()
	})
	return r
}

func (r *relay) accept() {
	for {
		client, err := r.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", r.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.mu.Lock()
		r.open = append(r.open, client, server)
		r.mu.Unlock()
		r.done.Go(func() { r.forward(client, server, false) })
		r.done.Go(func() { r.forward(server, client, true) })
	}
}

// forward passes on what one side sends: a client, or the server that replies.
func (r *relay) forward(from, to net.Conn, replies bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if t := r.trap.Load(); t != nil && t.replies == replies && (t.all || r.trap.CompareAndSwap(t, nil)) {
			t.once.Do(func() { close(t.caught) })
			if t.cut {
				_ = from.Close()
				return
			}
			<-t.release
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// catch has one check caught, and returns the source that finally decides it.
func (p *patient) catch(r *relay, t *trap) <-chan limiter.Source {
	p.tb.Helper()
	decided := make(chan limiter.Source, 1)
	r.trap.Store(t)
	go func() {
		var d weir.Decision
		if err := p.CheckInto(context.Background(), &weir.Request{Path: "/open", User: "ada"}, &d); err != nil {
			p.tb.Error(err)
		}
		decided <- d.Source
	}()
	select {
	case <-t.caught:
	case <-time.After(30 * time.Second):
		p.tb.Fatal("no check was sent")
	}
	return decided
}

// One hanging connection is no outage: its policy decides the check on it. All other
// checks continue in Redis, during that and afterwards.
func TestOneStalledConnectionIsNoOutage(t *testing.T) {
	t.Parallel()
	r := startRelay(t, startServer(t).addr())
	p := newPatient(t, redisstore.Config{Addrs: []string{r.Addr().String()}, Timeout: faultTimeout})
	if d := p.ask("/open"); d.Source != limiter.SourceRedis {
		t.Fatalf("before the stall %s decides", d.Source)
	}
	one := newTrap()
	defer close(one.release)
	slow := p.catch(r, one)
	others := map[limiter.Source]int{}
	for answered := false; !answered; {
		others[p.ask("/local").Source]++
		select {
		case s := <-slow:
			answered = true
			if s != limiter.SourceFallbackOpen {
				t.Errorf("the check that hangs is decided by %s", s)
			}
		default:
		}
	}
	for range 200 {
		others[p.ask("/local").Source]++
	}
	if n := others[limiter.SourceRedis]; len(others) != 1 || n < 201 {
		t.Errorf("the others are decided by %v, want all by redis", others)
	}
	if p.log.count("redis is unavailable") != 0 {
		t.Errorf("one connection is taken for the server:\n%s", p.log)
	}
	p.log.await(t, "not decided by redis") // but it is not passed over in silence
}

// await waits until a record has a text in it.
func (j *logBuffer) await(t *testing.T, text string) {
	t.Helper()
	await(t, "the log has "+text, func() bool { return j.count(text) > 0 })
}

// A connection that is cut during use is no outage either.
func TestOneLostConnectionIsNoOutage(t *testing.T) {
	r := startRelay(t, startServer(t).addr())
	p := newPatient(t, redisstore.Config{Addrs: []string{r.Addr().String()}})
	if d := p.ask("/open"); d.Source != limiter.SourceRedis {
		t.Fatalf("before the cut %s decides", d.Source)
	}
	one := newTrap()
	one.cut = true
	if s := <-p.catch(r, one); s != limiter.SourceFallbackOpen { // it may have been counted
		t.Errorf("the check that is cut off is decided by %s", s)
	}
	for range 100 {
		if d := p.ask("/local"); d.Source != limiter.SourceRedis {
			t.Fatalf("after the cut %s decides:\n%s", d.Source, p.log)
		}
	}
	if p.log.count("redis is unavailable") != 0 {
		t.Errorf("a connection is taken for the server:\n%s", p.log)
	}
}

// A hanging server is an outage, which the probe detects; then checks no longer wait
// for it.
func TestStalledServerIsAnOutage(t *testing.T) {
	t.Parallel()
	r := startRelay(t, startServer(t).addr())
	p := newPatient(t, redisstore.Config{Addrs: []string{r.Addr().String()}, Timeout: faultTimeout})
	if d := p.ask("/open"); d.Source != limiter.SourceRedis {
		t.Fatalf("before the stall %s decides", d.Source)
	}
	all := newTrap()
	all.all = true
	release := sync.OnceFunc(func() { close(all.release) })
	defer release()
	r.trap.Store(all)
	asked := 0
	await(t, "the outage is noticed", func() bool {
		asked++
		p.ask("/open")
		return p.log.count("redis is unavailable") == 1
	})
	// A check that waits waits for faultTimeout, so one by one two are enough: one that
	// fails, and one that is sent while the probe is.
	if asked > 10 {
		t.Errorf("%d checks waited, one after the other, until the outage was noticed", asked)
	}
	// A busy machine may hold up a few checks as long as the timeout, but not one in ten.
	const many = 200
	waited := 0
	for range many {
		p.was = 0
		if d := p.ask("/open"); d.Source != limiter.SourceFallbackOpen {
			t.Fatalf("during the outage %s decides", d.Source)
		}
		if p.was >= faultTimeout {
			waited++
		}
	}
	if waited > many/10 {
		t.Errorf("%d of %d checks during the outage waited for the timeout", waited, many)
	}
	r.trap.Store(nil)
	release()
	p.untilFrom("/open", limiter.SourceRedis)
}

// A script whose reply is lost, or late, has been executed, and is never sent again: it
// would charge twice. The policy answers, and the counter has one unit more.
func TestScriptsAreNeverRetriedBlindly(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for name, cut := range map[string]bool{"the reply is lost": true, "the reply is late": false} {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, srv.addr())
			p := newPatient(t, redisstore.Config{Addrs: []string{r.Addr().String()}, Prefix: name + ":", Timeout: faultTimeout})
			if d := p.ask("/open"); d.Source != limiter.SourceRedis || d.Limit(0).Remaining != 29 {
				t.Fatalf("%s decides, %d left", d.Source, d.Limit(0).Remaining)
			}
			one := newTrap()
			one.replies, one.cut = true, cut
			release := sync.OnceFunc(func() { close(one.release) })
			defer release()
			if s := <-p.catch(r, one); s != limiter.SourceFallbackOpen {
				t.Errorf("%s decides", s)
			}
			release()
			// The lost one and this one. Calls of scripts are not counted: a probe of the server is one, too.
			if d := p.ask("/open"); d.Source != limiter.SourceRedis || d.Limit(0).Remaining != 27 {
				t.Errorf("%s decides, and %d are left, want 27", d.Source, d.Limit(0).Remaining)
			}
		})
	}
}
