package peerlink_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something that must happen before it fails.
const patience = 20 * time.Second

// box implements Frames with an outbox for each member and a record of all events.
type box struct {
	links *peerlink.Links
	self  peer.Instance

	mu      sync.Mutex
	changed *sync.Cond
	out     map[peer.Instance][]*peer.Frame
	events  []string // "up X", "down X", in order
	live    map[peer.Instance]bool
	wrong   []string      // what must not be, such as a frame from who is down
	got     []*peer.Frame // copies of what was delivered
	taken   int           // frames with checks
	held    chan struct{} // if not nil, Deliver of frames with checks waits for it
	deliver func(*peer.Frame)
	take    func()
}

func newBox(self peer.Instance) *box {
	b := &box{self: self, out: make(map[peer.Instance][]*peer.Frame), live: make(map[peer.Instance]bool)}
	b.changed = sync.NewCond(&b.mu)
	return b
}

func (b *box) Take(to peer.Instance, checks bool) *peer.Frame {
	if b.take != nil {
		b.take()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.live[to] {
		b.wrong = append(b.wrong, "something was taken for "+to.String()+", which is down")
	}
	for i, f := range b.out[to] {
		if len(f.Checks) > 0 {
			if !checks {
				continue
			}
			b.taken++
		}
		b.changed.Broadcast()
		b.out[to] = slices.Delete(b.out[to], i, i+1)
		return f
	}
	return nil
}

func (b *box) Release(*peer.Frame) {}

func (b *box) Deliver(f *peer.Frame) {
	b.mu.Lock()
	held := b.held
	b.mu.Unlock()
	if held != nil && len(f.Checks) > 0 {
		<-held
	}
	if b.deliver != nil {
		b.deliver(f)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.live[f.From] && !f.Relayed {
		b.wrong = append(b.wrong, "a frame came from "+f.From.String()+", which is down")
	}
	b.got = append(b.got, f.Clone())
	b.changed.Broadcast()
}

func (b *box) Up(i peer.Instance)   { b.event("up", i) }
func (b *box) Down(i peer.Instance) { b.event("down", i) }

func (b *box) event(what string, i peer.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if up := what == "up"; up && b.live[i] {
		b.wrong = append(b.wrong, i.String()+" is up, and was")
	}
	b.live[i] = what == "up"
	b.events = append(b.events, what+" "+i.String())
	b.changed.Broadcast()
}

// send puts a frame into the outbox.
func (b *box) send(to peer.Instance, f *peer.Frame) {
	f.From, f.To = b.self, to
	b.mu.Lock()
	b.out[to] = append(b.out[to], f)
	b.mu.Unlock()
	b.links.Wake(to)
}

// wait waits until a condition on the box holds.
func (b *box) wait(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	begin := time.Now()
	late := time.AfterFunc(patience, b.changed.Broadcast)
	defer late.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !ok() {
		if time.Since(begin) >= patience {
			tb.Fatalf("%s: waited %s for %s; events %q, %d frames came", b.self, patience, what, b.events, len(b.got))
		}
		b.changed.Wait()
	}
}

// count counts events, with b.mu held.
func (b *box) count(text string) int {
	n := 0
	for _, e := range b.events {
		if e == text {
			n++
		}
	}
	return n
}

// last returns the last event about an instance, with b.mu held.
func (b *box) last(i peer.Instance) string {
	for _, e := range slices.Backward(b.events) {
		if strings.HasSuffix(e, i.String()) {
			return strings.Fields(e)[0]
		}
	}
	return ""
}

func (b *box) waitUp(tb testing.TB, i peer.Instance) {
	tb.Helper()
	b.wait(tb, "up "+i.String(), func() bool { return b.last(i) == "up" })
}

// waitMore waits for more events of a kind than the given number.
func (b *box) waitMore(tb testing.TB, event string, than int) {
	tb.Helper()
	b.wait(tb, fmt.Sprintf("%q more than %d times", event, than), func() bool { return b.count(event) > than })
}

func (b *box) tally(event string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count(event)
}

// logBuffer is a log that tests can read.
type logBuffer struct {
	mu      sync.Mutex
	written *sync.Cond
	lines   strings.Builder
}

func newLogBuffer() *logBuffer {
	j := new(logBuffer)
	j.written = sync.NewCond(&j.mu)
	return j
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.written.Broadcast()
	return j.lines.Write(p)
}

// wait waits until the log contains something.
func (j *logBuffer) wait(tb testing.TB, text string) {
	tb.Helper()
	begin := time.Now()
	late := time.AfterFunc(patience, j.written.Broadcast)
	defer late.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	for !strings.Contains(j.lines.String(), text) {
		if time.Since(begin) >= patience {
			tb.Fatalf("the log does not say %q:\n%s", text, j.lines.String())
		}
		j.written.Wait()
	}
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.String()
}

// node is a Links that serves on loopback.
type node struct {
	*box
	*peerlink.Links
	log    *logBuffer
	member peer.Member
	served chan error
}

// start starts a node on an address, or on any if it is "".
func start(tb testing.TB, instance peer.Instance, addr string, change func(*peerlink.Config)) *node {
	tb.Helper()
	return startWith(tb, instance, nil, addr, change)
}

// startWith starts a node with the given Frames, or with a box.
func startWith(tb testing.TB, instance peer.Instance, frames peerlink.Frames, addr string,
	change func(*peerlink.Config)) *node {
	tb.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{box: newBox(instance), log: newLogBuffer(), served: make(chan error, 1)}
	n.member = peer.Member{
		Name: fmt.Sprintf("node-%d", instance), Instance: instance, State: peer.Active, PeerAddr: listener.Addr().String(),
	}
	c := peerlink.Config{
		Self: n.member, ClusterName: "test", RingConfig: 7, Frames: n.box,
		Logger: slog.New(slog.NewTextHandler(n.log, nil)), Rand: rand.New(rand.NewPCG(1, uint64(instance))),
	}
	if frames != nil {
		c.Frames = frames
	}
	if change != nil {
		change(&c)
		n.member.PeerAddr = c.Self.PeerAddr
	}
	if n.Links, err = peerlink.New(c); err != nil {
		tb.Fatal(err)
	}
	n.box.links = n.Links
	go func() { n.served <- n.Serve(listener) }()
	tb.Cleanup(func() { n.stop(tb) })
	return n
}

// stop stops a node. It may be called several times.
func (n *node) stop(tb testing.TB) {
	tb.Helper()
	n.release() // of a test that failed before it could
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		tb.Errorf("stopping %s: %v", n.member.Name, err)
	}
	for _, w := range n.wrong {
		tb.Errorf("%s: %s; events %q", n.member.Name, w, n.events)
	}
	n.wrong = nil
	if n.served != nil {
		if err := <-n.served; err != nil {
			tb.Error(err)
		}
		n.served = nil
	}
}

// introduce makes nodes members of each other's views.
func introduce(nodes ...*node) {
	var members []peer.Member
	for _, n := range nodes {
		members = append(members, n.member)
	}
	// The node with the lower instance dials, so the other is told first: it would refuse
	// a node that it does not know yet, and that is a Down.
	told := slices.Clone(nodes)
	slices.SortFunc(told, func(a, b *node) int { return cmp.Compare(b.member.Instance, a.member.Instance) })
	for _, n := range told {
		n.SetMembers(members)
	}
}

// checks returns a frame with so many checks, whose ids begin with first.
func checks(first uint64, n int) *peer.Frame {
	f := &peer.Frame{Rules: []peer.Rule{{ID: 1, Name: "all"}}}
	for i := range n {
		id := first + uint64(i)
		f.Checks = append(f.Checks, peer.Check{ID: id, Keys: 1, Wait: 300_000})
		f.Keys = append(f.Keys, peer.Key{Hi: id * 0x9e3779b97f4a7c15, Lo: id, Cost: 1})
	}
	return f
}

// announce returns a frame without checks that carries a number.
func announce(n int) *peer.Frame {
	return &peer.Frame{Announces: []peer.Announce{{Epoch: peer.Epoch{Counter: uint64(n)}}}}
}
