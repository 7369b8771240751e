package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"
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

// foldedText returns a text in which each character stands for those that differ from it in case only, by Unicode's simple
// case folding. It changes no other character, joins none, and leaves bytes that are not UTF-8 as they are.
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
func (d *decoder) foldedPart(n *node) (part, bool) {
	const form = "a part of a key with its spelling is written {user: {fold: case, trim: true}}"
	if len(n.keys) != 1 {
		d.add(n, form+"; each part is an element of its own")
		return part{}, false
	}
	p, bad := namedPart(n.keys[0].text)
	switch {
	case bad != "":
	case p.kind == partIP || p.kind == partMethod || p.kind == partRule:
		bad = p.String() + " has one spelling already: write it without fold and trim"
	case n.items[0].kind != kindMapping:
		bad = form
	}
	if bad != "" {
		d.add(n.keys[0], "%s", bad)
		return part{}, false
	}
	before := d.found()
	d.mapping(n.items[0], "the spelling of a part of a key", d.foldingFields(&p.fold), nil)
	if p.fold == 0 && d.found() == before {
		d.add(n.items[0], "it says nothing: give fold: case, trim: true, or both, or write %s alone", p.plainName())
	}
	return p, p.fold != 0
}

// foldingFields are the fields of the spelling of a part.
func (d *decoder) foldingFields(to *folding) []field {
	var trim bool
	trimming := d.boolean("trim", &trim)
	return []field{
		{"fold", func(_, v *node) {
			if !d.scalar(v, "fold") {
				return
			}
			if v.text != "case" {
				d.add(v, "fold is %s; what can be folded is case: write fold: case", quote(v.text))
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
