package rules

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// DefaultClusterName is the cluster name used if [Options] has none.
const DefaultClusterName = "weir"

// Options are the inputs of a set besides the file. The zero value is usable.
type Options struct {
	// Secret is the key of the hash of counters, so that nobody outside can construct
	// two keys that share a counter. All nodes of a cluster need the same. A change
	// starts all counters afresh. Without a secret, the hash is only as secret as the
	// cluster's name. It is read, not kept.
	Secret []byte
	// ClusterName separates the counters of clusters; default [DefaultClusterName]. All
	// nodes of a cluster need the same.
	ClusterName string
	// PathCacheEntries is how many paths are cached with the rules that match them;
	// default 8192, at most 1,048,576, rounded up to a power of two; a negative number
	// turns the cache off. An entry takes about 150 bytes plus the path. A larger cache
	// helps if more different paths recur.
	PathCacheEntries int
	// Replication is used by rules for which neither the rule nor the defaults of the
	// file set it, and by limits that come with a request; default
	// [limiter.ReplicationLag]. It is part of the meaning of a file, so nodes with
	// different values have different hashes.
	Replication limiter.Replication
	// Seeds, if not nil, replace Secret and ClusterName. They are those of a set of the
	// same file, see [Set.Seeds].
	Seeds []byte
}

// Set is the meaning of a rules file. It is immutable and safe for concurrent use. To
// change rules, make another set and swap the pointer.
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

// rule is a rule in the form that Resolve needs.
type rule struct {
	plain   bool // only the path matters
	more    bool // continue: further matches count, too
	match   matcher
	keys    []key // empty: unlimited
	costs   costs
	limiter *limiter.Rule
	line    int
}

// Parse reads a rules file. The name is used in errors only. If anything is wrong,
// Parse returns no set and an [*Error] with all problems, which wraps
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

// Empty returns a set without rules. No request matches, but limits that come with a
// request are resolved.
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

// RuleInfo describes one rule of a set, with its defaults filled in.
type RuleInfo struct {
	// Line is the line in the file where the rule begins, from 1.
	Line int
	// Rule has the name, the limits and the policies. It belongs to the set and must
	// not be changed.
	Rule *limiter.Rule
	// Path is the pattern; empty means every path.
	Path string
	// Methods (in upper case) and Groups are those that match; empty means all.
	Methods, Groups []string
	// Attributes are the required attributes, with the values that match; an empty list
	// means any value.
	Attributes map[string][]string
	// Keys are the keys of the counters, each a list of parts such as "path" or
	// "attr:plan"; empty if the rule is unlimited.
	Keys [][]string
	// SkipMissing reports that a request which lacks a part of a key is not counted by
	// that key ("keys" in the file). Otherwise a substitute is used for the part
	// ("key").
	SkipMissing bool
	// Cost is the cost of a check, in units, unless CostByMethod or the request itself
	// sets another.
	Cost         uint32
	CostByMethod map[string]uint32
	// Unlimited rules allow every request.
	Unlimited bool
	// Continue reports that further matches count, too.
	Continue bool
}

// Len returns the number of rules.
func (s *Set) Len() int { return len(s.rules) }

// Rules describes the rules in the order of the file. The caller owns the slice, but
// must not change what its elements point to.
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

// Rule returns the rule with a name, or nil. It belongs to the set and must not be
// changed.
func (s *Set) Rule(name string) *limiter.Rule {
	if i, ok := s.byName[name]; ok {
		return s.rules[i].limiter
	}
	return nil
}

// Hash returns a hash of the meaning of the file. It is the same in every process, and
// the same for files that differ only in form (comments, order of fields, options set
// to their defaults). It is not secret, and depends on no option but Replication.
func (s *Set) Hash() uint64 { return s.hash }

// seedBytes is the length of the hash key of one rule key.
const seedBytes = 16

// Seeds returns the hash keys of the set's counters. With them and the same file,
// another process computes the same counters without the secret from which the seeds
// are derived. With the seeds one can construct two keys that share a counter, so give
// them only to those whom the operator trusts.
func (s *Set) Seeds() []byte {
	var out []byte
	s.eachKey(func(k *key) {
		out = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(out, k.k0), k.k1)
	})
	return out
}

// plant replaces the hash keys.
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
