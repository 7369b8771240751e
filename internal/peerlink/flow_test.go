package peerlink_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

// hold makes Deliver block until release.
func (b *box) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = make(chan struct{})
}

func (b *box) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held != nil {
		close(b.held)
	}
	b.held = nil
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestWindow makes a receiver block on the first frame. Two frames with checks are under
// way, and the third waits in the outbox. Frames without checks do not wait, and neither
// does what the receiver itself sends.
func TestWindow(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	b.hold()
	for i := range 5 {
		a.send(2, checks(uint64(i), 1))
	}
	a.wait(t, "two frames to be under way", func() bool { return a.taken == 2 })
	a.send(2, announce(1))
	a.wait(t, "a frame without checks to leave", func() bool { return len(a.out[2]) == 3 })
	b.send(1, checks(1, 1))
	b.send(1, checks(2, 1))
	for i := range 5 {
		b.send(1, announce(i))
	}
	a.wait(t, "all that the slow node sends", func() bool { return len(a.got) == 7 })
	a.mu.Lock()
	if a.taken != 2 {
		t.Errorf("%d frames with checks were sent before one was acknowledged, not 2", a.taken)
	}
	a.mu.Unlock()
	b.release()
	b.wait(t, "all frames", func() bool { return len(b.got) == 6 })
	a.wait(t, "the window to open", func() bool { return a.taken == 5 })
}

// TestStalled makes a receiver read nothing for longer than StallTimeout. What was under
// way was bounded, and the rest is still in the outbox.
func TestStalled(t *testing.T) {
	a := start(t, 1, "", func(c *peerlink.Config) { c.StallTimeout = 300 * time.Millisecond })
	b := start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	downs := a.tally("down " + b.self.String())
	b.hold()
	defer b.release()
	a.send(2, checks(1, 1)) // is held
	const n = 200
	for i := range n {
		a.send(2, large(i, 64<<10))
	}
	a.waitMore(t, "down "+b.self.String(), downs)
	a.mu.Lock()
	left := len(a.out[2])
	a.mu.Unlock()
	if sent := (n - left) * 64 << 10; sent > 4<<20 {
		t.Errorf("%d bytes were sent to a node that took nothing", sent)
	}
	a.log.wait(t, "does not read")
}

// TestDownComesAfterTheLastTake ends the other side while a frame is being taken for it.
// Down must wait until then, or the frame would be lost unnoticed.
func TestDownComesAfterTheLastTake(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	taking, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.take = func() {
		once.Do(func() {
			close(taking)
			<-goOn
		})
	}
	introduce(a, b)
	<-taking
	b.waitUp(t, 1)
	downs := a.tally("down " + b.self.String())
	b.Close()
	// A test can only see that something does not happen by giving it time.
	time.AfterFunc(200*time.Millisecond, func() { close(goOn) })
	a.waitMore(t, "down "+b.self.String(), downs)
	select {
	case <-goOn:
	default:
		t.Error("Down was told while a frame was being taken")
	}
}

// proxy relays connections, and can break one side of them only.
type proxy struct {
	net.Listener
	to   string
	mu   sync.Mutex
	near []net.Conn // to who dialled
	far  []net.Conn // to who was dialled
	all  sync.WaitGroup
}

func newProxy(tb testing.TB, to string) *proxy {
	p := &proxy{Listener: listen(tb), to: to}
	p.all.Go(p.serve)
	tb.Cleanup(func() {
		_ = p.Close()
		p.mu.Lock()
		for _, c := range append(p.near, p.far...) {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.all.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		near, err := p.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.near, p.far = append(p.near, near), append(p.far, far)
		p.mu.Unlock()
		// Neither side is told that the other has gone.
		p.all.Go(func() { _, _ = io.Copy(near, far) })
		p.all.Go(func() { _, _ = io.Copy(far, near) })
	}
}

// cut closes the connections of one side; the other does not notice.
func (p *proxy) cut(side func(*proxy) []net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range side(p) {
		_ = c.Close()
	}
}

// TestDeadConnectionIsReplaced breaks a connection so that only one side notices. That
// side opens another, and the old one ends in good order at the other side, whichever
// side dialled.
func TestDeadConnectionIsReplaced(t *testing.T) {
	for name, side := range map[string]func(*proxy) []net.Conn{
		"seen by who dialled":     func(p *proxy) []net.Conn { return p.near },
		"seen by who was dialled": func(p *proxy) []net.Conn { return p.far },
	} {
		t.Run(name, func(t *testing.T) {
			var p *proxy
			a, b := start(t, 1, "", nil), start(t, 2, "", func(c *peerlink.Config) {
				p = newProxy(t, c.Self.PeerAddr)
				c.Self.PeerAddr = p.Addr().String()
			})
			introduce(a, b)
			a.waitUp(t, 2)
			b.waitUp(t, 1)
			p.cut(side)
			a.waitMore(t, "up "+b.self.String(), 1)
			b.waitMore(t, "up "+a.self.String(), 1)
			a.waitUp(t, 2)
			b.waitUp(t, 1)
			a.send(2, checks(1, 1))
			b.send(1, checks(1, 1))
			a.wait(t, "a check", func() bool { return len(a.got) == 1 })
			b.wait(t, "a check", func() bool { return len(b.got) == 1 })
		})
	}
}

// TestQuestionsAndReplies sends a thousand requests, each after the reply to the one
// before.
func TestQuestionsAndReplies(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	b.deliver = func(f *peer.Frame) {
		reply := new(peer.Frame)
		for i := range f.Checks {
			reply.Replies = append(reply.Replies, peer.Reply{ID: f.Checks[i].ID, Results: 1})
			reply.Results = append(reply.Results, peer.Result{Allowed: true})
		}
		b.send(1, reply)
	}
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	for i := range 1000 {
		a.send(2, checks(uint64(i), 1))
		a.wait(t, "the reply", func() bool { return len(a.got) == i+1 })
		if id := a.got[i].Replies[0].ID; id != uint64(i) {
			t.Fatalf("reply %d is to check %d", i, id)
		}
	}
}
