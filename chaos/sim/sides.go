package sim

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// splitUp cuts the nodes in two sides, wholly or in one direction, and returns the
// sides.
func (w *World) splitUp() [2][]*Node {
	live := w.live()
	w.rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	k := 1 + w.rng.IntN(len(live)-1)
	oneWay := w.chance(20)
	for _, a := range live[:k] {
		for _, b := range live[k:] {
			w.sever(pair{a.inst, b.inst})
			if !oneWay {
				w.sever(pair{b.inst, a.inst})
			}
		}
	}
	return [2][]*Node{live[:k], live[k:]}
}

// askApart has clients of both sides of a split use up keys that nobody has asked
// about, from when each node sees its own side only: keys of a window that lies
// wholly after the cut. There is one for each key under local, in its partition.
func (w *World) askApart(sides [2][]*Node) {
	switch {
	case len(w.cut) == 0:
		return // it was healed before they found out
	case !apart(sides[0]) || !apart(sides[1]):
		w.after(50*ms, func() { w.askApart(sides) })
		return
	}
	for _, like := range w.keys {
		if like.policy != limiter.UnreachableLocal || like.pair != nil || like.seldom {
			continue
		}
		k := &key{
			rule: like.rule, hash: arith.Hash{Hi: w.rng.Uint64(), Lo: like.hash.Lo + 100}, part: like.part,
			limit: like.limit, least: like.least, d: like.d, policy: like.policy, byPolicy: make(map[string]int),
			apart: true, before: w.outcome.takeovers(like.part),
		}
		w.keys = append(w.keys, k)
		for _, side := range sides {
			w.askSide(k, side)
		}
	}
}

// apart tells whether the nodes of a side see each other, and nobody else.
func apart(side []*Node) bool {
	for _, n := range side {
		if len(n.core.View().Members) != len(side) || slices.ContainsFunc(side, func(m *Node) bool { return !n.sees(m) }) {
			return false
		}
	}
	return true
}

// askSide has clients ask the nodes of a side about a key until the split ends.
func (w *World) askSide(k *key, side []*Node) {
	if len(w.cut) == 0 {
		return
	}
	w.ask(k, side[w.rng.IntN(len(side))], 1+uint64(w.rng.IntN(2)), false)
	w.after(w.between(5*ms, 15*ms), func() { w.askSide(k, side) })
}
