package rules

import (
	"regexp/syntax"
	"strings"
)

// beginningWith returns a pattern that matches only where paths begin, as a file has it.
func beginningWith(field, text string) string {
	if tree, err := syntax.Parse("^"+text, syntax.Perl); err != nil || !extentOf(tree).begins {
		text = "(" + text + ")" // ^ would be a part of the first alternative only
	}
	return patternText(field, "^"+text)
}

// patternText returns a condition with a pattern as a file has it.
func patternText(field, pattern string) string {
	return field + ": '" + strings.ReplaceAll(pattern, "'", "''") + "'"
}

// halfAnchored notes a pattern whose ^ is that of its first alternative only: ^/a|/b.
func (d matching) halfAnchored(n *node, what string, p *pattern) {
	if p == nil || p.text == "" || p.text[0] != '^' {
		return
	}
	tree, err := syntax.Parse(p.text, syntax.Perl)
	if err != nil || tree.Op != syntax.OpAlternate || extentOf(tree).begins {
		return
	}
	instead := beginningWith(what, p.text[1:])
	d.decoder.doubt(n, instead,
		"%s %s: ^ is a part of the first alternative only, and another one matches anywhere in a path: write %s for paths "+
			"that begin so", what, quote(p.text), instead)
}

// queryIn returns where the query begins that a pattern seems to ask for, -1 if it seems to
// ask for none: an escaped question mark, or one before a name and an equals sign.
func queryIn(p *pattern) int {
	if p == nil {
		return -1
	}
	for i := 1; i < len(p.text); i++ {
		if p.text[i] != '?' {
			continue
		}
		if p.text[i-1] == '\\' {
			return i - 1
		}
		name := strings.TrimLeft(p.text[i+1:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
		if len(name) < len(p.text)-i-1 && strings.HasPrefix(name, "=") {
			return i
		}
	}
	return -1
}

// queryPath notes a pattern of paths that seems to ask for a query.
func (d matching) queryPath(n *node, what string, p *pattern) {
	i := queryIn(p)
	if i < 0 {
		return
	}
	path := "^" + strings.TrimSuffix(strings.TrimPrefix(p.text[:i], "^"), "/") + "/?$"
	instead := patternText(what, path)
	if _, _, err := newPattern(path); err != nil {
		instead = "attributes:"
	}
	d.decoder.doubt(n, instead,
		"%s %s asks for a query, and the path of a request has none: write %s, and match a parameter that the service "+
			"sends as an attribute", what, quote(p.text), instead)
}

// matchesAnywhere reports whether a pattern is a path that was probably meant as the
// beginning of one, and matches anywhere in a path.
func (p *pattern) matchesAnywhere() bool {
	return p != nil && len(p.text) > 1 && p.text[0] == '/' &&
		// these have a doubt of their own
		!strings.ContainsAny(p.text, "*{") && !strings.Contains(p.text, "/:") && !strings.Contains(p.text, "/<") &&
		queryIn(p) < 0
}

// unanchored warns about a rule whose path is probably meant as the beginning of paths. Other
// paths that contain it then count too, and do not reach later rules.
func unanchored(r *definition) (out []Warning) {
	if p := r.match.path; p.matchesAnywhere() && !r.unlimited {
		instead := beginningWith("path", p.text)
		out = append(out, newWarning(r, r.at, instead,
			"rule %s: path %s matches anywhere in a path, not only where it begins: write %s, or %s if that is meant",
			quote(r.name), quote(p.text), instead, patternText("path", ".*"+p.text)))
	}
	return out
}
