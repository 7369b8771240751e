package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
)

// mention is a place of a file where an attribute's name stands.
type mention struct {
	at   *node
	name string
	form string // what stands there, with %s for the name
	of   *definition
}

// mentions are the places of the names in a part of a file.
type mentions []mention

// add notes where an attribute's name stands; an empty one is none.
func (m *mentions) add(at *node, name, form string) {
	if name != "" {
		*m = append(*m, mention{at: at, name: name, form: form})
	}
}

// addKey notes the names of a key's attributes. n is the key, or a list of these.
func (m *mentions) addKey(n *node) {
	if n.Kind == yamltree.List {
		for _, item := range n.Items {
			m.addKey(item)
		}
	} else if n.Kind == yamltree.Mapping { // with its spelling
		for _, name := range n.Keys {
			m.addKey(name)
		}
	} else if name, ok := strings.CutPrefix(n.Text, attributePrefix); ok && n.Kind == yamltree.Scalar {
		m.add(n, name, `"attr:%s"`)
	}
}

// folded returns a name without what people spell differently: case, dashes, underscores,
// dots and blanks.
func folded(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(name))
}

// spellings warns about attributes whose names differ only in their spelling, such as
// api_key and api-key. They are two attributes, and a service sends one. The rarer
// spelling gets the warning, or else the later one.
func spellings(outer *definition, groups ...[]definition) (out []Warning) {
	byName := map[string][]mention{}
	add := func(r *definition) {
		for _, m := range r.mentions {
			m.of = r
			byName[folded(m.name)] = append(byName[folded(m.name)], m)
		}
	}
	add(outer)
	for _, all := range groups {
		for i := range all {
			add(&all[i])
		}
	}
	for _, all := range byName {
		slices.SortStableFunc(all, func(a, b mention) int {
			return cmp.Or(cmp.Compare(a.at.Line, b.at.Line), cmp.Compare(a.at.Column, b.at.Column))
		})
		times := map[string]int{}
		for _, m := range all {
			times[m.name]++
		}
		usual := all[0]
		for _, m := range all {
			if times[m.name] > times[usual.name] {
				usual = m
			}
		}
		for _, m := range all {
			if m.name == usual.name {
				continue
			}
			instead := fmt.Sprintf(m.form, yamlText(usual.name))
			if m.form[0] == '"' {
				instead = fmt.Sprintf("%q", attributePrefix+usual.name)
			}
			out = append(out, newWarning(m.of, m.at, instead,
				"%s: attribute %s differs only in spelling from %s on line %d, and a request that has one lacks the other: write "+
					"%s here, or %s there, whichever the service sends",
				m.of.title(), quote(m.name), quote(usual.name), usual.at.Line, instead, quote(m.name)))
		}
	}
	return out
}

// spelt reports whether the rule asks for an attribute whose name differs only in its
// spelling.
func (m *matcher) spelt(name string) bool {
	return slices.ContainsFunc(m.attributes, func(a attribute) bool {
		return a.name != name && !a.accepts("") && folded(a.name) == folded(name)
	})
}

// partsAsAttributes warns about attributes in keys that have the name of another part of a
// key, such as attr:ip. A rule that asks for such an attribute means it.
func partsAsAttributes(r *definition) (out []Warning) {
	if r.keyNode == nil || len(r.limits) == 0 {
		return nil
	}
	for _, parts := range r.keys {
		for _, p := range parts {
			if p.kind != partAttribute || !slices.Contains(partNames(), p.name) || r.match.asksFor(p.name) {
				continue
			}
			out = append(out, newWarning(r, find(r.keyNode, attributePrefix+p.name), p.name,
				"%s counts by an attribute with the name %s, which is not the %s of the request: write %q for that",
				r.title(), quote(p.name), p.name, p.name))
		}
	}
	return out
}

// asksForUser warns about a rule that asks for an attribute with the name user, and counts by no such attribute.
func asksForUser(r *definition) []Warning {
	for i := range r.match.attributes {
		a := &r.match.attributes[i]
		if a.name != "user" || !a.is.any || slices.ContainsFunc(slices.Concat(r.keys...), func(p part) bool {
			return p.kind == partAttribute && p.name == "user"
		}) {
			continue
		}
		const instead = `not_user: ""`
		return []Warning{newWarning(r, a.at, instead,
			"rule %s asks for an attribute with the name user, not for a user: write %q in match, beside attributes, for all "+
				"requests with a user", quote(r.name), instead)}
	}
	return nil
}

// find returns the first single value with a text in a node; the node itself if none has it.
func find(n *node, text string) *node {
	for _, item := range n.Items {
		if at := find(item, text); at.Kind == yamltree.Scalar && at.Text == text {
			return at
		}
	}
	return n
}
