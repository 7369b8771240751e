package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Override is what an operator has decided about one user, or one address, and one rule, in place of the rule's limits.
// A limit counts all that the user, or the address, asks of the rule in one counter, whatever the rule's keys are.
// It concerns requests of the tenant that the rule matches, and that have the user, or the address. Where there are
// both, that of the user counts. A user is every spelling that a key of the rule counts together, so that nobody leaves
// an override by writing his name otherwise; one of the very spelling comes first, and of others the first of the list.
// Quotas on which the rule draws, and other rules that match, still count. A rule in shadow denies nothing, so an
// override of it has no effect.
type Override struct {
	// Rule, Tenant, and User or IP say which requests it concerns. Rule and one of User and IP are required, and IP has
	// the form that [OverrideAddress] returns.
	Rule, Tenant, User, IP string
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
		return nil, fmt.Errorf("%w: limit %s: %s (an override has one limit, such as 10/minute)", limiter.ErrInvalid,
			quote(notation), bad)
	}
	return limiter.NewLimit(limiter.Spec{Name: "override", Limit: n, Window: window})
}

// OverrideAddress returns the form in which an address is counted: 2001:db8::/64 for 2001:db8::1, as an address of IPv6
// counts as its network. The error wraps [limiter.ErrInvalid].
func OverrideAddress(text string) (string, error) {
	if err := checkIP(text); err != nil {
		return "", err
	}
	return countedIP(text), nil
}

// overrides are those of a set, by user and by address.
type overrides struct {
	plain *Set // the set without them
	// amends is the set with those that have a limit: a reservation is settled, also while its user is denied or free.
	amends *Set
	of     map[string][]override
	ofIP   map[string][]override
	// spelled are those of of whose rule counts several spellings of a user together, by what stands for most of them.
	spelled map[string][]override
	rules   map[tenantRule]bool // that are overridden for somebody
}

// tenantRule is a rule, for the requests of a tenant.
type tenantRule struct{ tenant, rule string }

// override is an override, resolved.
type override struct {
	Override
	rule *limiter.Rule // that counts; nil: none does
	fold folding       // by which the rule counts spellings of the user together
	key  key           // of its counter
	hash [2]arith.Hash // of its counter, under each secret
}

// request returns what the key of the counter is of.
func (x *override) request() *limiter.Request {
	return &limiter.Request{Tenant: x.Tenant, User: x.User, IP: x.IP}
}

// count makes what counts for an override with a limit: one counter of the user, or of the address. It is named as the
// rule's own is, if the rule has a key of the user or of the address alone.
func (x *override) count(plain *Set, i int) {
	own := plain.rules[i].limiter
	x.rule = &limiter.Rule{Name: OverridePrefix + x.Rule, Limits: []*limiter.Limit{x.Limit},
		OnUnreachable: own.OnUnreachable, Replication: own.Replication}
	sets := []*Set{plain}
	if plain.second != nil {
		sets = []*Set{plain.first, plain.second}
	}
	subject := part{kind: partIP}
	if x.User != "" {
		subject = part{kind: partUser, fold: x.fold}
	}
	for n, s := range sets {
		keys := s.rules[i].keys
		at := max(0, slices.IndexFunc(keys, func(k key) bool { return len(k.parts) == 1 && k.parts[0] == subject }))
		x.key = key{parts: []part{subject}, k0: keys[at].k0, k1: keys[at].k1}
		x.hash[n], _ = x.key.hash(x.request())
	}
}

// spellings returns by what any key of the rule counts spellings of users together.
func (u *rule) spellings() (f folding) {
	for i := range u.keys {
		for _, p := range u.keys[i].parts {
			if p.kind == partUser {
				f |= p.fold
			}
		}
	}
	return f
}

// SameUser reports whether a rule counts two spellings of a user together, so that an [Override] of one is one of both.
func (s *Set) SameUser(rule, one, other string) bool {
	i, ok := s.byName[rule]
	if !ok || i >= len(s.rules) {
		return one == other
	}
	f := s.rules[i].spellings()
	return f.of(one) == f.of(other)
}

// widest is by what more spellings count together than by any other.
const widest = foldCase | trimBlanks

// With returns a set with overrides in place of those that s has. Those about rules that s does not have, or that are
// in shadow, are left out. The sets share their caches. The hash stays that of the file.
func (s *Set) With(list []Override) *Set {
	plain := s
	if s.overrides != nil {
		plain = s.overrides.plain
	}
	o := &overrides{plain: plain, of: map[string][]override{}, ofIP: map[string][]override{},
		spelled: map[string][]override{}, rules: map[tenantRule]bool{}}
	for _, x := range list {
		i, ok := plain.byName[x.Rule]
		if !ok || i >= len(plain.rules) || plain.rules[i].limiter.Shadow {
			continue
		}
		y := override{Override: x, fold: plain.rules[i].spellings()}
		if x.Limit != nil && !x.Deny && len(plain.rules[i].keys) > 0 {
			y.count(plain, i)
		}
		o.rules[tenantRule{x.Tenant, x.Rule}] = true
		if x.User != "" {
			o.of[x.User] = append(o.of[x.User], y)
			if at := widest.of(x.User); y.fold != 0 {
				o.spelled[at] = append(o.spelled[at], y)
			}
		} else {
			o.ofIP[x.IP] = append(o.ofIP[x.IP], y)
		}
	}
	if len(o.of)+len(o.ofIP) == 0 {
		return plain
	}
	out := *plain
	out.overrides = o
	if limits := slices.DeleteFunc(slices.Clone(list), func(x Override) bool {
		return x.Deny || x.Limit == nil
	}); len(limits) < len(list) {
		o.amends = plain.With(limits)
	}
	if plain.second != nil {
		out.first, out.second = plain.first.With(list), plain.second.With(list)
	}
	out.alternatives = out.each(func(k int, other *Set) {
		other.overrides = &overrides{plain: plain.alternatives[k], of: o.of, ofIP: o.ofIP, spelled: o.spelled}
		if out.second != nil {
			other.first, other.second = out.first.alternatives[k], out.second.alternatives[k]
		}
	})
	return &out
}

// Charged returns the sets by which a check of a request may have been charged before operators decided about its user
// or its address as they do now; nil if none did. A settlement whose id is known by none of them is decided by s.
func (s *Set) Charged(r *limiter.Request) (sets []*Set) {
	if s.overrides == nil {
		return nil
	}
	a := s.overrides.about(r)
	by, some, limits := s, false, false
	for _, list := range a.lists() {
		for i := range list {
			x := &list[i]
			if !a.are(x) {
				continue
			}
			if some = true; x.rule != nil {
				limits = true
			} else if s.overrides.amends != nil {
				by = s.overrides.amends
			}
		}
	}
	if some {
		sets = append(sets, by)
	}
	if limits {
		sets = append(sets, s.overrides.plain) // a backend knows the counters of a limit by the rule's name
	}
	return sets
}

// about are the overrides that concern a request: of its user, and of its address.
type about struct {
	tenant, name  string
	user, spelled []override
	ip, wider     []override
}

// lists has what counts first first.
func (a *about) lists() [4][]override { return [...][]override{a.user, a.spelled, a.ip, a.wider} }

func (o *overrides) about(r *limiter.Request) (a about) {
	a.tenant, a.name = r.Tenant, r.User
	if r.User != "" {
		if a.user = o.of[r.User]; len(o.spelled) > 0 {
			a.spelled = o.spelled[widest.of(r.User)]
		}
	}
	if r.IP != "" && len(o.ofIP) > 0 {
		a.ip, a.wider = o.ofIP[countedIP(r.IP)], o.ofIP[wider(r.IP)]
	}
	return a
}

// wider returns what is counted of an address that a service counts by more than [address.IPv6Bits], such as
// 2001:db8::1/128, where others count it: an override of it concerns that service, too. It is empty for any other text.
func wider(text string) string {
	if strings.IndexByte(text, '/') < 0 {
		return ""
	}
	p, ok := readIP(text)
	if !ok || p.Addr().Is4() || p.Bits() <= address.IPv6Bits {
		return ""
	}
	return address.Counted(p.Addr(), address.IPv6Bits).String()
}

func (a *about) none() bool { return len(a.user)+len(a.spelled)+len(a.ip)+len(a.wider) == 0 }

// are reports whether an override of the lists is about the request: of its tenant, and of its user as the rule counts
// users.
func (a *about) are(x *override) bool {
	return x.Tenant == a.tenant && (x.User == "" || x.fold.of(x.User) == x.fold.of(a.name))
}

// rule returns the override of a rule, nil if there is none.
func (a *about) rule(name string) *override {
	for _, list := range a.lists() {
		for i := range list {
			if x := &list[i]; x.Rule == name && a.are(x) {
				return x
			}
		}
	}
	return nil
}

// resolve resolves a request, and puts overrides in place of the counters of their rules.
func (o *overrides) resolve(r *limiter.Request, c *arith.Charge) (Match, error) {
	m, err := o.plain.Resolve(r, c)
	if err != nil {
		return m, err
	}
	if r.Lent && r.Hold > 0 && (m.Count > 1 || o.rules[tenantRule{r.Tenant, m.Rule}]) {
		c.Clear() // whoever is lent units does not know of whom overrides are
		return Match{}, fmt.Errorf("%w: an override of rule %q is in force, or several rules count the request beside one: "+
			"nothing is lent to clients meanwhile", limiter.ErrInvalid, m.Rule)
	}
	a := o.about(r)
	if a.none() {
		return m, nil
	}
	free, denies := o.walk(r, &a)
	switch {
	case denies != nil:
		c.Clear()
		return Match{Rule: denies.Rule, Matched: Matched{Count: m.Count, Outcome: Overridden | Denied}}, nil
	case free.rule != "":
		if m, err = free.resolve(o.plain, r, c); err != nil {
			return m, err
		}
		m.Outcome |= Overridden
	}
	if !m.Outcome.Has(Denied) {
		m.replace(&a, c, o.plain.second != nil)
	}
	return m, nil
}

// replace puts limits of overrides in place of the counters of their rules.
func (m *Match) replace(a *about, c *arith.Charge, doubled bool) {
	var keys [limiter.MaxKeys]arith.Key
	n, changed := 0, false
	var counted [2][limiter.MaxKeys]*override
	var overs [2]int
	for i := range c.Len() {
		k, of := *c.Key(i), 0
		if doubled && i >= c.Len()/2 {
			of = 1
		}
		x := a.rule(k.Rule.Name)
		if x == nil {
			keys[n] = k
			n++
			continue
		}
		changed = true
		if x.rule == nil {
			continue
		}
		if slices.Contains(counted[of][:overs[of]], x) {
			continue // one counter for all of the rule's
		}
		counted[of][overs[of]] = x
		overs[of]++
		k.Rule, k.Hash, k.Index = x.rule, x.hash[of], 0
		keys[n] = k
		n++
	}
	if !changed {
		return
	}
	id, trace, peek := c.ID, c.Trace, c.Peek
	c.Clear()
	for i := range n {
		c.Add(keys[i])
	}
	c.ID, c.Trace, c.Peek = id, trace, peek
	shape(c)
	m.Outcome |= Overridden
	m.unlimited(n == 0)
}

// freed are the rules that decide a request in place of one that denies it: those that match before it.
type freed struct {
	rule string // that denies; empty: the request is not freed
	list []uint16
}

// walk goes through the rules that match a request, and returns what an override decides by itself: that the request is
// denied, or that it is freed of a rule that denies it.
func (o *overrides) walk(r *limiter.Request, a *about) (free freed, denies *override) {
	s, list := o.plain, []uint16(nil)
	switch i, named := s.byName[r.Rule]; {
	case r.Rule != "" && named:
		list = []uint16{uint16(i)}
	case r.Rule == "" && len(r.Limits) == 0:
		list = s.paths.match(r.Path, nil)
	}
	var ip requestAddress
	for at, i := range list {
		u := &s.rules[i]
		if r.Rule == "" && !u.plain && !u.match.accepts(r, &ip) {
			continue
		}
		x := a.rule(u.limiter.Name)
		switch {
		case x != nil && x.Deny:
			return freed{}, x
		case x != nil && x.Limit == nil && u.limiter.Deny != nil: // a limit frees nobody of a denial
			return freed{u.limiter.Name, list[:at]}, nil
		}
		if !u.more {
			break
		}
	}
	return freed{}, nil
}

// resolve resolves a request by the rules that are left.
func (f *freed) resolve(s *Set, r *limiter.Request, c *arith.Charge) (m Match, err error) {
	switch {
	case len(r.Limits) > 0:
		own := *r
		own.Rule = ""
		m, err = s.resolveOwn(&own, c)
	case s.second != nil:
		var second arith.Charge
		if m, err = f.resolve(s.first, r, c); err == nil {
			_, err = f.resolve(s.second, r, &second)
		}
		if err == nil {
			err = addKeys(c, &second)
		}
	default:
		c.Clear()
		m, err = s.fill(f.list, r, c, rulesAll)
	}
	if err != nil {
		c.Clear()
		return Match{}, err
	}
	if i := s.byName[m.Rule]; m.Rule == "" || m.Rule != limiter.RequestRule && s.rules[i].limiter.Shadow {
		m.Rule = f.rule
	}
	m.Count++
	m.unlimited(c.Len() == 0)
	return m, nil
}

// CheckOverride returns what is wrong with an override, nil if nothing is.
func (s *Set) CheckOverride(x Override) error {
	switch i, ok := s.byName[x.Rule]; {
	case !ok || i >= len(s.rules):
		return s.unknownRule(x.Rule)
	case (x.User == "") == (x.IP == ""):
		return fmt.Errorf("%w: an override needs the user, or the ip, that it is about, and not both", limiter.ErrInvalid)
	case s.rules[i].limiter.Shadow:
		return fmt.Errorf("%w: rule %s is in shadow and denies nothing, and so does an override of it: take the rule out of "+
			"shadow first, or override another", limiter.ErrInvalid, quote(x.Rule))
	case x.Limit != nil && s.rules[i].limiter.Deny != nil:
		return fmt.Errorf("%w: rule %s denies every request and counts nothing: an override may only allow a user all of "+
			"them", limiter.ErrInvalid, quote(x.Rule))
	case x.Limit != nil && len(s.rules[i].keys) == 0:
		return fmt.Errorf("%w: rule %s has no limits of its own, so a limit in place of them counts nothing: deny the user "+
			"all, or override a rule that has limits", limiter.ErrInvalid, quote(x.Rule))
	}
	return nil
}

// ofCounter returns the override of which a rule counts a request, nil if it counts for none.
func (o *overrides) ofCounter(r *limiter.Request, rule string) *override {
	name, is := strings.CutPrefix(rule, OverridePrefix)
	if o == nil || !is {
		return nil
	}
	a := o.about(r)
	return a.rule(name)
}
