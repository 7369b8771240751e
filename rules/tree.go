package rules

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// unreadable begins the problems that the YAML library finds.
const unreadable = "YAML cannot be read: "

// maxFileBytes bounds the size of a rules file.
const maxFileBytes = 1 << 20

// maxBytes returns the bound of a file: one with files of numbers in it, see [Expand], may be larger
// by their texts.
func maxBytes(data []byte) int {
	most := maxFileBytes
	for {
		_, after, found := bytes.Cut(data, []byte(numbersField))
		if !found {
			return min(most, maxExpanded)
		}
		n := bytes.IndexAny(after, "\"\n")
		if n < 0 {
			n = len(after)
		}
		most, data = most+n, after[n:]
	}
}

// nodeKind is the kind of a node. The zero value is an empty value.
type nodeKind uint8

const (
	kindNull nodeKind = iota
	kindScalar
	kindMapping
	kindSequence
)

// String returns the kind as error texts name it.
func (k nodeKind) String() string {
	return [...]string{"empty", "a single value", "a mapping", "a list"}[k]
}

// node is one value of a file, independent of the YAML library's types. Only this file,
// guard.go and flow.go use the library.
type node struct {
	kind nodeKind
	// of a scalar: as spelled, or unquoted if it was quoted; of an empty value: null or ~ if written out
	text         string
	quoted       bool    // a scalar in quotes or a block, which is always text
	keys         []*node // of a mapping: scalars, parallel to items, without duplicates
	items        []*node // of a mapping or sequence
	line, column int     // from 1
}

// at returns the value of a field, or nil if n has no such field.
func (n *node) at(field string) *node {
	for i, k := range n.keys {
		if k.text == field {
			return n.items[i]
		}
	}
	return nil
}

// readTree parses a file. It returns nil if there is nothing to decode; problems have
// then been reported.
func readTree(data []byte, p *problems) *node {
	if most := maxBytes(data); len(data) > most {
		p.addAt(1, 1, "the file has %d bytes; at most %d are allowed", len(data), most)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	// The library counts some other line breaks twice.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	if !checkText(data, p) {
		return nil
	}
	root := protected(p, func() *node { return parseYAML(data, p) })
	if root == nil && len(p.list) > 0 && strings.HasPrefix(p.list[0].Text, unreadable) {
		// The library says where it stopped, and not what is wrong there.
		if line, column, text, ok := misindented(data, p.list[0].Line+1); ok {
			p.list[0] = Problem{Line: line, Column: column, Text: text}
		}
	}
	if root == nil && len(p.list) == 0 {
		p.addAt(1, 1, `the file is empty; to have no rules at all write "rules: []"`)
	}
	return root
}

// protected turns a panic of the YAML library into a problem, so that no file can stop
// the process.
func protected(p *problems, parse func() *node) (root *node) {
	defer func() {
		if r := recover(); r != nil {
			p.addAt(1, 1, unreadable+"%s", clip(fmt.Sprint(r)))
			root = nil
		}
	}()
	return parse()
}

// parseYAML runs the YAML library and converts its result.
func parseYAML(data []byte, p *problems) (root *node) {
	tokens := joinColons(withoutComments(lexer.Tokenize(string(data))))
	if !guard(tokens, p) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p.syntaxError(err)
		return nil
	}
	c := converter{problems: p, indents: indents(data)}
	for _, doc := range file.Docs {
		switch {
		case doc == nil || doc.Body == nil:
		case root == nil:
			root = c.convert(doc.Body)
		default: // its start is marked, since it is not the first
			c.add(c.at(doc.Start), "a second document begins here; a rules file is one document")
			return root
		}
	}
	return root
}

// syntaxError reports an error of the library, with its position if it has one.
func (p *problems) syntaxError(err error) {
	var at interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
		pos := at.GetToken().Position
		p.addAt(pos.Line, pos.Column, unreadable+"%s", clip(at.GetMessage()))
		return
	}
	p.addAt(1, 1, unreadable+"%s", clip(err.Error()))
}

// checkText reports the first byte that is not text. Control characters are refused
// because they are invisible in editors and errors.
func checkText(data []byte, p *problems) bool {
	line, column := 1, 1
	for i := 0; i < len(data); column++ {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			p.addAt(line, column, "byte 0x%02x is not UTF-8 text", data[i])
			return false
		case r == '\n':
			line, column = line+1, 0
		case r < ' ' && r != '\t', r == 0x7f, r == 0xfeff:
			p.addAt(line, column, "character %U is not allowed in a rules file; write it as an escape in double quotes", r)
			return false
		}
		i += size
	}
	return true
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

// converter converts the library's tree into nodes.
type converter struct {
	*problems
	indents []int
}

// at returns an empty node at a token. The library omits leading tabs from the columns
// of some tokens, so a position within the indentation is moved to its end.
func (c *converter) at(t *token.Token) *node {
	if t == nil || t.Position == nil {
		return &node{line: 1, column: 1}
	}
	n := &node{line: max(1, t.Position.Line), column: max(1, t.Position.Column)}
	if n.line <= len(c.indents) {
		n.column = max(n.column, c.indents[n.line-1]+1)
	}
	return n
}

func (c *converter) convert(y ast.Node) *node {
	if y == nil {
		return &node{line: 1, column: 1}
	}
	n := c.at(y.GetToken())
	switch y := y.(type) {
	case *ast.NullNode:
		n.kind = kindNull
		if y.Token.Type != token.ImplicitNullType {
			n.text = y.Token.Value
		}
	case *ast.StringNode:
		n.kind, n.text = kindScalar, y.Value
		n.quoted = y.Token.Type == token.SingleQuoteType || y.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		n.kind, n.quoted = kindScalar, true
		if y.Value != nil {
			n.text = y.Value.Value
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = kindScalar, y.GetToken().Value
	case *ast.SequenceNode:
		n.kind = kindSequence
		for _, v := range y.Values {
			n.items = append(n.items, c.convert(v))
		}
	case *ast.MappingNode:
		c.mapping(n, y.Values)
		if !y.IsFlowStyle && len(n.keys) > 0 {
			n.line, n.column = n.keys[0].line, n.keys[0].column
		}
	case *ast.MappingValueNode:
		c.mapping(n, []*ast.MappingValueNode{y})
	default:
		c.add(n, "this kind of YAML value is not supported in a rules file")
	}
	return n
}

func (c *converter) mapping(n *node, values []*ast.MappingValueNode) {
	n.kind = kindMapping
	first := make(map[string]*node, len(values))
	for _, v := range values {
		key := c.convert(v.Key)
		if key.kind != kindScalar {
			c.add(key, "a field needs a name")
			continue
		}
		value := c.convert(v.Value)
		if f := first[key.text]; f != nil {
			c.add(key, "%s is given twice; the first is on line %d", quote(key.text), f.line)
			continue
		}
		first[key.text] = key
		n.keys, n.items = append(n.keys, key), append(n.items, value)
	}
}
