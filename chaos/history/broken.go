package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// Holds says when a fault may hold up what nodes tell each other: what was charged counts
// for as much longer then, since it travels as an age.
type Holds string

// When a fault holds up what nodes tell each other.
const (
	// HoldsAlways: at any time while its effects last.
	HoldsAlways Holds = ""
	// HoldsBack: until it is mended, when it arrives late. Who is paused or cut off neither
	// hears nor is heard, and the others hear each other as ever.
	HoldsBack Holds = "back"
	// HoldsNothing: what is told arrives at once, or never.
	HoldsNothing Holds = "nothing"
)

const (
	// underWay is how long what nodes tell each other may be under way where nothing holds
	// it up, with what is sent again.
	underWay = Micros(500_000)
	// recently is how much of the time before a denial nothing may have stood still in,
	// at most.
	recently = Micros(2_000_000)
)

// deniesThroughout returns a check of a rule, at any time, that an owner or heir denied
// although all that may have been charged to its key until then, and counted still, is
// less than its limit: an heir that denies everything until its owner is back breaks no
// bound. Where a side may be too small for the whole limit, it is its share.
//
// What may have been charged is what was allowed, twice where a check may have been
// asked of two, and twice what nobody knows or a policy answered; what was denied
// meanwhile, and may have been withheld until then and taken back; and D for each change
// of who decides. Of checks of several keys nothing is said, as their cancels may
// be lost, nor of buckets, of which less comes back to a minority.
func (c *analysis) deniesThroughout(r *Rule) error {
	if r.Burst > 0 || r.Several || r.Lent {
		return nil
	}
	for key, ops := range c.byKey(r.Name) {
		slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
		k := &keyed{analysis: c, rule: r, ops: ops, turns: c.changes(key, ops)}
		for i := range ops {
			o := &ops[i]
			if o.Outcome != Denied || o.Source != SourceOwner && o.Source != SourceHeir && o.Source != SourceShare ||
				o.Return-o.Call >= askedTwice ||
				c.stalled(o.Call-min(r.Window, recently)-openFor, o.Return) {
				continue
			}
			if most, least := k.most(i), c.least(r, o); most < least {
				return fmt.Errorf("%s, key %s: denied at node %d by its %s, %v after the start, although at most %d of %d can "+
					"have been charged and counted still",
					r.Name, key, o.Node, o.Source, o.Call.Duration(), most, least)
			}
		}
	}
	return nil
}

// least is what a key is owed at least when a check is denied: its limit, or the least
// share of it that a minority decides with, where there may be one.
func (c *analysis) least(r *Rule, o *Op) int {
	apart := c.stalled(o.Call, o.Return)
	for i := range c.Faults {
		f := &c.Faults[i]
		several := len(c.Faults) > 1 || len(f.Nodes) > 1 || c.Allows.Of(r.Policy) > 1
		apart = apart || several && len(f.Nodes) > 0 && o.Return >= f.At && o.Call <= c.over(f)
	}
	if apart && r.Policy == "local" {
		return r.Share(c.Nodes + 1) // one may be joining
	}
	return r.Limit
}

// keyed is the checks of a key, in the order of their returns.
type keyed struct {
	*analysis
	rule  *Rule
	ops   []Op
	turns []takeover
	units []int // of each check, as soon as anybody asks
}

// most is how many units may have been charged that counted when a check was decided.
func (k *keyed) most(of int) int {
	if k.units == nil {
		for i := range k.ops {
			k.units = append(k.units, k.mayCharge(&k.ops[i]))
		}
	}
	o := &k.ops[of]
	from, n := k.since(o), 0
	first := sort.Search(len(k.ops), func(i int) bool { return k.ops[i].Return+underWay+afterFault >= from })
	for i := first; i < len(k.ops); i++ {
		p := &k.ops[i]
		until := p.Return + underWay
		if !p.Counted() {
			until += afterFault // it may be decided when its client waits no longer
		}
		switch {
		case p.Call > o.Return || until < from || i == of:
		case k.units[i] == 0 && p.Outcome == Denied && p.Return >= o.Call:
			n++ // withheld when this one was decided, perhaps
		default:
			n += k.units[i]
		}
	}
	for i := range k.turns {
		if t := &k.turns[i]; t.after <= o.Return && t.before >= from {
			n += k.rule.D()
		}
	}
	return n
}

// since is from when on what was charged may count when a check was decided.
func (k *keyed) since(o *Op) Micros {
	from := o.Call - k.rule.Window
	for i := range k.Faults {
		f := &k.Faults[i]
		held := f.At
		switch f.Holds {
		case HoldsNothing:
			continue
		case HoldsBack:
			held = f.Until - afterFault // which is when the mending was done
		}
		if o.Return >= held && o.Call <= k.over(f)+k.rule.Window+underWay {
			from = min(from, f.At-k.rule.Window-underWay)
		}
	}
	return from
}

// mayCharge is how many units a check may have charged.
func (k *keyed) mayCharge(o *Op) int {
	switch {
	case o.Outcome == Refused:
		return 0
	case !o.Counted():
		return 2
	}
	n := 0
	if o.Outcome == Allowed {
		n++
	}
	twice := o.Return-o.Call >= askedTwice ||
		slices.ContainsFunc(k.turns, func(t takeover) bool { return o.Call <= t.before && o.Return >= t.after }) ||
		slices.ContainsFunc(k.Faults, func(f Fault) bool {
			meets := func(at Micros) bool { return o.Call <= at+atOnce && o.Return >= at }
			return meets(f.At) || meets(f.Until) || f.Holds == HoldsAlways && o.Return >= f.At && o.Call <= k.over(&f)
		})
	if twice {
		n++
	}
	return n
}
