package rules

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
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
	// Second, if not empty, is a second secret: each request is counted under both, see
	// [Set.Doubled]. It is read, not kept.
	Second []byte
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
	// Strict makes each warning an error, see [Set.Warnings], except one that only says
	// that the file is too large to look for all of them.
	Strict bool
	// Seeds, if not nil, replace Secret and ClusterName. They are those of a set of the
	// same file, see [Set.Seeds].
	Seeds []byte
}

// Set is the meaning of a rules file. It is immutable and safe for concurrent use. To
// change rules, make another set and swap the pointer.
type Set struct {
	rules  []rule
	quotas []counters
	byName map[string]int // the rules; the quotas follow them
	zoned  bool           // some have their time zone from an attribute of the request
	paths  index
	cache  *pathCache          // nil: none
	own    key                 // for limits that come with a request
	recent *recentRules        // likewise
	copied limiter.Replication // likewise
	hash   uint64
	// first and second are the sets of the two secrets; nil if there is one.
	first, second *Set
	// overrides are in force in place of the limits of rules; nil: none are.
	overrides *overrides
	// alternatives are the sets that differ in which alternatives their rules draw on, and alternative is the place of
	// this one; nil: no rule has alternatives.
	alternatives []*Set
	alternative  int

	warnings, hints []Warning
}

// rule is a rule in the form that Resolve needs.
type rule struct {
	plain  bool // only the path matters
	more   bool // continue: further matches count, too
	counts bool // it has keys or draws: else it is unlimited
	// shadows means that it is in shadow, or draws on a quota that is.
	shadows bool
	// simple means that it has one key, one cost, no draws, and no zone or number of a request.
	simple bool
	match  matcher
	counters
	costs costs
	draws []draw
	ids   idTimes
	// alternatives is how many it has, and alternative the one that it draws on in its set, from 0.
	alternatives, alternative uint8
}

// counters are those of a rule or of a quota.
type counters struct {
	keys    []key // empty: none
	limiter *limiter.Rule
	// zoneFrom is the attribute that names the time zone; empty: none does.
	zoneFrom string
	// chosenBy is what chooses the numbers of the limits, nil: the file sets them.
	chosenBy *source
	numbers  *choosing
	// If none does that can be used, a match says which of the two: the request has no such
	// attribute, or one that names no zone. The same is said of numbers.
	noZone, badZone *Unzoned
	line            int
	quota           bool
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
		return nil, d.withWarnings(err)
	}
	s := newSet(d.rules, d.quotas, &d.outer, o)
	if o.Strict && s.Doubtful() {
		for _, w := range s.warnings {
			d.addAt(w.Line, w.Column, "%s", w.Text)
		}
		return nil, d.err(file)
	}
	if o.Seeds != nil {
		if err := s.plant(o.Seeds); err != nil {
			return nil, err
		}
	}
	return s.doubled(d.rules, d.quotas, &d.outer, o), nil
}

// Empty returns a set without rules. No request matches, but limits that come with a
// request are resolved.
func Empty(o Options) *Set {
	return newSet(nil, nil, &definition{}, o).doubled(nil, nil, &definition{}, o)
}

// newSet makes a set of rules and quotas. outer has what is odd in the defaults.
func newSet(definitions, quotas []definition, outer *definition, o Options) *Set {
	o.ClusterName = cmp.Or(o.ClusterName, DefaultClusterName)
	s := &Set{
		rules:  make([]rule, len(definitions)),
		quotas: make([]counters, len(quotas)),
		byName: make(map[string]int, len(definitions)+len(quotas)),
		cache:  newPathCache(o.PathCacheEntries),
		own:    newKey(&o, limiter.RequestRule, baseLevel().keys[0], false),
		copied: o.Replication,
		recent: new(recentRules),
		hash:   hashDefinitions(definitions, quotas),

		warnings: warnings(definitions, quotas, outer),
		hints:    hints(definitions, quotas),
	}
	for i := range quotas {
		s.quotas[i] = newCounters(&quotas[i], &o)
		s.byName[quotas[i].name] = len(definitions) + i
		s.zoned = s.zoned || s.quotas[i].zoneFrom != ""
	}
	for i := range definitions {
		s.rules[i] = newRule(&definitions[i], s.quotas, &o)
		s.byName[definitions[i].name] = i
		s.zoned = s.zoned || s.rules[i].zoneFrom != ""
	}
	s.paths = newIndex(s.rules)
	s.alternate()
	return s
}

func newRule(def *definition, quotas []counters, o *Options) rule {
	r := rule{
		plain: def.match.plain(), more: def.more, match: def.match, costs: def.costs, ids: def.ids,
		counters: newCounters(def, o), draws: newDraws(def, quotas),
	}
	r.ids.slots = slices.ContainsFunc(def.limits, func(l *limiter.Limit) bool {
		return l.Algorithm() == limiter.Concurrency
	})
	r.counts, r.shadows = len(r.keys)+len(r.draws) > 0, def.shadow
	for _, w := range r.draws {
		r.alternatives = max(r.alternatives, w.any)
		r.shadows = r.shadows || w.quota.limiter.Shadow
	}
	r.simple = len(r.keys) == 1 && len(r.draws)+len(r.costs.methods)+len(r.costs.cases) == 0 && r.zoneFrom == "" &&
		r.chosenBy == nil
	return r
}

func newCounters(def *definition, o *Options) counters {
	n := counters{line: def.line, quota: def.quota, limiter: &limiter.Rule{
		Name: def.name, Limits: def.limits, Shadow: def.shadow, Quota: def.quota, Deny: def.denial,
		OnUnreachable: def.unreachable, Replication: def.replication, MaxShare: def.share,
		Leases: def.leases.how == leasesAuto,
	}}
	n.limiter.Leases = arith.LeaseFor(n.limiter) > 0 // so that nobody looks at the limits for each check
	if z := &def.zoning; z.at != nil {
		n.limiter, n.zoneFrom = n.limiter.Zoned(z.limits), z.from
		n.noZone, n.badZone = &Unzoned{Rule: def.name, Missing: true}, &Unzoned{Rule: def.name}
	}
	if c := &def.choosing; c.at != nil {
		n.limiter, n.chosenBy, n.numbers = c.variants(n.limiter), &c.by, c
		n.noZone = &Unzoned{Rule: def.name, Missing: true, Number: true}
		n.badZone = &Unzoned{Rule: def.name, Number: true}
	}
	if len(def.limits) > 0 {
		for _, parts := range def.keys {
			n.keys = append(n.keys, newKey(o, def.name, parts, def.skip))
		}
	}
	return n
}

// Rule returns the rule or the quota with a name, or nil. It belongs to the set and must
// not be changed.
func (s *Set) Rule(name string) *limiter.Rule {
	if n := s.counters(name); n != nil {
		return n.limiter
	}
	return nil
}

// counters returns those of the rule or the quota with a name, or nil.
func (s *Set) counters(name string) *counters {
	switch i, ok := s.byName[name]; {
	case !ok:
		return nil
	case i < len(s.rules):
		return &s.rules[i].counters
	default:
		return &s.quotas[i-len(s.rules)]
	}
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
	for _, other := range s.alternatives {
		other.own = s.own
	}
	return nil
}

// eachKey calls f with each key: first those of the rules, in the order of the file, then
// those of the quotas.
func (s *Set) eachKey(f func(k *key)) {
	f(&s.own)
	for i := range s.rules {
		for j := range s.rules[i].keys {
			f(&s.rules[i].keys[j])
		}
	}
	for i := range s.quotas {
		for j := range s.quotas[i].keys {
			f(&s.quotas[i].keys[j])
		}
	}
}
