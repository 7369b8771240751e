package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/weirlimit/weir/internal/spelling"
	"github.com/weirlimit/weir/limiter"
)

// MaxFile is the greatest size of a permissions file, in bytes.
const MaxFile = 1 << 20

// maxProblems bounds the problems of a file that are reported.
const maxProblems = 100

// maxDepth bounds how deep brackets may nest, before the library sees them.
const maxDepth = 16

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

// problems collects what is wrong.
type problems struct{ list []Problem }

func (p *problems) add(n *node, format string, args ...any) {
	if len(p.list) < maxProblems {
		p.list = append(p.list, Problem{n.line, n.column, fmt.Sprintf(format, args...)})
	}
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

// nodeKind is the kind of a node. The zero value is an empty value.
type nodeKind uint8

const (
	empty nodeKind = iota
	scalar
	mapping
	list
)

// String returns the kind as error texts name it.
func (k nodeKind) String() string {
	return [...]string{"empty", "a single value", "a mapping", "a list"}[k]
}

// node is one value of a file.
type node struct {
	kind         nodeKind
	text         string
	keys, items  []*node
	line, column int
}

// readTree parses a file. It returns nil after a problem that leaves nothing to look at.
func readTree(data []byte, p *problems) (root *node) {
	start := &node{line: 1, column: 1}
	switch {
	case len(data) > MaxFile:
		p.add(start, "the file has %d bytes; at most %d are allowed", len(data), MaxFile)
		return nil
	case !utf8.Valid(data):
		p.add(start, "the file is not UTF-8 text")
		return nil
	case tooDeep(data):
		p.add(start, "brackets nest deeper than %d: a permissions file needs fewer", maxDepth)
		return nil
	}
	if why := tooMuch(data); why != "" {
		p.add(start, "%s", why)
		return nil
	}
	defer func() {
		if r := recover(); r != nil { // the library's; no file may stop the process
			p.add(start, "YAML cannot be read: %.200s", fmt.Sprint(r))
			root = nil
		}
	}()
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p.syntax(err)
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc == nil || doc.Body == nil:
		case root == nil:
			root = convert(doc.Body, p, 0)
		default:
			p.add(start, "the file has a second document; a permissions file is one")
			return nil
		}
	}
	if root == nil {
		p.add(start, "the file is empty: nobody could ask anything; list identities")
	}
	return root
}

// tooDeep reports whether brackets may nest too deep for the library's recursion, or lines
// are indented too far. Brackets in texts count, too.
func tooDeep(data []byte) bool {
	depth, indent, leading := 0, 0, true
	for _, b := range data {
		switch b {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		}
		switch {
		case b == '\n':
			indent, leading = 0, true
		case leading && (b == ' ' || b == '-' || b == '?' || b == ':' || b == '!' || b == '&'):
			indent++
		default:
			leading = false
		}
		if depth > maxDepth || indent > 8*maxDepth {
			return true
		}
	}
	return false
}

// syntax adds an error of the library, with its position if it has one.
func (p *problems) syntax(err error) {
	var at interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
		pos := at.GetToken().Position
		p.add(&node{line: pos.Line, column: pos.Column}, "YAML cannot be read: %.200s", at.GetMessage())
		return
	}
	p.add(&node{line: 1, column: 1}, "YAML cannot be read: %.200s", err.Error())
}

// convert turns the library's tree into nodes.
func convert(y ast.Node, p *problems, depth int) *node {
	n := &node{line: 1, column: 1}
	if y == nil {
		return n
	}
	if t := y.GetToken(); t != nil && t.Position != nil {
		n.line, n.column = max(1, t.Position.Line), max(1, t.Position.Column)
	}
	if depth > maxDepth {
		p.add(n, "values nest deeper than %d", maxDepth)
		return n
	}
	switch y := y.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		n.kind, n.text = scalar, y.Value
	case *ast.LiteralNode:
		n.kind = scalar
		if y.Value != nil {
			n.text = y.Value.Value
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		n.kind, n.text = scalar, y.GetToken().Value
	case *ast.SequenceNode:
		n.kind = list
		for _, v := range y.Values {
			n.items = append(n.items, convert(v, p, depth+1))
		}
	case *ast.MappingNode:
		n.fill(y.Values, p, depth)
	case *ast.MappingValueNode:
		n.fill([]*ast.MappingValueNode{y}, p, depth)
	default:
		p.add(n, "this kind of YAML value is not supported in a permissions file")
	}
	return n
}

// fill makes n a mapping.
func (n *node) fill(values []*ast.MappingValueNode, p *problems, depth int) {
	n.kind = mapping
	seen := map[string]int{}
	for _, v := range values {
		key := convert(v.Key, p, depth+1)
		if key.kind != scalar {
			p.add(key, "a field needs a name")
			continue
		}
		if line, twice := seen[key.text]; twice {
			p.add(key, "%.100q is given twice; the first is on line %d", key.text, line)
			continue
		}
		seen[key.text] = key.line
		n.keys, n.items = append(n.keys, key), append(n.items, convert(v.Value, p, depth+1))
	}
	if len(n.keys) > 0 {
		n.line, n.column = n.keys[0].line, n.keys[0].column
	}
}

// fields calls the reader of each field of a mapping, and reports fields without one.
func (p *problems) fields(n *node, what string, readers map[string]func(*node)) {
	if n.kind != mapping {
		p.add(n, "%s is %s; it must be a mapping", what, n.kind)
		return
	}
	for i, k := range n.keys {
		if read := readers[k.text]; read != nil {
			read(n.items[i])
			continue
		}
		var names []string
		for name := range readers {
			names = append(names, name)
		}
		slices.Sort(names)
		text := fmt.Sprintf("unknown field %.100q of %s: the fields are %s", k.text, what, strings.Join(names, ", "))
		if near := spelling.Nearest(k.text, names); near != "" {
			text = fmt.Sprintf("unknown field %.100q of %s; did you mean %q?", k.text, what, near)
		}
		p.add(k, "%s", text)
	}
}

// text returns a reader of a text of at most most bytes.
func (p *problems) text(name string, most int, to *string) func(*node) {
	return func(n *node) {
		switch {
		case n.kind != scalar:
			p.add(n, "%s is %s; it must be a text", name, n.kind)
		case n.text == "":
			p.add(n, "%s is an empty text: write one, or leave it out", name)
		case len(n.text) > most:
			p.add(n, "%s has %d bytes; at most %d are allowed", name, len(n.text), most)
		default:
			*to = n.text
		}
	}
}

// each calls read with each element of a list of at most most elements.
func (p *problems) each(name string, most int, read func(*node)) func(*node) {
	return func(n *node) {
		switch {
		case n.kind != list:
			p.add(n, "%s is %s; it must be a list", name, n.kind)
		case len(n.items) > most:
			p.add(n, "%s has %d elements; at most %d are allowed", name, len(n.items), most)
		default:
			for _, item := range n.items {
				read(item)
			}
		}
	}
}
