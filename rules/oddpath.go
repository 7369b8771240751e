package rules

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// oddPattern notes a pattern of paths or attributes that certainly fits nothing, or that
// probably means something else than its author reads in it.
func (d matching) oddPattern(n *node, what string, p *pattern) {
	if p == nil {
		return
	}
	if fixed := ofLocation(p.text); fixed != "" && what != "pattern" {
		instead := patternText(what, fixed)
		d.decoder.doubt(n, instead,
			"%s %s begins as a location of nginx, and a path is a regular expression alone: write %s",
			what, quote(p.text), instead)
		return
	}
	tree, err := syntax.Parse(p.text, syntax.Perl)
	if err != nil {
		return
	}
	if reachOf(tree).never {
		d.fitsNothing(n, what, p.text)
		return
	}
	if fixed, class := withoutWordClasses(p.text); class != "" {
		instead := patternText(what, fixed)
		d.decoder.doubt(n, instead, "%s %s has %s, which is one character: write %s for one of these words", what,
			quote(p.text), quote(class), instead)
	}
	if what == "pattern" {
		return // of an attribute
	}
	if fixed, letter := withoutStarredLetter(tree, p.text); letter != "" {
		instead := patternText(what, fixed)
		d.decoder.doubt(n, instead,
			`%s %s is a regular expression, in which "%s*" stands for any number of "%s": write %s, or "(%s)*" if that is meant`,
			what, quote(p.text), letter, letter, instead, letter)
	}
	d.slashless(n, what, p.text)
}

// ofLocation returns the pattern that a path means with a modifier of a location of nginx, such as "= /towns" or
// "^~ /towns/"; empty for another path.
func ofLocation(text string) string {
	for _, m := range []struct{ text, begin, end string }{{"= ", "^", "$"}, {"^~ ", "^", ""}, {"~* ", "(?i)", ""},
		{"~ ", "", ""}} {
		rest, ok := strings.CutPrefix(text, m.text)
		if rest = strings.TrimLeft(rest, " "); !ok || rest == "" {
			continue
		}
		if m.begin == "^" { // the rest is not a pattern
			rest = regexp.QuoteMeta(rest)
		}
		return m.begin + rest + m.end
	}
	return ""
}

// fitsNothing notes a pattern with text before its beginning or after its end.
func (d matching) fitsNothing(n *node, what, text string) {
	name, rest := what, strings.TrimLeft(text, " ")
	if negated, ok := strings.CutPrefix(rest, "!"); ok && what != "pattern" {
		rest = negated
		if name = "not_" + what; what == "not_path" {
			name = "path"
		}
	}
	if tree, err := syntax.Parse(rest, syntax.Perl); err != nil || reachOf(tree).never {
		rest = withoutAnchors(rest)
	}
	instead := patternText(name, rest)
	d.decoder.doubt(n, instead,
		"%s %s fits nothing: ^ stands for the beginning, so nothing can come before it, and $ for the end, so nothing can "+
			"come after it: write %s",
		what, quote(text), instead)
}

// withoutAnchors returns a pattern that begins with ^, and has no other anchor but one at its
// end.
func withoutAnchors(text string) string {
	var b strings.Builder
	b.WriteByte('^')
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			b.WriteString(text[i : i+2])
			i++
		case c == '^' && (i == 0 || text[i-1] != '['), c == '$' && i+1 < len(text):
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// slashless notes a pattern of paths that begin without a slash.
func (d matching) slashless(n *node, what, text string) {
	rest, anchored := strings.CutPrefix(text, "^")
	for _, method := range knownMethods() {
		if path, ok := strings.CutPrefix(rest, method+" "); ok && strings.HasPrefix(path, "/") {
			instead := patternText(what, "^"+path)
			d.decoder.doubt(n, instead,
				"%s %s asks for a method, and the path of a request has none: write %s, and \"method: %s\" beside it", what,
				quote(text), instead, method)
			return
		}
	}
	for _, scheme := range []string{"https://", "http://"} {
		if host, ok := strings.CutPrefix(rest, scheme); ok {
			path := "/"
			if i := strings.IndexByte(host, '/'); i >= 0 {
				path = host[i:]
			}
			instead := patternText(what, "^"+path)
			if _, _, err := newPattern("^" + path); err != nil {
				instead = patternText(what, "^/")
			}
			d.decoder.doubt(n, instead,
				"%s %s asks for a host, and the path of a request has none: write %s, and the host under \"host\"", what,
				quote(text), instead)
			return
		}
	}
	if !anchored || rest == "" || !isWord(rest[0]) || rest[0] <= '9' { // digits begin an address, see networkPath
		return
	}
	instead := patternText(what, "^/"+rest)
	d.decoder.doubt(n, instead,
		"%s %s fits no path that begins with a slash, as those of HTTP and gRPC do: write %s, or %s if the service sends "+
			"paths without one",
		what, quote(text), instead, patternText(what, "^("+rest[:1]+")"+rest[1:]))
}

// isWord reports whether a character is a letter or a digit.
func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// withoutWordClasses returns a pattern with (a|b) in place of classes such as [ab|cd], and
// the last of these; empty if there is none.
func withoutWordClasses(text string) (fixed, found string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			if i+1 < len(text) {
				b.WriteByte(text[i])
				i++
			}
		case '[':
			end := strings.IndexByte(text[i:], ']')
			if end < 0 {
				break
			}
			words := strings.Split(text[i+1:i+end], "|")
			if len(words) > 1 && !slices.ContainsFunc(words, func(w string) bool {
				return len(w) < 2 || strings.ContainsFunc(w, func(r rune) bool { return r > 127 || !isWord(byte(r)) })
			}) {
				found = text[i : i+end+1]
				b.WriteString("(" + strings.Join(words, "|") + ")")
			} else {
				b.WriteString(text[i : i+end+1])
			}
			i += end
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String(), found
}

// withoutStarredLetter returns a pattern of paths without the star behind a letter that ends
// it, as globs have it, and the letter; empty if it does not end so.
func withoutStarredLetter(tree *syntax.Regexp, text string) (fixed, letter string) {
	bare := strings.TrimSuffix(text, "$")
	if tree.Op != syntax.OpConcat || !strings.HasSuffix(bare, "*") || strings.Contains(text, "/*") ||
		strings.Contains(text, "|") {
		return "", ""
	}
	subs := tree.Sub
	if subs[len(subs)-1].Op == syntax.OpEndText {
		subs = subs[:len(subs)-1]
	}
	last := subs[len(subs)-1]
	if last.Op != syntax.OpStar || last.Sub[0].Op != syntax.OpLiteral || len(subs) < 2 ||
		subs[len(subs)-2].Op != syntax.OpLiteral {
		return "", ""
	}
	if r := last.Sub[0].Rune; len(r) != 1 || r[0] > 127 || !isWord(byte(r[0])) || bare[len(bare)-2] != byte(r[0]) {
		return "", ""
	}
	return strings.TrimSuffix(bare, "*"), bare[len(bare)-2 : len(bare)-1]
}

// reach is where a tree can match: whether it never does, how many characters it takes at
// least, and whether each match includes the beginning or the end of the text.
type reach struct {
	least       int
	begins      bool
	ends, never bool
}

func reachOf(re *syntax.Regexp) reach {
	switch re.Op {
	case syntax.OpNoMatch:
		return reach{never: true}
	case syntax.OpBeginText:
		return reach{begins: true}
	case syntax.OpEndText:
		return reach{ends: true}
	case syntax.OpLiteral:
		return reach{least: 1}
	case syntax.OpCharClass:
		return reach{least: 1, never: len(re.Rune) == 0}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return reach{least: 1}
	case syntax.OpCapture, syntax.OpPlus:
		return reachOf(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return reachOf(re.Sub[0])
		}
	case syntax.OpConcat:
		x := reach{}
		for _, sub := range re.Sub {
			y := reachOf(sub)
			x.never = x.never || y.never || y.begins && x.least > 0 || x.ends && y.least > 0
			x.begins, x.ends, x.least = x.begins || y.begins, x.ends || y.ends, min(1, x.least+y.least)
		}
		return x
	case syntax.OpAlternate:
		x := reach{least: 1, begins: true, ends: true, never: true}
		for _, sub := range re.Sub {
			if y := reachOf(sub); !y.never {
				x = reach{min(x.least, y.least), x.begins && y.begins, x.ends && y.ends, false}
			}
		}
		return x
	}
	return reach{} // x*, x?, the empty text, and what may match in the middle of a text
}
