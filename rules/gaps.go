package rules

import (
	"slices"
	"strings"
)

// gap is a rule that limits by listed values of an attribute, or by groups.
type gap struct {
	r     *definition
	name  string // of the attribute; empty: groups
	bare  matcher
	at    *node
	first string // the value that is shown
}

// unlistedValues warns about rules that limit by listed values of an attribute, or by groups, where a request with
// another value finds no rule: plan "Pro" beside rules for "free" and "pro" has no limit. One rule alone that lists
// values is meant for these only.
func unlistedValues(rules []definition, e *effort) (out []Warning) {
	for i := range rules {
		r := &rules[i]
		if r.unlimited || r.shadow || r.denial != nil {
			continue
		}
		for j := range r.match.attributes {
			a := &r.match.attributes[j]
			if !a.lists() || slices.Contains(a.is.list, "") && len(a.is.list) == 1 {
				continue
			}
			g := gap{r: r, name: a.name, bare: r.match, at: a.at, first: a.is.list[len(a.is.list)-1]}
			if !severalLists(rules, a.name, e) {
				continue
			}
			g.bare.attributes = slices.Delete(slices.Clone(r.match.attributes), j, j+1)
			w, ok := g.warning(rules, rules[:i], e)
			if out = append(out, w...); !ok {
				return out
			}
		}
		if len(r.match.groups) > 0 && severalLists(rules, "", e) {
			g := gap{r: r, bare: r.match, at: r.at, first: r.match.groups[0]}
			g.bare.groups = nil
			w, ok := g.warning(rules, rules[:i], e)
			if out = append(out, w...); !ok {
				return out
			}
		}
	}
	return out
}

// severalLists reports whether rules tell values of an attribute apart, or groups: two of them list different ones, or
// one has the absent value among others.
func severalLists(rules []definition, name string, e *effort) bool {
	var first []string
	for i := range rules {
		if !e.spend(pairWork, &rules[i]) {
			return false
		}
		list := rules[i].match.listed(name)
		switch {
		case len(list) == 0 || rules[i].shadow:
		case len(list) > 1 && list[0] == "", first != nil && !slices.Equal(list, first):
			return true
		default:
			first = list
		}
	}
	return false
}

// other is a value that no file lists.
const other = "\x00another"

// warning returns the warning of a gap, if there is one that no earlier rule has. It returns false if the effort does
// not suffice.
func (g *gap) warning(rules, earlier []definition, e *effort) (_ []Warning, ok bool) {
	var lacks []string
	for _, v := range []string{other, ""} {
		if v == "" && g.name == "" {
			v = DefaultGroup
		}
		covered := false
		for i := range rules {
			o := &rules[i]
			if !e.spend(2*o.match.coverWork(&g.bare), g.r) {
				return nil, false
			}
			if !o.shadow && o.match.coversWith(&g.bare, g.name, v) {
				covered = true
				break
			}
		}
		if !covered {
			lacks = append(lacks, v)
		}
	}
	if len(lacks) == 0 {
		return nil, true
	}
	for i := range earlier { // one with the same gap has the warning
		o := &earlier[i]
		if o.unlimited || o.shadow || o.denial != nil || len(o.match.listed(g.name)) == 0 {
			continue
		}
		bare := o.match.without(g.name)
		if !e.spend(2*bare.coverWork(&g.bare), g.r) {
			return nil, false
		}
		if bare.covers(&g.bare) {
			return nil, true
		}
	}
	what, by, rest := "group", "groups", "other_groups"
	if g.name != "" {
		what, by, rest = "value of attribute "+quote(g.name), "values of attribute "+quote(g.name), "other_"+wordOf(g.name)
	}
	which := "another " + what
	switch {
	case len(lacks) == 2 && g.name != "":
		which += ", or without it,"
	case len(lacks) == 2:
		which += `, or in "default",`
	case lacks[0] != other && g.name != "":
		which = "attribute " + quote(g.name) + " missing"
	case lacks[0] != other:
		which = `group "default"`
	}
	if g.first != "" && strings.ToUpper(g.first) != g.first && lacks[0] == other {
		which = strings.Replace(which, what, what+" (such as "+quote(strings.ToUpper(g.first))+")", 1)
	}
	where := ""
	if p := g.bare.path; p != nil {
		where = "match: {" + patternText("path", p.text) + "}, "
	}
	instead := "- {name: " + freeName(rules, rest) + ", " + where + "key: [user], limits: [" + firstLimit(g.r) + "]}"
	return []Warning{newWarning(g.r, g.at, instead,
		"rule %s limits by %s, and a request with %s finds no rule and has no limit. Add one at the end, such as %s, or "+
			"with \"unlimited: true\" or \"deny: true\" if that is meant",
		quote(g.r.name), by, which, instead)}, true
}

// listed returns the values of an attribute that a match lists, or its groups.
func (m *matcher) listed(name string) []string {
	if name == "" {
		return m.groups
	}
	for i := range m.attributes {
		if a := &m.attributes[i]; a.name == name && a.lists() {
			return a.is.list
		}
	}
	return nil
}

// without returns a match without its conditions on an attribute, or on groups.
func (m *matcher) without(name string) *matcher {
	out := *m
	if name == "" {
		out.groups, out.notGroups = nil, nil
		return &out
	}
	out.attributes = slices.DeleteFunc(slices.Clone(m.attributes), func(a attribute) bool { return a.name == name })
	return &out
}

// coversWith reports whether each request that fits o, which has no condition on an attribute or on groups, certainly
// fits m if it has a value of the attribute, or is of a group.
func (m *matcher) coversWith(o *matcher, name, value string) bool {
	if name == "" {
		if len(m.groups) > 0 && !slices.Contains(m.groups, value) || slices.Contains(m.notGroups, value) {
			return false
		}
	}
	for i := range m.attributes {
		if a := &m.attributes[i]; name != "" && a.name == name && !a.accepts(value) {
			return false
		}
	}
	return m.without(name).covers(o)
}

// wordOf returns a name as a part of another one.
func wordOf(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, clip(name))
}
