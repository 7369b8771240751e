package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// spenders are clients that reserve and settle as they like: with less than the estimate, as much, or more; in time,
// about the end of the reservation, after it, or before its answer; once or often, with one number or two; with
// if_unknown either way. Keys come in two sizes: of the small ones more is asked for than there is. The large ones are
// never used up, so that the end of the run shows to the unit what is counted.
type spenders struct {
	keys []*spent
}

// spent is a key of spenders.
type spent struct {
	*key
	all []*spending
}

// spending is one reservation, as its client sees it.
type spending struct {
	id       uint64
	estimate int
	from     limiter.Tick // it lasts holdSpan from then at least
	held     bool         // it was admitted by an owner or heir
	ignore   bool         // its settlements say if_unknown: ignore
	asked    []int        // the numbers that it was to be settled with
	stands   int          // the number that it stands for for good, by the answers; -1: none has told
	inTime   bool         // the first of these came before the reservation could have ended
}

// largeSpent is more than spenders use up in a run.
const largeSpent = 3_000

// newSpenders makes the keys of spenders, in partitions of others.
func (w *World) newSpenders(rules map[string]*limiter.Rule) {
	x := w.broader
	x.spenders = &spenders{}
	for _, of := range w.keys {
		mode := of.rule.Replication
		if !closed(of) || of.pair != nil || of.form {
			continue
		}
		for _, units := range []int{largeSpent, 20 + 20*x.rng.IntN(3)} {
			large := units == largeSpent
			name := fmt.Sprint("spent ", large, mode)
			if rules[name] != nil {
				continue
			}
			k := w.keyLike(of, name, limiter.Spec{Limit: int64(units), Window: 400 * 24 * time.Hour,
				Algorithm: limiter.FixedWindow}, 1<<21+uint64(units))
			if k == nil {
				continue
			}
			rules[name] = k.rule
			x.spenders.keys = append(x.spenders.keys, &spent{key: k})
		}
	}
}

// keyLike returns a key of a rule of its own in the partition of another one, nil if it would not be in it.
func (w *World) keyLike(of *key, name string, spec limiter.Spec, lo uint64) *key {
	rule := &limiter.Rule{Name: name, Limits: limits(spec), OnUnreachable: of.rule.OnUnreachable,
		Replication: of.rule.Replication}
	units := int(spec.Limit)
	k := &key{rule: rule, limit: units, least: units, d: max(1, (units*5+99)/100), policy: rule.OnUnreachable,
		byPolicy: make(map[string]int)}
	if rule.Replication == limiter.ReplicationStrict {
		k.d = 0
	}
	k.hash = arith.Hash{Hi: w.broader.rng.Uint64(), Lo: of.hash.Lo + lo}
	lk := k.key(nil, 1)
	if k.part = table.PartitionOf(&lk); k.part != of.part {
		return nil
	}
	return k
}

// spenderDemand has clients reserve and settle for a span.
func (w *World) spenderDemand(span limiter.Tick) {
	x := w.broader
	if x.spenders == nil {
		return
	}
	end := w.now + span
	for _, k := range x.spenders.keys {
		w.often(end, x.between(0, 200*ms), func() limiter.Tick {
			w.spend(k)
			return x.between(20*ms, 200*ms)
		})
	}
}

// spend has a client reserve, and settle what it used.
func (w *World) spend(k *spent) {
	x := w.broader
	b := &spending{id: x.rng.Uint64() | 1, estimate: 1 + x.rng.IntN(6), from: w.now, ignore: x.chance(40), stands: -1}
	k.all = append(k.all, b)
	for i := range 1 + x.rng.IntN(3) {
		w.after(limiter.Tick(i)*x.between(5*ms, 150*ms), func() { w.reserveAt(k, b, x.addressee(w, k.part)) })
	}
	number := b.estimate
	switch what := x.rng.IntN(10); {
	case what < 2:
		number = x.rng.IntN(b.estimate + 1)
	case what < 6:
		number += 1 + x.rng.IntN(6)
	case what < 7:
		number = 0
	case what < 8:
		return // it is abandoned
	}
	after := x.between(200*ms, holdSpan-settleBy)
	switch when := x.rng.IntN(10); {
	case when < 2: // about its end, or after it
		after = x.between(holdSpan-200*ms, holdSpan+1500*ms)
	case when < 3: // before it is answered
		after = x.between(0, 60*ms)
	}
	w.after(after, func() { w.settleSoon(k, b, number, 0) })
	if x.chance(15) {
		w.after(after+x.between(0, 600*ms), func() { w.settleSoon(k, b, number+1+x.rng.IntN(3), 0) })
	}
}

// charge returns the charge of a settlement or an extension to some units.
func (b *spending) charge(k *spent, n *Node, units int) *arith.Charge {
	c := &arith.Charge{ID: &arith.Idempotency{ID: b.id, Life: time.Hour, Hold: holdSpan.Duration()}}
	c.Add(k.key.key(n, uint64(units)))
	return c
}

// reserveAt has a client ask a node for the reservation, unless it has begun to settle it.
func (w *World) reserveAt(k *spent, b *spending, n *Node) {
	if n == nil || len(b.asked) > 0 {
		return
	}
	d := new(limiter.Decision)
	n.do(func() {
		n.core.Begin(b.charge(k, n, b.estimate), d, 0, func() {
			w.logf("%s answers %s %x: %d held %v by %v, repeated %v, %d left", n.name, k.rule.Name, b.id>>48, b.estimate,
				d.Allowed, d.Source, d.Repeated, remaining(d))
			if d.Allowed && !d.Source.ByPolicy() && n.alive && len(b.asked) == 0 {
				b.held = true
				w.fail(k.within(w))
			}
		})
	})
}

// settleSoon has a client settle a reservation at one node after another until one answers, and perhaps once more.
func (w *World) settleSoon(k *spent, b *spending, number, tries int) {
	x := w.broader
	if tries > 6 || b.stands >= 0 && tries > 1 {
		return
	}
	if tries == 0 && x.chance(20) && b.held && len(b.asked) == 0 {
		w.extendAt(k, b, x.addressee(w, k.part), b.estimate+x.rng.IntN(4))
	} else {
		w.settlesAt(k, b, x.addressee(w, k.part), number)
	}
	w.after(x.between(20*ms, 300*ms), func() { w.settleSoon(k, b, number, tries+1) })
}

// extendAt has a client extend a reservation at a node, perhaps to more units.
func (w *World) extendAt(k *spent, b *spending, n *Node, estimate int) {
	if n == nil {
		return
	}
	at := w.now
	n.do(func() {
		n.core.Amend(b.charge(k, n, estimate), limiter.Amend{Extend: true}, func(o route.Outcome) {
			w.logf("%s extends %s %x to %d: %+v", n.name, k.rule.Name, b.id>>48, estimate, o.Amended)
			if a := o.Amended; n.alive && o.Unanswered == 0 && a != nil && a.State == limiter.AmendDone && len(b.asked) == 0 {
				b.from, b.estimate = at, max(b.estimate, estimate)
				w.fail(k.within(w))
			}
		})
	})
}

// settlesAt has a client settle a reservation at a node.
func (w *World) settlesAt(k *spent, b *spending, n *Node, number int) {
	if n == nil {
		return
	}
	if !slices.Contains(b.asked, number) {
		b.asked = append(b.asked, number)
	}
	before := *b // what was known of it when this was asked
	n.do(func() {
		n.core.Amend(b.charge(k, n, number), limiter.Amend{IgnoreUnknown: b.ignore}, func(o route.Outcome) {
			w.logf("%s settles %s %x with %d: %+v %+v", n.name, k.rule.Name, b.id>>48, number, o, o.Amended)
			if !n.alive || o.Unanswered != 0 || o.Amended == nil {
				return
			}
			if err := b.settled(k, w, number, o.Amended, &before); err != nil {
				w.fail(fmt.Errorf("%s (partition %d), %x of %d, is settled with %d at %s: %w", k.rule.Name, k.part, b.id,
					b.estimate, number, n.name, err))
			}
			w.fail(k.within(w))
		})
	})
}

// spendAt has a client settle at a node what it has not settled yet, or reserve there.
func (w *World) spendAt(n *Node) {
	x := w.broader
	if x.spenders == nil {
		return
	}
	k := x.spenders.keys[x.rng.IntN(len(x.spenders.keys))]
	for _, b := range slices.Backward(k.all) {
		if b.held && len(b.asked) == 0 {
			w.settlesAt(k, b, n, b.estimate+x.rng.IntN(6))
			return
		}
	}
	b := &spending{id: x.rng.Uint64() | 1, estimate: 1 + x.rng.IntN(6), from: w.now, stands: -1}
	k.all = append(k.all, b)
	w.reserveAt(k, b, n)
}

// settled takes the answer to a settlement with a number. The reservation stands for one number for good, and
// whoever answers says which. An id is unknown only if the reservation was never made, has ended, or is lost: with
// owner and heir or, of what was answered ahead of the heir, in a takeover.
func (b *spending) settled(k *spent, w *World, number int, a *limiter.Amended, before *spending) error {
	stands := number
	switch a.State {
	case limiter.AmendDone, limiter.AmendRepeated, limiter.AmendCharged:
	case limiter.AmendSettled:
		if stands = int(a.First); !slices.Contains(b.asked, stands) {
			return fmt.Errorf("it is said to stand for %d, and nobody settled it with that", stands)
		}
	case limiter.AmendUnknown:
		lost := w.losses[k.part] > 0 || k.d > 0 && w.outcome.takeovers(k.part) > 0
		switch {
		case !b.ignore && number > 0:
			return fmt.Errorf("its id is unknown, and nothing was charged")
		case before.stands >= 0 && w.losses[k.part] == 0:
			return fmt.Errorf("its id is unknown, and it stands for %d", b.stands)
		case before.held && !before.ended(w.now) && !lost:
			return fmt.Errorf("its id is unknown, and it is held")
		}
		return nil
	default:
		return fmt.Errorf("answered %v", a.State)
	}
	switch {
	case b.stands < 0:
		b.stands, b.inTime = stands, !b.ended(w.now)
	case b.stands != stands && w.losses[k.part] == 0:
		return fmt.Errorf("it stands for %d by this answer (%v), and for %d by another", stands, a.State, b.stands)
	}
	return nil
}

// ended reports whether the reservation may have ended by itself.
func (b *spending) ended(now limiter.Tick) bool { return now >= b.from+holdSpan-holdMargin }

// standing returns the least that is certainly held or used now.
func (k *spent) standing(w *World) (units int) {
	for _, b := range k.all {
		switch {
		case b.stands >= 0:
			units += b.stands
		case !b.held || b.ended(w.now):
		case len(b.asked) > 0:
			units += min(b.estimate, slices.Min(b.asked))
		default:
			units += b.estimate
		}
	}
	return units
}

// tooLow returns by how much the estimates of a key were too low in sum. That of a reservation that may have ended
// when it was settled, or that was never made, is 0.
func (k *spent) tooLow() (units int) {
	for _, b := range k.all {
		switch {
		case b.stands >= 0 && b.inTime && b.held:
			units += max(0, b.stands-b.estimate)
		case b.stands >= 0:
			units += b.stands
		}
	}
	return units
}

// within returns an error if more is held and used than docs/promises.md says (rows "a reservation", "estimates are too
// low", "an owner crashes" and "an owner and its heir are lost together"): B, what estimates were too low in sum, D for
// each takeover, and B for each time that owner and heir were lost together.
func (k *spent) within(w *World) error {
	most := k.limit + k.tooLow() + w.outcome.takeovers(k.part)*k.d + w.losses[k.part]*k.limit
	if n := k.standing(w); n > most {
		return fmt.Errorf("%s (partition %d): %d units are held and used, at most %d (limit %d, estimates too low by %d, "+
			"%d takeovers)",
			k.rule.Name, k.part, n, most, k.limit, k.tooLow(), w.outcome.takeovers(k.part))
	}
	return nil
}

// checkSpenders returns an error if, once all reservations have ended, less is counted than settlements stand for, or
// more than was asked for. A settlement is answered when the heir has it, so a takeover loses none of it. But it gives
// back an estimate, of which the next owner may lack D: as docs/promises.md says, B and D for each takeover (with
// strict D is 0), and B for each time that owner and heir were lost together. What a fenced owner had is merged as the
// larger of two counts, so then what was reserved may stay counted, too.
func (w *World) checkSpenders() error {
	if w.broader == nil || w.broader.spenders == nil {
		return nil
	}
	for _, k := range w.broader.spenders.keys {
		least, most, reserved := 0, 0, 0
		for _, b := range k.all {
			reserved += max(b.estimate, slices.Max(append([]int{0}, b.asked...)))
			switch {
			case b.stands >= 0:
				least, most = least+b.stands, most+b.stands
			case len(b.asked) > 0:
				most += slices.Max(b.asked)
			}
		}
		if w.outcome.byPart[k.part][cluster.EventMerged] > 0 {
			most = 2 * reserved
		}
		least = min(least, k.limit) - w.outcome.takeovers(k.part)*k.d - w.losses[k.part]*k.limit
		for _, n := range w.live() {
			if used := n.used(k.key); used >= 0 && (used < least || used > most) {
				return fmt.Errorf("%s (partition %d): %d units are counted in the end, between %d and %d were used (%d takeovers)",
					k.rule.Name, k.part, used, least, most, w.outcome.takeovers(k.part))
			}
		}
	}
	return nil
}
