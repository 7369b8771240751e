package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// DefaultGroup is the group of a request without one.
const DefaultGroup = "default"

// matcher is the set of conditions of a rule. All must hold.
type matcher struct {
	path       *pattern // nil: every path
	methods    []string // in upper case; empty: every method
	groups     []string // empty: every group
	attributes []attribute
}

// attribute is one required attribute.
type attribute struct {
	name   string
	values []string // empty: any value except the empty one
}

// plain reports whether only the path matters.
func (m *matcher) plain() bool {
	return len(m.methods) == 0 && len(m.groups) == 0 && len(m.attributes) == 0
}

// accepts reports whether the request fulfils all conditions except the path, which the
// index has checked.
func (m *matcher) accepts(r *limiter.Request) bool {
	if len(m.methods) > 0 && !containsUpper(m.methods, r.Method) {
		return false
	}
	if len(m.groups) > 0 && !slices.Contains(m.groups, groupOf(r)) {
		return false
	}
	for i := range m.attributes {
		a := &m.attributes[i]
		v := r.Attributes[a.name]
		if len(a.values) == 0 && v == "" || len(a.values) > 0 && !slices.Contains(a.values, v) {
			return false
		}
	}
	return true
}

func groupOf(r *limiter.Request) string {
	if r.Group == "" {
		return DefaultGroup
	}
	return r.Group
}

// containsUpper reports whether a list of words in upper case contains s, ignoring
// case.
func containsUpper(list []string, s string) bool {
	for _, w := range list {
		if equalUpper(w, s) {
			return true
		}
	}
	return false
}

// equalUpper reports whether s in upper case is w. Only ASCII letters are converted, as
// in HTTP methods.
func equalUpper(w, s string) bool {
	if w == s {
		return true
	}
	if len(w) != len(s) {
		return false
	}
	for i := range len(s) {
		if w[i] != upperByte(s[i]) {
			return false
		}
	}
	return true
}

func upperByte(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

func upper(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = upperByte(c)
	}
	return string(b)
}

// match decodes the match of a rule.
func (d *decoder) match(n *node, m *matcher) {
	d.mapping(n, "match", []field{
		{"path", func(_, v *node) { m.path = d.pattern(v) }},
		{"method", func(_, v *node) {
			for _, w := range d.choices(v, "method", false) {
				m.methods = append(m.methods, upper(w))
			}
			slices.Sort(m.methods)
		}},
		{"group", func(_, v *node) { m.groups = d.choices(v, "group", false) }},
		{"attributes", func(_, v *node) { d.attributes(v, m) }},
	}, nil)
}

// choices decodes a word, or a list of alternative words, and sorts them, since their
// order has no meaning.
func (d *decoder) choices(n *node, what string, emptyToo bool) []string {
	set := make(map[string]bool)
	for _, v := range d.list(n, what, maxChoices) {
		if emptyToo && v.kind == kindScalar && v.text == "" {
			set[""] = true
		} else if w, ok := d.text(v, what); ok {
			set[w] = true
		}
	}
	if len(set) == 0 && n.kind == kindSequence && len(n.items) == 0 {
		d.add(n, "the list of %s is empty; remove it to match any", what)
	}
	return slices.Sorted(maps.Keys(set))
}

// attributes decodes the required attributes. A name without a value requires the
// attribute with any value.
func (d *decoder) attributes(n *node, m *matcher) {
	if n.kind != kindMapping {
		d.add(n, "attributes is a mapping of names to values, not %s", n.kind)
		return
	}
	if len(n.keys) > maxAttributes {
		d.add(n.keys[maxAttributes], "attributes has %d names; at most %d are allowed", len(n.keys), maxAttributes)
		return
	}
	for i, k := range n.keys {
		name, ok := d.text(k, "an attribute's name")
		if !ok {
			continue
		}
		a := attribute{name: name}
		if v := n.items[i]; v.kind == kindScalar && v.text == "*" {
			d.add(v, `"*" is not a wildcard; leave the value out, as in "%s:", to match any`, name)
		} else if v.kind != kindNull {
			a.values = d.choices(v, "the value of attribute "+quote(name), true)
		}
		m.attributes = append(m.attributes, a)
	}
	slices.SortFunc(m.attributes, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
}
