package rules

import (
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// This file analyses the syntax tree of a pattern. Whatever it removes or concludes
// never changes whether a path matches.

// strip returns the tree without captures, which do not affect whether it matches, and
// joins the concatenations that they separated.
func strip(re *syntax.Regexp) *syntax.Regexp {
	if re.Op == syntax.OpCapture {
		return strip(re.Sub[0])
	}
	if len(re.Sub) == 0 {
		return re
	}
	out := *re
	out.Sub = nil
	for _, sub := range re.Sub {
		sub = strip(sub)
		if re.Op == syntax.OpConcat && sub.Op == syntax.OpConcat {
			out.Sub = append(out.Sub, sub.Sub...)
		} else {
			out.Sub = append(out.Sub, sub)
		}
	}
	return &out
}

// sequence returns the consecutive parts of a tree.
func sequence(re *syntax.Regexp) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpConcat:
		return re.Sub
	case syntax.OpEmptyMatch:
		return nil
	}
	return []*syntax.Regexp{re}
}

func concat(parts []*syntax.Regexp) *syntax.Regexp {
	switch len(parts) {
	case 0:
		return &syntax.Regexp{Op: syntax.OpEmptyMatch}
	case 1:
		return parts[0]
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: parts}
}

// trimTail removes what cannot matter at the end of a pattern whose match may end
// anywhere: parts that may be empty (x*, x?), and all but one of x+.
func trimTail(re *syntax.Regexp) *syntax.Regexp {
	parts := sequence(re)
	for len(parts) > 0 {
		head, last := parts[:len(parts)-1], parts[len(parts)-1]
		switch last.Op {
		case syntax.OpStar, syntax.OpQuest, syntax.OpEmptyMatch:
			parts = head
			continue
		case syntax.OpPlus:
			parts = joined(head, sequence(last.Sub[0]))
			continue
		case syntax.OpAlternate:
			alt := *last
			alt.Sub = nil
			for _, sub := range last.Sub {
				alt.Sub = append(alt.Sub, trimTail(sub))
			}
			parts = joined(head, []*syntax.Regexp{&alt})
		}
		break
	}
	return concat(parts)
}

// trimHead does the same at the beginning of a pattern that may match anywhere.
func trimHead(re *syntax.Regexp) *syntax.Regexp {
	parts := sequence(re)
	for len(parts) > 0 {
		switch parts[0].Op {
		case syntax.OpStar, syntax.OpQuest, syntax.OpEmptyMatch:
			parts = parts[1:]
			continue
		case syntax.OpPlus:
			parts = joined(sequence(parts[0].Sub[0]), parts[1:])
			continue
		}
		break
	}
	return concat(parts)
}

func joined(a, b []*syntax.Regexp) []*syntax.Regexp {
	return append(append(make([]*syntax.Regexp, 0, len(a)+len(b)), a...), b...)
}

// prefilter determines what can be decided without the regular expression, and reports
// whether it is still needed.
func (p *pattern) prefilter(re *syntax.Regexp) (needed bool) {
	parts := sequence(re)
	if anchored(re) {
		return p.anchor(parts)
	}
	text, ok := "", false
	if len(parts) > 0 {
		text, ok = literal(parts[0])
	}
	switch {
	case len(parts) == 0:
		p.loose = looseAll
	case ok && len(parts) == 1:
		p.loose, p.need = looseContains, text
	case ok && len(parts) == 2 && parts[1].Op == syntax.OpEndText:
		p.loose, p.need = looseSuffix, text
	default:
		p.loose, p.need = looseRegexp, required(parts)
		return true
	}
	return false
}

// anchor is prefilter for a pattern that matches only from the beginning of a path.
func (p *pattern) anchor(parts []*syntax.Regexp) (needed bool) {
	open := provesMatch
	if n := len(parts); n >= 2 && parts[n-1].Op == syntax.OpEndText && parts[n-2].Op == syntax.OpStar {
		// ".*$" matches everything except line breaks, which "." does not match.
		switch parts[n-2].Sub[0].Op {
		case syntax.OpAnyChar:
			parts = parts[:n-2]
		case syntax.OpAnyCharNotNL:
			parts, open = parts[:n-2], provesLine
		}
	}
	for _, b := range expand(concat(parts), []beginning{{}}) {
		if b.proves == provesMatch {
			b.proves = open
		}
		needed = needed || b.proves == provesPossible || b.proves == provesLine
		p.begins = append(p.begins, b)
	}
	for len(parts) > 0 { // skip what the beginnings cover
		if _, ok := literal(parts[0]); !ok && parts[0].Op != syntax.OpBeginText {
			break
		}
		parts = parts[1:]
	}
	p.need = required(parts)
	return needed
}

// anchored reports whether a tree matches only from the beginning of a path.
func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText:
		return true
	case syntax.OpConcat, syntax.OpPlus:
		return anchored(re.Sub[0])
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !anchored(sub) })
	}
	return false
}

// literal returns the text that a tree matches, if it matches only one text. The
// replacement character is never taken as text: in a regular expression it also matches
// bytes that are not UTF-8.
func literal(re *syntax.Regexp) (string, bool) {
	if re.Op != syntax.OpLiteral {
		return "", false
	}
	for _, r := range re.Rune {
		if !exact(r, re.Flags) {
			return "", false
		}
	}
	return string(re.Rune), true
}

func exact(r rune, flags syntax.Flags) bool {
	return r != utf8.RuneError && utf8.ValidRune(r) && (flags&syntax.FoldCase == 0 || unicode.SimpleFold(r) == r)
}

// required returns the longest literal text among the parts.
func required(parts []*syntax.Regexp) (longest string) {
	for _, re := range parts {
		text, ok := literal(re)
		if !ok && re.Op == syntax.OpPlus {
			text, ok = literal(re.Sub[0])
		}
		if ok && len(text) > len(longest) {
			longest = text
		}
	}
	return longest
}

const (
	maxBeginnings = 16 // of one pattern
	maxClass      = 8  // characters of a class that are enumerated
)

// expand appends to each open beginning (one that proves a match) what the tree adds to
// it. A tree that it cannot express closes the beginning, which then proves only that a
// match is possible.
func expand(re *syntax.Regexp, in []beginning) []beginning {
	var out []beginning
	var open []beginning
	for _, b := range in {
		switch {
		case b.proves == provesMatch:
			open = append(open, b)
		case b.proves == provesWhole && re.Op != syntax.OpEmptyMatch:
			out = append(out, beginning{b.text, provesPossible}) // something after "$"
		default:
			out = append(out, b)
		}
	}
	if len(open) == 0 {
		return out
	}
	grown, ok := grow(re, open)
	if !ok || len(out)+len(grown) > maxBeginnings {
		for _, b := range open {
			out = append(out, beginning{b.text, provesPossible})
		}
		return out
	}
	return append(out, grown...)
}

// grow does this for open beginnings, if it supports the kind of tree.
func grow(re *syntax.Regexp, open []beginning) (out []beginning, ok bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return open, true
	case syntax.OpBeginText:
		for _, b := range open {
			if b.text != "" {
				return nil, false
			}
		}
		return open, true
	case syntax.OpEndText:
		for _, b := range open {
			out = append(out, beginning{b.text, provesWhole})
		}
		return out, true
	case syntax.OpLiteral:
		return growLiteral(re, open), true
	case syntax.OpCharClass:
		return growClass(re, open)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			open = expand(sub, open)
		}
		return open, true
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			if out = append(out, expand(sub, open)...); len(out) > maxBeginnings {
				return nil, false
			}
		}
		return out, true
	case syntax.OpQuest:
		return append(open[:len(open):len(open)], expand(re.Sub[0], open)...), true
	case syntax.OpPlus:
		for _, b := range expand(re.Sub[0], open) {
			out = append(out, beginning{b.text, provesPossible})
		}
		return out, true
	}
	return nil, false
}

func growLiteral(re *syntax.Regexp, open []beginning) (out []beginning) {
	text, proves := string(re.Rune), provesMatch
	for i, r := range re.Rune {
		if !exact(r, re.Flags) {
			text, proves = string(re.Rune[:i]), provesPossible
			break
		}
	}
	for _, b := range open {
		out = append(out, beginning{b.text + text, proves})
	}
	return out
}

func growClass(re *syntax.Regexp, open []beginning) (out []beginning, ok bool) {
	var runes []rune
	for i := 0; i+1 < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			if len(runes) == maxClass || !exact(r, 0) {
				return nil, false
			}
			runes = append(runes, r)
		}
	}
	for _, b := range open {
		for _, r := range runes {
			out = append(out, beginning{b.text + string(r), provesMatch})
		}
	}
	return out, len(out) > 0
}
