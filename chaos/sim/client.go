package sim

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// key is one counter that clients ask about, and what came of it.
type key struct {
	rule   *limiter.Rule
	hash   arith.Hash
	part   int
	limit  int
	least  int // the smallest that a node's rules give it; limit is the largest
	d      int
	pair   *key                // the key that it is always checked together with
	second bool                // of a pair, or the quota of others
	draws  int                 // units of the other that a unit costs, of a draw on a quota; 0: as many
	turned *key                // what it is under the rules that are rolled out, nil: the same
	form   bool                // of another key, which is asked about
	seldom bool                // perhaps asked about too seldom to be denied
	policy limiter.Unreachable // the widest of its rule's versions
	apart  bool                // asked about first when each node saw its own side only
	before int                 // takeovers of its partition before that

	byHealing int // admitted when the split ended; from then until the sides are merged, each has the whole limit

	asked     int
	fallbacks int            // answered by a policy
	admitted  int            // by an owner or heir
	byPolicy  map[string]int // by the fallback tables, by node and run
	denied    int
	crowded   int // denied because a table was full
	lost      int // charged or not, nobody knows: the asker is dead or a policy answered
	side      int // the most that an owner had counted when a split ended
	openOps   int
	begun     int // units that clients asked for
	spared    int // of those, the units of checks that an owner or a full table denied
	late      int // units of checks that waited for longer than lateAfter
	astray    int // units that cancels may have left behind
	// units of checks that two owners may have charged: the partition changed its owner, see changes and mayPass, or has
	// one on each side of a split
	passed int
	// samples are what was admitted every 100 ms, and anew what may be admitted again since all nodes ended.
	samples []int
	anew    int

	again  int // units of checks with ids that were charged and admitted once more
	direct int // checks that a struck member was asked for, or that were asked before a fault could be noticed

	rolled          bool // its rule changes
	ops             []op
	refunds, resets bool // clients refund some admissions, and reset the key now and then
	receipts        []receipt
	refunded        int // units that clients gave back, or tried to
	reset
}

// reset is the last reset of a key.
type reset struct {
	tried  int          // how often it was reset
	twice  int          // of those, how often perhaps by two owners, see World.reset
	began  limiter.Tick // when the last reset was asked for
	stands bool         // it was done, no owner was lost just then, and none undid it, see fence.undoes
	since  int          // units that may have been charged from then on
	// strays and doubled are the units that may have been left behind or charged twice before,
	// and takeovers those of its partition.
	strays, doubled, takeovers int
	// unclear means that it is not known whether a reset was done.
	unclear bool
}

// newRule makes a rule of one limit that does not recover within a run.
func (w *World) newRule(name string, units int, policy limiter.Unreachable, mode limiter.Replication) *limiter.Rule {
	spec := limiter.Spec{Limit: int64(units), Window: 400 * 24 * time.Hour}
	switch w.rng.IntN(4) {
	case 0:
		spec.Algorithm = limiter.SlidingCounter
	case 1:
		spec.Algorithm = limiter.FixedWindow
	case 2:
		spec.Algorithm = limiter.SlidingLog
	default:
		spec.Algorithm = limiter.SlidingWindow
	}
	l, err := limiter.NewLimit(spec)
	if err != nil {
		panic(err)
	}
	return &limiter.Rule{Name: name, Limits: []*limiter.Limit{l}, OnUnreachable: policy, Replication: mode,
		Leases: w.near.lending.on}
}

// newKeys makes the keys of a run, in few partitions.
func (w *World) newKeys() map[string]*limiter.Rule {
	rules := make(map[string]*limiter.Rule)
	hash := map[limiter.Class][]arith.Hash{}
	add := func(name string, policy limiter.Unreachable, mode limiter.Replication, keys int) []*key {
		units := []int{10, 20, 60, 100, 200}[w.rng.IntN(5)]
		if w.near.lending.on { // what is left must be worth a lease
			units *= 5
		}
		r := w.newRule(name, units, policy, mode)
		rules[name] = r
		var out []*key
		for range keys {
			k := &key{rule: r, limit: units, least: units, d: max(1, (units*5+99)/100), policy: policy,
				byPolicy: make(map[string]int)}
			if mode == limiter.ReplicationStrict {
				k.d = 0
			}
			k.hash = arith.Hash{Hi: w.rng.Uint64(), Lo: w.rng.Uint64()}
			if have := hash[r.Class()]; len(have) > 0 && w.chance(60) {
				k.hash.Lo = have[w.rng.IntN(len(have))].Lo + uint64(len(w.keys)) // of the same partition
			}
			hash[r.Class()] = append(hash[r.Class()], k.hash)
			lk := k.key(nil, 1)
			k.part = table.PartitionOf(&lk)
			w.keys = append(w.keys, k)
			out = append(out, k)
		}
		return out
	}
	add("local", limiter.UnreachableLocal, limiter.ReplicationLag, 2)
	add("closed", limiter.UnreachableClosed, limiter.ReplicationLag, 2)
	add("strict", limiter.UnreachableClosed, limiter.ReplicationStrict, 1)
	if w.chance(50) {
		add("open", limiter.UnreachableOpen, limiter.ReplicationLag, 1)
	}
	if w.chance(50) {
		// One rule that counts by two keys, or two rules that match one request.
		of := 1 + w.rng.IntN(2)
		pair := add("pair", limiter.UnreachableClosed, limiter.ReplicationLag, of)
		if of == 1 {
			pair = append(pair, add("mate", limiter.UnreachableClosed, limiter.ReplicationLag, 1)...)
		}
		pair[0].pair, pair[1].pair, pair[1].second = pair[1], pair[0], true
	}
	if w.stronger != nil && w.stronger.quota {
		w.drawing(add)
	}
	for _, k := range w.keys {
		if k.pair == nil {
			k.refunds, k.resets = w.chance(30), w.chance(20)
		}
	}
	if w.chance(60) {
		w.roll(rules)
	}
	w.near.sliced.newKey(w, rules)
	seen := map[int]bool{}
	for _, k := range w.keys {
		if !seen[k.part] {
			seen[k.part] = true
			w.parts = append(w.parts, k.part)
		}
	}
	return rules
}

// key returns the key as a node asks about it.
func (k *key) key(n *Node, cost uint64) arith.Key {
	r := k.rule
	if n != nil && n.rules[r.Name] != nil && n.rules[r.Name].Class() == r.Class() {
		r = n.rules[r.Name]
	}
	return arith.Key{Hash: k.hash, Rule: r, Cost: cost}
}

// lateAfter is how long a check may wait before another owner may have been asked too.
const lateAfter = 20 * ms

// asking is a check that a client has asked a node for.
type asking struct {
	n      *Node
	keys   []*key
	charge *arith.Charge
	answer *limiter.Decision
	call   limiter.Tick
	before []int // disturbances of each key's partition before it was asked
	owners []int // changes of each one's owner
	ended  bool
	once   *once // nil: it has no id
}

// ask has a client ask a node about a key, and about the other of a pair with it
// unless it is asked about alone: about those of them that the node's rules have.
func (w *World) ask(k *key, n *Node, cost uint64, alone bool) {
	a := w.asking(k, n, cost, alone, new(arith.Charge), new(limiter.Decision))
	if a != nil {
		n.do(func() { n.core.Begin(a.charge, a.answer, 0, a.done) })
	}
}

// asking returns the check that ask asks for, in c, to be answered in d. It returns nil if
// the node has no rule for it.
func (w *World) asking(k *key, n *Node, cost uint64, alone bool, c *arith.Charge, d *limiter.Decision) *asking {
	a := &asking{n: n, charge: c, answer: d, call: w.now}
	for _, about := range []*key{k, k.pair} {
		if about == nil || alone && about != k {
			continue
		}
		units := k.costOf(about, cost)
		if about = about.at(n); about != nil {
			a.keys = append(a.keys, about)
			a.before = append(a.before, w.disturbances(about.part))
			a.owners = append(a.owners, w.changes(about.part))
			c.Add(about.key(n, units))
		}
	}
	if len(a.keys) == 0 {
		return nil
	}
	for i, about := range a.keys {
		about.asked++
		about.openOps++
		about.begun += a.cost(i)
	}
	n.asked++
	w.after(20*limiter.Second, a.gone)
	return a
}

// cost returns what the check costs of key number i.
func (a *asking) cost(i int) int { return int(a.charge.Key(i).Cost) }

// gone ends a check that died with the node that was asked.
func (a *asking) gone() {
	if a.ended || a.n.alive {
		return
	}
	a.ended = true
	for i, about := range a.keys {
		about.openOps--
		about.lost += a.cost(i)
	}
}

// done takes the answer.
func (a *asking) done() {
	n, d := a.n, a.answer
	if a.ended || !n.alive {
		return
	}
	n.asked--
	n.w.recordAnswer(n, d)
	a.ended = true
	call := a.call
	if a.once != nil {
		call, a.once.told = a.once.began, true
		a.once.answers = append(a.once.answers, answeredTry{a, n.w.now})
	}
	known := a.once.policyKnows(a)
	for i, about := range a.keys {
		about.openOps--
		late := n.w.now-a.call > lateAfter
		if late {
			about.late += a.cost(i)
		}
		switch {
		case n.w.changes(about.part) > a.owners[i] || late && n.w.shared(about.part):
			about.passed += a.cost(i)
		case late:
			a.mayPass(i)
		}
		if a.once.repeats(about, d, i, a.cost(i)) {
			n.w.stronger.repeated++
			continue
		}
		about.answered(n, d, i, a.cost(i), d.Repeated || known[i])
		if overflows(d) {
			continue
		}
		if !d.Allowed {
			call = a.call
		}
		about.ops = append(about.ops, op{call: call, back: n.w.now, cost: a.cost(i), allowed: d.Allowed})
	}
	a.mayStray()
	a.keep()
}

// answered counts the answer to a check, in which k is the key number i. repeated means that a policy
// which decided the key has charged it before.
func (k *key) answered(n *Node, d *limiter.Decision, i, cost int, repeated bool) {
	fallback := d.Source.ByPolicy()
	n.w.logf("%s answers %s %x: %v by %v (asked %d, remaining %d, admitted %d+%d)", n.name, k.rule.Name, k.hash.Hi>>48,
		d.Allowed, d.Source, k.asked, remaining(d), k.admitted, cost)
	if d.Allowed || fallback {
		k.since += cost
	}
	switch {
	case overflows(d):
		k.crowded++
		k.spared += cost
		if fallback && !owned(d, i) {
			k.lost += cost // the table of the policy was full, and an owner may have charged it before
		}
	case !d.Allowed && !fallback:
		k.denied++
		k.spared += cost
		switch d.Source {
		case limiter.SourceCached:
			n.w.near.refused++
		case limiter.SourceShare:
			n.w.near.lending.deniedByShare(k, cost)
		}
	case !d.Allowed:
		k.fallbacks++
		if n.w.now == n.w.outcome.resumedAt {
			k.direct++ // it waited at a member that stood still, with all others of its batch
		}
		if !owned(d, i) {
			k.lost += cost // an owner may have charged it all the same
			n.w.outcome.lonely.lost(n.w, k, cost)
		}
	case fallback && !owned(d, i):
		k.fallbacks++
		if !repeated {
			k.byPolicy[fmt.Sprint(n.name, n.inst)] += cost
		}
		k.lost += cost
	default:
		k.admitted += cost
		if d.Source == limiter.SourceLeased {
			n.w.near.lending.admitted(k, n.w.now, cost)
		} else {
			n.w.near.lending.told(k, n.w.now, int(remaining(d)))
		}
	}
}

// owned reports whether an owner or heir decided the key number i of a check. If the keys
// have several owners, a policy may have decided the others: the source names the policy
// for the whole check then.
func owned(d *limiter.Decision, i int) bool {
	for j := range d.Len() {
		if l := d.Limit(j); l.Key == i {
			return l.Owner != ""
		}
	}
	return false
}

// demand has clients ask for more than the limit, at random nodes, for a span.
func (w *World) demand(span limiter.Tick, pause limiter.Tick) {
	end := w.now + span
	w.near.sliced.demand(w, span)
	for _, k := range w.keys {
		if k.form {
			continue
		}
		w.often(end, w.between(0, pause), func() limiter.Tick {
			if live := w.serving(); len(live) > 0 {
				w.ask(k, live[w.rng.IntN(len(live))], 1+uint64(w.rng.IntN(2)), k.second)
				w.askAside(k, live[w.rng.IntN(len(live))])
			}
			return w.between(pause/2, 3*pause/2)
		})
	}
}

// askAside has a client ask a node for something else than a check, now and then.
func (w *World) askAside(k *key, n *Node) {
	var c arith.Charge
	c.Add(k.key(n, 1))
	switch what := w.rng.IntN(60); {
	case what == 0:
		c.Peek = true
		n.do(func() { n.core.Begin(&c, new(limiter.Decision), 0, func() {}) })
	case what == 1:
		n.do(func() { n.core.Explain(&c, func([]route.Explained) {}) })
	case what < 6 && len(k.receipts) > 0:
		w.refund(k, n)
	case what == 6 && k.resets && k.tried < 2:
		w.reset(k, n)
	}
}

// reset has a client reset a key. Two owners may both execute it if one took over from the other
// before the asker had an answer, and did not know that the first had executed it: an owner of an
// available partition does not always wait for its heir, and a full table remembers no id.
func (w *World) reset(k *key, n *Node) {
	var c arith.Charge
	c.Add(k.key(n, 1))
	at, takeovers := w.now, w.outcome.takeovers(k.part)
	twice := 0
	if !closed(k) || w.crowd.maxKeys > 0 {
		twice = 1
	}
	k.reset = reset{tried: k.tried + 1, twice: k.twice + twice, began: at, unclear: k.unclear, strays: k.astray,
		doubled: k.late, takeovers: takeovers}
	w.logf("%s is asked to reset %s", n.name, k.rule.Name)
	n.do(func() {
		n.core.Reset(&c, func(o route.Outcome) {
			w.logf("%s resets %s: %+v", n.name, k.rule.Name, o)
			done := o.Unanswered|o.Forbidden == 0
			k.unclear = k.unclear || !done
			if done && w.outcome.takeovers(k.part) == takeovers {
				k.twice -= twice
			}
			if done {
				k.since += w.near.lending.uncharged(k, w.now)
				w.fence.wasReset(k, w.highest(k.part, peer.Owned, nil))
				k.ops = append(k.ops, op{call: at, back: w.now, reset: true})
			}
			k.stands = k.stands || k.began == at && done && !w.justTaken(k.part)
		})
	})
}

// serving returns the nodes that clients ask.
func (w *World) serving() []*Node {
	var out []*Node
	for _, n := range w.live() {
		if n.members.State() != peer.Joining && n.leftAt == 0 {
			out = append(out, n)
		}
	}
	return out
}

func remaining(d *limiter.Decision) uint64 {
	if d.Len() == 0 {
		return 0
	}
	return d.Limit(0).Remaining
}
