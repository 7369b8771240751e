package rules

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Match describes which rules matched a request.
type Match struct {
	// Rule is the name of the first rule in force that matched. If only shadow rules matched,
	// it is the name of the first of them. Empty if no rule matched.
	Rule string
	// Unzoned is the first rule or quota that takes its time zone from an attribute of the
	// request, if that attribute names no zone, so that its default zone counts, or that takes
	// a number from the request, which chooses none. It is nil if there is none, and must not be
	// changed.
	Unzoned *Unzoned
	Matched
}

// Matched says how a request matched. It is apart since the compiler keeps structs of up to
// four fields and four words in registers: a larger match costs each check of a batch 15 ns.
type Matched struct {
	// Count is how many rules matched. It is above one only with rules that have
	// "continue: true".
	Count int32
	// Outcome says what the rules that matched decide by themselves, without a counter.
	Outcome Outcome
	// Shadow reports that shadow rules matched, or rules that draw on quotas in shadow, so
	// the charge may have counters that deny nothing.
	Shadow bool
	// Unheld reports that a rule in force limits concurrency, and the charge has no hold: it
	// may only be a peek.
	Unheld bool
}

const _ = uint(32 - unsafe.Sizeof(Match{}))

// Resolve finds the rules for a request. It clears the charge and fills it with the
// counters of these rules, and of the quotas on which they draw. A quota on which several
// of them draw is charged the sum of their costs. The caller owns request and charge; neither is kept. If no
// rule matches, the charge is empty.
//
// If the request names a rule, that rule decides, whatever its conditions are. If the
// request has limits of its own, no rules are matched: these limits decide, under the name
// [limiter.RequestRule], and those of the rule that it names, if it names one.
//
// The errors wrap [limiter.ErrInvalid] and leave the charge empty. They are returned
// for
//
//   - a request that is too large (see [limiter.Request.CheckSize]), before any
//     pattern runs on it,
//   - a cost out of range,
//   - an IP that is neither an address, with or without a port, nor a network,
//   - a rule or a quota whose keys are all skipped because the request lacks a part of each,
//   - more than [limiter.MaxKeys] counters,
//   - a named rule that does not exist,
//   - own limits that are too many, nil, of the same name, or with a key that is not valid.
//
// For a rule outside the request's scope, and one that would hold what the caller may not settle, the error wraps
// [limiter.ErrForbidden] instead, and [limiter.ErrScope] as well if the request does not name the rule. Its text names
// the rule only if the request does.
// It has a method AuditText() string, whose text always does, for operators.
//
// A shadow rule is an experiment and makes no request invalid: its keys that cannot be
// resolved, and those for which the rules in force leave no room, are left out.
//
// Resolve is safe for concurrent use. It allocates nothing for a cached path, unless
// the request has limits of its own.
func (s *Set) Resolve(r *limiter.Request, c *arith.Charge) (Match, error) {
	if s.overrides != nil {
		return s.overrides.resolve(r, c)
	}
	if s.second != nil {
		return s.resolveBoth(r, c)
	}
	c.Clear()
	if err := r.CheckSize(); err != nil {
		return Match{}, err
	}
	if r.IP != "" {
		if err := checkIP(r.IP); err != nil {
			return Match{}, err
		}
	}
	if len(r.Limits) > 0 {
		return s.resolveOwn(r, c)
	}
	if r.Cost.Given() {
		if _, err := r.Cost.Value(0); err != nil {
			return Match{}, err
		}
	}
	if r.Rule != "" {
		return s.resolveNamed(r, c)
	}
	if s.cache != nil && len(r.Path) <= maxCachedPath {
		e, h := s.cache.get(r.Path)
		if e != nil {
			if len(e.rules) > 0 {
				u := &s.rules[e.rules[0]]
				if m, ok := u.fill(r, c); ok {
					if r.ID != "" {
						return s.identified(r, c, u, u.holds(r), m)
					}
					return m, nil
				}
			}
			return s.fill(e.rules, r, c, rulesAll)
		}
		return s.resolveFresh(r, c, h)
	}
	return s.resolveLong(r, c)
}

// resolveNamed resolves a request that names its rule.
func (s *Set) resolveNamed(r *limiter.Request, c *arith.Charge) (Match, error) {
	i, ok := s.byName[r.Rule]
	if !ok || i >= len(s.rules) {
		return Match{}, s.unknownRule(r.Rule)
	}
	u := &s.rules[i]
	if err := permitted(r, u); err != nil {
		return Match{}, err
	}
	m := u.alone()
	if u.limiter.Deny != nil && m.denies(u) {
		return m, nil
	}
	if u.counts {
		var err error
		if m.Unzoned, err = u.charge(r, c, &requestAddress{}, rulesAll); err != nil {
			c.Clear()
			return Match{}, err
		}
	}
	m.unlimited(c.Len() == 0)
	if r.ID != "" {
		return s.identified(r, c, u, u.holds(r), m)
	}
	return m, nil
}

// alone returns the match of a request that no other rule decides.
func (u *rule) alone() Match {
	return Match{Rule: u.limiter.Name, Matched: Matched{Count: 1, Shadow: u.counts && u.shadows,
		Unheld: u.ids.slots && !u.limiter.Shadow}}
}

func (s *Set) unknownRule(name string) error {
	if s.counters(name) != nil {
		return fmt.Errorf("%w: %s is a quota, not a rule: name a rule that draws on it", limiter.ErrInvalid, quote(name))
	}
	return fmt.Errorf("%w: there is no rule %s: name a rule of the rules file, or leave the name out to match by path",
		limiter.ErrInvalid, quote(name))
}

// resolveFresh resolves a request whose path is not in the cache.
func (s *Set) resolveFresh(r *limiter.Request, c *arith.Charge, h uint64) (Match, error) {
	var buf [64]uint16
	list := s.paths.match(r.Path, buf[:0])
	s.cache.put(r.Path, h, list)
	return s.fill(list, r, c, rulesAll)
}

// resolveLong resolves a request whose path is too long for the cache.
func (s *Set) resolveLong(r *limiter.Request, c *arith.Charge) (Match, error) {
	var buf [64]uint16
	return s.fill(s.paths.match(r.Path, buf[:0]), r, c, rulesAll)
}

// Which rules count a request.
type whichRules uint8

const (
	rulesAll whichRules = iota
	rulesInForce
	rulesShadow
)

// have reports whether a rule is one of them.
func (w whichRules) have(r *limiter.Rule) bool {
	return w == rulesAll || r.Shadow == (w == rulesShadow)
}

// fill adds the counters of those rules that the rest of the request fits, of
// the ones that its path matches.
func (s *Set) fill(list []uint16, r *limiter.Request, c *arith.Charge, which whichRules) (m Match, err error) {
	var (
		ip    requestAddress
		first *rule // the one that m names
		h     holding
	)
	onlyShadow := true
	for _, i := range list {
		u := &s.rules[i]
		if !u.plain && !u.match.accepts(r, &ip) {
			continue
		}
		if r.Scope != nil {
			if err := permitted(r, u); err != nil {
				c.Clear()
				return Match{}, err
			}
		}
		if m.Count++; m.Count == 1 || onlyShadow && !u.limiter.Shadow {
			first, m.Rule, onlyShadow = u, u.limiter.Name, u.limiter.Shadow
		}
		if !u.limiter.Shadow {
			m.Unheld = m.Unheld || u.ids.slots
			if r.ID != "" {
				h.note(u, r)
			}
		}
		switch {
		case u.limiter.Deny != nil:
			if m.denies(u) {
				c.Clear()
				return Match{Rule: u.limiter.Name, Matched: Matched{Count: m.Count, Outcome: m.Outcome}}, nil
			}
		case u.simple && which == rulesAll && !r.Cost.Given() && u.chargeOne(r, c):
			m.Shadow = m.Shadow || u.shadows
		case u.counts:
			unzoned, err := u.charge(r, c, &ip, which)
			if err != nil {
				return s.fillLess(list, r, c, which, err)
			}
			m.Unzoned, m.Shadow = cmp.Or(m.Unzoned, unzoned), m.Shadow || u.shadows
		}
		if !u.more {
			break
		}
	}
	m.unlimited(m.Count > 0 && c.Len() == 0)
	if r.ID != "" {
		if onlyShadow && first != nil {
			h = first.holds(r)
		}
		return s.identified(r, c, first, h, m)
	}
	return m, nil
}

// fill is [Set.fill] for what most requests are: the first rule that the path matches is simple and
// decides alone, by its own cost. Otherwise it adds nothing and returns false. It takes half as long.
func (u *rule) fill(r *limiter.Request, c *arith.Charge) (Match, bool) {
	if !u.simple || !u.plain || u.more || r.Cost.Given() ||
		r.Scope != nil && !r.Scope.Permits(u.limiter.Name) || !u.chargeOne(r, c) {
		return Match{}, false
	}
	return u.alone(), true
}

// fillLess goes on where fill failed. If a request counts by too many keys, rules in force
// go first, and shadow rules take the room that is left.
func (s *Set) fillLess(list []uint16, r *limiter.Request, c *arith.Charge, which whichRules, err error) (Match,
	error) {
	if which == rulesShadow { // they make no request invalid
		return Match{}, err
	}
	c.Clear()
	if _, full := errors.AsType[*fullError](err); !full || which == rulesInForce {
		return Match{}, err
	}
	m, err := s.fill(list, r, c, rulesInForce)
	if err == nil {
		_, _ = s.fill(list, r, c, rulesShadow)
		m.unlimited(m.Outcome.Has(Unlimited) && c.Len() == 0)
	}
	return m, err
}

// chargeOne adds the counter of a simple rule to a charge without a named cost, as charge
// does, which takes 5 ns more. It adds nothing and returns false if there is more to say.
func (u *rule) chargeOne(r *limiter.Request, c *arith.Charge) bool {
	hash, outcome := u.keys[0].hash(r)
	return outcome == keyHashed && c.Add(arith.Key{Hash: hash, Rule: u.limiter, Cost: u.costs.def})
}

// charge adds the counters of one rule and of the quotas on which it draws. It returns the
// first of them whose default zone counts, nil if there is none.
func (u *rule) charge(r *limiter.Request, c *arith.Charge, ip *requestAddress, which whichRules) (unzoned *Unzoned,
	err error) {
	cost := u.costs.def
	if r.Cost.Given() {
		cost, _ = r.Cost.Value(0) // Resolve has checked its range
	} else if len(u.costs.methods)+len(u.costs.cases) > 0 {
		cost = u.costs.of(r, ip)
	}
	before := c.Len()
	if which.have(u.limiter) {
		if len(u.keys) > 0 {
			err = u.costs.unnamed(r, ip, &u.counters)
		}
		if err != nil {
			return nil, err
		}
		if unzoned, err = u.counters.charge(r, c, cost, 0); err != nil {
			return nil, err
		}
	}
	if len(u.draws) > 0 {
		drawn, err := u.draw(r, c, ip, which, cost, before)
		return cmp.Or(unzoned, drawn), err
	}
	return unzoned, nil
}

// charge adds the counters. The first keys of the charge may have some of them already. It
// returns these counters if their default zone counts, else nil.
func (n *counters) charge(r *limiter.Request, c *arith.Charge, cost uint64, first int) (*Unzoned, error) {
	added := len(n.keys) == 0
	rule, unzoned, by := n.limiter, (*Unzoned)(nil), uint16(0)
	if n.zoneFrom != "" {
		if rule, unzoned = n.in(r); rule.Zone() != "" {
			by = askedBy(r)
		}
	} else if n.chosenBy != nil {
		if rule, unzoned = n.chosen(r); rule.ChosenBy() == limiter.ChosenByNumber {
			by = askedBy(r)
		}
	}
	for i := range n.keys {
		hash, outcome := n.keys[i].hash(r)
		if outcome == keySkipped {
			continue
		}
		if first > 0 && merge(c, first, rule, i, cost) {
			added = true
			continue
		}
		if !c.Add(arith.Key{Hash: hash, Rule: rule, Cost: cost, Index: uint8(i), By: by}) {
			return nil, &fullError{n.String()}
		}
		added = true
	}
	if !added && !n.limiter.Shadow {
		return nil, n.nothingToCount()
	}
	return unzoned, nil
}

// String returns what the counters belong to.
func (n *counters) String() string {
	if n.quota {
		return "quota " + strconv.Quote(n.limiter.Name)
	}
	return "rule " + strconv.Quote(n.limiter.Name)
}

// fullError is the error for more keys than a check may have.
type fullError struct{ what string }

func (e *fullError) Error() string {
	return fmt.Sprintf("%v: the rules that match count by more than %d keys together; %s is one too many",
		limiter.ErrInvalid, limiter.MaxKeys, e.what)
}

func (*fullError) Unwrap() error { return limiter.ErrInvalid }

func (n *counters) nothingToCount() error {
	names := make([]string, len(n.keys))
	for i := range n.keys {
		names[i] = n.keys[i].String()
	}
	return fmt.Errorf("%w: %s needs %s; the request lacks a part of each",
		limiter.ErrInvalid, n, strings.Join(names, " or "))
}

// AppendKeyName appends the displayed name of a counter and returns the extended slice.
// The name consists of the values of the key, in the order of the rules file, and the
// name of the limit, separated by colons, such as /towns:ada:minute. The tenant, if there is
// one, comes first. In values, % : { }
// are escaped as %25 and so on, as are control and format characters, which may hide what stands
// beside them. With a nil limit the name ends after the values.
//
// The request must be the one from which the key was resolved. A key of a rule that
// this set does not have is named by path and user.
func (s *Set) AppendKeyName(dst []byte, r *limiter.Request, k *arith.Key, l *limiter.Limit) []byte {
	from, rule := &s.own, limiter.RequestRule
	if k.Rule != nil {
		rule = k.Rule.Name
		if x := s.overrides.ofCounter(r, rule); x != nil {
			from, r = &x.key, x.request()
		} else if n := s.counters(rule); n != nil && int(k.Index) < len(n.keys) {
			from = &n.keys[k.Index]
		} else if rule == limiter.RequestRule && len(r.LimitKeys) > 0 {
			from = s.ownKey(r, int(k.Index))
		}
	}
	if r.Tenant != "" {
		dst = append(appendEscaped(dst, r.Tenant), ':')
	}
	dst = from.appendName(dst, rule, r)
	if l != nil {
		dst = append(dst, ':')
		dst = appendEscaped(dst, l.Name())
	}
	return dst
}
