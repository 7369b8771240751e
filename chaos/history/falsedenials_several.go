package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// openInStall is how long a reservation may stay open where something has stood still
// meanwhile.
const openInStall = Micros(3_000_000)

// FalseDenialsOfSeveral returns checks of several keys, whose limits never recover, that were denied
// although each of the keys had room: what a denied check charged one of them, where
// another one denied it, is taken back. A check that took so long that the heir was asked
// too, or whose answer nobody knows, may have been counted twice. It says nothing where
// owners may be lost.
func (c judges) FalseDenialsOfSeveral() (out []error) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if !r.Once || !r.Several || c.Allows.Losses > 0 {
			continue
		}
		keys := c.byKey(r.Name)
		for _, ops := range keys {
			slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
		}
		for j := range c.Ops {
			o := &c.Ops[j]
			if o.Rule != r.Name || o.Outcome != Denied || !o.Counted() {
				continue
			}
			most := 0
			for _, key := range o.Keys {
				most = max(most, c.charged(keys[key], o))
			}
			if most < r.Limit {
				out = append(out, fmt.Errorf("%s, keys %v: denied at node %d, %v after the start, although at most %d of %d can "+
					"have been charged to either",
					r.Name, o.Keys, o.Node, o.Call.Duration(), most, r.Limit))
				break // the others of this rule say the same
			}
		}
	}
	return out
}

// charged is how many units the checks of a key, in the order of their calls, may have
// charged it when another one of them was decided.
func (c *analysis) charged(ops []Op, o *Op) (n int) {
	for i := range ops[:sort.Search(len(ops), func(i int) bool { return ops[i].Call > o.Return })] {
		p := &ops[i]
		open := openFor
		if c.stalled(p.Call, o.Return) {
			open = openInStall
		}
		switch {
		case p.Outcome == Refused:
		case !p.Counted():
			n += 2
		case p.Outcome == Denied && p.Return+open < o.Call: // it was taken back
		case p.Return-p.Call >= askedTwice:
			n += 2
		default:
			n++
		}
	}
	return n
}
