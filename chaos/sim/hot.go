package sim

import (
	"slices"

	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/limiter"
)

// nearby is what nodes answer without the owner.
type nearby struct {
	lending lending
	sliced  sliced
	// cached has nodes refuse what owners have just refused them; refused counts
	// how often they did.
	cached  bool
	refused int
}

// lending is what owners lend in a world, if it is on. Clients ask for keys so often then that they do.
type lending struct {
	on     bool
	units  int                    // that leases admitted
	keys   map[*key][]leasedUnits // what they admitted of each, in the order of time
	unused map[*key]int           // units that were lent, not used, and may be charged all the same
	idle   map[*key][]leasedUnits // what else was lent and not used, in the order of time: a disk may have it as charged

	clients   bool // clients borrow, too
	borrowers []*borrower
	byClients int // units that their leases admitted

	open   map[*key]int // the most checks that were under way as a fault came
	shares map[*key]int // units of each that were denied by a share
}

// leasedUnits are units of leases at an instant.
type leasedUnits struct {
	at    limiter.Tick
	units int
}

// leasedFor is for how long an owner may not have heard of what a lease has admitted: as long as it waits for that.
const leasedFor = 300 * ms

// silentFor is for how long a member may be silent before others notice it. What they ask meanwhile may be charged, so
// it is not asked again elsewhere.
const silentFor = 80 * ms

// hotDemand has clients ask one node for one key so often that it is lent units, now and then.
func (l *lending) hotDemand(w *World, span limiter.Tick) {
	if !l.on {
		return
	}
	if w.disks != nil && l.idle == nil {
		l.idle = make(map[*key][]leasedUnits)
		l.sample(w)
	}
	end := w.now + span
	// A relay that stands still, or is cut off, has what a burst asks by it until that is noticed.
	stands := func() bool {
		return len(w.cut) > 0 || slices.ContainsFunc(w.live(), func(n *Node) bool { return n.paused })
	}
	var burst func()
	burst = func() {
		live := w.serving()
		if w.now >= end {
			return
		}
		if len(live) > 0 {
			k, n, begun := w.keys[w.rng.IntN(len(w.keys))], live[w.rng.IntN(len(live))], w.now
			if k.form || k.apart {
				k = w.keys[0]
			}
			for i := range 30 + w.rng.IntN(90) {
				w.after(limiter.Tick(i)*w.between(ms/2, 3*ms), func() {
					if n.alive && !n.paused {
						if w.now-w.faultAt < silentFor || w.now-begun < silentFor && stands() {
							k.direct++
						}
						w.ask(k, n, 1, true)
					}
				})
			}
		}
		w.after(w.between(100*ms, 400*ms), burst)
	}
	w.after(w.between(0, 100*ms), burst)
}

// underWay notes how many checks of each key are under way as a fault comes: all of a burst, if their answers are
// behind a packet that is late.
func (l *lending) underWay(w *World) {
	if !l.on {
		return
	}
	if l.open == nil {
		l.open = make(map[*key]int)
	}
	for _, k := range w.keys {
		l.open[k] = max(l.open[k], k.openOps)
	}
}

// deniedByShare notes that a minority has denied units of a key beyond its share.
func (l *lending) deniedByShare(k *key, units int) {
	if l.shares == nil {
		l.shares = make(map[*key]int)
	}
	l.shares[k] += units
}

// admitted notes what a lease has admitted: the owner charges it later.
func (l *lending) admitted(k *key, at limiter.Tick, units int) {
	if l.keys == nil {
		l.keys = make(map[*key][]leasedUnits)
	}
	l.units += units
	l.keys[k] = append(l.keys[k], leasedUnits{at, units})
}

// uncharged returns how many units leases have admitted of which the owner may not have heard.
func (l *lending) uncharged(k *key, now limiter.Tick) (units int) {
	for _, u := range l.keys[k] {
		if now-u.at <= leasedFor {
			units += u.units
		}
	}
	return units
}

// crashed notes what was lent to a node that ends, and not used: its owners charge it.
func (l *lending) crashed(n *Node) {
	for _, x := range n.core.Summary().Leases {
		for _, k := range n.w.keys {
			if k.hash == x.Key.Hash {
				l.waste(k, int(x.Units-x.Used))
			}
		}
	}
}

// twice notes that a partition has two owners, or that they become one: each may have charged the same leases, one of
// them whole if they were given back to the other.
func (l *lending) twice(w *World, part int) {
	if !l.on {
		return
	}
	w.after(0, func() { // the partition is locked
		for _, k := range w.keys {
			if k.part == part {
				l.waste(k, l.lent(w, k)-l.unreturned(w, k))
			}
		}
	})
}

// sample notes every 50 ms what is lent and not used.
func (l *lending) sample(w *World) {
	l.note(w)
	w.after(50*ms, func() { l.sample(w) })
}

// note notes what is lent and not used, so that it is known how much of it may be on disk when all nodes end.
func (l *lending) note(w *World) {
	if l.idle == nil {
		return
	}
	var all []lease.Lent
	for _, n := range w.live() {
		all = append(all, n.core.Summary().Leases...)
	}
	lost := l.lost(w)
	for _, k := range w.keys {
		units := l.unused[k] + lost[k.rule.Name]
		for _, x := range all {
			if x.Key.Hash == k.hash {
				units += int(x.Units - x.Used)
			}
		}
		for _, b := range l.borrowers {
			if b.k == k {
				units += b.unused()
			}
		}
		l.idle[k] = append(l.idle[k], leasedUnits{w.now, units})
	}
}

// told notes what an owner says is left of a key: what is neither left nor admitted is lent, or it was and what its
// holder gives back is on its way.
func (l *lending) told(k *key, now limiter.Tick, left int) {
	if l.idle != nil && k.pair == nil {
		l.idle[k] = append(l.idle[k], leasedUnits{now, k.limit - left - k.admitted})
	}
}

// restored notes that a key is restored as it was at an instant or later. What was lent then is charged, also if it
// was given back since.
func (l *lending) restored(w *World, k *key, since limiter.Tick) {
	most := 0
	for _, u := range l.idle[k] {
		if u.at >= since {
			most = max(most, u.units)
		}
	}
	w.after(0, func() { // the partition is locked
		l.waste(k, max(0, most-l.unreturned(w, k)))
	})
}

func (l *lending) waste(k *key, units int) {
	if l.unused == nil {
		l.unused = make(map[*key]int)
	}
	l.unused[k] += units
}

// unreturned returns how many units of a key, or of another with its rule, were lent, not used, and may be charged.
func (l *lending) unreturned(w *World, k *key) int { return l.unused[k] + l.lost(w)[k.rule.Name] }

// lost returns how many units were lent by a rule, and are neither held nor returned, by the names of rules.
func (l *lending) lost(w *World) map[string]int {
	if !l.on {
		return nil
	}
	units := make(map[string]int)
	for _, n := range w.nodes {
		for rule, lost := range n.core.Summary().LeasesLost {
			units[rule] += int(lost)
		}
	}
	for _, b := range l.borrowers {
		for _, n := range b.held.Lost() {
			units[b.k.rule.Name] += int(n)
		}
	}
	return units
}

// lends returns how many units of a key a node counts as lent.
func lends(n *Node, k *key) (units int) {
	key := k.key(n, 0)
	for _, h := range n.table.Lent(&key) {
		units += int(h.Cost)
	}
	return units
}

// lent returns how many units of a key are lent, or were and may be charged.
func (l *lending) lent(w *World, k *key) int {
	units := l.unreturned(w, k)
	if !l.on {
		return 0
	}
	for _, n := range w.live() {
		for _, x := range n.core.Summary().Leases {
			if x.Key.Hash == k.hash {
				units += int(x.Units)
			}
		}
	}
	for _, b := range l.borrowers {
		if b.k == k {
			units += b.lent()
		}
	}
	return units
}
