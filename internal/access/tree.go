package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/spelling"
	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// MaxFile is the greatest size of a permissions file, in bytes.
const MaxFile = 1 << 20

// maxProblems bounds the problems of a file that are reported.
const maxProblems = 100

// Problem is one thing that is wrong with a permissions file.
type Problem struct {
	Line, Column int // from 1
	Text         string
}

// Error is all that is wrong with a permissions file. It wraps [limiter.ErrInvalid].
type Error struct {
	File     string
	Problems []Problem
}

// Error returns one line for each problem: "file:line:column: text".
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", e.File, p.Line, p.Column, p.Text)
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns [limiter.ErrInvalid].
func (*Error) Unwrap() error { return limiter.ErrInvalid }

type problems struct{ list []Problem }

func (p *problems) addAt(line, column int, format string, args ...any) {
	if len(p.list) < maxProblems {
		p.list = append(p.list, Problem{line, column, fmt.Sprintf(format, args...)})
	}
}

func (p *problems) add(n *node, format string, args ...any) {
	p.addAt(n.Line, n.Column, format, args...)
}

// error returns all problems in the order of their positions, nil if there are none.
func (p *problems) error(file string) error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{file, p.list}
}

// node is one value of a file.
type node = yamltree.Node

// readTree parses a file. It returns nil after a problem that leaves nothing to look at.
func readTree(data []byte, p *problems) *node {
	if len(data) <= MaxFile && tooMany(data) {
		p.addAt(1, 1, "the file has more than %d parts (lines, fields, elements of lists and brackets): give one identity "+
			"to callers that may do the same, or leave out comments", maxParts)
		return nil
	}
	return yamltree.Read(data, yamltree.Form{
		Name: "a permissions file", Bytes: MaxFile, Depth: 16,
		Keys:   100, // the longest mapping of a permissions file needs ten
		Shared: "; give one identity to callers that may do the same",
		Empty:  ": nobody could ask anything; list identities",
	}, p.addAt)
}

// maxParts bounds what the YAML library is given. For each part, a value or what separates values, it
// takes about 800 bytes while it reads.
const maxParts = 100_000

// tooMany reports whether a file has too many parts. It counts no part less than the library does,
// except within texts in quotes.
func tooMany(data []byte) bool {
	parts := 0
	for i := range data {
		last := i+1 == len(data) || data[i+1] == ' ' || data[i+1] == '\n' || data[i+1] == '\r'
		switch data[i] {
		case ':', '-', '?':
			if last {
				parts++
			}
		case '\n', ',', '[', ']', '{', '}', '"', '\'', '#', '&', '*', '!', '|', '>', '%':
			parts++
		}
	}
	return parts > maxParts
}

// fields calls the reader of each field of a mapping, and reports fields without one.
func (p *problems) fields(n *node, what string, readers map[string]func(*node)) {
	if n.Kind != yamltree.Mapping {
		p.add(n, "%s is %s; it must be a mapping", what, n.Kind)
		return
	}
	for i, k := range n.Keys {
		if read := readers[k.Text]; read != nil {
			read(n.Items[i])
			continue
		}
		names := slices.Sorted(maps.Keys(readers))
		text := fmt.Sprintf("unknown field %.100q of %s: the fields are %s", k.Text, what, strings.Join(names, ", "))
		if near := spelling.Nearest(k.Text, names); near != "" {
			text = fmt.Sprintf("unknown field %.100q of %s; did you mean %q?", k.Text, what, near)
		}
		p.add(k, "%s", text)
	}
}

// text returns a reader of a text of at most most bytes.
func (p *problems) text(name string, most int, to *string) func(*node) {
	return func(n *node) {
		switch {
		case n.Kind != yamltree.Scalar:
			p.add(n, "%s is %s; it must be a text", name, n.Kind)
		case n.Text == "":
			p.add(n, "%s is an empty text: write one, or leave it out", name)
		case len(n.Text) > most:
			p.add(n, "%s has %d bytes; at most %d are allowed", name, len(n.Text), most)
		default:
			*to = n.Text
		}
	}
}

// each calls read with each element of a list of at most most elements.
func (p *problems) each(name string, most int, read func(*node)) func(*node) {
	return func(n *node) {
		switch {
		case n.Kind != yamltree.List:
			p.add(n, "%s is %s; it must be a list", name, n.Kind)
		case len(n.Items) > most:
			p.add(n, "%s has %d elements; at most %d are allowed", name, len(n.Items), most)
		default:
			for _, item := range n.Items {
				read(item)
			}
		}
	}
}
