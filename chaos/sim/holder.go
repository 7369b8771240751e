package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// holders are the clients that reserve, in every second run of TestSim. They have keys of their
// own, in partitions of others, and draw from a random stream of their own, so that all other
// runs stay as they are. Each check and each settlement is asked for several times, at one node
// after another; some reservations are extended, a quarter of these runs raises estimates by that, and some are
// abandoned.
type holders struct {
	rng     *rand.Rand
	keys    []*heldKey
	settled int  // settlements that were answered
	slots   int  // reservations of units of a limit on concurrency
	raises  bool // extensions raise estimates
	raised  int  // of those, how many did
}

// heldKey is a key of which clients reserve, and what they know of it.
type heldKey struct {
	*key
	slots bool // its limit is on concurrency
	holds []*heldBy
}

// heldBy is one reservation, as its client sees it.
type heldBy struct {
	id       uint64
	estimate int
	actual   int
	asked    limiter.Tick // when it was first asked for, or last extended: it lasts from then at least
	held     bool         // it was admitted
	settles  bool         // its settlement was asked for
	done     bool         // that was answered
	over     int          // what a late settlement was charged beyond the limit, as its answer said
	expires  bool         // nobody settles it
}

const (
	holdSpan = 3 * limiter.Second
	// holdMargin is how much earlier than the client thinks a reservation may end: clocks drift.
	holdMargin = 10 * ms
	// settleBy is how long before the end a client settles at the latest, so that no settlement
	// is late unless the node that it asks stands still.
	settleBy = 1500 * ms
)

// newHolders makes the clients that reserve, for a run that has some.
func (w *World) newHolders(kind Kind, seed uint64, rules map[string]*limiter.Rule) {
	w.widen(kind, seed, rules)
	if w.stronger == nil || seed%2 == 0 || kind == Crowded || kind == Outages || w.crowd.maxKeys > 0 {
		return
	}
	h := &holders{rng: rand.New(rand.NewPCG(uint64(kind)<<32+seed, 0x9e3779b97f4a7c15))}
	h.addKeys(w, rules, limiter.Spec{Window: 400 * 24 * time.Hour, Algorithm: limiter.FixedWindow})
	if seed%4 == 3 { // the others stay as they are
		h.addKeys(w, rules, limiter.Spec{Algorithm: limiter.Concurrency})
	}
	h.raises = seed%16 > 11 // the others stay as they are
	w.holders = h
}

// addKeys adds a key for each kind of replication, with a limit of that kind.
func (h *holders) addKeys(w *World, rules map[string]*limiter.Rule, spec limiter.Spec) {
	what := "held"
	if spec.Algorithm == limiter.Concurrency {
		what = "slots"
	}
	for _, of := range w.keys {
		mode := of.rule.Replication
		name, units := fmt.Sprint(what, mode), 20+20*h.rng.IntN(3)
		if !closed(of) || of.pair != nil || rules[name] != nil {
			continue
		}
		spec.Limit = int64(units)
		l, err := limiter.NewLimit(spec)
		if err != nil {
			panic(err)
		}
		rule := &limiter.Rule{Name: name, Limits: []*limiter.Limit{l}, OnUnreachable: limiter.UnreachableClosed,
			Replication: mode}
		k := &key{rule: rule, limit: units, d: max(1, (units*5+99)/100), policy: limiter.UnreachableClosed}
		if mode == limiter.ReplicationStrict {
			k.d = 0
		}
		k.hash = arith.Hash{Hi: h.rng.Uint64(), Lo: of.hash.Lo + 1<<20}
		lk := k.key(nil, 1)
		if k.part = table.PartitionOf(&lk); k.part != of.part {
			continue
		}
		rules[name] = rule
		h.keys = append(h.keys, &heldKey{key: k, slots: spec.Algorithm == limiter.Concurrency})
	}
}

// heldDemand has clients reserve for a span.
func (w *World) heldDemand(span limiter.Tick) {
	w.broaderDemand(span)
	h := w.holders
	if h == nil {
		return
	}
	end := w.now + span
	for _, k := range h.keys {
		w.often(end, h.between(0, 200*ms), func() limiter.Tick {
			w.holdOne(k)
			return h.between(10*ms, 150*ms)
		})
	}
}

func (h *holders) between(from, to limiter.Tick) limiter.Tick {
	return from + limiter.Tick(h.rng.Int64N(int64(to-from)+1))
}

// anyone returns a node that clients ask, nil if there is none.
func (h *holders) anyone(w *World) *Node {
	if live := w.serving(); len(live) > 0 {
		return live[h.rng.IntN(len(live))]
	}
	return nil
}

func (b *heldBy) charge(k *heldKey, n *Node, cost int) *arith.Charge {
	c := &arith.Charge{ID: &arith.Idempotency{ID: b.id, Life: time.Hour, Hold: holdSpan.Duration()}}
	c.Add(k.key.key(n, uint64(cost)))
	return c
}

// holdOne has a client reserve, settle and repeat both.
func (w *World) holdOne(k *heldKey) {
	h := w.holders
	b := &heldBy{id: h.rng.Uint64() | 1, estimate: 1 + h.rng.IntN(6), asked: w.now, expires: h.rng.IntN(4) == 0}
	if h.rng.IntN(3) == 0 {
		b.actual = h.rng.IntN(b.estimate + 1)
	}
	k.holds = append(k.holds, b)
	for i := range 1 + h.rng.IntN(3) {
		w.after(limiter.Tick(i)*h.between(5*ms, 150*ms), func() { w.tryHold(k, b) })
	}
	if !b.expires {
		after := h.between(400*ms, holdSpan-settleBy)
		w.after(after, func() { w.settleOne(k, b, 0) })
	}
}

// tryHold asks a node for a reservation, or asks again.
func (w *World) tryHold(k *heldKey, b *heldBy) {
	n := w.holders.anyone(w)
	if n == nil || b.settles {
		return
	}
	d := new(limiter.Decision)
	n.do(func() {
		n.core.Begin(b.charge(k, n, b.estimate), d, 0, func() {
			w.logf("%s answers %s %x: %d held %v by %v, repeated %v, %d left", n.name, k.rule.Name, b.id>>48, b.estimate,
				d.Allowed, d.Source, d.Repeated, remaining(d))
			if d.Allowed && !d.Source.ByPolicy() && n.alive && !b.settles {
				b.held = true
				if k.slots {
					w.holders.slots++
				}
				w.fail(k.within(w))
			}
		})
	})
}

// settleOne asks a node to settle or, before that, to extend a reservation. It asks others until
// one answers.
func (w *World) settleOne(k *heldKey, b *heldBy, tries int) {
	h := w.holders
	n := h.anyone(w)
	if late := w.now > b.asked+holdSpan-settleBy/2; late || tries > 8 || b.done && tries > 1 {
		return
	}
	if n != nil {
		switch {
		case !b.settles && b.held && h.rng.IntN(5) == 0:
			w.extendOne(k, b, n)
		default:
			w.settleAt(k, b, n)
		}
	}
	w.after(h.between(30*ms, 200*ms), func() { w.settleOne(k, b, tries+1) })
}

func (w *World) extendOne(k *heldKey, b *heldBy, n *Node) {
	at, estimate := w.now, b.estimate
	if w.holders.raises {
		estimate += w.holders.rng.IntN(4)
	}
	n.do(func() {
		n.core.Amend(b.charge(k, n, estimate), limiter.Amend{Extend: true}, func(o route.Outcome) {
			w.logf("%s extends %s %x to %d: %+v", n.name, k.rule.Name, b.id>>48, estimate, o.Amended)
			if a := o.Amended; n.alive && a != nil && a.State == limiter.AmendDone && !b.settles {
				if estimate > b.estimate {
					w.holders.raised++
				}
				b.asked, b.estimate = at, max(b.estimate, estimate)
				w.fail(k.within(w))
			}
		})
	})
}

func (w *World) settleAt(k *heldKey, b *heldBy, n *Node) {
	if !b.settles && !b.held {
		b.actual = 0 // it was denied, or nobody knows
	}
	b.settles = true
	n.do(func() {
		n.core.Amend(b.charge(k, n, b.actual), limiter.Amend{IgnoreUnknown: b.actual == 0}, func(o route.Outcome) {
			w.logf("%s settles %s %x with %d: %+v %+v", n.name, k.rule.Name, b.id>>48, b.actual, o, o.Amended)
			if !n.alive || o.Unanswered != 0 || o.Amended == nil {
				return
			}
			if s := o.Amended.State; s > limiter.AmendUnknown || s == limiter.AmendUnknown && b.actual > 0 {
				w.fail(fmt.Errorf("%s settles %x with %d: %+v", n.name, b.id, b.actual, *o.Amended))
			}
			if !b.done {
				b.settled(o.Amended, w.now)
				w.holders.settled++
			}
		})
	})
}

// settled records the first answer to a settlement. If the reservation may have ended before, its
// units may have been reserved again, so what was used may be charged beyond the limit. The answer says
// by how much. If it repeats another one, the answer of that has said so, and may be lost: any of what was used
// may be beyond the limit. A settlement in time finds its reservation, so that excuses nothing.
func (b *heldBy) settled(a *limiter.Amended, now limiter.Tick) {
	b.done = true
	if b.ended(now) {
		b.over = int(a.Over)
		if a.State == limiter.AmendRepeated {
			b.over = b.actual
		}
	}
}

// ended reports whether the reservation may have ended by itself.
func (b *heldBy) ended(now limiter.Tick) bool { return now >= b.asked+holdSpan-holdMargin }

// standing returns the least that is certainly held or used now, but for what late settlements were charged
// beyond the limit.
func (k *heldKey) standing(w *World) (units int) {
	for _, b := range k.holds {
		switch {
		case k.slots && b.settles: // whatever with
		case b.done:
			units += b.actual - b.over
		case !b.held || b.ended(w.now):
		case b.settles:
			units += b.actual
		default:
			units += b.estimate
		}
	}
	return units
}

// lost returns how much may have been admitted beyond the limit: D for each takeover, and a
// limit for each time that owner and heir were lost together.
func (k *heldKey) lost(w *World) int {
	return w.outcome.takeovers(k.part)*k.d + w.losses[k.part]*k.limit
}

// within returns an error if more is held and used than the limit.
func (k *heldKey) within(w *World) error {
	if n, most := k.standing(w), k.limit+k.lost(w); n > most {
		return fmt.Errorf("%s (partition %d): %d units are held and used, at most %d", k.rule.Name, k.part, n, most)
	}
	return nil
}

// checkHolders returns an error if, after all reservations have ended, less is counted than was
// used, or more than may have been. What a former owner had is merged as the larger of two
// counters, so after that more may stay counted. Of a limit on concurrency nothing may: its
// units end with their reservations.
func (w *World) checkHolders() error {
	if w.holders == nil {
		return nil
	}
	var errs []error
	for _, k := range w.holders.keys {
		least, most := 0, 0
		for _, b := range k.holds {
			switch {
			case k.slots:
			case b.done:
				least, most = least+b.actual, most+b.actual
			case b.settles:
				most += b.actual
			}
		}
		least = min(least, k.limit) - k.lost(w)
		e := w.outcome.byPart[k.part]
		for _, n := range w.live() {
			used := n.used(k.key)
			if used < 0 {
				continue
			}
			if used < least || used > most && (k.slots || e[cluster.EventMerged] == 0) {
				errs = append(errs, fmt.Errorf("%s (partition %d): %d units are counted in the end, between %d and %d were used",
					k.rule.Name, k.part, used, least, most))
			}
		}
	}
	return errors.Join(errs...)
}
