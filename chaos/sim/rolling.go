package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// A change of the rules file is rolled out: some nodes have the old file and some the
// new, for a while or to the end. Where the limits differ, the larger is the bound and
// the smaller what is owed.

// roll makes another version of the rules, in which some are changed in one way each.
func (w *World) roll(rules map[string]*limiter.Rule) {
	w.rolled = maps.Clone(rules)
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if w.chance(40) {
			continue
		}
		r := *rules[name]
		w.rolled[name] = &r
		spec := r.Limits[0].Spec()
		switch w.rng.IntN(8) {
		case 0: // the rule is added, or removed
			delete(w.rolled, name)
			for _, k := range w.keysOf(name) {
				k.seldom = true
			}
		case 1, 2: // a smaller limit
			spec.Limit -= max(1, spec.Limit/w.between64(3, 10))
			r.Limits = limits(spec)
		case 3: // a larger one
			spec.Limit += max(1, spec.Limit/w.between64(3, 10))
			r.Limits = limits(spec)
		case 4: // one limit more, which never denies
			more := spec
			more.Name, more.Window, more.Limit = "", 300*24*time.Hour, 20*spec.Limit
			r.Limits = limits(spec, more)
		case 5: // another way to copy
			r.Replication = (r.Replication + 1) % limiter.ReplicationOff
		case 6: // other keys
			w.rekey(name, &r)
		default: // another policy, and so perhaps another class of partitions
			r.OnUnreachable = (r.OnUnreachable + 1 + limiter.Unreachable(w.rng.IntN(2))) % 3
			if r.Class() != rules[name].Class() {
				w.rekey(name, &r)
			}
		}
		for _, k := range w.keysOf(name) {
			k.rolled = true
			k.also(&r)
		}
	}
}

func limits(specs ...limiter.Spec) (out []*limiter.Limit) {
	for _, s := range specs {
		l, err := limiter.NewLimit(s)
		if err != nil {
			panic(err)
		}
		out = append(out, l)
	}
	return out
}

func (w *World) keysOf(name string) (out []*key) {
	for _, k := range w.keys {
		if k.rule.Name == name {
			out = append(out, k)
		}
	}
	return out
}

// rekey gives the keys of a rule other hashes under the new version of it.
func (w *World) rekey(name string, r *limiter.Rule) {
	for _, k := range w.keysOf(name) {
		other := &key{
			rule: r, hash: arith.Hash{Hi: w.rng.Uint64(), Lo: k.hash.Lo}, limit: k.limit, least: k.least, d: k.d,
			policy: r.OnUnreachable, byPolicy: make(map[string]int), pair: k.pair, draws: k.draws, form: true, seldom: true,
		}
		lk := other.key(nil, 1)
		other.part = table.PartitionOf(&lk)
		k.turned, k.seldom = other, true
		w.keys = append(w.keys, other)
	}
}

// also widens the bounds of a key to those of another version of its rule.
func (k *key) also(r *limiter.Rule) {
	if k.turned != nil {
		return // other counters have that version's
	}
	units := int(r.Limits[0].Limit())
	k.limit, k.least = max(k.limit, units), min(k.least, units)
	if r.Replication != limiter.ReplicationStrict {
		k.d = max(k.d, (units*5+99)/100)
	}
	k.policy = wider(k.policy, r.OnUnreachable)
}

// wider returns the policy that admits more.
func wider(a, b limiter.Unreachable) limiter.Unreachable {
	if a == limiter.UnreachableClosed {
		return b
	}
	if b == limiter.UnreachableClosed {
		return a
	}
	return max(a, b)
}

// at returns what a key is by the rules of a node, nil where they do not have it.
func (k *key) at(n *Node) *key {
	r := n.rules[k.rule.Name]
	switch {
	case r == nil:
		return nil
	case k.turned != nil && r == k.turned.rule:
		return k.turned
	}
	return k
}

// rollOut schedules when nodes read the other rules file.
func (w *World) rollOut(span limiter.Tick, rules map[string]*limiter.Rule) {
	if w.rolled == nil {
		return
	}
	switch w.rng.IntN(3) {
	case 0: // each keeps the file that it started with
	case 1: // one after the other gets the new one
		for i, n := range w.live() {
			w.after(limiter.Tick(i)*w.between(100*ms, limiter.Second), func() { n.reads(w.rolled) })
		}
	default: // now the one, now the other, here and there
		for range 20 {
			w.after(w.between(0, span), func() {
				live := w.live()
				if len(live) == 0 {
					return
				}
				n := live[w.rng.IntN(len(live))]
				if w.chance(50) {
					n.reads(rules)
				} else {
					n.reads(w.rolled)
				}
			})
		}
	}
}

// reads has a node take other rules.
func (n *Node) reads(rules map[string]*limiter.Rule) {
	n.rules = rules
	n.w.reloads++
	n.w.logf("%s reads its rules file", n.name)
}
