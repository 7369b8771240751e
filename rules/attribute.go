package rules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
)

// attribute is the condition on one attribute: what its value must fit, and what it must
// not fit. Either may be absent.
type attribute struct {
	name    string
	at      *node // where its values are written
	is, not values
}

// values are the values that a condition on an attribute accepts: any of a list, those
// that a pattern matches, or any except the empty one.
type values struct {
	given   bool
	any     bool
	list    []string // sorted; may contain ""
	pattern *pattern // an empty value never fits
}

// given reports whether there is a condition.
func (a *attribute) given() bool { return a.is.given || a.not.given }

func (a *attribute) accepts(v string) bool {
	return (!a.is.given || a.is.contain(v)) && (!a.not.given || !a.not.contain(v))
}

// contain reports whether v, which is empty if the request lacks the attribute, fits.
func (s *values) contain(v string) bool {
	if v != "" && (s.any || s.pattern != nil && s.pattern.matches(v)) {
		return true
	}
	return len(s.list) > 0 && slices.Contains(s.list, v)
}

// attributes decodes the required attributes. A name without a value requires the
// attribute with any value.
func (d matching) attributes(n *node, m *matcher) {
	if n.Kind != yamltree.Mapping {
		d.add(n, "attributes is a mapping of names to values, not %s: write attributes: {%s: } for any value of one", n.Kind,
			d.example(n, "plan"))
		return
	}
	if len(n.Keys) > maxAttributes {
		d.add(n.Keys[maxAttributes], "attributes has %d names; at most %d are allowed", len(n.Keys), maxAttributes)
		return
	}
	for i, k := range n.Keys {
		name, ok := d.text(k, "an attribute's name")
		if !ok {
			continue
		}
		a := attribute{name: name, at: n.Items[i]}
		d.mentions.add(k, name, "%s:")
		d.unlikeName(k, n.Items[i])
		if !d.misplaced(k, n.Items[i]) {
			continue
		}
		switch v := n.Items[i]; v.Kind {
		case yamltree.Empty:
			if v.Text != "" {
				d.add(v, `%s is not a value: leave it out, as in "%s:", for any value ({not: ""} in JSON), or write %s: "" for a `+
					`request without the attribute`,
					v.Text, name, name)
			}
			a.is = values{given: true, any: true}
		case yamltree.Mapping:
			d.attribute(v, &a)
		default:
			a.is = d.values(v, name)
		}
		m.attributes = append(m.attributes, a)
	}
	slices.SortFunc(m.attributes, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
}

// users decodes the users of a condition: a user, a list of these, or a pattern. The empty one is that of a request
// without a user.
func (d matching) users(n *node, what string) (out values) {
	if n.Kind == yamltree.Mapping {
		d.mapping(n, what, []field{{"pattern", func(_, v *node) {
			out.given, out.pattern = true, d.pattern(v, "pattern")
			d.oddPattern(v, "pattern", out.pattern)
		}}}, nil)
		if len(n.Keys) == 0 {
			d.add(n, "%s is empty: write a user, a list of users, or {pattern: ...}", what)
		}
		return out
	}
	for _, v := range d.list(n, what, maxChoices) {
		switch {
		case v.Kind != yamltree.Scalar:
		case v.Text == "*":
			d.add(v, `%s: "*" is not a wildcard; write %s for requests with any user`, what,
				map[bool]string{true: `not_user: ""`, false: `user: ""`}[what == "user"])
		case userPattern(v.Text):
			d.add(v, "%s: %s seems to be a pattern, and a user is compared as it stands: write %s: {pattern: '%s'}", what,
				quote(v.Text), what, asPattern(v.Text))
		default:
			d.userText(v, what)
			if n.Kind == yamltree.Scalar && anyone(v.Text) {
				instead := map[bool]string{true: `not_user: ""`, false: `user: ""`}[what == "user"]
				d.decoder.doubt(v, instead,
					"%s: %s is compared as it stands: write %q for requests with any user, or %s: [%s] for one of that name",
					what, quote(v.Text), instead, what, v.Text)
			}
			d.networkElsewhere(v, what, v.Text)
		}
	}
	return values{given: true, list: d.choices(n, what, true)}
}

// userPattern reports whether a text has what patterns have and users hardly ever: a user may have a "|" or a "+".
func userPattern(s string) bool {
	return strings.HasPrefix(s, "^") || strings.HasPrefix(s, "*") || strings.HasSuffix(s, "*") ||
		strings.HasSuffix(s, "$") ||
		strings.Contains(s, "(?") || strings.Contains(s, ".*")
}

// anyone reports whether a text that is compared as it stands probably means every user, or every group.
func anyone(s string) bool {
	return slices.Contains([]string{"any", "all", "everyone", "everybody", "anyone", "anybody"}, strings.ToLower(s))
}

// userText notes a user that is compared as it stands, and probably means a list of users or all others.
func (d matching) userText(v *node, what string) {
	if rest, ok := negated(v.Text); ok {
		instead := map[bool]string{true: "not_user: ", false: "user: "}[what == "user"] + plainText(rest)
		d.decoder.doubt(v, instead, "%s: %s is compared as it stands: write %q for all others", what, quote(v.Text), instead)
	} else if list := commaList(v.Text); list != "" {
		instead := what + ": " + list
		d.decoder.doubt(v, instead, "%s: %s is compared as it stands: write %q for either of these", what, quote(v.Text),
			instead)
	}
}

// attribute decodes the long form of a condition on an attribute.
func (d matching) attribute(n *node, a *attribute) {
	if len(n.Keys) == 0 {
		d.add(n, "the condition on attribute %s is empty: write pattern or not, or leave it out to match any value",
			quote(a.name))
	}
	d.mapping(n, "the condition on an attribute", d.attributeFields(a), nil)
}

func (d matching) attributeFields(a *attribute) []field {
	return []field{
		{"pattern", func(_, v *node) {
			a.is.given, a.is.pattern = true, d.pattern(v, "pattern")
			d.oddPattern(v, "pattern", a.is.pattern)
		}},
		{"not", func(_, v *node) {
			if v.Kind != yamltree.Mapping {
				a.not = d.values(v, a.name)
				return
			}
			d.mapping(v, "not", d.notFields(a), nil)
			if len(v.Keys) == 0 {
				d.add(v, "not is empty: write a value, a list of values, or {pattern: ...}")
			}
		}},
	}
}

func (d matching) notFields(a *attribute) []field {
	return []field{{"pattern", func(_, v *node) {
		a.not.given, a.not.pattern = true, d.pattern(v, "pattern")
		d.oddPattern(v, "pattern", a.not.pattern)
	}}}
}

// values decodes a value or a list of values. One that seems to be a pattern is an
// error, since it would be compared as it stands and fit no request.
func (d matching) values(n *node, name string) values {
	for _, v := range d.list(n, "the value of attribute "+quote(name), maxChoices) {
		if v.Kind != yamltree.Scalar || !seemsPattern(v.Text) {
			d.unlikeValue(v, name)
			continue
		}
		if v.Text == "*" {
			d.add(v, `"*" is not a wildcard; leave the value out, as in "%s:", to match any`, name)
			continue
		}
		d.add(v, "%s seems to be a pattern, and a value is compared as it stands: write {pattern: '%s'}, or {pattern: "+
			"'^%s$'} for exactly this text",
			quote(v.Text), asPattern(v.Text), regexp.QuoteMeta(v.Text))
	}
	return values{given: true, list: d.choices(n, "the value of attribute "+quote(name), true)}
}

// seemsPattern reports whether a text has what patterns have and values hardly ever.
func seemsPattern(s string) bool {
	parts := []string{".+", `\d`, `\w`, `\s`, `\S`, `\.`, "]+", "]{", ")?", ")+", "[^", "(?"}
	return strings.ContainsAny(s, "*|") || strings.HasPrefix(s, "^") || strings.HasSuffix(s, "$") ||
		slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s, part) })
}

// asPattern returns the pattern that is probably meant. A text whose only special
// character is "*" is one with wildcards.
func asPattern(s string) string {
	if strings.ContainsAny(s, `^$|\()[]{}+?`) || strings.Contains(s, ".*") {
		return s
	}
	parts := strings.Split(s, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	p := "^" + strings.Join(parts, ".*") + "$"
	p = strings.TrimSuffix(p, ".*$")
	return strings.TrimPrefix(p, "^.*")
}
