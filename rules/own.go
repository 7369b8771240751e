package rules

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// resolveOwn resolves a request with limits of its own.
func (s *Set) resolveOwn(r *limiter.Request, c *arith.Charge) (m Match, err error) {
	if err := checkOwn(r); err != nil {
		return Match{}, err
	}
	cost, err := r.Cost.Value(1)
	if err != nil {
		return Match{}, err
	}
	if r.Rule != "" {
		if m, err = s.resolveNamed(r, c); err != nil {
			return Match{}, err
		}
		if err = s.rejectsBesides(r, c); err != nil {
			return Match{}, err
		}
		if m.Outcome.Has(Denied) {
			return m, nil
		}
	}
	if err := s.chargeOwn(r, c, cost); err != nil {
		c.Clear()
		return Match{}, err
	}
	// A shadow rule decides nothing, so the request's own limits are named.
	m.unlimited(false)
	if m.Count++; m.Rule == "" || s.rules[s.byName[m.Rule]].limiter.Shadow {
		m.Rule = limiter.RequestRule
	}
	if r.ID != "" {
		var named *rule
		var h holding
		if i, ok := s.byName[r.Rule]; ok && i < len(s.rules) {
			named = &s.rules[i]
			h = named.holds(r)
		}
		if _, err = s.identify(r, c, named, h); err != nil {
			return Match{}, err
		}
	}
	return m, nil
}

// askedBy returns [arith.Key.By] of a request.
func askedBy(r *limiter.Request) uint16 {
	if r.Tenant == "" && r.Caller != "" {
		return arith.TenantLabel("identity " + r.Caller)
	}
	return 0
}

// chargeOwn adds the keys of a request's own limits: one for all limits that count by the
// same parts.
func (s *Set) chargeOwn(r *limiter.Request, c *arith.Charge, cost uint64) error {
	by := askedBy(r)
	for index := 0; ; index++ {
		k, limits := &s.own, r.Limits
		if len(r.LimitKeys) > 0 {
			if k, limits = s.ownKey(r, index), limitsOf(r, index); len(limits) == 0 {
				return nil
			}
		}
		hash, _ := k.hash(r) // no part of it is skipped
		rule := s.ownRule(r, limits)
		if !c.Add(arith.Key{Hash: hash, Rule: rule, Cost: cost, Index: uint8(index), By: by}) {
			return &fullError{limiter.RequestRule}
		}
		if len(r.LimitKeys) == 0 {
			return nil
		}
	}
}

// recentRules keeps the rules of limits of requests, so that one who sends a limit again and
// again, as one value, needs no new rule for each check. A rule is at the place that its
// limit's hash names, and gives way to another.
type recentRules [256]atomic.Pointer[limiter.Rule]

func (s *Set) ownRule(r *limiter.Request, limits []*limiter.Limit) *limiter.Rule {
	if len(limits) != 1 || len(r.LimitKeys) > 0 {
		return &limiter.Rule{Name: limiter.RequestRule, Limits: slices.Clone(limits), Replication: s.copied}
	}
	at := &s.recent[uint8(arith.ParamsID(limits[0]))]
	if have := at.Load(); have != nil && have.Limits[0] == limits[0] {
		return have
	}
	rule := &limiter.Rule{Name: limiter.RequestRule, Limits: slices.Clone(limits), Replication: s.copied}
	at.Store(rule)
	return rule
}

// pathAndUser is how limits of a request count that name no key.
const pathAndUser = "path,user"

// partsOf returns the parts of the key of limit i, joined by commas. A part is a name of
// the rules file, so two lists of parts are equal if their texts are: an attribute's name
// has no comma here.
func partsOf(r *limiter.Request, i int) string {
	if i >= len(r.LimitKeys) || len(r.LimitKeys[i]) == 0 {
		return pathAndUser
	}
	return strings.Join(r.LimitKeys[i], ",")
}

// limitsOf returns the limits of the key with an index: keys are numbered in the order in
// which limits name them. It is empty beyond the last.
func limitsOf(r *limiter.Request, index int) (out []*limiter.Limit) {
	parts, ok := ownParts(r, index)
	for i, l := range r.Limits {
		if ok && partsOf(r, i) == parts {
			out = append(out, l)
		}
	}
	return out
}

func ownParts(r *limiter.Request, index int) (parts string, ok bool) {
	for i := range r.Limits {
		parts := partsOf(r, i)
		first := true
		for j := range i {
			first = first && partsOf(r, j) != parts
		}
		if !first {
			continue
		}
		if index == 0 {
			return parts, true
		}
		index--
	}
	return "", false
}

// ownKey returns the key with an index of a request's own limits. Its hash is keyed by
// its parts and the key of the set, so that limits which count by other parts have other
// counters.
func (s *Set) ownKey(r *limiter.Request, index int) *key {
	text, ok := ownParts(r, index)
	if !ok || text == pathAndUser {
		return &s.own
	}
	k := new(key)
	for name := range strings.SplitSeq(text, ",") {
		p, _ := namedPart(name) // checkOwn has checked it
		k.parts = append(k.parts, p)
	}
	// No key has such a header, since values are shorter.
	k.k0, k.k1 = siphash.Hash128(s.own.k0, s.own.k1, append([]byte{0xff, 0xff}, text...))
	return k
}

// checkOwn returns an error for limits of a request that are not valid.
func checkOwn(r *limiter.Request) error {
	if len(r.Limits) > limiter.MaxLimits {
		return fmt.Errorf("%w: the request has %d limits; at most %d are allowed", limiter.ErrInvalid, len(r.Limits),
			limiter.MaxLimits)
	}
	if len(r.LimitKeys) > len(r.Limits) {
		return fmt.Errorf("%w: the request has %d limits and keys for %d", limiter.ErrInvalid, len(r.Limits),
			len(r.LimitKeys))
	}
	for i, l := range r.Limits {
		if l == nil || l.Window() == 0 {
			return fmt.Errorf("%w: limit %d of the request is nil or empty: make limits with NewLimit", limiter.ErrInvalid, i)
		}
		if l.Algorithm() == limiter.Concurrency {
			return fmt.Errorf("%w: limit %d of the request is on concurrency, which only rules of the rules file limit: name "+
				"such a rule", limiter.ErrInvalid, i)
		}
		if l.Algorithm() > limiter.Concurrency {
			return fmt.Errorf("%w: limit %d of the request has algorithm number %d, which no limit may have: give one of %s",
				limiter.ErrInvalid, i, l.Algorithm(), strings.Join(limiter.AlgorithmNames(), ", "))
		}
		if l.Spec().Ceiling != 0 {
			return fmt.Errorf("%w: limit %d of the request has a ceiling, which only draws of the rules file have: give a "+
				"lower limit", limiter.ErrInvalid, i)
		}
		for j, o := range r.Limits[:i] {
			if o.Name() == l.Name() && partsOf(r, i) == partsOf(r, j) {
				return fmt.Errorf("%w: two limits of the request are named %q: give them names", limiter.ErrInvalid, l.Name())
			}
		}
	}
	for i, parts := range r.LimitKeys {
		if len(parts) > maxKeyParts {
			return fmt.Errorf("%w: the key of limit %d of the request has %d parts; at most %d are allowed", limiter.ErrInvalid,
				i, len(parts), maxKeyParts)
		}
		for j, name := range parts {
			_, bad := namedPart(name)
			if bad == "" && strings.Contains(name, ",") {
				bad = "an attribute of a request's own key has no comma in its name"
			}
			if bad == "" && slices.Contains(parts[:j], name) {
				bad = quote(name) + " is in the key already"
			}
			if bad != "" {
				return fmt.Errorf("%w: the key of limit %d of the request: %s", limiter.ErrInvalid, i, bad)
			}
		}
	}
	return nil
}
