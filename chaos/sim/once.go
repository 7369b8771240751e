package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// once is a check with an id that a client repeats: because no answer came in time, or as a
// queue delivers a message again. However often it is asked, it is counted once.
type once struct {
	id    uint64
	began limiter.Tick // of the first try
	tried map[*key]*tried
	told  bool // a try was answered

	answers  []answeredTry
	byPolicy map[charger]bool // whose policies have charged which keys
}

// charger is a node whose policy has charged a key.
type charger struct {
	k  *key
	by peer.Instance
}

// answeredTry is a try that was answered, and when.
type answeredTry struct {
	of *asking
	at limiter.Tick
}

// maxTries is how often a check with an id is asked at most.
const maxTries = 4

// askOnce has a client ask for a check with an id, again and again, at one node after another.
func (w *World) askOnce(k *key, n *Node) {
	x := w.stronger
	cost, alone := uint64(1+x.rng.IntN(2)), k.second || x.chance(30)
	o := &once{id: x.rng.Uint64() | 1, began: w.now, tried: make(map[*key]*tried)}
	w.try(o, k, n, cost, alone, 1)
}

// try asks once more, and again later.
func (w *World) try(o *once, k *key, n *Node, cost uint64, alone bool, tries int) {
	x := w.stronger
	c := new(arith.Charge)
	if a := w.asking(k, n, cost, alone, c, new(limiter.Decision)); a != nil {
		a.identify(o)
		n.do(func() { n.core.Begin(a.charge, a.answer, 0, a.done) })
	}
	w.tryLater(o, k, cost, alone, tries, x.between(1*ms, 400*ms))
}

// tryLater repeats a check after a while, perhaps although it was answered.
func (w *World) tryLater(o *once, k *key, cost uint64, alone bool, tries int, after limiter.Tick) {
	x := w.stronger
	if tries == maxTries {
		return
	}
	w.after(after, func() {
		live := w.serving()
		if len(live) == 0 || o.told && x.chance(60) {
			return
		}
		w.try(o, k, x.one(live), cost, alone, tries+1)
	})
}

// identify gives a check the id of a client's.
func (a *asking) identify(o *once) {
	a.once = o
	a.charge.ID = &arith.Idempotency{ID: o.id, Life: time.Hour}
}

// tried is what the tries of a check with an id have told about one of its keys: the charges for which
// it is counted, none before one was admitted.
type tried struct{ charges []onceCharged }

// onceCharged is a charge of a check with an id.
type onceCharged struct {
	at   limiter.Tick // when, 0 if no answer has told
	told bool         // the try that made it was answered; else others repeated it
}

// repeats takes the answer of a try for its key number i. It reports whether the check is
// counted already, so this charges nothing more. What was charged again is noted.
func (o *once) repeats(k *key, d *limiter.Decision, i, cost int) bool {
	if o == nil || !d.Allowed || d.Source.ByPolicy() && !owned(d, i) {
		return false
	}
	t := o.tried[k]
	if t == nil {
		t = new(tried)
		o.tried[k] = t
	}
	at, charges := arith.Fields(&d.Receipt).Time, !d.Repeated && charged(d, i)
	if of := arith.Fields(&d.Receipt); of.Parts != nil || of.Charged == 0 || !d.Repeated && !charges {
		at = 0 // it does not say when this key was charged
	}
	if len(t.charges) == 0 {
		t.charges = append(t.charges, onceCharged{at, charges})
		return false
	}
	// A repetition may be answered before the try that made the charge. A charge at another instant
	// than what is counted is one more; what other answers told in between does not change that.
	is := slices.IndexFunc(t.charges, func(c onceCharged) bool { return !c.told && c.at == at })
	if is < 0 {
		is = slices.IndexFunc(t.charges, func(c onceCharged) bool { return !c.told && (c.at == 0 || at == 0) })
	}
	switch {
	case is >= 0:
		c := &t.charges[is]
		c.at, c.told = max(c.at, at), charges
	case charges:
		k.again += cost
		t.charges = append(t.charges, onceCharged{at, true})
		return false
	}
	return true
}

// policyKnows returns which keys of an answer the policy of the asked node has charged for an earlier try, and
// notes which it has charged now. A policy remembers an id for each of its keys, and an answer is a
// repetition if that is so for all keys. So if another key may have been charged anew, the answer does not
// say whether this one was.
func (o *once) policyKnows(a *asking) []bool {
	known, anew := make([]bool, len(a.keys)), false
	if o == nil || !a.answer.Allowed || !a.answer.Source.ByPolicy() {
		return known
	}
	if o.byPolicy == nil {
		o.byPolicy = make(map[charger]bool)
	}
	for i, k := range a.keys {
		of := charger{k, a.n.inst}
		known[i] = !owned(a.answer, i) && o.byPolicy[of]
		anew = anew || !known[i]
		o.byPolicy[of] = o.byPolicy[of] || !owned(a.answer, i)
	}
	if !anew {
		clear(known) // the answer says it
	}
	return known
}

// charged reports whether a receipt names any limit of the key number i.
func charged(d *limiter.Decision, i int) bool {
	for j := range d.Len() {
		if d.Limit(j).Key == i && arith.Fields(&d.Receipt).Has(j) {
			return true
		}
	}
	return false
}

// checkOnce returns an error if checks with an id were charged, and admitted, more than once:
// beyond what may be lost with its id when an owner is, and what disks may lack.
func (w *World) checkOnce(k *key, takeovers int) error {
	if w.crowd.maxKeys > 0 || w.split && k.part < table.Partitions {
		return nil // there may be no room to remember ids, or an owner on each side
	}
	if most := takeovers*k.d + w.losses[k.part]*k.limit + k.anew; k.again > most {
		return fmt.Errorf("%s (partition %d): %d units of checks with ids were admitted again, at most %d (%d takeovers)",
			k.rule.Name, k.part, k.again, most, takeovers)
	}
	return nil
}
