package ruletest

import (
	"github.com/weirlimit/weir/internal/spelling"
	"github.com/weirlimit/weir/internal/yamltree"
)

// node is one value of a file.
type node = yamltree.Node

// field is one field of a mapping, and what decodes it.
type field struct {
	name string
	read func(value *node)
}

// mapping decodes the fields of n. what describes n in errors.
func (d *decoder) mapping(n *node, what string, fields []field) {
	if n.Kind != yamltree.Mapping {
		d.add(n, "%s is a mapping of fields to values", what)
		return
	}
	read, known := map[string]func(*node){}, []string{}
	for _, f := range fields {
		read[f.name], known = f.read, append(known, f.name)
	}
	for i, k := range n.Keys {
		switch f := read[k.Text]; {
		case f != nil && n.Items[i].Kind == yamltree.Empty:
			d.add(k, "%q has no value", k.Text)
		case f != nil:
			f(n.Items[i])
		default:
			text := ""
			if near := spelling.Nearest(k.Text, known); near != "" {
				text = "; did you mean \"" + near + "\"?"
			}
			d.add(k, "unknown field %q (in %s)%s", k.Text, what, text)
		}
	}
}

// tree parses a file. It returns nil and adds a problem if it is not YAML.
func (d *decoder) tree(data []byte) *node {
	return yamltree.Read(data, yamltree.Form{
		Name: "a file of tests", Bytes: maxFile, Depth: 16, Keys: 256, Shared: "; write the values again",
	}, d.addAt)
}
