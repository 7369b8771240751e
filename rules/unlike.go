package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
)

// bareMatch returns the condition that is probably meant by a match that is no mapping;
// empty if that is not clear.
func (d matching) bareMatch(n *node) string {
	values := d.list(n, "match", maxChoices)
	if len(values) == 0 || slices.ContainsFunc(values, func(v *node) bool { return v.Kind != yamltree.Scalar }) {
		return ""
	}
	first := values[0].Text
	if address, prefix := isNetwork(first); address || prefix {
		return "ip: " + networkText(first)
	}
	if strings.HasPrefix(first, "/") || strings.HasPrefix(first, "^") {
		return "path: '^" + strings.ReplaceAll(strings.TrimPrefix(clip(first), "^"), "'", "''") + "'"
	}
	return ""
}

// valueText returns a single value, or a short list of these, as a file has it, and nothing
// for others.
func valueText(n *node) string {
	const most = 4
	if n != nil && n.Kind == yamltree.List && len(n.Items) <= most {
		var list []string
		for _, item := range n.Items {
			if item.Kind == yamltree.Scalar {
				list = append(list, valueText(item))
			}
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	if n == nil || n.Kind != yamltree.Scalar {
		return ""
	}
	if address, prefix := isNetwork(n.Text); address || prefix {
		return networkText(n.Text)
	}
	return plainText(clip(n.Text))
}

// unlikeName notes an attribute's name that has what belongs elsewhere: the prefix that
// names have in keys, or a negation.
func (d matching) unlikeName(k, v *node) {
	if conditionName(k.Text) {
		return // misplaced says it
	}
	if name, ok := strings.CutPrefix(k.Text, attributePrefix); ok && name != "" {
		instead := strings.TrimSpace(yamlText(name) + ": " + valueText(v))
		d.decoder.doubt(k, instead,
			"%s is an attribute whose name begins with attr:, which names have in keys only: write %q here", quote(k.Text),
			instead)
		return
	}
	if name, ok := strings.CutPrefix(k.Text, "not_"); ok && name != "" && v.Kind != yamltree.Mapping {
		value := cmp.Or(valueText(v), `""`)
		instead := yamlText(name) + ": {not: " + value + "}"
		d.decoder.doubt(k, instead,
			"%s is an attribute of that name, and not the opposite of attribute %s: write %q for that", quote(k.Text),
			quote(name), instead)
	}
}

// unlikeValue notes a value of an attribute that is compared as it stands, and probably
// means something else: a list, any value, the opposite, or a network.
func (d matching) unlikeValue(v *node, name string) {
	if v.Kind != yamltree.Scalar {
		return
	}
	write := func(instead, format string) {
		d.decoder.doubt(v, instead, "attribute %s is compared with %s as it stands: "+format, quote(name), quote(v.Text),
			instead)
	}
	text := v.Text
	switch strings.ToLower(text) {
	case "any", "present", "exists", "required":
		write(yamlText(name)+":", "write %q, without a value, for any one")
		return
	}
	if rest, ok := negated(text); ok {
		write(yamlText(name)+": {not: "+plainText(rest)+"}", "write %q for all others")
		return
	}
	if list := commaList(text); list != "" {
		write(yamlText(name)+": "+list, "write %q for either of these")
		return
	}
	if digits := strings.TrimLeft(text, "<>= "); len(digits) < len(text) && digits != "" &&
		strings.Trim(digits, "0123456789._") == "" {
		write(yamlText(name)+": {pattern: '^[0-9]{4,}$'}",
			"numbers are not compared by size. Write a pattern, such as %q for numbers of four digits and more")
		return
	}
	d.networkValue(v, name)
}

// negated returns what a text negates that begins as a negation.
func negated(text string) (rest string, ok bool) {
	for _, no := range []string{"!=", "!", "not "} {
		if rest, ok := strings.CutPrefix(text, no); ok && strings.TrimSpace(rest) != "" {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

// commaList returns a text with commas as a list, empty if it is none.
func commaList(text string) string {
	list := strings.Split(text, ",")
	if len(list) < 2 || slices.ContainsFunc(list, func(w string) bool { return strings.TrimSpace(w) == "" }) {
		return ""
	}
	for i := range list {
		list[i] = plainText(strings.TrimSpace(list[i]))
	}
	return "[" + strings.Join(list, ", ") + "]"
}
