// Package replay decides the requests of a log under rules and counts what came
// of it.
package replay

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// Result is what came of one trace under one rules file.
type Result struct {
	// RulesFile is the name that the rules were given by.
	RulesFile string
	// Requests were decided: Allowed, or Denied. Unmatched are those of the
	// allowed that no rule matched.
	Requests, Allowed, Denied, Unmatched int
	// HasShadow tells whether the file has shadow rules; ShadowDenied is how
	// many requests they would have denied.
	HasShadow    bool
	ShadowDenied int
	// Shortened requests have a key that is too long, and were decided by a
	// shorter one in its place; FirstLong says how a node refuses the first.
	Shortened int
	FirstLong error
	// Refused requests could not be decided.
	Refused int
	// FirstRefusal says why, of the first one; nil if there was none.
	FirstRefusal error
	// Rules are in the order of the file.
	Rules []RuleResult
	// First and Last are the times of the first and the last request of the
	// trace.
	First, Last limiter.Tick
	// Series is the course over time, from SeriesStart on.
	Series      []Slot
	SeriesStart limiter.Tick
	SlotLength  limiter.Tick
	// Bytes is about what the result takes in memory.
	Bytes int64

	denied   map[counter]int
	verdicts []verdict
}

// RuleResult counts the requests that a rule matched. Allowed and Denied are
// this rule's own verdict, whatever others said; a shadow rule denies none, and
// ShadowDenied is what it would have denied. Keys is how many distinct keys its
// requests had: each has limits of its own.
type RuleResult struct {
	Name                          string
	Shadow                        bool
	Allowed, Denied, ShadowDenied int
	Keys                          int
	Limits                        []LimitResult
}

// LimitResult counts the requests that a limit decided. Denied counts every one
// that it alone would deny, unless its rule is a shadow rule: then ShadowDenied
// does.
type LimitResult struct {
	Name                          string
	Allowed, Denied, ShadowDenied int
}

// Slot counts the decisions of one stretch of time.
type Slot struct{ Allowed, Denied int }

// KeyCount is how often a key denied.
type KeyCount struct {
	// Rule is the name of the rule that counts by the key.
	Rule string
	// Key is the key's name, such as /towns:ada:minute.
	Key    string
	Denied int
}

// verdict is what became of one request.
type verdict uint8

const (
	refused verdict = iota
	allowed
	denied
)

// counter tells keys apart that have one name, in different rules.
type counter struct{ rule, key string }

// tally counts decisions into a Result.
type tally struct {
	out    *Result
	rules  map[string]*ruleTally
	keys   map[limiter.Hash]struct{}
	serial int
	bytes  int64 // of keys and names, about
}

// What the parts of a tally take in memory, about: an entry of a map, and its share of
// the empty room that maps keep and of growing.
const (
	keyBytes    = 64
	deniedBytes = 160 // and the name
)

type ruleTally struct {
	out    *RuleResult
	marks  []mark // of the limits
	serial int    // the last check that touched the rule
	denied bool   // by it
}

// mark keeps a limit that decides several keys of one check from being counted
// twice.
type mark struct {
	serial int
	denied bool
}

func newTally(out *Result) *tally {
	t := &tally{out: out, rules: make(map[string]*ruleTally, len(out.Rules)), keys: make(map[limiter.Hash]struct{})}
	out.denied = make(map[counter]int)
	for i := range out.Rules {
		r := &out.Rules[i]
		out.HasShadow = out.HasShadow || r.Shadow
		t.rules[r.Name] = &ruleTally{out: r, marks: make([]mark, len(r.Limits))}
	}
	return t
}

// add counts one decision. name yields the name of the key of a limit.
func (t *tally) add(d *limiter.Decision, name func(*limiter.LimitDecision) string) {
	t.serial++
	t.out.Requests++
	switch {
	case !d.Allowed:
		t.out.Denied++
	case d.Rule == "":
		t.out.Unmatched++
		fallthrough
	default:
		t.out.Allowed++
	}
	if d.ShadowDenied {
		t.out.ShadowDenied++
	}
	if r := t.rules[d.Rule]; r != nil {
		t.touch(r) // the only sign of a rule without limits
	}
	for i := range d.Len() {
		l := d.Limit(i)
		if r := t.rules[l.Rule.Name]; r != nil {
			t.touch(r)
			t.limit(r, l)
		}
		if !l.Allowed && !l.Rule.Shadow {
			t.deny(counter{l.Rule.Name, name(l)})
		}
	}
}

func (t *tally) deny(c counter) {
	if _, ok := t.out.denied[c]; !ok {
		t.bytes += deniedBytes + int64(len(c.key))
	}
	t.out.denied[c]++
}

// addKeys counts the keys of a request that are new.
func (t *tally) addKeys(c *limiter.Charge) {
	for i := range c.Len() {
		k := c.Key(i)
		if _, ok := t.keys[k.Hash]; ok {
			continue
		}
		t.keys[k.Hash] = struct{}{}
		t.bytes += keyBytes
		if r := t.rules[k.Rule.Name]; r != nil {
			r.out.Keys++
		}
	}
}

// touch counts the rule as allowing the check, until one of its limits denies.
func (t *tally) touch(r *ruleTally) {
	if r.serial != t.serial {
		r.serial, r.denied = t.serial, false
		r.out.Allowed++
	}
}

func (t *tally) limit(r *ruleTally, l *limiter.LimitDecision) {
	i := slices.Index(l.Rule.Limits, l.Limit)
	if i < 0 || i >= len(r.marks) {
		return
	}
	m, out := &r.marks[i], &r.out.Limits[i]
	if m.serial != t.serial {
		*m = mark{serial: t.serial}
		out.Allowed++
	}
	if l.Allowed {
		return
	}
	if !m.denied {
		m.denied = true
		out.Allowed--
		count(&out.Denied, &out.ShadowDenied, r.out.Shadow)
	}
	if !r.denied {
		r.denied = true
		count(&r.out.Denied, &r.out.ShadowDenied, r.out.Shadow)
		if !r.out.Shadow {
			r.out.Allowed--
		}
	}
}

func count(denied, shadow *int, isShadow bool) {
	if isShadow {
		*shadow++
	} else {
		*denied++
	}
}

// Top returns the n keys that denied most, those of one count by name.
func (r *Result) Top(n int) []KeyCount {
	out := make([]KeyCount, 0, len(r.denied))
	for c, k := range r.denied {
		out = append(out, KeyCount{c.rule, c.key, k})
	}
	slices.SortFunc(out, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Clip(out[:min(n, len(out))])
}

// Change tells how the requests fare that two results decide differently.
type Change struct {
	// NewlyDenied were allowed by the first result, NewlyAllowed denied.
	NewlyDenied, NewlyAllowed int
}

// Since compares r with a first result of the same trace. Both must have been
// run to be compared.
func (r *Result) Since(first *Result) Change {
	var c Change
	for i, v := range r.verdicts {
		switch {
		case first.verdicts[i] == allowed && v == denied:
			c.NewlyDenied++
		case first.verdicts[i] == denied && v == allowed:
			c.NewlyAllowed++
		}
	}
	return c
}
