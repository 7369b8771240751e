package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// Bounds of the contents of one file.
const (
	maxRules      = 10_000
	maxKeys       = 8 // counters of one rule, under "keys"
	maxKeyParts   = limiter.MaxKeyParts
	maxAttributes = 16      // attributes that one rule matches on
	maxChoices    = 64      // values of which a match accepts any
	maxCosts      = 64      // methods with a cost of their own
	maxQuotas     = 1000    // in one file
	maxDraws      = 8       // quotas that one rule draws on
	maxPattern    = 1 << 10 // bytes of a path pattern
)

// decoder decodes a tree and collects its problems.
type decoder struct {
	problems
	options []option
	names   map[string]*node // of the rules and quotas decoded so far
	rules   []definition
	quotas  []definition
	size    int // instructions of all patterns together
	// used has the options that a limit of the rule that is being decoded uses.
	used map[*node]bool
	// oddities are those of the rule that is being decoded. outer has those of the
	// defaults.
	oddities []oddity
	outer    definition
	// mentions are the names of attributes in the rule that is being decoded.
	mentions mentions
	// zoned counts the limits of the file whose time zone a request chooses.
	zoned int
	// numbered counts the names of all tables, tableLimits the different limits of each.
	numbered, tableLimits int
	// replication is used if the file sets none.
	replication limiter.Replication
}

// field is one field of a mapping and the function that decodes its value.
type field struct {
	name string
	read func(key, value *node)
}

// mapping decodes the fields of n in the order of the file. what describes n in errors.
func (d *decoder) mapping(n *node, what string, fields []field, hint func(name string) string) {
	if n.Kind != yamltree.Mapping {
		d.add(n, "%s is a mapping of fields to values, not %s", what, n.Kind)
		return
	}
	known := make([]string, len(fields))
	read := make(map[string]func(key, value *node), len(fields))
	for i, f := range fields {
		known[i], read[f.name] = f.name, f.read
	}
	for i, key := range n.Keys {
		value := n.Items[i]
		switch f := read[key.Text]; {
		case f == nil:
			text := ""
			if hint != nil {
				text = hint(key.Text)
			}
			if text == "" {
				text = unknown("field", key.Text, known) + " (in " + what + ")"
			}
			d.add(key, "%s", text)
		case value.Kind == yamltree.Empty:
			d.add(key, "%q has no value; give one or remove it", key.Text)
		default:
			f(key, value)
		}
	}
}

func (d *decoder) scalar(n *node, what string) bool {
	if n.Kind != yamltree.Scalar {
		d.add(n, "%s is a single value, not %s", what, n.Kind)
		return false
	}
	return true
}

// list returns the elements of n. A value that is not a list counts as its only
// element.
func (d *decoder) list(n *node, what string, most int) []*node {
	if n.Kind != yamltree.List {
		return []*node{n}
	}
	if len(n.Items) > most {
		d.add(n.Items[most], "%s has %d elements; at most %d are allowed", what, len(n.Items), most)
		return n.Items[:most]
	}
	return n.Items
}

func (d *decoder) boolean(name string, out *bool) field {
	return field{name, func(_, v *node) {
		if !d.scalar(v, name) {
			return
		}
		b, bad := boolean(v)
		if bad != "" {
			d.add(v, "%s: %s", name, bad)
			return
		}
		*out = b
	}}
}

// share returns a field for a percentage with at most one decimal.
func (d *decoder) share(name string, out *uint16) field {
	return field{name, func(_, v *node) {
		if !d.scalar(v, name) {
			return
		}
		digits, percent := strings.CutSuffix(v.Text, "%")
		whole, tenth, point := strings.Cut(digits, ".")
		if !point {
			tenth = "0"
		}
		n, err := strconv.ParseUint(whole+tenth, 10, 16)
		if !percent || err != nil || len(tenth) != 1 || n < 1 || n > limiter.WholeShare {
			d.add(v, "%s %s is not a share of the table: give 0.1%% to 100%%, such as 20%%", name, quote(v.Text))
			return
		}
		*out = uint16(n)
	}}
}

// nameOf returns the name of a value of an enumeration, of those of all its values in their order.
func nameOf[T ~uint8](v T, names ...string) string {
	return append(names, "unknown")[min(int(v), len(names))]
}

// choice returns a field for one of the names of an enumeration.
func choice[T interface {
	~uint8
	fmt.Stringer
}](d *decoder, name string, out *T) field {
	return field{name, func(_, v *node) {
		if !d.scalar(v, name) {
			return
		}
		if bad := choose(v, name, out); bad != "" {
			d.add(v, "%s", bad)
		}
	}}
}

// text decodes a name of at most [limiter.MaxNameBytes] printable bytes.
func (d *decoder) text(n *node, what string) (string, bool) {
	switch {
	case !d.scalar(n, what):
	case n.Text == "":
		d.add(n, "%s is empty", what)
	case len(n.Text) > limiter.MaxNameBytes:
		d.add(n, "%s has %d bytes; at most %d are allowed", what, len(n.Text), limiter.MaxNameBytes)
	case strings.ContainsFunc(n.Text, unicode.IsControl):
		d.add(n, "%s %s contains a control character", what, quote(n.Text))
	default:
		return n.Text, true
	}
	return "", false
}

func (d *decoder) file(root *node) {
	var at fileNodes
	d.mapping(root, "a rules file", d.fileFields(&at), nil)
	outer := baseLevel()
	outer.replication = d.replication
	if at.defaults != nil {
		before := d.found()
		d.mapping(at.defaults, "defaults", d.levelFields(&outer), func(name string) string {
			switch name {
			case "quotas":
				return `"quotas" cannot be a default: write it in each rule that draws on one`
			case "name", "match", "limits", "unlimited", "continue", "limit", "window":
				return fmt.Sprintf("%q cannot be a default: write it in a rule or a limit", name)
			}
			return ""
		})
		d.outer.costs = outer.costs
		d.outer.oddities, d.oddities = d.oddities, nil
		d.outer.mentions, d.mentions = d.mentions, nil
		d.outer.flawed = d.found() > before
	}
	if at.quotas != nil {
		quoting{d}.all(at.quotas, outer)
	}
	list := at.rules
	switch {
	case list != nil && list.Kind != yamltree.List:
		d.add(list, `"rules" is a list of rules, not %s`, list.Kind)
	case list != nil:
		for _, n := range d.list(list, "rules", maxRules) {
			d.rule(n, outer)
		}
	case root.Kind == yamltree.Mapping && !d.reported(root, "rules"):
		d.add(root, `the file has no rules: add "rules:", or "rules: []" for none at all`)
	}
	if at.count != nil && list != nil {
		d.count(at.count, list)
	}
}

// fileNodes are the fields of a file, which are decoded in this order.
type fileNodes struct{ defaults, quotas, rules, count *node }

func (d *decoder) fileFields(at *fileNodes) []field {
	return []field{
		{"version", d.version},
		{"rules_count", func(_, v *node) { at.count = v }},
		{"defaults", func(_, v *node) { at.defaults = v }},
		{"quotas", func(_, v *node) { at.quotas = v }},
		{"rules", func(_, v *node) { at.rules = v }},
	}
}

// count compares the number of rules with rules_count. A file that was cut off may
// still be valid; rules_count detects that.
func (d *decoder) count(n, list *node) {
	if !d.scalar(n, "rules_count") {
		return
	}
	want, bad := integer(n.Text)
	switch {
	case bad != "":
		d.add(n, "rules_count: %s", bad)
	case list.Kind == yamltree.List && want != int64(len(list.Items)):
		d.add(n, "rules_count is %d, but the number of rules in the file is %d: if the file is whole, write %d; else "+
			"restore what is missing",
			want, len(list.Items), len(list.Items))
	}
}

// reported reports whether a mapping has a key that is, or may be meant as, this one,
// so that its absence need not be reported in addition.
func (d *decoder) reported(n *node, name string) bool {
	return slices.ContainsFunc(n.Keys, func(k *node) bool {
		return k.Text == name || nearest(k.Text, []string{name}) != ""
	})
}

func (d *decoder) version(_, v *node) {
	if d.scalar(v, "version") && v.Text != "1" {
		d.add(v, "version %s is not known here; this program reads version 1", quote(v.Text))
	}
}
