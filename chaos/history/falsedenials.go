package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// openFor is how long a reservation may stay open after its check was answered, for
// its cancel is on the way, and how long the effects of a machine that stood still last.
const openFor = Micros(300_000)

// calm tells that nothing was broken until a check was answered, and that nothing
// stood still within a window before: what an owner is handed late counts for longer, a
// check that is asked of its heir too counts twice, and a cancel may be late.
func (c *analysis) calm(r *Rule, o *Op) bool {
	return !slices.ContainsFunc(c.Faults, func(f Fault) bool { return len(f.Nodes) > 0 && f.At <= o.Return }) &&
		!c.stalled(o.Call-r.Window-openFor, o.Return)
}

// FalseDenials returns checks of windows and buckets that were denied while nothing was
// broken, although there was room: all that can have been charged to each of their
// keys within a window is less than the limit, or a bucket cannot have been so full.
// An open reservation is consumption too. Of a key that changed hands nothing is said,
// but for what is said of times in which something is broken.
func (c judges) FalseDenials() []error {
	var out []error
	for i := range c.Rules {
		r := &c.Rules[i]
		if err := c.deniesThroughout(r); err != nil {
			out = append(out, err)
		}
		if r.Once || r.Lent {
			continue
		}
		keys := c.byKey(r.Name)
		for key, ops := range keys {
			if len(takeovers(key, ops, nil)) > 0 {
				delete(keys, key)
				continue
			}
			slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
		}
		for j := range c.Ops {
			o := &c.Ops[j]
			if o.Rule != r.Name || o.Outcome != Denied || !o.Counted() || !c.calm(r, o) {
				continue
			}
			if err := falseDenial(r, keys, o); err != nil {
				out = append(out, err)
				break // the others of this rule say the same
			}
		}
	}
	return out
}

// falseDenial returns an error where each key of a check that was denied had room.
func falseDenial(r *Rule, keys map[string][]Op, o *Op) error {
	most := 0
	for _, key := range o.Keys {
		switch ops := keys[key]; {
		case ops == nil:
			return nil // it changed hands
		case r.Burst > 0:
			most = max(most, level(r, ops, o))
		default:
			most = max(most, charges(r, ops, o))
		}
	}
	switch {
	case r.Burst > 0 && most < r.Burst:
		return fmt.Errorf("%s, keys %v: denied at node %d, %v after the start, although nothing was broken and at most %d "+
			"of the bucket's %d can have been charged and not come back",
			r.Name, o.Keys, o.Node, o.Call.Duration(), most, r.Burst)
	case r.Burst == 0 && most < r.Limit:
		return fmt.Errorf("%s, keys %v: denied at node %d, %v after the start, although nothing was broken and at most %d "+
			"of %d can have been charged within a window",
			r.Name, o.Keys, o.Node, o.Call.Duration(), most, r.Limit)
	}
	return nil
}

// level is the highest level that a bucket can have had when a check of a key was
// decided, rounded up: a bucket denies one unit when it is above burst-1. It has
// risen since it was empty last, by all that may have been charged from then on, and
// leaked all the while. ops are in the order of their returns.
func level(r *Rule, ops []Op, o *Op) int {
	most, n := 0, 0
	for i := len(ops) - 1; i >= 0; i-- {
		p := &ops[i]
		units := p.units(r, o)
		if units == 0 {
			continue
		}
		n += units
		// From the latest instant at which this one can have been the first.
		leaked := int(int64(r.Limit) * int64(max(0, o.Call-p.Return)) / int64(r.Window))
		most = max(most, n-leaked)
	}
	return most
}

// charges is how many of the checks of a key, in the order of their returns, may
// count when another is decided.
func charges(r *Rule, ops []Op, o *Op) int {
	n := 0
	for i := sort.Search(len(ops), func(i int) bool { return ops[i].Return >= o.Call-r.Window }); i < len(ops); i++ {
		n += ops[i].units(r, o)
	}
	return n
}

// units is how many units a check may have charged when another one of its key was
// decided.
func (o *Op) units(r *Rule, before *Op) int {
	switch {
	case o.Call > before.Return || o.Outcome == Refused:
		return 0
	case o.Outcome == Denied && o.Counted():
		if r.Several && o.Return+openFor >= before.Call {
			return 1 // among these is the check itself
		}
		return 0
	case o.Outcome == Allowed && o.Counted() && o.Return-o.Call < askedTwice:
		return 1
	}
	return 2 // nobody knows whether it was, and it may have been asked of two
}
