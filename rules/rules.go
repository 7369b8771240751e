package rules

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// DefaultClusterName is the cluster's name where [Options] gives none.
const DefaultClusterName = "weir"

// Options are what a set needs beside the file. The zero value is usable.
type Options struct {
	// Secret keys the hash of counters, so that nobody outside can construct
	// two keys that share a counter. All nodes of a cluster need the same; a
	// change starts all counters afresh. Without one the hash is as secret as
	// the cluster's name. It is read, not kept.
	Secret []byte
	// ClusterName keeps the counters of clusters apart; default
	// [DefaultClusterName]. All nodes of a cluster need the same.
	ClusterName string
	// PathCacheEntries is how many paths are remembered with the rules that
	// match them: default 8192, at most 1,048,576, rounded up to a power of
	// two; a negative number turns the cache off. An entry takes about 150
	// bytes and the path. More helps while more different paths are asked for
	// again and again.
	PathCacheEntries int
	// Replication is that of rules that say nothing about it, neither themselves
	// nor by the defaults of their file, and of limits that come with a request;
	// default [limiter.ReplicationLag]. It is part of what a file means, so that
	// nodes with different ones have different hashes.
	Replication limiter.Replication
	// Seeds, if not nil, are those of a set of the same file, see [Set.Seeds], and
	// stand for Secret and ClusterName.
	Seeds []byte
}

// Set is the meaning of a rules file. It is immutable and safe for concurrent
// use; to change rules, make another set and swap the pointer to it.
type Set struct {
	rules  []rule
	byName map[string]int
	paths  index
	cache  *pathCache          // nil: none
	own    key                 // for limits that come with a request
	copied limiter.Replication // likewise
	hash   uint64

	warnings []Warning
}

// rule is a rule as Resolve needs it.
type rule struct {
	plain   bool // nothing but the path matters
	more    bool // continue: the next match counts too
	match   matcher
	keys    []key // empty: unlimited
	costs   costs
	limiter *limiter.Rule
	line    int
}

// Parse reads a rules file. The name is for errors only. If anything is wrong
// it returns no set and an [*Error] with everything that is, which wraps
// [limiter.ErrInvalid]. The data is not kept.
func Parse(file string, data []byte, o Options) (*Set, error) {
	d := decoder{options: limitOptions(), names: make(map[string]*node), replication: o.Replication}
	if root := readTree(data, &d.problems); root != nil {
		d.file(root)
	}
	if err := d.err(file); err != nil {
		return nil, err
	}
	s := newSet(d.rules, o)
	if o.Seeds != nil {
		if err := s.plant(o.Seeds); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Empty returns a set without rules: no request matches, except that limits
// that come with a request are resolved.
func Empty(o Options) *Set { return newSet(nil, o) }

func newSet(definitions []definition, o Options) *Set {
	if o.ClusterName == "" {
		o.ClusterName = DefaultClusterName
	}
	s := &Set{
		rules:  make([]rule, len(definitions)),
		byName: make(map[string]int, len(definitions)),
		cache:  newPathCache(o.PathCacheEntries),
		own:    newKey(&o, limiter.RequestRule, baseLevel().keys[0], false),
		copied: o.Replication,
		hash:   hashDefinitions(definitions),

		warnings: warnings(definitions),
	}
	for i := range definitions {
		s.rules[i] = newRule(&definitions[i], &o)
		s.byName[definitions[i].name] = i
	}
	s.paths = newIndex(s.rules)
	return s
}

func newRule(def *definition, o *Options) rule {
	r := rule{
		plain: def.match.plain(), more: def.more, match: def.match, costs: def.costs, line: def.line,
		limiter: &limiter.Rule{
			Name: def.name, Limits: def.limits, Shadow: def.shadow,
			OnUnreachable: def.unreachable, Replication: def.replication, MaxShare: def.share,
		},
	}
	if !def.unlimited {
		for _, parts := range def.keys {
			r.keys = append(r.keys, newKey(o, def.name, parts, def.skip))
		}
	}
	return r
}

// RuleInfo describes one rule of a set, with the defaults filled in.
type RuleInfo struct {
	// Line is where the rule begins in its file, from 1.
	Line int
	// Rule has the name, the limits and the policies. It is the set's own and
	// must not be changed.
	Rule *limiter.Rule
	// Path is the pattern; empty means every path.
	Path string
	// Methods (in upper case) and Groups are those that match; empty means all.
	Methods, Groups []string
	// Attributes are those that must be there, with the values that match;
	// none means any value.
	Attributes map[string][]string
	// Keys are what is counted by, a list of parts such as "path" or
	// "attr:plan" for each counter; none if the rule is unlimited.
	Keys [][]string
	// SkipMissing tells that a request which lacks a part of a key is not
	// counted by that key ("keys"); else something stands in for the part
	// ("key").
	SkipMissing bool
	// Cost is what a check costs, in units, unless CostByMethod or the request
	// itself says otherwise.
	Cost         uint32
	CostByMethod map[string]uint32
	// Unlimited rules let everything pass.
	Unlimited bool
	// Continue tells that the next match counts too.
	Continue bool
}

// Len returns the number of rules.
func (s *Set) Len() int { return len(s.rules) }

// Rules describes the rules in the order of the file. The caller owns the
// slice, but not what its elements point to.
func (s *Set) Rules() []RuleInfo {
	out := make([]RuleInfo, len(s.rules))
	for i := range s.rules {
		out[i] = s.rules[i].info()
	}
	return out
}

func (r *rule) info() RuleInfo {
	in := RuleInfo{
		Line: r.line, Rule: r.limiter,
		Methods: slices.Clone(r.match.methods), Groups: slices.Clone(r.match.groups),
		Cost: r.costs.def, Unlimited: len(r.keys) == 0, Continue: r.more,
		SkipMissing: len(r.keys) > 0 && r.keys[0].skip,
	}
	if r.match.path != nil {
		in.Path = r.match.path.text
	}
	if len(r.match.attributes) > 0 {
		in.Attributes = make(map[string][]string, len(r.match.attributes))
		for _, a := range r.match.attributes {
			in.Attributes[a.name] = slices.Clone(a.values)
		}
	}
	for i := range r.keys {
		names := make([]string, len(r.keys[i].parts))
		for j, p := range r.keys[i].parts {
			names[j] = p.String()
		}
		in.Keys = append(in.Keys, names)
	}
	if len(r.costs.methods) > 0 {
		in.CostByMethod = make(map[string]uint32, len(r.costs.methods))
		for _, m := range r.costs.methods {
			in.CostByMethod[m.method] = m.cost
		}
	}
	return in
}

// Rule returns the rule of a name, or nil. It is the set's own and must not be
// changed.
func (s *Set) Rule(name string) *limiter.Rule {
	if i, ok := s.byName[name]; ok {
		return s.rules[i].limiter
	}
	return nil
}

// Hash returns a hash of what the file means: equal for two files that differ
// in spelling only (comments, order of fields, options that say what holds
// anyway), the same in every process. It is not secret and does not depend on
// the options.
func (s *Set) Hash() uint64 { return s.hash }

// seedBytes is the length of what keys the hash of one key.
const seedBytes = 16

// Seeds returns what keys the hashes of the set's counters. With them, and the same
// file, another process finds the same counters without knowing the secret from which
// they are derived. Whoever has them can construct two keys that share a counter, so
// they are for those that the operator trusts.
func (s *Set) Seeds() []byte {
	var out []byte
	s.eachKey(func(k *key) {
		out = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(out, k.k0), k.k1)
	})
	return out
}

// plant replaces what keys the hashes.
func (s *Set) plant(seeds []byte) error {
	keys := 0
	s.eachKey(func(*key) { keys++ })
	if len(seeds) != keys*seedBytes {
		return fmt.Errorf("%w: the rules have %d keys and %d bytes of seeds; %d are needed, which a set of the same file has",
			limiter.ErrInvalid, keys, len(seeds), keys*seedBytes)
	}
	s.eachKey(func(k *key) {
		k.k0, k.k1 = binary.LittleEndian.Uint64(seeds), binary.LittleEndian.Uint64(seeds[8:])
		seeds = seeds[seedBytes:]
	})
	return nil
}

// eachKey calls f with each key, in the order of the file.
func (s *Set) eachKey(f func(k *key)) {
	f(&s.own)
	for i := range s.rules {
		for j := range s.rules[i].keys {
			f(&s.rules[i].keys[j])
		}
	}
}
