package rules

import (
	"maps"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// Lacking returns the names of what a request lacks, of what the rules for its path match and count by, such as "user"
// and `attribute "plan"`, sorted. With one of them the request might be counted by other keys. For limits of its own it
// is what their keys name.
func (s *Set) Lacking(r *limiter.Request) (names []string) {
	switch {
	case s.overrides != nil:
		return s.overrides.plain.Lacking(r)
	case s.first != nil:
		return s.first.Lacking(r)
	}
	l := lackingParts{r: r, names: make(map[string]bool)}
	for _, parts := range r.LimitKeys {
		for _, name := range parts {
			p, _ := namedPart(name) // Resolve has checked it
			l.part(p)
		}
	}
	if len(r.Limits) > 0 && len(r.LimitKeys) < len(r.Limits) {
		l.part(part{kind: partUser})
	}
	switch i, named := s.byName[r.Rule]; {
	case named && i < len(s.rules):
		l.rule(&s.rules[i])
	case len(r.Limits) == 0:
		for _, i := range s.paths.match(r.Path, nil) {
			l.rule(&s.rules[i])
		}
	}
	return slices.Sorted(maps.Keys(l.names))
}

// lackingParts collects what a request lacks.
type lackingParts struct {
	r     *limiter.Request
	names map[string]bool
}

// part adds a part of a key.
func (l *lackingParts) part(p part) {
	switch missing := p.missing(l.r) || p.kind == partGroup && l.r.Group == ""; {
	case missing && p.kind == partAttribute:
		l.attribute(p.name)
	case missing:
		l.names[p.plainName()] = true
	}
}

func (l *lackingParts) attribute(name string) { l.names[`attribute "`+name+`"`] = true }

// rule adds what a rule matches and counts by.
func (l *lackingParts) rule(u *rule) {
	l.counters(&u.counters)
	for i := range u.draws {
		l.counters(u.draws[i].quota)
	}
	m := &u.match
	for _, by := range [...]struct {
		conditions int
		part       partKind
	}{
		{len(m.methods) + len(m.notMethods), partMethod}, {len(m.groups) + len(m.notGroups), partGroup},
		{len(m.ips) + len(m.notIPs), partIP},
	} {
		if by.conditions > 0 {
			l.part(part{kind: by.part})
		}
	}
	if m.user.given() {
		l.part(part{kind: partUser})
	}
	if len(m.hosts)+len(m.notHosts) > 0 {
		l.part(part{kind: partAttribute, name: HostAttribute})
	}
	for i := range m.attributes {
		l.part(part{kind: partAttribute, name: m.attributes[i].name})
	}
}

func (l *lackingParts) counters(n *counters) {
	for i := range n.keys {
		for _, p := range n.keys[i].parts {
			l.part(p)
		}
	}
}
