package rules

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// DefaultGroup is the group of a request without one.
const DefaultGroup = "default"

// matcher is the set of conditions of a rule, or of a case of its cost. All must hold.
// A condition that begins with "not" is the exact opposite: it holds for a request that
// lacks the value.
type matcher struct {
	path, notPath       *pattern // nil: every path
	methods, notMethods []string // in upper case; empty: every method
	groups, notGroups   []string // empty: every group
	ips, notIPs         []netip.Prefix
	hosts, notHosts     []string  // in the form of normalHost
	user                attribute // without a name; not given: every user
	attributes          []attribute
}

// plain reports whether only the path matters.
func (m *matcher) plain() bool {
	return len(m.methods)+len(m.notMethods)+len(m.groups)+len(m.notGroups)+len(m.ips)+len(m.notIPs)+
		len(m.hosts)+len(m.notHosts)+len(m.attributes) == 0 && !m.user.given()
}

func (m *matcher) acceptsPath(path string) bool {
	return (m.path == nil || m.path.matches(path)) && (m.notPath == nil || !m.notPath.matches(path))
}

// accepts reports whether the request fulfils all conditions except those on the path,
// which the index has checked. ip is the request's address, for all rules of the request.
func (m *matcher) accepts(r *limiter.Request, ip *requestAddress) bool {
	switch {
	case len(m.methods) > 0 && !containsUpper(m.methods, r.Method),
		len(m.notMethods) > 0 && containsUpper(m.notMethods, r.Method),
		len(m.groups) > 0 && !slices.Contains(m.groups, groupOf(r)),
		len(m.notGroups) > 0 && slices.Contains(m.notGroups, groupOf(r)),
		len(m.ips) > 0 && !ip.in(m.ips, r.IP),
		len(m.notIPs) > 0 && ip.in(m.notIPs, r.IP),
		len(m.hosts) > 0 && !hostIn(m.hosts, r.Attributes[HostAttribute]),
		len(m.notHosts) > 0 && hostIn(m.notHosts, r.Attributes[HostAttribute]),
		m.user.given() && !m.user.accepts(r.User):
		return false
	}
	for i := range m.attributes {
		if a := &m.attributes[i]; !a.accepts(r.Attributes[a.name]) {
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

// matching is a decoder of conditions.
type matching struct{ *decoder }

func (d matching) match(n *node, m *matcher) {
	if n.Kind != yamltree.Mapping {
		if instead := d.bareMatch(n); instead != "" {
			d.add(n, "match is a mapping of fields to values, not %s: write match: {%s}", n.Kind, instead)
			return
		}
	}
	d.mapping(n, "match", d.fields(m), func(name string) string { return matchHint(n, name) })
	d.contradiction(n, m)
}

func (d matching) fields(m *matcher) []field {
	methods := func(name string, out *[]string) field {
		return field{name, func(_, v *node) { *out = d.methods(v, name) }}
	}
	groups := func(name string, out *[]string) field {
		return field{name, func(_, v *node) { *out = d.groups(v, name) }}
	}
	addresses := func(name string, out *[]netip.Prefix) field {
		return field{name, func(_, v *node) { *out = d.networks(v, name) }}
	}
	hosts := func(name string, out *[]string) field {
		return field{name, func(_, v *node) { *out = normalized(d, v, name, maxChoices, hostPattern, strings.Compare) }}
	}
	users := func(name string, out *values) field {
		return field{name, func(_, v *node) { m.user.at, *out = v, d.users(v, name) }}
	}
	paths := func(name string, out **pattern) field {
		return field{name, func(_, v *node) {
			*out = d.pattern(v, name)
			d.unlikePattern(v, name, *out)
			d.halfAnchored(v, name, *out)
			d.queryPath(v, name, *out)
			d.networkPath(v, name, *out)
			d.oddPattern(v, name, *out)
		}}
	}
	return []field{
		paths("path", &m.path), paths("not_path", &m.notPath),
		methods("method", &m.methods), methods("not_method", &m.notMethods),
		groups("group", &m.groups), groups("not_group", &m.notGroups),
		addresses("ip", &m.ips), addresses("not_ip", &m.notIPs),
		hosts("host", &m.hosts), hosts("not_host", &m.notHosts),
		users("user", &m.user.is), users("not_user", &m.user.not),
		{"attributes", func(_, v *node) { d.attributes(v, m) }},
	}
}

func matchHint(n *node, name string) string {
	switch name {
	case "not_attributes":
		return `unknown field "not_attributes" (in match); write attributes: {plan: {not: free}} for requests whose ` +
			`attribute has another value`
	case "cidr", "network", "address", "addr", "src", "source", "client_ip", "remote_addr", "remote_ip":
		return "unknown field " + quote(name) + " (in match); the address of a request is \"ip\": write " +
			strings.TrimSpace("ip: "+valueText(n.At(name)))
	case "attr", "header", "headers":
		return "unknown field " + quote(name) +
			" (in match); what a service sends about a request is under attributes, as in attributes: {api_key: }"
	case "not":
		return `unknown field "not" (in match); write not_path, not_method, not_group, not_ip, not_host or not_user, or ` +
			`attributes: {plan: {not: free}}`
	}
	known := make([]string, 0, 13)
	for _, f := range (matching{}).fields(&matcher{}) {
		known = append(known, f.name)
	}
	attribute, prefixed := strings.CutPrefix(name, attributePrefix)
	if v := n.At(name); prefixed || nearest(name, known) == "" && v != nil && v.Kind != yamltree.Mapping {
		return unknown("field", name, known) + " (in match); for an attribute write attributes: {" +
			yamlText(clip(attribute)) + ": " + valueText(v) + "}"
	}
	return ""
}

func (d matching) methods(n *node, what string) (out []string) {
	for _, w := range d.choices(n, what, false) {
		out = append(out, upper(w))
	}
	meant := make([]string, 0, len(out))
	var odd []*node
	for _, v := range d.list(n, what, maxChoices) {
		if address, _ := isNetwork(v.Text); v.Kind == yamltree.Scalar &&
			(address || strings.ContainsAny(v.Text, " ,|*^$()[]{}/:")) {
			d.add(v, "%s: %s is not the name of a method; write a list of names, as in %s: [GET, POST]", what, quote(v.Text),
				what)
		} else if rest, ok := negated(v.Text); ok && slices.Contains(knownMethods(), upper(rest)) {
			instead := map[bool]string{true: "not_method: ", false: "method: "}[what == "method"] + upper(rest)
			d.decoder.doubt(v, instead, "%s: %s is compared as it stands: write %q for all others", what, quote(v.Text),
				instead)
		} else if word := strings.ToLower(v.Text); word == "any" || word == "all" {
			d.decoder.doubt(v, "",
				"%s: %s is compared as it stands, and is not a method of HTTP or gRPC: remove it to match any method", what,
				quote(v.Text))
		} else if name := misspelt(v.Text); name != "" {
			meant, odd = append(meant, name), append(odd, v)
		} else {
			meant = append(meant, v.Text)
		}
	}
	instead := what + ": " + strings.Join(meant, ", ")
	if len(meant) > 1 {
		instead = what + ": [" + strings.Join(meant, ", ") + "]"
	}
	for _, v := range odd {
		d.oddities = append(d.oddities, oddity{at: v, field: what, instead: instead})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// misspelt returns the method that is probably meant by one that is unknown.
func misspelt(name string) string {
	if slices.Contains(knownMethods(), upper(name)) {
		return ""
	}
	return upper(nearest(strings.ToLower(name), lowerMethods()))
}

// choices decodes a word, or a list of alternative words, and sorts them, since their
// order has no meaning.
func (d matching) choices(n *node, what string, emptyToo bool) []string {
	set := make(map[string]bool)
	for _, v := range d.list(n, what, maxChoices) {
		if emptyToo && v.Kind == yamltree.Scalar && v.Text == "" {
			set[""] = true
		} else if w, ok := d.text(v, what); ok {
			set[w] = true
		}
	}
	if len(set) == 0 && n.Kind == yamltree.List && len(n.Items) == 0 {
		d.add(n, "the list of %s is empty; remove it to match any", what)
	}
	return slices.Sorted(maps.Keys(set))
}
