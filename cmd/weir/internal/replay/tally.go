// Package replay decides the requests of a log under rules and counts the results.
package replay

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Result is the result of one trace under one rules file.
type Result struct {
	// RulesFile is the name of the rules file, as given.
	RulesFile string
	// Requests is the number of decided requests, each Allowed or Denied. Unmatched
	// counts the allowed requests that no rule matched.
	Requests, Allowed, Denied, Unmatched int
	// HasShadow reports whether the file has shadow rules. ShadowDenied counts the
	// requests that they would have denied.
	HasShadow    bool
	ShadowDenied int
	// Shortened counts requests with values that are too long, and that were decided with
	// shorter ones. FirstLong is how a node refuses the first of them.
	Shortened int
	FirstLong error
	// Refused counts requests that could not be decided.
	Refused int
	// FirstRefusal is the reason for the first of them, nil if there was none.
	FirstRefusal error
	// Rules are in the order of the file; the quotas follow.
	Rules []RuleResult
	// First and Last are the times of the first and the last request of the trace.
	First, Last limiter.Tick
	// Series is the course over time, starting at SeriesStart.
	Series      []Slot
	SeriesStart limiter.Tick
	SlotLength  limiter.Tick
	// Bytes is the approximate memory of the result.
	Bytes int64

	denied   map[counter]int
	verdicts []verdict
}

// RuleResult counts the requests that a rule matched, or that drew on a quota. Allowed and Denied are the rule's
// own verdict, whatever other rules decided. A shadow rule denies none; ShadowDenied
// counts what it would have denied. Keys is the number of distinct keys of its
// requests; each key has its own limits. The verdicts of quotas on which a rule draws are
// not its own: a rule without limits allows what it matches.
type RuleResult struct {
	Name                          string
	Quota                         bool
	Shadow                        bool
	Allowed, Denied, ShadowDenied int
	Keys                          int
	Limits                        []LimitResult
}

// LimitResult counts the requests that a limit decided. Denied counts each request that
// the limit by itself would deny; for a shadow rule ShadowDenied does.
type LimitResult struct {
	Name                          string
	Allowed, Denied, ShadowDenied int
}

// Slot counts the decisions of one slot of time.
type Slot struct{ Allowed, Denied int }

// KeyCount is the number of denials of a key.
type KeyCount struct {
	// Rule is the name of the rule that has the key.
	Rule string
	// Key is the key's name, such as /towns:ada:minute.
	Key    string
	Denied int
}

// verdict is the result of one request.
type verdict uint8

const (
	refused verdict = iota
	allowed
	denied
)

// counter distinguishes keys of different rules with the same name.
type counter struct{ rule, key string }

// tally counts decisions into a Result.
type tally struct {
	out    *Result
	rules  map[string]*ruleTally
	keys   map[arith.Hash]struct{}
	serial int
	bytes  int64 // approximate memory of keys and names
}

// Approximate memory of the parts of a tally, in bytes: of a map entry, with its share
// of the spare room of maps and of growth.
const (
	keyBytes    = 64
	deniedBytes = 160 // plus the name
)

type ruleTally struct {
	out    *RuleResult
	marks  []mark // of the limits
	serial int    // the last check that affected the rule
	denied bool   // whether the rule denied that check
}

// mark prevents a limit that decides several keys of one check from being counted
// twice.
type mark struct {
	serial int
	denied bool
}

func newTally(out *Result) *tally {
	t := &tally{out: out, rules: make(map[string]*ruleTally, len(out.Rules)), keys: make(map[arith.Hash]struct{})}
	out.denied = make(map[counter]int)
	for i := range out.Rules {
		r := &out.Rules[i]
		out.HasShadow = out.HasShadow || r.Shadow
		t.rules[r.Name] = &ruleTally{out: r, marks: make([]mark, len(r.Limits))}
	}
	return t
}

// add counts one decision. name returns the name of the key of a limit.
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

// addKeys counts the keys of the request that was added last, as far as they are new, and
// its first rule, which may have no limits.
func (t *tally) addKeys(c *arith.Charge, rule string) {
	if r := t.rules[rule]; r != nil {
		t.touch(r)
	}
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

// touch counts the check as allowed by the rule, until one of its limits denies.
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

// Top returns the n keys that denied most; equal counts are sorted by name.
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

// Change counts the requests that two results decide differently.
type Change struct {
	// NewlyDenied were allowed by the first result; NewlyAllowed were denied by it.
	NewlyDenied, NewlyAllowed int
}

// Since compares r with a first result of the same trace. Both runs must have had
// Compare set.
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
