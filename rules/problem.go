package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// maxProblems bounds the problems that are reported for one file. A file with more of
// them was not meant to be a rules file.
const maxProblems = 1000

// Problem is one thing wrong with a rules file.
type Problem struct {
	// Line and Column are its position, counted from 1. Column counts characters.
	Line, Column int
	// Text states what is wrong and, if possible, what would be right.
	Text string
}

// Error is the error of [Parse] for an invalid file: all its problems, in the order of
// their positions. It wraps [limiter.ErrInvalid].
type Error struct {
	// File is the name given to Parse; it may be empty.
	File string
	// Problems has 1 to 1001 elements. If a file has more than 1000, the last element
	// states how many are omitted.
	Problems []Problem
	// Warnings are those about defaults, quotas and rules that have no problem. Those for
	// which rules are compared with each other are left out.
	Warnings []Warning
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

func (p *problems) found() int { return len(p.list) + p.omitted }

func (p *problems) add(n *node, format string, args ...any) {
	p.addAt(n.Line, n.Column, format, args...)
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
