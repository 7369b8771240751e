package history

import (
	"fmt"
	"slices"
)

// Figures are what a run was like for its clients.
type Figures struct {
	Asked, Allowed, Denied, ByPolicy, Refused, Unknown int
	// Felt is how long after a fault began a check at a node that the fault did
	// not touch still got no answer, or one by policy, while the fault lasted. A
	// refusal counts for neither: the client asks another node.
	Felt Micros
	// Recovered is how long after a fault was mended a check at any node did.
	Recovered Micros
	// Converged is how long after a fault was mended every node saw every other
	// and held what it should.
	Converged Micros
}

// Figures counts.
func (h *History) Figures() Figures {
	f := Figures{Asked: len(h.Ops)}
	for i := range h.Ops {
		o := &h.Ops[i]
		switch {
		case o.Outcome == Unknown:
			f.Unknown++
		case o.Outcome == Refused:
			f.Refused++
		case o.ByPolicy():
			f.ByPolicy++
		case o.Outcome == Allowed:
			f.Allowed++
		default:
			f.Denied++
		}
		if !o.Counted() && o.Outcome != Refused {
			h.feel(&f, o)
		}
	}
	for i := range h.Faults {
		if t := &h.Faults[i]; t.Settled > 0 {
			f.Converged = max(f.Converged, t.Settled-t.Until)
		}
	}
	return f
}

// feel attributes a check that was not decided to the latest fault before it.
func (h *History) feel(f *Figures, o *Op) {
	var last *Fault
	for i := range h.Faults {
		if t := &h.Faults[i]; t.At <= o.Return && (last == nil || t.At > last.At) {
			last = t
		}
	}
	switch {
	case last == nil:
	case o.Call < last.Until:
		if !slices.Contains(last.Nodes, o.Node) {
			f.Felt = max(f.Felt, o.Return-last.At)
		}
	default:
		f.Recovered = max(f.Recovered, o.Return-last.Until)
	}
}

// graceful tells that nothing may be lost: every change was graceful, and neither
// the machine nor a node had no processor time for so long that others had to
// take it for dead.
func (h *History) graceful() bool { return h.Allows.Exact && h.Late == 0 && len(h.Stalls) == 0 }

// touched tells that a fault touched a node.
func (h *History) touched(node int) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool { return slices.Contains(f.Nodes, node) })
}

// Conserved returns where counts were lost or made up: no key is denied before
// its limit is used up, and after graceful changes nobody but owners and heirs
// answered, unless the machine or a node had no processor time for too long to
// tell.
func (h *History) Conserved() []error {
	var out []error
	if h.graceful() {
		for i := range h.Ops {
			// A node that ends may close a connection just as a check comes over it.
			if o := &h.Ops[i]; o.ByPolicy() || o.Outcome == Unknown && !h.touched(o.Node) {
				out = append(out, fmt.Errorf("a check of %s at node %d, %v after the start, was %s %s, although every change was graceful",
					o.Rule, o.Node, o.Call.Duration(), o.Outcome, o.Source))
				break
			}
		}
	}
	for i := range h.Rules {
		r := &h.Rules[i]
		if !r.Once {
			continue
		}
		for key, ops := range h.byKey(r.Name) {
			if err := h.used(r, key, ops); err != nil {
				out = append(out, err)
			}
		}
	}
	return out
}

// used: a key is denied only when its limit is used up, but for what may have
// been counted without the client's knowing. A check may be charged twice when
// its owner changes.
func (h *History) used(r *Rule, key string, ops []Op) error {
	admitted, perhaps, refusals := 0, 0, 0
	over := h.changes(key, ops)
	for i := range ops {
		o := &ops[i]
		switch {
		case o.Counted() && o.Outcome == Allowed:
			admitted++
		case o.Counted():
			refusals++
		case o.Outcome == Unknown || o.ByPolicy():
			perhaps += h.times()
		}
		if o.Counted() && h.twice(o, over) {
			perhaps++
		}
	}
	least := r.Limit
	if h.Allows.Of(r.Policy) > 1 && r.Policy == "local" && h.apart(ops) {
		least = r.Share(h.Nodes) // of the side that had it
	}
	if least -= perhaps; refusals > 0 && admitted < least {
		return fmt.Errorf("%s, key %s: denied although only %d of %d were admitted, and %d more may have been", r.Name, key, admitted, r.Limit, perhaps)
	}
	return nil
}

// apart tells that some check was asked before the nodes saw each other again.
func (h *History) apart(ops []Op) bool {
	return slices.ContainsFunc(ops, func(o Op) bool {
		return slices.ContainsFunc(h.Faults, func(f Fault) bool {
			return o.Call >= f.At && (o.Call <= f.Settled || f.Settled == 0)
		})
	})
}

// Merged returns where a fault that had two counters of one key, as a split may,
// was mended without what either counted. Of a key that never recovers, no more is admitted once
// all is settled than the side that admitted most had left.
func (h *History) Merged() []error {
	var out []error
	if len(h.Faults) != 1 || h.Faults[0].Settled == 0 {
		return nil
	}
	f := &h.Faults[0]
	for i := range h.Rules {
		r := &h.Rules[i]
		// Beyond two counters of a key one side may have begun twice.
		if !r.Once || h.Allows.Lost || h.Allows.Of(r.Policy) > 2 {
			continue
		}
		for key, ops := range h.byKey(r.Name) {
			before, after := make(map[string]int), 0
			for j := range ops {
				switch o := &ops[j]; {
				case !o.Counted() || o.Outcome != Allowed:
				case o.Return <= f.Until:
					before[owner(o, key)]++
				case o.Call >= f.Settled:
					after++
				}
			}
			for side, n := range before {
				if most := r.Limit + h.takeovers(r, key, ops)*h.each(r); n+after > most {
					out = append(out, fmt.Errorf("%s, key %s: %d admitted by %q before the fault was mended and %d after all had settled, at most %d together",
						r.Name, key, n, side, after, most))
				}
			}
		}
	}
	return out
}

// atOnce is how long after a fault's beginning, and after its end, checks may be
// under way between two owners, one of which was there no more or is there again.
const atOnce = Micros(500_000)

// near tells that a check was under way when a fault began or was mended.
func (h *History) near(o *Op) bool {
	meets := func(at Micros) bool { return o.Call <= at+atOnce && o.Return >= at }
	return !h.graceful() && slices.ContainsFunc(h.Faults, func(f Fault) bool { return meets(f.At) || meets(f.Until) })
}

// times is how often a check may have been counted whose answer nobody knows: by
// an owner, and by its heir.
func (h *History) times() int {
	if h.graceful() {
		return 1
	}
	return 2
}

// askedTwice is how long an owner may be silent before its heir is asked too.
const askedTwice = Micros(80_000)

// twice tells that a check may have been counted twice: it was under way when its
// owner changed, as its answers show or, where the old owner answered nothing of
// this key, as the fault lets expect; or it took so long that the heir was asked.
func (h *History) twice(o *Op, over []takeover) bool {
	return h.near(o) || !h.graceful() && (o.Return-o.Call >= askedTwice ||
		slices.ContainsFunc(over, func(t takeover) bool { return o.Call <= t.before && o.Return >= t.after }))
}
