package rules

import (
	"cmp"
	"regexp/syntax"
	"slices"
	"strings"
)

// index finds the rules whose path pattern matches a path, in the order of the rules.
// It is immutable.
//
// Patterns with a literal beginning are in a radix tree of their beginnings. One walk
// along the path finds all candidates, and only those that need it ask more than that.
// Other patterns, and rules without a pattern, are tried for every path. Patterns that
// have to look at all of a path do so together, in groups.
type index struct {
	nodes    []treeNode // nodes[0] is the root
	anywhere []uint16   // rules to try for every path, in order
	patterns []*pattern // by rule; nil for none
	not      []*pattern // by rule: what paths must not match; nil for none
	final    []bool     // by rule: no rule after it can matter, whatever the request
	groups   []group
	grouped  []spot // by rule
}

// group is patterns of rules that are matched in one pass.
type group struct {
	auto *automaton
	all  uint64 // its patterns, as bits
}

const (
	// minTogether is how many patterns are worth a pass. Of fewer, most are ruled out sooner by the text that they need.
	minTogether = 8
	// maxFailed is how many attempts may fail, since each takes milliseconds of the loading of a file.
	maxFailed = 64
)

// spot is where a rule's pattern is: bit is 0 if it is in no group.
type spot struct {
	group uint16
	bit   uint64
}

// treeNode is a node of the radix tree. Its children are consecutive in the array,
// starting at first, one for each byte of next.
type treeNode struct {
	label string // the text from the parent to this node
	next  string
	first int
	here  []entry // rules with a beginning that ends here
}

// entry is a rule and a proof: rule<<2 | proof.
type entry uint16

// The rules' numbers, with a proof, fit into an entry.
const _ = entry(maxRules << 2)

// newIndex builds the index of rules whose matchers are given in order.
func newIndex(rules []rule) index {
	x := index{patterns: make([]*pattern, len(rules)), not: make([]*pattern, len(rules)), final: make([]bool, len(rules))}
	var all []indexed
	for i := range rules {
		m := &rules[i].match
		x.patterns[i], x.not[i], x.final[i] = m.path, m.notPath, m.plain() && !rules[i].more
		if m.path == nil || m.path.loose != notLoose {
			x.anywhere = append(x.anywhere, uint16(i))
			continue
		}
		for _, b := range m.path.begins {
			all = append(all, indexed{b.text, entry(i<<2 | int(b.proves))})
		}
	}
	slices.SortFunc(all, func(a, b indexed) int {
		return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.entry, b.entry))
	})
	x.nodes = append(x.nodes, treeNode{})
	x.build(0, slices.Compact(all), 0)
	x.gather()
	return x
}

// gather forms the groups: as many patterns as one automaton can have.
func (x *index) gather() {
	x.grouped = make([]spot, len(x.patterns))
	var rules []uint16
	for i, p := range x.patterns {
		if p != nil && (p.re != nil || p.loose == looseContains) && !looksAround(p.tree) {
			rules = append(rules, uint16(i))
		}
	}
	for n, failed := maxTogether, 0; len(rules) >= minTogether && failed < maxFailed; {
		n = min(n, len(rules))
		trees := make([]*syntax.Regexp, n)
		for bit, i := range rules[:n] {
			trees[bit] = x.patterns[i].tree
		}
		auto := newAutomaton(trees)
		if auto == nil {
			if failed++; n/2 >= minTogether {
				n /= 2
			} else {
				rules = rules[n:]
			}
			continue
		}
		for bit, i := range rules[:n] {
			x.grouped[i] = spot{uint16(len(x.groups)), 1 << bit}
		}
		x.groups = append(x.groups, group{auto, 1<<n - 1})
		rules, n = rules[n:], min(2*n, maxTogether)
	}
}

// indexed is one beginning of one rule.
type indexed struct {
	text  string
	entry entry
}

// build fills the node at nodes[at] from sorted beginnings. Their first from bytes are
// equal: they are the labels of the nodes above it.
func (x *index) build(at int, sorted []indexed, from int) {
	if len(sorted) == 0 {
		return
	}
	to := from
	if at > 0 { // the root is the empty text
		to = commonLength(sorted[0].text, sorted[len(sorted)-1].text)
	}
	node := treeNode{label: sorted[0].text[from:to]}
	for len(sorted) > 0 && len(sorted[0].text) == to {
		node.here = append(node.here, sorted[0].entry)
		sorted = sorted[1:]
	}
	var groups [][]indexed // by the next byte
	var next []byte
	for len(sorted) > 0 {
		c := sorted[0].text[to]
		n := 1
		for n < len(sorted) && sorted[n].text[to] == c {
			n++
		}
		groups, next, sorted = append(groups, sorted[:n]), append(next, c), sorted[n:]
	}
	node.next, node.first = string(next), len(x.nodes)
	x.nodes[at] = node
	x.nodes = append(x.nodes, make([]treeNode, len(groups))...)
	for i, g := range groups {
		x.build(node.first+i, g, to)
	}
}

func commonLength(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// candidate is a rule that may match, and whether its regular expression must decide:
// rule<<1 | 1.
type candidate uint16

// candidates appends the rules with a beginning of the path, in order. For one rule,
// certain candidates precede uncertain ones.
func (x *index) candidates(path string, out []candidate) []candidate {
	line := candidate(0)
	if strings.IndexByte(path, '\n') >= 0 {
		line = 1
	}
	rest := path
	for n := &x.nodes[0]; strings.HasPrefix(rest, n.label); {
		rest = rest[len(n.label):]
		for _, e := range n.here {
			c := candidate(e>>2) << 1
			switch proof(e & 3) {
			case provesMatch:
				out = append(out, c)
			case provesWhole:
				if rest == "" {
					out = append(out, c)
				}
			case provesLine:
				out = append(out, c|line)
			case provesPossible:
				out = append(out, c|1)
			}
		}
		if rest == "" {
			break
		}
		child := strings.IndexByte(n.next, rest[0])
		if child < 0 {
			break
		}
		n = &x.nodes[n.first+child]
	}
	slices.Sort(out)
	return out
}

// match appends the rules whose pattern matches the path, in order, up to the first
// after which no other can matter.
func (x *index) match(path string, out []uint16) []uint16 {
	var buf [64]candidate
	var few [32]pass
	passes := few[:]
	if len(x.groups) > len(few) {
		passes = make([]pass, len(x.groups))
	}
	found, anywhere := x.candidates(path, buf[:0]), x.anywhere
	for len(found) > 0 || len(anywhere) > 0 {
		var rule uint16
		var matches bool
		if len(anywhere) == 0 || len(found) > 0 && uint16(found[0]>>1) < anywhere[0] {
			rule = uint16(found[0] >> 1)
			matches = found[0]&1 == 0 || x.runs(rule, path, passes)
			for len(found) > 0 && uint16(found[0]>>1) == rule {
				found = found[1:] // the same rule by another beginning
			}
		} else {
			rule, anywhere = anywhere[0], anywhere[1:]
			p := x.patterns[rule]
			matches = p == nil || p.loose == looseAll || x.runs(rule, path, passes)
		}
		if !matches || x.not[rule] != nil && x.not[rule].matches(path) {
			continue
		}
		out = append(out, rule)
		if x.final[rule] {
			break
		}
	}
	return out
}

// pass is what a group found in a path.
type pass struct {
	done bool
	hits uint64
}

// runs reports whether the pattern of a rule matches a path, by what its group found.
func (x *index) runs(rule uint16, path string, passes []pass) bool {
	at := x.grouped[rule]
	if at.bit == 0 {
		if p := x.patterns[rule]; p.loose != notLoose {
			return p.anywhere(path)
		}
		return x.patterns[rule].regexpMatches(path)
	}
	pass := &passes[at.group]
	if !pass.done {
		g := &x.groups[at.group]
		pass.done, pass.hits = true, g.auto.run(path, g.all)
	}
	return pass.hits&at.bit != 0
}
