package rules

import (
	"cmp"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/yamltree"
)

// folding is what spellings of a value count together, as bits.
type folding uint8

const (
	foldCase folding = 1 << iota
	trimBlanks
)

// String returns the spelling as a rules file has it, without braces.
func (f folding) String() string {
	var out []string
	if f&foldCase != 0 {
		out = append(out, "fold: case")
	}
	if f&trimBlanks != 0 {
		out = append(out, "trim: true")
	}
	return strings.Join(out, ", ")
}

// of returns the spelling that stands for all that count with v.
func (f folding) of(v string) string {
	if f&trimBlanks != 0 {
		v = strings.TrimSpace(v)
	}
	if f&foldCase != 0 {
		return foldedText(v)
	}
	return v
}

// foldedText returns a text in which each character stands for those that differ from it in case only, by Unicode's
// simple case folding. It changes no other character, joins none, and leaves bytes that are not UTF-8 as they are.
func foldedText(v string) string {
	i := 0
	for i < len(v) && v[i] < utf8.RuneSelf && (v[i] < 'A' || v[i] > 'Z') {
		i++
	}
	if i == len(v) {
		return v // the usual case, without an allocation
	}
	out := append(make([]byte, 0, len(v)+utf8.UTFMax), v[:i]...)
	for i < len(v) {
		r, n := utf8.DecodeRuneInString(v[i:])
		if r == utf8.RuneError && n <= 1 {
			out = append(out, v[i])
		} else {
			out = utf8.AppendRune(out, foldRune(r))
		}
		i += max(n, 1)
	}
	return string(out)
}

// foldRune returns the character that stands for all that differ from r in case only: the small one, if there is one.
func foldRune(r rune) rune {
	least := r
	for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
		least = min(least, o)
	}
	if least == r && unicode.SimpleFold(r) == r {
		return r
	}
	return unicode.ToLower(least)
}

// foldedPart decodes a part of a key that says which of its spellings count together, such as {user: {fold: case}}.
func (d keying) foldedPart(n *node) (part, bool) {
	const form = "a part of a key with its spelling is written {user: {fold: case, trim: true}}"
	if len(n.Keys) != 1 {
		d.add(n, form+"; each part is an element of its own")
		return part{}, false
	}
	p, bad := namedPart(n.Keys[0].Text)
	switch {
	case bad != "":
	case p.kind == partIP || p.kind == partMethod || p.kind == partRule:
		bad = p.String() + " has one spelling already: write it without fold and trim"
	case n.Items[0].Kind != yamltree.Mapping:
		bad = form
	}
	if bad != "" {
		d.add(n.Keys[0], "%s", bad)
		return part{}, false
	}
	before := d.found()
	d.mapping(n.Items[0], "the spelling of a part of a key", d.foldingFields(&p.fold), nil)
	if p.fold == 0 && d.found() == before {
		d.add(n.Items[0], "it says nothing: give fold: case, trim: true, or both, or write %s alone", p.plainName())
	}
	return p, p.fold != 0
}

// foldingFields are the fields of the spelling of a part.
func (d keying) foldingFields(to *folding) []field {
	var trim bool
	trimming := d.boolean("trim", &trim)
	return []field{
		{"fold", func(_, v *node) {
			if !d.scalar(v, "fold") {
				return
			}
			if v.Text != "case" {
				d.add(v, "fold is %s; what can be folded is case: write fold: case", quote(v.Text))
				return
			}
			*to |= foldCase
		}},
		{"trim", func(k, v *node) {
			if trimming.read(k, v); trim {
				*to |= trimBlanks
			}
		}},
	}
}

// unfolded warns about conditions on a user or an attribute whose spellings count together in some key of the file: the
// condition compares one spelling, so a caller who writes another leaves it.
func unfolded(quotas, rules []definition) (out []Warning) {
	folds := map[part]folding{}
	for _, all := range [][]definition{rules, quotas} {
		for i := range all {
			for _, parts := range all[i].keys {
				for _, p := range parts {
					folds[part{kind: p.kind, name: p.name}] |= p.fold
				}
			}
		}
	}
	for i := range rules {
		r := &rules[i]
		if f := folds[part{kind: partUser}]; f != 0 {
			out = append(out, f.warnOf(r, &r.match.user, "user")...)
		}
		for j := range r.match.attributes {
			a := &r.match.attributes[j]
			if f := folds[part{kind: partAttribute, name: a.name}]; f != 0 {
				out = append(out, f.warnOf(r, a, "attribute "+quote(a.name))...)
			}
		}
	}
	return out
}

// warnOf warns of the lists of a condition.
func (f folding) warnOf(r *definition, a *attribute, what string) (out []Warning) {
	field := cmp.Or(a.name, "user")
	if a.name != "" {
		field = yamlText(field)
	}
	if pattern := f.pattern(a.is.list); pattern != "" {
		instead := field + ": " + pattern
		out = append(out, newWarning(r, a.at, instead,
			"rule %s compares %s byte by byte, and a key of the file counts its spellings together (%s): write %q, or a "+
				"pattern without (?i) if one spelling is meant",
			quote(r.name), what, f, instead))
	}
	if pattern := f.pattern(a.not.list); pattern != "" {
		instead := "not_user: " + pattern
		if a.name != "" {
			instead = field + ": {not: " + pattern + "}"
		}
		out = append(out, newWarning(r, a.at, instead,
			"rule %s compares %s byte by byte, and a key of the file counts its spellings together (%s): write %q, or a "+
				"pattern without (?i) if one spelling is meant",
			quote(r.name), what, f, instead))
	}
	return out
}

// whitePattern is a pattern of what is trimmed: all white space of Unicode, where \s of RE2 is only that of ASCII
// without \v.
const whitePattern = `[\s\v\x{85}\pZ]*`

// pattern returns the pattern of all spellings of the values, as a file has it; empty if they have one spelling each.
func (f folding) pattern(values []string) string {
	var texts []string
	several := false
	for _, v := range values {
		if v == "" {
			return "" // no pattern fits the absent value
		}
		texts = append(texts, regexp.QuoteMeta(v))
		several = several || f&trimBlanks != 0 || strings.ToLower(v) != strings.ToUpper(v)
	}
	if !several {
		return ""
	}
	text := strings.Join(texts, "|")
	if len(texts) > 1 {
		text = "(" + text + ")"
	}
	if f&trimBlanks != 0 {
		text = whitePattern + text + whitePattern
	}
	text = "^" + text + "$"
	if f&foldCase != 0 {
		text = "(?i)" + text
	}
	return "{pattern: '" + strings.ReplaceAll(text, "'", "''") + "'}"
}
