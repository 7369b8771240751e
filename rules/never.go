package rules

import (
	"net/netip"
	"slices"
	"strings"
)

// contradiction notes conditions of one match that exclude each other, so that no request
// fits; n is the mapping that has them.
func (d matching) contradiction(n *node, m *matcher) {
	for _, x := range []struct {
		name  string
		never bool
	}{
		{"path", m.path != nil && m.notPath != nil && m.path.within(m.notPath)},
		{"method", noneLeft(m.methods, m.notMethods)},
		{"group", noneLeft(m.groups, m.notGroups)},
		{"host", len(m.hosts) > 0 && len(m.notHosts) > 0 && hostsWithin(m.hosts, m.notHosts)},
		{"user", m.user.fitsNoValue()},
		{"ip", len(m.ips) > 0 && len(m.notIPs) > 0 && within(m.ips, m.notIPs)},
	} {
		if at := n.At("not_" + x.name); x.never && at != nil {
			d.decoder.doubt(at, "", "not_%s excludes all that %s asks for, so nothing fits: remove one of them", x.name, x.name)
		}
	}
	attributes := n.At("attributes")
	for i := range m.attributes {
		a := &m.attributes[i]
		if attributes == nil {
			return
		}
		if at := attributes.At(a.name); at != nil && a.fitsNoValue() {
			d.decoder.doubt(at, "", "no value of attribute %s fits both conditions: remove one of them", quote(a.name))
		}
	}
}

// noneLeft reports whether a list has words, and all of them are excluded.
func noneLeft(words, not []string) bool {
	return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(not, w) })
}

// fitsNoValue reports whether certainly no value fits: none of a list, or not even the same
// pattern.
func (a *attribute) fitsNoValue() bool {
	switch {
	case !a.is.given || !a.not.given:
		return false
	case a.is.pattern != nil || a.not.pattern != nil: // no text is matched here: that would be much work
		return a.is.pattern.String() == a.not.pattern.String()
	}
	return !a.is.any && !slices.ContainsFunc(a.is.list, a.accepts)
}

// within reports whether each path that fits certainly fits q, without matching any text.
func (p *pattern) within(q *pattern) bool {
	if p.text == q.text || q.loose == looseAll {
		return true
	}
	return p.loose == notLoose && !slices.ContainsFunc(p.begins, func(b beginning) bool {
		return !slices.ContainsFunc(q.begins, func(a beginning) bool {
			return a.proves == provesMatch && strings.HasPrefix(b.text, a.text)
		})
	})
}

// within reports whether each address of some networks is in one of the others.
func within(networks, others []netip.Prefix) bool {
	return !slices.ContainsFunc(networks, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Overlaps(p) })
	})
}

// hostsWithin reports whether each host of a list is one of the others.
func hostsWithin(hosts, others []string) bool {
	return !slices.ContainsFunc(hosts, func(h string) bool {
		return !slices.Contains(others, h) && !hostIn(others, strings.TrimPrefix(h, "*"))
	})
}

// coversIPs reports whether the addresses of each request that fits o certainly fit m.
func (m *matcher) coversIPs(o *matcher) bool {
	if len(m.ips) > 0 && (len(o.ips) == 0 || !within(o.ips, m.ips)) {
		return false
	}
	return !slices.ContainsFunc(m.notIPs, func(p netip.Prefix) bool {
		return !within([]netip.Prefix{p}, o.notIPs) && (len(o.ips) == 0 || slices.ContainsFunc(o.ips, p.Overlaps))
	})
}

// unusedCosts warns about costs that no request of their rule has. Those of the defaults are
// for many rules.
func unusedCosts(rules []definition, outer *definition, e *effort) (out []Warning) {
	for i := range rules {
		r := &rules[i]
		if len(r.limits) > 0 && r.costs.at != nil && r.costs.at != outer.costs.at {
			out = append(out, r.unused(&r.costs, e)...)
		}
		for j := range r.draws {
			if w := &r.draws[j]; w.given {
				out = append(out, r.unused(&w.costs, e)...)
			}
		}
	}
	return out
}

// unused warns about costs of methods that a rule does not match, and about elements of a list
// of costs whose requests it does not match, or all of which have an earlier element's cost.
func (r *definition) unused(c *costs, e *effort) (out []Warning) {
	warn := func(at *node, format string, args ...any) {
		out = append(out, newWarning(r, at, "", "rule %s: this cost is never used, since "+format,
			append([]any{quote(r.name)}, args...)...))
	}
	for _, k := range c.methods {
		if only := (matcher{methods: []string{k.method}}); only.disjoint(&r.match) {
			warn(k.at, "the rule does not match method %s: remove it, or change match", quote(k.method))
		}
	}
	for i := range c.cases {
		k := &c.cases[i]
		if !e.spend(pairWork+k.match.meetWork(&r.match), r) {
			return out
		}
		if k.at != nil && k.match.disjoint(&r.match) {
			warn(k.at, "the rule matches no request that fits it: remove it, or change match")
			continue
		}
		for j := range i {
			if !e.spend(c.cases[j].match.coverWork(&k.match), r) {
				return out
			}
			if c.cases[j].match.covers(&k.match) {
				warn(k.at, "all its requests fit the element on line %d: move it before that one", c.cases[j].at.Line)
				break
			}
		}
	}
	return out
}

// keysWithin warns about a key that can never be the first to deny, since another key counts
// the same requests and more, by the same limits: [ip, user] beside [ip].
func keysWithin(r *definition) (out []Warning) {
	if len(r.limits) == 0 || r.keyNode == nil || len(r.keys) < 2 {
		return nil
	}
	list := func(parts []part) string {
		var text []string
		for _, p := range parts {
			text = append(text, p.String())
		}
		return "[" + strings.Join(text, ", ") + "]"
	}
	for i, parts := range r.keys {
		for j, less := range r.keys {
			if i == j || len(less) >= len(parts) || slices.ContainsFunc(less, func(p part) bool {
				return !slices.Contains(parts, p)
			}) {
				continue
			}
			at := r.keyNode
			if i < len(at.Items) {
				at = at.Items[i]
			}
			out = append(out, newWarning(r, at, "",
				"%s: key %s can never be the first to deny, since key %s counts all its requests by the same limits: remove it, "+
					"or give it lower limits in a rule of its own with \"continue: true\"",
				r.title(), list(parts), list(less)))
			break
		}
	}
	return out
}
