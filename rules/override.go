package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Override is what an operator has decided about one user and one rule, in place of the rule's limits. It concerns
// requests that the rule matches, and that have the user, or, without one, the user as their IP. Quotas on which the
// rule draws, and other rules that match, still count.
type Override struct {
	// Rule, Tenant and User say which requests it concerns. Rule and User are required.
	Rule, Tenant, User string
	// Deny denies all of them. Otherwise Limit decides in place of the rule's limits, nil: nothing does, so the rule
	// allows them.
	Deny  bool
	Limit *limiter.Limit
}

// OverridePrefix begins the name of the rule that counts for an [Override] with a limit. The rest is the name of the
// rule that is overridden.
const OverridePrefix = "override:"

// OverrideLimit returns the limit of a notation such as 10/minute. The error wraps [limiter.ErrInvalid].
func OverrideLimit(notation string) (*limiter.Limit, error) {
	n, window, bad := rate(notation)
	if bad != "" {
		return nil, fmt.Errorf("%w: limit %s %s: give one such as 10/minute", limiter.ErrInvalid, quote(notation), bad)
	}
	return limiter.NewLimit(limiter.Spec{Name: "override", Limit: n, Window: window})
}

// overrides are those of a set.
type overrides struct {
	plain *Set // the set without them
	of    map[string][]override
}

// override is an override, resolved.
type override struct {
	Override
	rule *limiter.Rule // that counts; nil: none does
}

// With returns a set with overrides in place of those that s has. Those about rules that s does not have are left out.
// The sets share their caches. The hash stays that of the file.
func (s *Set) With(list []Override) *Set {
	plain := s
	if s.overrides != nil {
		plain = s.overrides.plain
	}
	o := &overrides{plain: plain, of: map[string][]override{}}
	for _, x := range list {
		i, ok := plain.byName[x.Rule]
		if !ok || i >= len(plain.rules) {
			continue
		}
		y := override{Override: x}
		if own := plain.rules[i].limiter; x.Limit != nil && !x.Deny {
			y.rule = &limiter.Rule{Name: OverridePrefix + x.Rule, Limits: []*limiter.Limit{x.Limit},
				OnUnreachable: own.OnUnreachable, Replication: own.Replication}
		}
		o.of[x.User] = append(o.of[x.User], y)
	}
	if len(o.of) == 0 {
		return plain
	}
	out := *plain
	out.overrides = o
	if plain.second != nil {
		out.first, out.second = plain.first.With(list), plain.second.With(list)
	}
	return &out
}

// overridden returns the override about a request and a rule, nil if there is none.
func (o *overrides) overridden(r *limiter.Request, rule string) *override {
	who := r.User
	if who == "" {
		who = r.IP
	}
	list := o.of[who]
	for i := range list {
		if x := &list[i]; x.Rule == rule && x.Tenant == r.Tenant && who != "" {
			return x
		}
	}
	return nil
}

// resolve resolves a request, and puts the override in place of the counters of its rule.
func (o *overrides) resolve(r *limiter.Request, c *arith.Charge) (Match, error) {
	m, err := o.plain.Resolve(r, c)
	who := r.User
	if who == "" {
		who = r.IP
	}
	if err != nil || who == "" || len(o.of[who]) == 0 {
		return m, err
	}
	if x := o.overridden(r, m.Rule); x != nil && (x.Deny || m.Outcome.Has(Denied)) {
		if !x.Deny && x.Limit != nil {
			return m, nil // the rule denies since the override was set, and counts nothing that a limit could replace
		}
		return o.whole(m, x, c), nil
	}
	var keys [limiter.MaxKeys]arith.Key
	n, changed := 0, false
	var first [limiter.MaxKeys]*override
	var index [limiter.MaxKeys]uint8
	overs := 0
	for i := range c.Len() {
		k := *c.Key(i)
		x := o.overridden(r, k.Rule.Name)
		switch {
		case x == nil:
			keys[n] = k
			n++
			continue
		case x.Deny:
			return o.whole(m, x, c), nil
		}
		changed = true
		if x.rule == nil {
			continue
		}
		at := slices.Index(first[:overs], x)
		if at < 0 {
			at = overs
			first[at], index[at] = x, k.Index
			overs++
		} else if index[at] != k.Index {
			continue // one key counts for all of the rule's
		}
		k.Rule = x.rule
		keys[n] = k
		n++
	}
	if !changed {
		return m, nil
	}
	id, trace, peek := c.ID, c.Trace, c.Peek
	c.Clear()
	for i := range n {
		c.Add(keys[i])
	}
	c.ID, c.Trace, c.Peek = id, trace, peek
	m.Outcome |= Overridden
	m.unlimited(n == 0)
	return m, nil
}

// whole returns the match of a request that an override decides by itself: it denies it, or allows what the rule
// denies.
func (o *overrides) whole(m Match, x *override, c *arith.Charge) Match {
	c.Clear()
	m = Match{Rule: x.Rule, Matched: Matched{Count: max(m.Count, 1), Outcome: Overridden}}
	if x.Deny {
		m.Outcome |= Denied
	}
	m.unlimited(!x.Deny)
	return m
}

// CheckOverride returns what is wrong with an override, nil if nothing is.
func (s *Set) CheckOverride(x Override) error {
	switch i, ok := s.byName[x.Rule]; {
	case !ok || i >= len(s.rules):
		return s.unknownRule(x.Rule)
	case x.User == "":
		return fmt.Errorf("%w: an override needs the user that it is about", limiter.ErrInvalid)
	case x.Limit != nil && s.rules[i].limiter.Deny != nil:
		return fmt.Errorf("%w: rule %s denies every request and counts nothing: an override may only allow a user all of "+
			"them", limiter.ErrInvalid, quote(x.Rule))
	}
	return nil
}

// ruleOf returns the name of the rule whose keys a rule has: of one that counts for an override, the rule that it
// overrides.
func (o *overrides) ruleOf(name string) string {
	if o == nil {
		return name
	}
	return strings.TrimPrefix(name, OverridePrefix)
}
