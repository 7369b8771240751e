package sim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// TestPanicsEndNothing injects panics into the cores of nodes: under the locks of
// partitions and links, in the middle of what they do. No node ends, nothing stays
// locked or waits for ever, and what is promised of the loss of an owner holds.
func TestPanicsEndNothing(t *testing.T) {
	worlds(t)
	for _, of := range []struct {
		name  string
		seeds int
		plan  func(w *World) bounds
	}{
		{"owners", 10, (*World).ownersPanic},
		{"anywhere", 10, (*World).anyonePanics},
		{"poisoned state", 8, (*World).poison},
	} {
		t.Run(of.name, func(t *testing.T) {
			broken, failed := 0, 0
			for seed := range seeds(t, of.seeds) {
				w, err := panicking(uint64(seed), of.plan, false)
				if err != nil {
					t.Error(err)
					if failed++; failed > 3 {
						break
					}
				}
				broken += w.outcome.Events[cluster.EventBroken]
			}
			if broken < seeds(t, of.seeds)/2 {
				t.Errorf("only %d partitions broke: nothing was tested", broken)
			}
			t.Logf("%d partitions broke", broken)
		})
	}
}

// panicking is one run in which plan has cores panic.
func panicking(seed uint64, plan func(w *World) bounds, tracing bool) (w *World, err error) {
	w = newWorld(seed)
	w.tracing = tracing
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("seed %d: a panic left the core: %v", seed, r)
		}
	}()
	rules := w.newKeys()
	w.rolled = nil
	w.size = 3 + w.rng.IntN(3)
	inject := func(*Node, int) {}
	hook := func(n *Node, part int) { inject(n, part) }
	w.fault = hook
	for i, name := range []string{"a", "b", "c", "d", "e"}[:w.size] {
		w.after(limiter.Tick(i)*w.between(0, 400*ms), func() { w.start(name, i == 0, rules, w.size) })
	}
	if err := w.run(6*limiter.Second, w.invariants); err != nil {
		return w, err
	}
	if err := w.settled(); err != nil {
		return w, fmt.Errorf("seed %d: at the start: %w", seed, err)
	}
	const span = 8 * limiter.Second
	w.demand(span, w.between(20*ms, 200*ms))
	b := plan(w)
	inject, w.fault = w.fault, hook
	if err := w.run(span, w.invariants); err != nil {
		return w, err
	}
	inject = func(*Node, int) {}
	// What was given up is taken up again.
	if err := w.run(80*limiter.Second, w.invariants); err != nil {
		return w, err
	}
	if err := w.settled(); err != nil {
		return w, fmt.Errorf("seed %d: at the end: %w", seed, err)
	}
	w.demand(10*limiter.Second, 40*ms)
	if err := w.run(32*limiter.Second, w.invariants); err != nil {
		return w, err
	}
	if err := errors.Join(w.check(b), w.idle()); err != nil {
		return w, fmt.Errorf("seed %d: %w", seed, err)
	}
	return w, nil
}

// ownersPanic has the owner of each partition panic once, while its heir has a copy: that
// costs what the crash of an owner costs.
func (w *World) ownersPanic() bounds {
	left := make(map[int]int) // points until the panic, of each partition
	of := make(map[int]peer.Instance)
	for _, id := range w.parts {
		w.after(w.between(0, 6*limiter.Second), func() {
			for _, n := range w.live() {
				if info, _ := n.core.Partition(id); info.Role == peer.Owned && info.Heir != 0 && !info.Busy {
					left[id], of[id] = 1+w.rng.IntN(30), n.inst
				}
			}
		})
	}
	w.fault = func(n *Node, part int) {
		if of[part] != n.inst {
			return
		}
		if left[part]--; left[part] == 0 {
			delete(of, part)
			panic(errInjected)
		}
	}
	return bounds{fallbacks: 16, perTakeover: true, closed: 1, local: 1, open: 1}
}

// anyonePanics has any node panic at any time, at several partitions at once and again
// and again: owner and heir may be lost together.
func (w *World) anyonePanics() bounds {
	one := 20 + w.rng.IntN(2000)
	w.fault = func(n *Node, _ int) {
		if w.rng.IntN(one) == 0 {
			panic(errInjected)
		}
	}
	return bounds{perTakeover: true, losses: true, closed: 1e9, local: 1e9, open: 1e9}
}

// poison has the state of one key panic at every node that has it, once its owner's heir
// has it: it is lost, and soon nobody panics any more.
func (w *World) poison() bounds {
	k := w.keys[w.rng.IntN(len(w.keys))]
	armed, from := false, 1+w.rng.IntN(4)
	w.after(w.between(1*limiter.Second, 2*limiter.Second), func() { armed = true })
	w.fault = func(n *Node, part int) {
		if !armed || part != k.part {
			return
		}
		found := false
		n.table.ExportKey(part, k.hash.Hi, n.Now(), func(table.Entry) { found = true })
		if !found {
			return
		}
		if from > 0 { // it is met so many times before, so that it is copied on
			from--
			return
		}
		if w.outcome.byPart[part][cluster.EventBroken] > 4*w.size {
			w.fail(fmt.Errorf("partition %d goes round: it broke %d times at %d nodes", part,
				w.outcome.byPart[part][cluster.EventBroken], w.size))
		}
		panic(errInjected)
	}
	return bounds{perTakeover: true, losses: true, closed: 1e9, local: 1e9, open: 1e9}
}
