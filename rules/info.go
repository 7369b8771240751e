package rules

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// RuleInfo describes one rule of a set, with its defaults filled in.
type RuleInfo struct {
	// Line is the line in the file where the rule begins, from 1.
	Line int
	// Rule has the name, the limits and the policies. It belongs to the set and must
	// not be changed.
	Rule *limiter.Rule
	// Conditions are what a request must fulfil to match.
	Conditions
	// Keys are the keys of the counters, each a list of parts such as "path" or
	// "attr:plan"; empty if the rule is unlimited.
	Keys [][]string
	// SkipMissing reports that a request which lacks a part of a key is not counted by
	// that key ("keys" in the file). Otherwise a substitute is used for the part
	// ("key").
	SkipMissing bool
	// Cost is the cost of a check, in units, unless CostByMethod, CostCases or the
	// request itself sets another.
	Cost         uint64
	CostByMethod map[string]uint64
	// CostCases are tried in order; the first that a request fits sets the cost.
	CostCases []CostCase
	// IDTTL is how long ids of requests are remembered, at most.
	IDTTL time.Duration
	// ZoneFrom is the attribute that names the time zone of the rule's calendars; empty if
	// the file names it. The zone of its limits applies to requests whose attribute names none.
	ZoneFrom string
	// Numbers says how requests choose the numbers of limits; its zero value: they do not.
	Numbers Numbers
	// Draws are the quotas on which the rule draws, in the order of the file.
	Draws []DrawInfo
	// Unlimited rules allow every request; those with a Rule.Deny deny it.
	Unlimited bool
	// Continue reports that further matches count, too.
	Continue bool
	// Warnings are the warnings about this rule, see [Set.Warnings].
	Warnings []Warning
}

// Conditions are the conditions of a rule, or of a case of its cost. All that are set must hold.
type Conditions struct {
	// Path and NotPath are patterns; empty means every path.
	Path, NotPath string
	// Methods (in upper case) and Groups are those that match; empty means all.
	Methods, Groups []string
	// NotMethods and NotGroups are those that do not match.
	NotMethods, NotGroups []string
	// IPs are the addresses that match, NotIPs those that do not; empty means all. A
	// request without a valid address is in neither.
	IPs, NotIPs []netip.Prefix
	// Hosts and NotHosts are the same for attribute [HostAttribute], in lower case;
	// "*.example.com" stands for all names below example.com.
	Hosts, NotHosts []string
	// Users are the users that match.
	Users Users
	// Attributes are the required attributes, with the values that match; an empty list
	// means any value.
	Attributes map[string][]string
	// AttributePatterns are patterns that attributes must match.
	AttributePatterns map[string]string
	// NotAttributes and NotAttributePatterns are values and patterns that attributes
	// must not have or match; a request without the attribute fulfils them, unless the
	// values contain the empty one.
	NotAttributes        map[string][]string
	NotAttributePatterns map[string]string
}

// Users is a condition on the user of a request. Its zero value fits all.
type Users struct {
	// Names are the users that match, NotNames those that do not. The empty name is that of a request without a
	// user.
	Names, NotNames []string
	// Pattern and NotPattern are patterns of users. None fits the empty name.
	Pattern, NotPattern string
}

// CostCase is the cost of requests that fulfil its conditions.
type CostCase struct {
	Conditions
	// Cost is the cost, in units, if From is empty.
	Cost uint64
	// From is the attribute that states the cost. A value below Min costs Min. One above
	// Max, or one that is not a whole number, costs Max. Default is the cost of a request
	// without the attribute.
	From              string
	Default, Min, Max uint64
}

// DrawInfo describes the draw of a rule on a quota.
type DrawInfo struct {
	// Quota has the quota's name, limits and policies. It belongs to the set and must not
	// be changed.
	Quota *limiter.Rule
	// Cost, CostByMethod and CostCases are the cost of a draw, in units, as in [RuleInfo];
	// those of the rule if the file sets no others.
	Cost         uint64
	CostByMethod map[string]uint64
	CostCases    []CostCase
	// UpTo is how many percent of the quota's limits the draw may use; 0: all.
	UpTo uint8
	// Alternative is which of the alternatives of the rule it is, from 1; 0: it is required.
	Alternative uint8
}

// QuotaInfo describes one quota of a set, with its defaults filled in.
type QuotaInfo struct {
	// Line is the line in the file where the quota begins, from 1.
	Line int
	// Rule has the quota's name, limits and policies. It belongs to the set and must not
	// be changed.
	Rule *limiter.Rule
	// Keys and SkipMissing are those of its counters, as in [RuleInfo].
	Keys        [][]string
	SkipMissing bool
	// ZoneFrom is the attribute that names the time zone, as in [RuleInfo].
	ZoneFrom string
	// Numbers says how requests choose the numbers of limits, as in [RuleInfo].
	Numbers Numbers
	// DrawnBy are the names of the rules that draw on it, in the order of the file.
	DrawnBy []string
	// Warnings are those about this quota, see [Set.Warnings].
	Warnings []Warning
}

// Len returns the number of rules.
func (s *Set) Len() int { return len(s.rules) }

// Rules describes the rules in the order of the file. The caller owns the slice, but
// must not change what its elements point to.
func (s *Set) Rules() []RuleInfo {
	out := make([]RuleInfo, len(s.rules))
	for i := range s.rules {
		out[i] = s.rules[i].info()
	}
	for _, w := range s.warnings {
		if i, ok := s.byName[w.Rule]; ok && i < len(out) {
			out[i].Warnings = append(out[i].Warnings, w)
		}
	}
	return out
}

// Quotas describes the quotas in the order of the file. The caller owns the slice, but must
// not change what its elements point to.
func (s *Set) Quotas() []QuotaInfo {
	out := make([]QuotaInfo, len(s.quotas))
	for i := range s.quotas {
		q := &s.quotas[i]
		out[i] = QuotaInfo{Line: q.line, Rule: q.limiter, ZoneFrom: q.zoneFrom, Keys: q.names(), SkipMissing: q.skips(),
			Numbers: q.numbers.info()}
		for j := range s.rules {
			if slices.ContainsFunc(s.rules[j].draws, func(w draw) bool { return w.quota == q }) {
				out[i].DrawnBy = append(out[i].DrawnBy, s.rules[j].limiter.Name)
			}
		}
	}
	for _, w := range s.warnings {
		if i, ok := s.byName[w.Rule]; ok && i >= len(s.rules) {
			out[i-len(s.rules)].Warnings = append(out[i-len(s.rules)].Warnings, w)
		}
	}
	return out
}

// Matching returns the names of all rules that match a request, in the order of the file;
// for a request that names its rule or has limits of its own, that name. The request must
// be one that Resolve accepts.
func (s *Set) Matching(r *limiter.Request) []string {
	switch {
	case len(r.Limits) > 0:
		return []string{limiter.RequestRule}
	case r.Rule != "":
		return []string{r.Rule}
	}
	out := []string{}
	var ip requestAddress
	for _, i := range s.paths.match(r.Path, nil) {
		u := &s.rules[i]
		if !u.plain && !u.match.accepts(r, &ip) {
			continue
		}
		if out = append(out, u.limiter.Name); !u.more {
			break
		}
	}
	return out
}

// DrawnBy returns the name of the first rule in force that matches a request and draws on
// the named quota; empty if there is none. The request must be one that Resolve
// accepts.
func (s *Set) DrawnBy(r *limiter.Request, quota string) string {
	n := s.counters(quota)
	if n == nil || !n.quota {
		return ""
	}
	names := s.Matching(r)
	if r.Rule != "" {
		names = []string{r.Rule} // also beside limits of the request
	}
	for _, name := range names {
		if i, ok := s.byName[name]; ok && i < len(s.rules) && !s.rules[i].limiter.Shadow &&
			slices.ContainsFunc(s.rules[i].draws, func(w draw) bool { return w.quota == n }) {
			return name
		}
	}
	return ""
}

// ZoneDefault returns the rule of a request's [Match.Unzoned]; empty if it has none, or if the
// request cannot be resolved.
func (s *Set) ZoneDefault(r *limiter.Request) string {
	if !s.zoned {
		return ""
	}
	var c arith.Charge
	if m, _ := s.Resolve(r, &c); m.Unzoned != nil && !m.Unzoned.Number {
		return m.Unzoned.Rule
	}
	return ""
}

func (n *counters) names() (out [][]string) {
	for i := range n.keys {
		names := make([]string, len(n.keys[i].parts))
		for j, p := range n.keys[i].parts {
			names[j] = p.String()
		}
		out = append(out, names)
	}
	return out
}

// skips reports whether a request that lacks a part of a key is not counted by it.
func (n *counters) skips() bool { return len(n.keys) > 0 && n.keys[0].skip }

func (r *rule) info() RuleInfo {
	in := RuleInfo{
		Line: r.line, Rule: r.limiter, ZoneFrom: r.zoneFrom, Numbers: r.numbers.info(),
		Conditions: r.match.conditions(), Keys: r.names(), SkipMissing: r.skips(),
		Cost: r.costs.def, IDTTL: r.ids.life(), Unlimited: !r.counts && r.limiter.Deny == nil, Continue: r.more,
	}
	in.CostByMethod, in.CostCases = r.costs.info()
	for i := range r.draws {
		w, of := &r.draws[i], &r.costs
		if w.costs != nil {
			of = w.costs
		}
		d := DrawInfo{Quota: w.quota.limiter, Cost: of.def, UpTo: w.upTo, Alternative: w.any}
		d.CostByMethod, d.CostCases = of.info()
		in.Draws = append(in.Draws, d)
	}
	return in
}

func (o *costs) info() (byMethod map[string]uint64, cases []CostCase) {
	for _, m := range o.methods {
		put(&byMethod, m.method, m.cost)
	}
	for i := range o.cases {
		c := &o.cases[i]
		cases = append(cases, CostCase{
			Conditions: c.match.conditions(), Cost: c.units, From: c.from, Default: c.def, Min: c.min, Max: c.max,
		})
	}
	return byMethod, cases
}

func (m *matcher) conditions() Conditions {
	c := Conditions{
		Path: m.path.String(), NotPath: m.notPath.String(),
		Methods: slices.Clone(m.methods), NotMethods: slices.Clone(m.notMethods),
		Groups: slices.Clone(m.groups), NotGroups: slices.Clone(m.notGroups),
		IPs: slices.Clone(m.ips), NotIPs: slices.Clone(m.notIPs),
		Hosts: slices.Clone(m.hosts), NotHosts: slices.Clone(m.notHosts),
		Users: Users{
			Names: slices.Clone(m.user.is.list), NotNames: slices.Clone(m.user.not.list),
			Pattern: m.user.is.pattern.String(), NotPattern: m.user.not.pattern.String(),
		},
	}
	for i := range m.attributes {
		a := &m.attributes[i]
		if a.is.pattern != nil {
			put(&c.AttributePatterns, a.name, a.is.pattern.text)
		} else if a.is.given {
			put(&c.Attributes, a.name, slices.Clone(a.is.list))
		}
		if a.not.pattern != nil {
			put(&c.NotAttributePatterns, a.name, a.not.pattern.text)
		} else if a.not.given {
			put(&c.NotAttributes, a.name, slices.Clone(a.not.list))
		}
	}
	return c
}

// put adds an entry to a map that may be nil.
func put[V any](m *map[string]V, name string, v V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[name] = v
}
