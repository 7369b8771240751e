package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Outcome counts what happened in a run.
type Outcome struct {
	Events [cluster.Events]int
	byPart map[int]map[cluster.Event]int
	taken  map[int]limiter.Tick // when a partition last came to an owner that may lack D
	took   map[int]*Node        // who that was, while it has not been fenced
	back   map[int]int          // how often a partition went back from such an owner to the one of before
	alone  map[*key]alone
	lonely lonely

	resumedAt limiter.Tick // when a node went on last
}

// lonely has what policies answer at members that leave while nobody can be their heir.
type lonely struct {
	at    limiter.Tick // when that was so last
	units map[*key]int
}

// leaves notes that a node leaves. Until another one is active nobody can be its heir, and strict checks are not
// answered. Operators who wait until the node before it is ready do not see that.
func (l *lonely) leaves(w *World) {
	l.at = w.now
	if !slices.ContainsFunc(w.live(), func(m *Node) bool { return m.members.State() == peer.Active }) {
		w.after(10*ms, func() { l.leaves(w) })
	}
}

// lost notes that a policy has answered a check.
func (l *lonely) lost(w *World, k *key, units int) {
	if l.at != 0 && w.now-l.at <= askedFor {
		if l.units == nil {
			l.units = make(map[*key]int)
		}
		l.units[k] += units
	}
}

func (o *Outcome) happened(e cluster.Event, partition int) {
	o.Events[e]++
	if o.byPart == nil {
		o.byPart = make(map[int]map[cluster.Event]int)
	}
	if o.byPart[partition] == nil {
		o.byPart[partition] = make(map[cluster.Event]int)
	}
	o.byPart[partition][e]++
}

// shared reports whether an available partition has several owners, as on each side of a split.
func (w *World) shared(part int) bool {
	if !w.split || part >= table.Partitions {
		return false
	}
	owners := 0
	for _, n := range w.live() {
		if role, _, _, _ := n.core.Claim(part); role == peer.Owned {
			owners++
		}
	}
	return owners > 1
}

// settled: every node sees all, and every partition is where it belongs.
func (w *World) settled() error {
	live := w.live()
	for _, n := range live {
		if v := n.core.View(); len(v.Members) != len(live) {
			return fmt.Errorf("%s sees %d of %d nodes", n.name, len(v.Members), len(live))
		}
		if state := n.members.State(); state != peer.Active {
			return fmt.Errorf("%s is %v", n.name, state)
		}
		for _, id := range n.core.Unsettled(math.MaxInt) {
			if !w.waitsForRoom(id) {
				return fmt.Errorf("%s is not settled: partition %d: %s", n.name, id, n.core.Describe(id))
			}
		}
	}
	for _, id := range w.parts {
		owners := 0
		for _, n := range live {
			if info, _ := n.core.Partition(id); info.Role == peer.Owned {
				owners++
			}
		}
		if owners != 1 {
			return fmt.Errorf("partition %d has %d owners", id, owners)
		}
	}
	return nil
}

// idle: a while after the last check nothing waits for anybody at any node. Where a full table
// keeps no copies, what changed waits for it.
func (w *World) idle() error {
	var errs []error
	for _, n := range w.live() {
		if s := n.core.Summary(); s.Queued+s.Waiting+s.Parked+s.Withheld+s.Pending > 0 || s.Pending < 0 || s.Staged != 0 {
			errs = append(errs,
				fmt.Errorf("%s has frames queued %d, operations waiting %d, checks parked %d, replies withheld %d, requests "+
					"pending %d, bytes staged %d and nothing to do",
					n.name, s.Queued, s.Waiting, s.Parked, s.Withheld, s.Pending, s.Staged))
		}
		for _, id := range w.parts {
			if info, _ := n.core.Partition(id); info.Changed+info.InDoubt > 0 && w.crowd.unkept == 0 {
				errs = append(errs, fmt.Errorf("%s has of partition %d %d changed keys and %d charges in doubt, and nothing to do",
					n.name, id, info.Changed, info.InDoubt))
			}
		}
	}
	return errors.Join(errs...)
}

// bounded: what a node holds a while after the last check is bounded by what there is. It
// owns partitions, is heir of others, and has copies of no others.
func (w *World) bounded() error {
	if w.stronger == nil {
		return nil
	}
	var errs []error
	for _, id := range w.parts {
		heir := peer.Instance(0)
		for _, n := range w.live() {
			if info, _ := n.core.Partition(id); info.Role == peer.Owned {
				heir = info.Heir
			}
		}
		for _, n := range w.live() {
			if info, _ := n.core.Partition(id); info.Role == peer.Copy && n.inst != heir {
				errs = append(errs, fmt.Errorf("%s keeps a copy of partition %d: %s", n.name, id, n.core.Describe(id)))
			}
		}
	}
	return errors.Join(errs...)
}

// bounds says what a run may admit beyond the limit.
type bounds struct {
	perTakeover bool    // D for each takeover and recovery
	closed      float64 // multiples of the limit, for the policies
	local       float64
	open        float64
	losses      bool // owner and heir may be lost together, which costs a limit each time
	share       bool // each node's fallback answers keep to its share
	fallbacks   int  // checks of a key that a policy may answer, 0: any
	exact       bool // nothing lost: what is admitted is the limit
	resets      bool // a reset that was done stands
}

func (w *World) check(b bounds) error {
	var errs []error
	for _, k := range w.keys {
		times := b.closed
		switch k.policy {
		case limiter.UnreachableLocal:
			times = b.local
		case limiter.UnreachableOpen:
			times = b.open
		}
		j := k.overtook(w)
		if b.perTakeover {
			j = w.outcome.takeovers(k.part) - k.before
		}
		e := w.outcome.byPart[k.part]
		if b.losses {
			times += float64(w.losses[k.part])
			if !closed(k) && (w.disks == nil || !w.disks.cut) {
				times += float64(e[cluster.EventEmptied] - 1 + e[cluster.EventRecovered])
			}
		}
		times += w.disks.again(k)
		most := int(times*float64(k.limit)) + j*k.d + k.refunded + (k.tried+k.twice)*(k.limit+k.d) + k.anew +
			w.outcome.alone[k].lost
		if during := most - int((times-min(times, 1.5))*float64(k.limit)); k.apart && k.byHealing > during {
			errs = append(errs,
				fmt.Errorf("%s (partition %d): %d admitted while the network was split, at most %d (limit %d, D %d, %d takeovers)",
					k.rule.Name, k.part, k.byHealing, during, k.limit, k.d, j))
		}
		if k.admitted > most {
			errs = append(errs, fmt.Errorf("%s (partition %d): %d admitted, at most %d (limit %d, D %d, %d takeovers)",
				k.rule.Name, k.part, k.admitted, most, k.limit, k.d, j))
		}
		least := k.mustAdmit(w, b, j)
		if k.denied > 0 && k.admitted < least && k.pair == nil && k.crowded == 0 {
			errs = append(errs, fmt.Errorf("%s %v (partition %d): %d admitted, at least %d of %d (lost %d)",
				k.rule.Name, k.rule.Limits[0].Algorithm(), k.part, k.admitted, least, k.least, k.lost))
		}
		errs = append(errs, w.conserved(k, b, j), w.checkOnce(k, j))
		for n, units := range k.byPolicy {
			if b.share && k.policy == limiter.UnreachableLocal && units > max(1, k.limit/w.size) {
				errs = append(errs, fmt.Errorf("%s: %s admitted %d by policy, its share of %d is %d", k.rule.Name, n, units,
					k.limit, k.limit/w.size))
			}
		}
		if b.fallbacks > 0 && w.size > 2 && k.fallbacks > b.fallbacks+k.direct+w.near.lending.open[k] && w.crowd.unkept == 0 {
			errs = append(errs, fmt.Errorf("%s: %d checks answered by policy, at most %d", k.rule.Name, k.fallbacks,
				b.fallbacks))
		}
		// Denials that were cached outlive a reset by another node, and what is lent denies whoever does not have it.
		if b.exact && (!w.near.cached || k.tried == 0) && !w.near.lending.on {
			errs = append(errs, k.linear())
		}
		if b.exact && k.lost > w.outcome.lonely.units[k] && w.crowd.unkept == 0 {
			errs = append(errs, fmt.Errorf("%s: %d units answered by a policy or lost", k.rule.Name, k.lost))
		}
		if k.denied == 0 && !k.seldom && !w.near.lending.on && k.tried+k.refunded+k.crowded+w.crowd.unkept == 0 {
			errs = append(errs, fmt.Errorf("%s: never denied by an owner, %d asked, %d admitted, %d lost", k.rule.Name, k.asked,
				k.admitted, k.lost))
		}
	}
	return errors.Join(errs...)
}

// mustAdmit returns the fewest units that must have been admitted before a denial of a key whose
// partition had j takeovers. A check that waited while its partition was taken over may have been
// charged by both owners.
func (k *key) mustAdmit(w *World, b bounds, j int) int {
	least := k.least - k.lost - w.near.lending.unreturned(w, k) - j*k.d - 1 // a cost of 2 may not fit the last unit
	if !b.exact {
		least -= k.passed
	}
	seldom := k.seldom || w.near.lending.on && k.begun-w.near.lending.shares[k] < k.least
	if seldom && !b.exact && k.policy == limiter.UnreachableLocal {
		names := make(map[string]bool) // of all who were members, as who joins later
		for _, n := range w.nodes {
			names[n.name] = true
		}
		least -= k.least - k.least/max(w.size, len(names)) // perhaps asked for only where a minority denies beyond its share
	}
	return least
}

func closed(k *key) bool { return k.policy == limiter.UnreachableClosed }

func later(a, b peer.Epoch) peer.Epoch {
	if a.Before(b) {
		return b
	}
	return a
}

// conserved: what is charged in the end is what was admitted, but for what was
// lost on the way.
func (w *World) conserved(k *key, b bounds, takeovers int) error {
	used := -1
	for _, n := range w.live() {
		used = max(used, n.used(k))
	}
	stands, twice := b.resets, 0
	if !stands && w.stronger != nil && closed(k) && w.losses[k.part] == 0 {
		stands, twice = true, k.late // what waited may have been charged by two owners
	}
	if stands && k.stands && used > k.sinceReset(w)+twice {
		return fmt.Errorf("%s (partition %d): %d charged in the end, %d admitted since its reset (%d lost)", k.rule.Name,
			k.part, used, k.since, k.lost)
	}
	if least := min(k.limit, k.admitted-k.refunded); b.exact && k.tried == 0 && !k.rolled && used >= 0 && used < least {
		return fmt.Errorf("%s (partition %d): %d charged in the end, %d admitted and %d given back", k.rule.Name, k.part,
			used, k.admitted, k.refunded)
	}
	// A check that an owner has charged, and its heir copied, before the heir took over, and that
	// was not answered by then, is charged once more by the heir.
	slack := k.lost + k.astray + k.passed + w.near.lending.unreturned(w, k)
	if !b.exact {
		slack += 2 * takeovers * (k.d + 2)
	}
	if most := k.admitted + slack; used > most && !b.losses && used > 0 && k.admitted < k.least {
		return fmt.Errorf("%s %x (partition %d): %d charged in the end, %d admitted (%d lost, %d astray, %d passed)",
			k.rule.Name, k.hash.Hi>>48, k.part, used, k.admitted, k.lost, k.astray, k.passed)
	}
	return nil
}

// sinceReset returns the most units that may have been charged since the last reset of a key. If
// its partition was taken over since, the former owner and the next may both have charged a
// check that waited.
func (k *key) sinceReset(w *World) int {
	most := k.since + k.lost + k.astray - k.strays + w.near.lending.unreturned(w, k)
	if w.outcome.takeovers(k.part) > k.takeovers {
		most += k.late - k.doubled
	}
	return most
}

// used returns what a node has counted for the first limit of a key, -1 where it does not own it or its
// full table has no counter of that limit.
func (n *Node) used(k *key) int {
	info, _ := n.core.Partition(k.part)
	if info.Role != peer.Owned || n.paused {
		return -1
	}
	var c arith.Charge
	c.Add(k.key(n, 0))
	c.Peek = true
	d := new(limiter.Decision)
	n.core.Begin(&c, d, 0, func() {})
	if d.Len() != len(c.Key(0).Rule.Limits) || d.Source.ByPolicy() || d.Source == limiter.SourceCached ||
		d.Limit(0).Overflow {
		return -1
	}
	most := int(c.Key(0).Rule.Limits[0].Limit())
	if share := d.Limit(0).InForce; share != 0 {
		most = int(share)
	}
	return most - int(d.Limit(0).Remaining)
}

// noteSides notes what every owner has counted before a split ends but for what it lends, which may come back, and what
// was admitted.
func (w *World) noteSides() {
	for _, k := range w.keys {
		k.byHealing = k.admitted
		if k.policy == limiter.UnreachableOpen || k.pair != nil {
			continue // what is withheld or reserved may be a lot
		}
		for _, n := range w.live() {
			k.noteSide(n.used(k) - lends(n, k))
		}
	}
}

// noteSide notes what an owner has counted. The charge of a check that is not answered yet may be
// withheld, and taken back; each costs two units at most.
func (k *key) noteSide(used int) { k.side = max(k.side, min(used, k.least)-2*k.openOps) }

// merged: what each side of a split counted still counts, but for what was
// withheld. A full table may have no room for what the other side counted.
func (w *World) merged() error {
	if w.crowd.unkept > 0 {
		return nil
	}
	for _, k := range w.keys {
		used := -1
		for _, n := range w.live() {
			used = max(used, n.used(k))
		}
		if least := k.side - 2*k.d - 12 - k.refunded; used < least && k.tried == 0 {
			return fmt.Errorf("%s (partition %d): %d counted after the split, at least %d of a side's %d", k.rule.Name, k.part,
				used, least, k.side)
		}
	}
	return nil
}
