package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// maxAlternatives bounds the quotas of which one draw takes the first that admits.
const maxAlternatives = 4

// A draw on alternatives charges the first quota that admits it. A check of such a rule is decided by a set whose rules
// draw on their first alternatives, and if these deny, by one whose rules draw on the second ones, and so on: see
// [Set.Next]. So whatever decides knows of one alternative at a time, and charges it with the other keys or not at all.

// alternating is a decoder of draws on alternatives.
type alternating struct{ *decoder }

// draw decodes {any: [own, pool], cost: 5}.
func (d alternating) draw(r *definition, n *node) {
	shared := drawing{quota: -1, at: n}
	var list *node
	d.mapping(n, "a draw on one of several quotas", d.fields(&shared, &list), func(name string) string {
		if name == "name" || name == "up_to" {
			return quote(name) + ` belongs to one of the alternatives, as in any: [own, {name: pool, up_to: 80%}]`
		}
		return drawHint(name)
	})
	if slices.ContainsFunc(r.draws, func(w drawing) bool { return w.any > 0 }) {
		d.add(n, `this rule has an "any" already: a rule draws on one list of alternatives`)
		return
	}
	items := d.list(list, "any", maxAlternatives)
	if list.Kind != yamltree.List || len(items) < 2 {
		d.add(list, `"any" is a list of 2 to %d quotas, of which the first that admits is charged, as in any: [own, pool]`,
			maxAlternatives)
		return
	}
	for i, item := range items {
		w, name := shared, item
		w.at, w.any = item, uint8(i+1)
		if item.Kind == yamltree.Mapping {
			name = nil
			d.mapping(item, "a draw on a quota", d.itemFields(&w, &name), func(name string) string {
				if name == "cost" {
					return `the alternatives of a draw have one cost: write it beside "any", as in {any: [own, pool], cost: 5}`
				}
				return drawHint(name)
			})
			if name == nil {
				if !d.reported(item, "name") {
					d.add(item, "this alternative has no name: write the quota's, as in {name: pool, up_to: 80%%}")
				}
				continue
			}
		}
		if d.scalar(name, "the name of a quota") {
			quoting(d).draw(r, name.Text, w)
		}
	}
}

func (d alternating) fields(w *drawing, list **node) []field {
	return []field{
		{"any", func(_, v *node) { *list = v }},
		{"cost", func(_, v *node) { w.given = true; costing(d).costs(v, &w.costs) }},
	}
}

func (d alternating) itemFields(w *drawing, name **node) []field {
	return []field{
		{"name", func(_, v *node) { *name = v }},
		{"up_to", func(_, v *node) { quoting(d).upTo(v, w) }},
	}
}

// agree reports what a rule with alternatives cannot be: a denial by one of them is not the answer yet, so nothing may
// happen by it.
func (d alternating) agree(r *definition, at *ruleNodes) {
	i := slices.IndexFunc(r.draws, func(w drawing) bool { return w.any > 0 })
	if i < 0 {
		return
	}
	bad := func(format string, args ...any) {
		d.add(at.quotas, `"any" tries one quota after the other, `+format, args...)
	}
	switch {
	case r.shadow:
		bad("and a rule in shadow admits with each: remove \"shadow\", or draw on one quota")
		return
	case r.more:
		bad("and the rules after this one would be tried with each: remove \"continue\", or put this rule last")
		return
	}
	check := func(u *definition, what string) {
		for _, l := range u.limits {
			if l.CountRejected() != limiter.CountNone {
				bad("and %s%s would count each that denies as a rejected request: take count_rejected out of limit %s",
					u.title(), what, quote(l.Name()))
				return
			}
			if !u.shadow && l.Algorithm() == limiter.Concurrency {
				bad("which no id can, and %s%s limits concurrency, which needs one: take limit %s out", u.title(), what,
					quote(l.Name()))
				return
			}
		}
	}
	whole := func(u *definition, what string) {
		check(u, what)
		for _, w := range u.draws {
			q := &d.quotas[w.quota]
			if check(q, ""); w.any > 0 && q.shadow {
				bad("and quota %s is in shadow, so it admits all: put it in force, or remove it", quote(q.name))
			}
		}
	}
	whole(r, "")
	for j := range d.rules {
		if u := &d.rules[j]; u.more {
			whole(u, ", which is before and continues,")
		}
	}
}

// each returns a copy of each alternative of a set, the first of them the set itself, and lets f complete the others.
func (s *Set) each(f func(k int, other *Set)) (out []*Set) {
	for k, have := range s.alternatives {
		other := s
		if k > 0 {
			other = new(*have)
			f(k, other)
		}
		out = append(out, other)
	}
	for _, other := range out {
		other.alternatives = out
	}
	return out
}

// alternate makes the sets of the other alternatives.
func (s *Set) alternate() {
	most := uint8(0)
	for i := range s.rules {
		most = max(most, s.rules[i].alternatives)
	}
	if most == 0 {
		return
	}
	s.alternatives = make([]*Set, most)
	s.alternatives[0] = s
	for k := range s.alternatives[1:] {
		other := *s
		other.alternative, other.rules = k+1, slices.Clone(s.rules)
		for i := range other.rules {
			other.rules[i].alternative = uint8(k + 1)
		}
		s.alternatives[k+1] = &other
	}
	for _, other := range s.alternatives {
		other.alternatives = s.alternatives
	}
}

// lastOf returns the rule with alternatives that counts a request, nil if none does. It is the last that matches.
func (s *Set) lastOf(r *limiter.Request) *rule {
	names := []string{r.Rule}
	if r.Rule == "" {
		names = s.Matching(r)
	}
	if len(names) == 0 {
		return nil
	}
	if i, ok := s.byName[names[len(names)-1]]; ok && i < len(s.rules) && s.rules[i].alternatives > 0 {
		return &s.rules[i]
	}
	return nil
}

// Alternatives returns the sets by which a request is to be decided, one after the other as long as [Set.Next] says so.
// The first is the set itself.
func (s *Set) Alternatives(r *limiter.Request) []*Set {
	if s.alternatives == nil {
		return nil
	}
	if u := s.lastOf(r); u != nil {
		_, n := u.able(r)
		return s.alternatives[:n]
	}
	return nil
}

// able returns the draws that are the alternatives of a rule for a request, n of them in their order: those on quotas
// of which the request has the parts of a key. If it has those of none, the first is there alone, and says what is
// missing.
func (u *rule) able(r *limiter.Request) (out [maxAlternatives]*draw, n int) {
	for i := range u.draws {
		switch w := &u.draws[i]; {
		case w.any == 0:
		case w.quota.counts(r):
			out[n] = w
			n++
		case out[0] == nil:
			out[0] = w
		}
	}
	return out, max(n, 1)
}

// counts reports whether a request has the parts of a key.
func (n *counters) counts(r *limiter.Request) bool {
	return len(n.keys) == 0 || slices.ContainsFunc(n.keys, func(k key) bool {
		_, outcome := k.hash(r)
		return outcome != keySkipped
	})
}

// Next returns the set that is to decide a request after s has denied it, nil if the denial is final: the alternative
// on which the request drew had room, or it was the last one. beside is how long the denial has to wait for other keys:
// all alternatives have these, so a denial by an earlier one, which may not have met them yet, waits for them, too.
func (s *Set) Next(r *limiter.Request, d *limiter.Decision) (next *Set, beside time.Duration) {
	if s.alternatives == nil || d.Allowed {
		return nil, 0
	}
	u := s.lastOf(r)
	if u == nil {
		return nil, 0
	}
	able, n := u.able(r)
	if s.alternative >= n {
		return nil, 0
	}
	quota := able[s.alternative].quota.limiter.Name
	for _, l := range d.Limits() {
		switch {
		case l.Allowed || l.Rule == nil:
		case l.Rule.Name != quota && !l.Rule.Shadow:
			beside = max(beside, l.RetryAfter)
		case l.Rule.Name == quota && s.alternative+1 < n:
			next = s.alternatives[s.alternative+1]
		}
	}
	return next, beside
}

// Mark changes a receipt of a charge by this set so that it fits no other alternative, or changes it back.
func (s *Set) Mark(r *limiter.Receipt) {
	arith.Fields(r).Set ^= uint64(s.alternative) * 0x9e3779b97f4a7c15
}

// withoutID leaves the id out of a request with alternatives, or refuses it.
func withoutID(r *limiter.Request, c *arith.Charge) error {
	if r.IDOptional && r.Hold == 0 && !r.Lent {
		return nil
	}
	c.Clear()
	return fmt.Errorf("%w, by which each quota would have to know whether another was charged: "+
		"leave out the id and the hold",
		limiter.ErrNoID)
}

// rejectsBesides returns an error for limits of a request that count rejected requests beside a rule with alternatives.
func (s *Set) rejectsBesides(r *limiter.Request, c *arith.Charge) error {
	if s.alternatives == nil || s.lastOf(r) == nil || !slices.ContainsFunc(r.Limits, func(l *limiter.Limit) bool {
		return l.CountRejected() != limiter.CountNone
	}) {
		return nil
	}
	c.Clear()
	return fmt.Errorf("%w: a limit of the request counts rejected requests, and rule %s tries one quota after the other: "+
		"leave count_rejected out", limiter.ErrInvalid, quote(r.Rule))
}
