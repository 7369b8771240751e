package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// maxProblems bounds how many problems of one file are reported: a file with
// more of them was not meant to be a rules file.
const maxProblems = 1000

// Problem is one thing wrong with a rules file.
type Problem struct {
	// Line and Column are where it is, counted from 1; the column counts
	// characters.
	Line, Column int
	// Text says what is wrong and, where it can, what would be right.
	Text string
}

// Error is what [Parse] returns for a file that is not valid: all of its
// problems, in the order of their positions. It wraps [limiter.ErrInvalid].
type Error struct {
	// File is the name that was given to Parse; it may be empty.
	File string
	// Problems has at least one element, and at most 1001: of a file with more
	// the last one says how many are left out.
	Problems []Problem
}

// Error returns one line for each problem: "file:line:column: text".
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if e.File != "" {
			b.WriteString(e.File)
			b.WriteByte(':')
		}
		b.WriteString(strconv.Itoa(p.Line))
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(p.Column))
		b.WriteString(": ")
		b.WriteString(p.Text)
	}
	return b.String()
}

// Unwrap returns [limiter.ErrInvalid].
func (e *Error) Unwrap() error { return limiter.ErrInvalid }

// problems collects what is wrong with a file.
type problems struct {
	list    []Problem
	omitted int
}

func (p *problems) addAt(line, column int, format string, args ...any) {
	if len(p.list) == maxProblems {
		p.omitted++
		return
	}
	p.list = append(p.list, Problem{Line: line, Column: column, Text: fmt.Sprintf(format, args...)})
}

// add reports a problem at a node.
func (p *problems) add(n *node, format string, args ...any) {
	p.addAt(n.line, n.column, format, args...)
}

// err returns the problems as an error, or nil if there are none.
func (p *problems) err(file string) error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	e := &Error{File: file, Problems: slices.Compact(p.list)}
	if p.omitted > 0 {
		last := e.Problems[len(e.Problems)-1]
		last.Text = fmt.Sprintf("%d more problems are not shown", p.omitted)
		e.Problems = append(e.Problems, last)
	}
	return e
}
