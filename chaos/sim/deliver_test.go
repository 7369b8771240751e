package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// mallory is a member that says what it likes, at its own connections and, where there is
// no secret, as anybody else.
const mallory peer.Instance = 0x3a11

// hostile is a world of three nodes, in which frames are delivered that no node sent.
type hostile struct {
	*World
	src  source
	left int // frames
}

// FuzzDeliver delivers frames to three nodes that are at work: from mallory, or in the
// name of each other, as the codec takes them. Meanwhile time passes, nodes come in sight
// and get lost, and honest checks are made. Nothing may panic or go on for ever, and what
// is kept is bounded. Once it is over, and some time has passed, all is as it was: every
// check is decided by an owner again.
func FuzzDeliver(f *testing.F) {
	for seed := range 16 {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		b := make([]byte, 200+r.IntN(1500))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		late := time.AfterFunc(10*time.Second, func() { panic("late") })
		_, err := attacked(b, false)
		late.Stop()
		if err != nil {
			w, _ := attacked(b, true)
			for _, line := range w.trace[max(0, len(w.trace)-400):] {
				t.Log(line)
			}
			t.Fatal(err)
		}
	})
}

// attacked is one run.
func attacked(b []byte, tracing bool) (*World, error) {
	w := newWorld(7)
	w.tracing, w.lenient = tracing, true
	rules := w.plainKeys()
	w.size = 3
	for i, name := range []string{"a", "b", "c"} {
		w.start(name, i == 0, rules, 3)
	}
	if err := w.run(5*limiter.Second, w.sound); err != nil {
		return w, err
	}
	if err := w.settled(); err != nil {
		return w, fmt.Errorf("before anything happened: %w", err)
	}
	h := &hostile{World: w, src: source{b}, left: 60}
	h.mallory(true)
	w.split = true
	for len(h.src.b) > 0 && h.left > 0 {
		h.step()
		if err := w.run(0, w.sound); err != nil {
			return w, err
		}
	}
	h.mallory(false)
	w.heal()
	return w, h.recovers()
}

// recovers lets time pass, and looks whether all is well then.
func (h *hostile) recovers() error {
	w := h.World
	for range 15 { // clients go on asking, which is how nodes notice that nobody decides
		for _, n := range w.live() {
			for _, k := range w.keys {
				h.check(n, k)
			}
		}
		if err := w.run(2*limiter.Second, w.sound); err != nil {
			return err
		}
	}
	if err := w.settled(); err != nil {
		return fmt.Errorf("30 s after the last frame: %w%s", err, h.describe())
	}
	for _, n := range w.live() {
		for _, k := range w.keys {
			d := h.check(n, k)
			if err := w.run(2*limiter.Second, w.sound); err != nil {
				return err
			}
			if d.Source != limiter.SourceOwner {
				info, _ := n.core.Partition(k.part)
				return fmt.Errorf("30 s after the last frame %s has a check of %s decided by %v: %+v", n.name, k.rule.Name,
					d.Source, info)
			}
		}
	}
	if err := w.run(limiter.Second, w.sound); err != nil {
		return err
	}
	return w.idle()
}

// describe tells what each node holds.
func (h *hostile) describe() (s string) {
	for _, n := range h.live() {
		for _, id := range h.parts {
			s += fmt.Sprintf("\n%s %d: %s", n.name, id, n.core.Describe(id))
		}
	}
	return s
}

// sound is what holds at any moment, whatever is said.
func (w *World) sound() error {
	if w.looked++; w.looked%32 != 0 {
		return nil
	}
	for _, n := range w.live() {
		s := n.core.Summary()
		if s.Links > 1100 || s.Queued > 50_000 || s.Waiting > 10_000 || s.Parked > 200_000 || s.Withheld > 200_000 {
			return fmt.Errorf("%s keeps too much: %+v", n.name, s)
		}
	}
	if len(w.todo) > 1_000_000 {
		return fmt.Errorf("%d events are to come", len(w.todo))
	}
	return nil
}

// plainKeys makes two keys of each policy.
func (w *World) plainKeys() map[string]*limiter.Rule {
	rules := make(map[string]*limiter.Rule)
	for i, policy := range []limiter.Unreachable{limiter.UnreachableClosed, limiter.UnreachableLocal,
		limiter.UnreachableOpen} {
		l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 100, Window: 24 * time.Hour})
		if err != nil {
			panic(err)
		}
		r := &limiter.Rule{Name: policy.String(), Limits: []*limiter.Limit{l}, OnUnreachable: policy}
		rules[r.Name] = r
		for j := range 2 {
			k := &key{rule: r, hash: arith.Hash{Hi: uint64(i*7+j)*0x9e37_79b9_7f4a_7c15 + 1,
				Lo: uint64(j)*0x5555_5555_5555_5555 + uint64(i)}, policy: policy, byPolicy: map[string]int{}}
			lk := k.key(nil, 1)
			k.part = table.PartitionOf(&lk)
			w.keys = append(w.keys, k)
			if !slices.Contains(w.parts, k.part) {
				w.parts = append(w.parts, k.part)
			}
		}
	}
	return rules
}

// mallory has everybody see mallory, or not any more. She is joining, so that nothing is
// hers to own.
func (h *hostile) mallory(there bool) {
	for _, n := range h.live() {
		if !there {
			n.core.Down(mallory)
		}
		h.show(n, there)
		if there {
			n.core.Up(mallory)
		}
	}
}

// show has gossip at a node report mallory, or that she left, and has her say so on her
// link.
func (h *hostile) show(n *Node, there bool) {
	says := &peer.Frame{From: mallory, To: n.inst, Known: []peer.Known{{Name: "mallory", Instance: mallory, Gone: !there}}}
	n.core.Deliver(says)
	delete(n.rumours, "mallory")
	if there {
		n.rumours["mallory"] = &rumour{Member: peer.Member{Name: "mallory", Instance: mallory, State: peer.Joining}}
	}
	n.updateMembers()
}

// check makes an honest check.
func (h *hostile) check(n *Node, k *key) *limiter.Decision {
	c, d := new(arith.Charge), new(limiter.Decision)
	c.Add(k.key(n, 1))
	n.do(func() { n.core.Begin(c, d, 0, func() {}) })
	return d
}

// step does what the next bytes say.
func (h *hostile) step() {
	live := h.live()
	n := live[h.src.below(len(live))]
	switch op := h.src.below(16); {
	case op < 2:
		b := h.src.bytes(h.src.below(256))
		h.give(n, b)
	case op < 9:
		h.give(n, h.frame(n))
	case op < 11:
		_ = h.run(limiter.Tick(h.src.below(256))*2*ms, h.sound)
	case op < 14:
		for range 1 + h.src.below(4) {
			h.check(n, h.keys[h.src.below(len(h.keys))])
		}
	case op == 14:
		m := live[h.src.below(len(live))]
		switch h.src.below(4) {
		case 0:
			h.show(n, h.src.below(2) == 0)
		case 1:
			h.snapBoth(n, m)
		case 2:
			n.core.Down(mallory)
		default:
			n.core.Up(mallory)
		}
	default:
		m := live[h.src.below(len(live))]
		if m != n { // out of sight, until gossip finds it again
			if r := n.rumours[m.name]; r != nil {
				r.State = peer.Dead
				n.updateMembers()
			}
		}
	}
}

func (h *hostile) snapBoth(n, m *Node) {
	if n != m {
		h.snap(pair{n.inst, m.inst}, 2*ms)
		h.snap(pair{m.inst, n.inst}, 2*ms)
	}
}

// give gives a node bytes as a link would: what the codec refuses, or who is not at the
// other end, ends the link and does no more.
func (h *hostile) give(n *Node, b []byte) {
	h.left--
	_ = h.codec.Read(b, func(f *peer.Frame) {
		sender := h.sender(n)
		if f.Relayed {
			f.Via = sender
		} else {
			f.From = sender
		}
		h.logf("%s is given %+v", n.name, *f)
		n.core.Deliver(f)
		scribble(f)
	})
	for f := n.core.Take(mallory, true); f != nil; f = n.core.Take(mallory, true) {
		n.core.Release(f) // what it says to her
	}
}

// sender returns who is at the other end of the link: mostly mallory.
func (h *hostile) sender(n *Node) peer.Instance {
	live := h.live()
	if m := live[h.src.below(len(live))]; h.src.below(2) == 0 && m != n {
		return m.inst
	}
	return mallory
}
