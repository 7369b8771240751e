package ruletest

import (
	"errors"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/weirlimit/weir/internal/spelling"
)

type nodeKind uint8

const (
	kindEmpty nodeKind = iota
	kindScalar
	kindMapping
	kindList
)

// node is one value of a file.
type node struct {
	kind         nodeKind
	text         string
	keys, items  []*node // of a mapping they are parallel
	line, column int
}

// field is one field of a mapping, and what decodes it.
type field struct {
	name string
	read func(value *node)
}

// mapping decodes the fields of n. what describes n in errors.
func (d *decoder) mapping(n *node, what string, fields []field) {
	if n.kind != kindMapping {
		d.add(n, "%s is a mapping of fields to values", what)
		return
	}
	read, known := map[string]func(*node){}, []string{}
	for _, f := range fields {
		read[f.name], known = f.read, append(known, f.name)
	}
	for i, k := range n.keys {
		switch f := read[k.text]; {
		case f != nil && n.items[i].kind == kindEmpty:
			d.add(k, "%q has no value", k.text)
		case f != nil:
			f(n.items[i])
		default:
			text := ""
			if near := spelling.Nearest(k.text, known); near != "" {
				text = "; did you mean \"" + near + "\"?"
			}
			d.add(k, "unknown field %q (in %s)%s", k.text, what, text)
		}
	}
}

// tree parses a file. It returns nil and adds a problem if it is not YAML.
func (d *decoder) tree(data []byte) *node {
	top := &node{line: 1, column: 1}
	switch {
	case len(data) > maxFile:
		d.add(top, "the file has %d bytes; at most %d are read", len(data), maxFile)
		return nil
	case !utf8.Valid(data):
		d.add(top, "the file is not UTF-8 text")
		return nil
	case nests(data):
		d.add(top, "brackets nest more than %d levels deep", maxDepth)
		return nil
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var at interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if text := err.Error(); errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			top.line, top.column, text = at.GetToken().Position.Line, at.GetToken().Position.Column, at.GetMessage()
			d.add(top, "YAML cannot be read: %s", text)
		} else {
			d.add(top, "YAML cannot be read: %s", text)
		}
		return nil
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		d.add(top, "the file is empty")
		return nil
	}
	return d.convert(file.Docs[0].Body, 0)
}

// nests reports whether brackets nest deeper than any file of tests: the library recurses for each.
func nests(data []byte) bool {
	depth := 0
	for _, c := range data {
		switch c {
		case '[', '{':
			if depth++; depth > maxDepth*4 { // those in texts count, too
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
}

func (d *decoder) convert(y ast.Node, depth int) *node {
	n := &node{line: 1, column: 1}
	if y == nil || y.GetToken() == nil {
		return n
	}
	if p := y.GetToken().Position; p != nil {
		n.line, n.column = p.Line, p.Column
	}
	if depth > maxDepth {
		d.add(n, "nested more than %d levels deep", maxDepth)
		return n
	}
	pair := func(v *ast.MappingValueNode) {
		n.keys, n.items = append(n.keys, d.convert(v.Key, depth+1)), append(n.items, d.convert(v.Value, depth+1))
	}
	switch y := y.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		n.kind, n.text = kindScalar, y.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		n.kind, n.text = kindScalar, y.GetToken().Value
	case *ast.SequenceNode:
		n.kind = kindList
		for _, v := range y.Values {
			n.items = append(n.items, d.convert(v, depth+1))
		}
	case *ast.MappingNode:
		n.kind = kindMapping
		for _, v := range y.Values {
			pair(v)
		}
		if !y.IsFlowStyle && len(n.keys) > 0 {
			n.line, n.column = n.keys[0].line, n.keys[0].column
		}
	case *ast.MappingValueNode:
		n.kind = kindMapping
		pair(y)
		n.line, n.column = n.keys[0].line, n.keys[0].column
	default:
		d.add(n, "this kind of YAML value is not supported in a file of tests")
	}
	return n
}
