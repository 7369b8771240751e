package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// openFor is how long a reservation may stay open after its check was answered, for
// its cancel is on the way, and for how long it is felt that the machine stood still.
const openFor = Micros(300_000)

// Answered returns where policies answered more checks of a key than the run
// allows: it takes only so many to find out that a node is gone or a link broken,
// and who else answers. What the machine made slow is not held against the nodes.
func (h *History) Answered() []error {
	if h.Allows.ByPolicy == 0 {
		return nil
	}
	var out []error
	for i := range h.Rules {
		r := &h.Rules[i]
		for key, ops := range h.byKey(r.Name) {
			by := 0
			for j := range ops {
				if o := &ops[j]; o.ByPolicy() && !h.stood(o.Call-openFor, o.Return) {
					by++
				}
			}
			if by > h.Allows.ByPolicy && !r.Several {
				out = append(out, fmt.Errorf("%s, key %s: policies answered %d of its checks, at most %d", r.Name, key, by, h.Allows.ByPolicy))
			}
		}
	}
	return out
}

// stood tells that the machine stood still at some time in between.
func (h *History) stood(from, until Micros) bool {
	return slices.ContainsFunc(h.Stalls, func(s Span) bool { return s.From <= until && s.Until >= from })
}

// calm tells that nothing was broken until a check was answered, and, where there
// are reservations, that the machine did not stand still within a window before.
func (h *History) calm(r *Rule, o *Op) bool {
	return !slices.ContainsFunc(h.Faults, func(f Fault) bool { return len(f.Nodes) > 0 && f.At <= o.Return }) &&
		!(r.Several && h.stood(o.Call-r.Window-openFor, o.Return))
}

// Owed returns checks of windows that were denied while nothing was broken,
// although there was room: all that can have been charged to each of their keys
// within a window is less than the limit. An open reservation is consumption too.
// Of a key that changed hands nothing is said.
func (h *History) Owed() []error {
	var out []error
	for i := range h.Rules {
		r := &h.Rules[i]
		if r.Once || r.Burst > 0 {
			continue
		}
		keys := h.byKey(r.Name)
		for key, ops := range keys {
			if len(takeovers(key, ops, nil)) > 0 {
				delete(keys, key)
				continue
			}
			slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
		}
		for j := range h.Ops {
			o := &h.Ops[j]
			if o.Rule != r.Name || o.Outcome != Denied || !o.Counted() || !h.calm(r, o) {
				continue
			}
			most := 0
			for _, key := range o.Keys {
				if keys[key] == nil {
					most = r.Limit
				}
				most = max(most, charges(r, keys[key], o))
			}
			if most < r.Limit {
				out = append(out, fmt.Errorf("%s, keys %v: denied at node %d, %v after the start, although nothing was broken and at most %d of %d can have been charged within a window",
					r.Name, o.Keys, o.Node, o.Call.Duration(), most, r.Limit))
				break // the others of this rule say the same
			}
		}
	}
	return out
}

// charges is how many of the checks of a key, in the order of their returns, may
// count when another is decided.
func charges(r *Rule, ops []Op, o *Op) int {
	n := 0
	for i := sort.Search(len(ops), func(i int) bool { return ops[i].Return >= o.Call-r.Window }); i < len(ops); i++ {
		p := &ops[i]
		switch {
		case p.Call > o.Return || p.Outcome == Refused:
		case p.Outcome == Denied && p.Counted():
			if r.Several && p.Return+openFor >= o.Call {
				n++ // among these is the check itself
			}
		case p.Outcome == Allowed && p.Counted():
			n++
		default: // nobody knows, and it may have been asked of two
			n += 2
		}
	}
	return n
}
