// Package yamltree reads the YAML files of ours, rules, permissions and tests, into trees of values with
// positions. It bounds what the YAML library is given, and says what is wrong for people.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/weirlimit/weir/internal/spelling"
)

// Form is what a kind of file may be, and the words in which its problems are told.
type Form struct {
	Name  string // with its article, such as "a rules file"
	Bytes int    // the most that it may have
	Depth int    // levels of nesting
	Keys  int    // fields of one mapping
	// More about three problems, each the rest of a sentence: anchors and such, too many values that
	// are left out, and a file without a value.
	Shared, LeftOut, Empty string
}

// Report takes a problem: its position, from 1, and its text.
type Report func(line, column int, format string, args ...any)

// Kind is the kind of a node. The zero value is an empty value.
type Kind uint8

// The kinds of a node.
const (
	Empty Kind = iota
	Scalar
	Mapping
	List
)

// String returns the kind as error texts name it.
func (k Kind) String() string {
	return [...]string{"empty", "a single value", "a mapping", "a list"}[k]
}

// Node is one value of a file, independent of the YAML library's types.
type Node struct {
	Kind Kind
	// of a scalar: as spelled, or unquoted if it was quoted; of an empty value: null or ~ if written out
	Text         string
	Quoted       bool    // a scalar in quotes or a block, which is always text
	Keys         []*Node // of a mapping: scalars, parallel to items, without duplicates
	Items        []*Node // of a mapping or sequence
	Line, Column int     // from 1
}

// At returns the value of a field, or nil if n has no such field.
func (n *Node) At(field string) *Node {
	for i, k := range n.Keys {
		if k.Text == field {
			return n.Items[i]
		}
	}
	return nil
}

// reader reads one file, whose line breaks are single ones.
type reader struct {
	Form
	data    []byte
	report  Report
	indents []int // leading blanks of each line
	failed  bool  // a problem was reported
}

func (r *reader) add(line, column int, format string, args ...any) {
	r.failed = true
	r.report(line, column, format, args...)
}

func (r *reader) addAt(n *Node, format string, args ...any) { r.add(n.Line, n.Column, format, args...) }

// unreadable reports where the library stopped, and why: it seldom says what is wrong there.
func (r *reader) unreadable(line, column int, why string) {
	if !r.failed {
		if line, column, text, ok := misindented(r.data, line+1); ok {
			r.add(line, column, "%s", text)
			return
		}
	}
	r.add(line, column, "YAML cannot be read: %s", spelling.Clip(why))
}

// Read parses a file. It returns nil if there is nothing to decode; problems have then been reported.
// Others may have been reported if there is. No file makes it panic.
func Read(data []byte, form Form, report Report) *Node {
	if len(data) > form.Bytes {
		report(1, 1, "the file has %d bytes; at most %d are allowed", len(data), form.Bytes)
		return nil
	}
	data, ok := Text(data, form.Name, report)
	if !ok {
		return nil
	}
	r := &reader{Form: form, report: report, data: data}
	root := r.protected(r.parse)
	if root == nil && !r.failed {
		r.add(1, 1, "the file is empty%s", form.Empty)
	}
	return root
}

// protected turns a panic of the YAML library into a problem, so that no file can stop
// the process.
func (r *reader) protected(parse func() *Node) (root *Node) {
	defer func() {
		if p := recover(); p != nil {
			r.unreadable(1, 1, fmt.Sprint(p))
			root = nil
		}
	}()
	return parse()
}

// parse runs the YAML library and converts its result.
func (r *reader) parse() (root *Node) {
	tokens := joinColons(withoutComments(lexer.Tokenize(string(r.data))))
	if !guard(tokens, r) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntaxError(err)
		return nil
	}
	r.indents = indents(r.data)
	for _, doc := range file.Docs {
		switch {
		case doc == nil || doc.Body == nil:
		case root == nil:
			root = r.convert(doc.Body)
		default: // its start is marked, since it is not the first
			r.addAt(r.at(doc.Start), "a second document begins here; %s is one document", r.Name)
			return root
		}
	}
	return root
}

// syntaxError reports an error of the library, with its position if it has one.
func (r *reader) syntaxError(err error) {
	var at interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
		pos := at.GetToken().Position
		r.unreadable(pos.Line, pos.Column, at.GetMessage())
		return
	}
	r.unreadable(1, 1, err.Error())
}

// Text returns a file without the mark at its beginning and with single line breaks: the library counts
// some others twice. It reports the first byte that is not text, and then returns false. Control
// characters are refused because they are invisible in editors and errors.
func Text(data []byte, name string, report Report) ([]byte, bool) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	line, column := 1, 1
	for i := 0; i < len(data); column++ {
		c, size := utf8.DecodeRune(data[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			report(line, column, "byte 0x%02x is not UTF-8 text", data[i])
			return nil, false
		case c == '\n':
			line, column = line+1, 0
		case c < ' ' && c != '\t', c == 0x7f, c == 0xfeff:
			report(line, column, "character %U is not allowed in %s; write it as an escape in double quotes", c, name)
			return nil, false
		}
		i += size
	}
	return data, true
}

// indents returns the number of leading blanks of each line.
func indents(data []byte) []int {
	out := []int{0}
	leading := true
	for _, b := range data {
		switch {
		case b == '\n':
			out = append(out, 0)
			leading = true
		case leading && (b == ' ' || b == '\t'):
			out[len(out)-1]++
		default:
			leading = false
		}
	}
	return out
}

// at returns an empty node at a token. The library omits leading tabs from the columns
// of some tokens, so a position within the indentation is moved to its end.
func (r *reader) at(t *token.Token) *Node {
	if t == nil || t.Position == nil {
		return &Node{Line: 1, Column: 1}
	}
	n := &Node{Line: max(1, t.Position.Line), Column: max(1, t.Position.Column)}
	if n.Line <= len(r.indents) {
		n.Column = max(n.Column, r.indents[n.Line-1]+1)
	}
	return n
}

func (r *reader) convert(y ast.Node) *Node {
	if y == nil {
		return &Node{Line: 1, Column: 1}
	}
	n := r.at(y.GetToken())
	switch y := y.(type) {
	case *ast.NullNode:
		n.Kind = Empty
		if y.Token.Type != token.ImplicitNullType {
			n.Text = y.Token.Value
		}
	case *ast.StringNode:
		n.Kind, n.Text = Scalar, y.Value
		n.Quoted = y.Token.Type == token.SingleQuoteType || y.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		n.Kind, n.Quoted = Scalar, true
		if y.Value != nil {
			n.Text = y.Value.Value
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		n.Kind, n.Text = Scalar, y.GetToken().Value
	case *ast.SequenceNode:
		n.Kind = List
		for _, v := range y.Values {
			n.Items = append(n.Items, r.convert(v))
		}
	case *ast.MappingNode:
		r.mapping(n, y.Values)
		if !y.IsFlowStyle && len(n.Keys) > 0 {
			n.Line, n.Column = n.Keys[0].Line, n.Keys[0].Column
		}
	case *ast.MappingValueNode:
		r.mapping(n, []*ast.MappingValueNode{y})
	default:
		r.addAt(n, "this kind of YAML value is not supported in %s", r.Name)
	}
	return n
}

func (r *reader) mapping(n *Node, values []*ast.MappingValueNode) {
	n.Kind = Mapping
	first := make(map[string]*Node, len(values))
	for _, v := range values {
		key := r.convert(v.Key)
		if key.Kind != Scalar {
			r.addAt(key, "a field needs a name")
			continue
		}
		value := r.convert(v.Value)
		if f := first[key.Text]; f != nil {
			r.addAt(key, "%s is given twice; the first is on line %d", spelling.Quote(key.Text), f.Line)
			continue
		}
		first[key.Text] = key
		n.Keys, n.Items = append(n.Keys, key), append(n.Items, value)
	}
}
