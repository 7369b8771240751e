package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"path/filepath"
	"strings"
)

// place returns where the one piece of a file begins and ends that an edit replaces. In a Go file white space,
// comments and the comma before a closing bracket do not count, so that lines may be broken anew.
func (e edit) place(text string) (from, to int, err error) {
	if n := strings.Count(text, e.old); n == 1 {
		from = strings.Index(text, e.old)
		return from, from + len(e.old), nil
	} else if n > 1 || filepath.Ext(e.file) != ".go" {
		return 0, 0, fmt.Errorf("%s has %d times %q", e.file, n, e.old)
	}
	all, old := tokens(text), tokens(e.old)
	n := 0
	for i := range all {
		if len(old) > 0 && begin(all[i:], old) {
			n++
			from, to = all[i].from, all[i+len(old)-1].to
		}
	}
	if n != 1 {
		return 0, 0, fmt.Errorf("%s has %d times %q, white space aside", e.file, n, e.old)
	}
	return from, to, nil
}

// lexeme is a token of Go, and where it stands.
type lexeme struct {
	text     string
	from, to int
}

// tokens returns the tokens of a piece of Go, but for those that only the breaks of lines call for.
func tokens(text string) (all []lexeme) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), func(token.Position, string) {}, 0)
	for {
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return all
		case tok == token.SEMICOLON && lit == "\n":
			continue
		case !tok.IsLiteral() && tok != token.COMMENT:
			lit = tok.String()
		}
		closes := tok == token.RPAREN || tok == token.RBRACK || tok == token.RBRACE
		if n := len(all); closes && n > 0 && all[n-1].text == "," {
			all = all[:n-1]
		}
		from := file.Offset(pos)
		all = append(all, lexeme{lit, from, from + len(lit)})
	}
}

func begin(all, with []lexeme) bool {
	if len(all) < len(with) {
		return false
	}
	for i := range with {
		if all[i].text != with[i].text {
			return false
		}
	}
	return true
}
