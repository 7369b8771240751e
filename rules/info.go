package rules

import (
	"net/netip"
	"slices"

	"github.com/weirlimit/weir/limiter"
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
	Cost         uint32
	CostByMethod map[string]uint32
	// CostCases are tried in order; the first that a request fits sets the cost.
	CostCases []CostCase
	// ZoneFrom is the attribute that names the time zone of the rule's calendars; empty if
	// the file does. The zone of its limits is that of requests whose attribute names none.
	ZoneFrom string
	// Unlimited rules allow every request.
	Unlimited bool
	// Continue reports that further matches count, too.
	Continue bool
	// Warnings are those about this rule, see [Set.Warnings].
	Warnings []Warning
}

// Conditions are those of a rule or of a case of its cost. All that are set must hold.
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

// CostCase is the cost of requests that fulfil its conditions.
type CostCase struct {
	Conditions
	// Cost is the cost, in units, if From is empty.
	Cost uint32
	// From is the attribute that states the cost. A value below Min costs Min. One above
	// Max, or one that is not a whole number, costs Max. Default is the cost of a request
	// without the attribute.
	From              string
	Default, Min, Max uint32
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
		if i, ok := s.byName[w.Rule]; ok {
			out[i].Warnings = append(out[i].Warnings, w)
		}
	}
	return out
}

func (r *rule) info() RuleInfo {
	in := RuleInfo{
		Line: r.line, Rule: r.limiter, ZoneFrom: r.zoneFrom,
		Conditions: r.match.conditions(),
		Cost:       r.costs.def, Unlimited: len(r.keys) == 0, Continue: r.more,
		SkipMissing: len(r.keys) > 0 && r.keys[0].skip,
	}
	for i := range r.keys {
		names := make([]string, len(r.keys[i].parts))
		for j, p := range r.keys[i].parts {
			names[j] = p.String()
		}
		in.Keys = append(in.Keys, names)
	}
	if len(r.costs.methods) > 0 {
		in.CostByMethod = make(map[string]uint32, len(r.costs.methods))
		for _, m := range r.costs.methods {
			in.CostByMethod[m.method] = m.cost
		}
	}
	for i := range r.costs.cases {
		c := &r.costs.cases[i]
		in.CostCases = append(in.CostCases, CostCase{
			Conditions: c.match.conditions(), Cost: c.units, From: c.from, Default: c.def, Min: c.min, Max: c.max,
		})
	}
	return in
}

func (m *matcher) conditions() Conditions {
	c := Conditions{
		Path: m.path.String(), NotPath: m.notPath.String(),
		Methods: slices.Clone(m.methods), NotMethods: slices.Clone(m.notMethods),
		Groups: slices.Clone(m.groups), NotGroups: slices.Clone(m.notGroups),
		IPs: slices.Clone(m.ips), NotIPs: slices.Clone(m.notIPs),
		Hosts: slices.Clone(m.hosts), NotHosts: slices.Clone(m.notHosts),
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
