package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// counts is what a counter may be at: all from lo to hi. What a client knows
// leaves no gaps. left is how many units takeovers may still forget.
type counts struct{ lo, hi, left int }

// step is what the model is asked.
type step struct {
	kind stepKind
	rule Rule
	add  int // of uncertain: how many units may have been counted
	cost int // of a takeover: how many units may be forgotten
	owed int // of a denial: how many units are owed before it
}

type stepKind int

const (
	allowed stepKind = iota
	denied
	forget    // a takeover: 0 to D units are forgotten
	lost      // owner and heir are lost: all may be forgotten
	uncertain // a check that may or may not have been counted
)

// counter is one counter that only counts up to its limit, as a model: nothing in
// it recovers, so its checks are linearizable if some order of them, each between
// its call and its return, has every check allowed while there is room and denied
// when there is none. Takeovers forget so many units at most, all together.
func counter(forgets int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return counts{left: forgets} },
		Step: func(state, input, _ any) (bool, any) {
			c, s := state.(counts), input.(step)
			limit := s.rule.Limit
			switch s.kind {
			case allowed:
				if c.lo >= limit {
					return false, c
				}
				return true, counts{c.lo + 1, min(c.hi, limit-1) + 1, c.left}
			case denied:
				if c.hi < s.owed {
					return false, c
				}
				// What may have been counted may be taken back: an owner withholds what
				// its heir lacks, and gives it up when a policy has answered meanwhile.
				return true, c
			case forget:
				n := min(s.cost, c.lo, c.left)
				return true, counts{c.lo - n, c.hi, c.left - n}
			case lost:
				return true, counts{0, c.hi, c.left}
			default:
				return true, counts{c.lo, min(c.hi+s.add, limit), c.left}
			}
		},
		DescribeOperation: func(input, _ any) string {
			return [...]string{"allowed", "denied", "takeover", "loss", "uncertain"}[input.(step).kind]
		},
		DescribeState: func(state any) string {
			c := state.(counts)
			return fmt.Sprintf("%d to %d", c.lo, c.hi)
		},
	}
}

// Linear is what Linearizable found.
type Linear struct {
	Keys, Checks int
	// Undecided keys took longer than the time given.
	Undecided int
}

// Linearizable holds the answers of owners and heirs about each key of the rules
// whose limits never recover against one counter. A takeover that is seen, and that
// something explains, may forget D units; a fault that may take owner and heir together may
// forget all. What was never answered, or answered by a policy, may have been
// counted, from its call on; so may a check that was answered during a takeover
// have been counted once more. A denial when a fault begins or ends may be owed to
// an admission that is withheld then, and taken back; and where a side may be too small for
// the whole limit, only its share is owed. Where the run allows more than one
// counter of a key, because a split has two, this is not asked.
func (c judges) Linearizable(each time.Duration) (Linear, []error) {
	var found Linear
	var violations []error
	began := time.Now()
	for _, r := range c.Rules {
		if !r.Once || r.Several || r.Lent || c.Allows.Of(r.Policy)-float64(c.Allows.Losses) > 1 {
			continue
		}
		for key, ops := range c.byKey(r.Name) {
			steps, forgets := c.operations(&r, key, ops)
			found.Keys++
			found.Checks += len(ops)
			if time.Since(began) > linearAll {
				found.Undecided++
				continue
			}
			switch porcupine.CheckOperationsTimeout(counter(forgets), steps, each) {
			case porcupine.Illegal:
				violations = append(violations, fmt.Errorf("%s, key %s: no order of its %d checks is that of one counter of %d",
					r.Name, key, len(ops), r.Limit))
			case porcupine.Unknown:
				found.Undecided++
			}
		}
	}
	return found, violations
}

// operations are the checks of one key, and what faults may have done to it, with
// how many units takeovers may have forgotten.
func (c *analysis) operations(r *Rule, key string, ops []Op) (out []porcupine.Operation, forgets int) {
	add := func(s step, call, back Micros) {
		s.rule, s.cost = *r, c.each(r)
		out = append(out, porcupine.Operation{ClientId: len(out), Input: s, Call: 2 * int64(call), Return: 2*int64(back) + 1})
	}
	over := slices.DeleteFunc(c.changes(key, ops), func(t takeover) bool { return !c.explained(&t) })
	for _, t := range over {
		add(step{kind: forget}, t.after, t.before)
	}
	losses := 0
	for i := range c.Faults {
		if f := &c.Faults[i]; f.Loses && losses < c.Allows.Losses {
			losses++
			add(step{kind: lost}, f.At, c.over(f))
		}
	}
	for i := range ops {
		o := &ops[i]
		// It is as general to count it at once as later, and much less to search.
		switch {
		case o.lost() || o.ByPolicy():
			add(step{kind: uncertain, add: c.perhaps(o)}, o.Call, o.Call)
		case o.Counted() && c.twice(o, over):
			add(step{kind: uncertain, add: 1}, o.Call, o.Call)
		}
		if o.Counted() && (o.Outcome == Allowed || !c.near(o)) {
			s := step{kind: denied, owed: c.least(r, o)}
			if o.Outcome == Allowed {
				s.kind = allowed
			}
			add(s, o.Call, o.Return)
		}
	}
	slices.SortStableFunc(out, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return out, c.cost(r, over, 0, ever) * c.each(r)
}
