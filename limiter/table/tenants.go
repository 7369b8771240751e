package table

import (
	"math"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A tenant that fills a table would have the new keys of all others denied. So none may have all of it:
// it gets a further counter only while it then has at most tenantTimes as many as are left free. One
// tenant alone takes three quarters of a table, two take three sevenths each, and however many fill it,
// some of it is left to one that has little. Nothing is set aside, and nothing has to be known of who
// will come. (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet
// switches, 1998.) The same rule shares memory, ids, and the numbers of limits that come with requests.
const tenantTimes = 3

// withinShare reports whether one who then has own of something, of which free are left then, keeps to that rule.
func withinShare(own, free int64) bool { return own <= tenantTimes*free }

// Tenants says how much of a table each tenant may take. The zero value has the rule above for all
// tenants, and no bound for what has no tenant. It is safe for concurrent use.
type Tenants struct{ set atomic.Pointer[tenantShares] }

type tenantShares struct {
	of    map[uint16]int64 // by label, in thousandths of the table
	names map[uint16]string
}

// Set sets the tenants that there are, with the share that each may take at most, in thousandths; 0 means
// the rule for all. With it, what has no tenant is a tenant, too. Without tenants it has no bound.
func (t *Tenants) Set(thousandths map[string]int) {
	if len(thousandths) == 0 {
		t.set.Store(nil)
		return
	}
	s := &tenantShares{of: make(map[uint16]int64), names: make(map[uint16]string)}
	for name, share := range thousandths {
		label := arith.TenantLabel(name)
		if s.names[label] = name; share > 0 {
			s.of[label] = max(s.of[label], int64(min(share, limiter.WholeShare))) // of two with one label
		}
	}
	t.set.Store(s)
}

// Name returns the name of the tenant with a label, empty if none was set.
func (t *Tenants) Name(label uint16) string {
	if s := t.set.Load(); s != nil {
		return s.names[label]
	}
	return ""
}

// share returns the share that a tenant has in thousandths, 0 for the rule for all, and whether it has any bound.
func (t *Tenants) share(label uint16) (thousandths int64, bounded bool) {
	s := t.set.Load()
	if s == nil {
		return 0, label != 0
	}
	return s.of[label], true
}

// admits reports whether a tenant that has own of something, of which used are taken of a whole, may have one more.
func (t *Tenants) admits(label uint16, own, used, whole int) bool {
	share, bounded := t.share(label)
	if share > 0 {
		return own < max(1, int(part(int64(whole), share)))
	}
	return !bounded || withinShare(int64(own+1), int64(whole-used-1))
}

// usages is what each tenant has of a table: of the partitions that are no copies, by label.
type usages struct {
	shares  *Tenants
	sources sources
	total   usage // of tenants
	pages   [1 << 8]atomic.Pointer[[1 << 8]usage]
}

// usage is what a tenant has. Of what has no tenant only the ids are counted: the rest is what is not of others.
type usage struct{ keys, ids, bytes atomic.Int64 }

func (u *usages) of(label uint16) *usage {
	at := &u.pages[label>>8]
	page := at.Load()
	if page == nil {
		at.CompareAndSwap(nil, new([1 << 8]usage))
		page = at.Load()
	}
	return &page[label&0xff]
}

// keyLo returns the low half of the hash of the key that an entry belongs to.
func keyLo(lo uint64, l *limiter.Limit) uint64 { return lo ^ arith.NameID(l) }

// belongs counts n counters of a key, or ids of it, that came to a locked partition, or left it.
func (p *partition) belongs(key uint64, n int64, l *limiter.Limit) {
	label, id := arith.LabelOf(key), l.Algorithm() >= arith.Remembered
	if label == 0 && !id || p.table.copies[p.number].apart() {
		return
	}
	u := p.table.room.usages.of(label)
	if id {
		u.ids.Add(n)
	}
	if label != 0 {
		u.keys.Add(n)
		p.table.room.usages.total.keys.Add(n)
	}
}

// belongsSlot is belongs for a slot.
func (p *partition) belongsSlot(s *slot, n int64) {
	if l := p.table.registry.limit(s.limit); l != nil && s.from == 0 { // nil after a panic has left it half made
		p.belongs(keyLo(s.lo, l), n, l)
	}
}

// belongsID is belongs for an id, by the low half of its identity.
func (p *partition) belongsID(lo uint64, n int64) {
	if n < 0 {
		p.sentIDs(0, int(n))
	}
	p.belongs(keyLo(lo, p.table.ids.limit), n, p.table.ids.limit)
}

// belongsBytes counts the words of a key.
func (p *partition) belongsBytes(key uint64, bytes int64) {
	if label := arith.LabelOf(key); label != 0 && !p.table.copies[p.number].apart() {
		p.table.room.usages.of(label).bytes.Add(bytes)
		p.table.room.usages.total.bytes.Add(bytes)
	}
}

// belongsAll is belongs for all that a locked partition has.
func (p *partition) belongsAll(n int64) {
	for i := range p.slots.size {
		s := p.slots.at(i)
		if s.limit == 0 {
			continue
		}
		if p.belongsSlot(s, n); s.words != 0 && s.from == 0 {
			p.belongsBytes(keyLo(s.lo, p.table.registry.limit(s.limit)), n*int64(classWords(s.sizeClass()))*wordBytes)
		}
	}
	g := p.table.ring(p)
	for i := range g.n {
		if e := &g.ring[g.position(g.numberOf(i))]; e.state.Time != idGone {
			p.belongs(keyLo(e.lo, p.table.ids.limit), n, p.table.ids.limit)
		}
	}
}

// asked is what is asked for in the name of a tenant.
type asked struct {
	keys  int64 // counters, with the ids
	noted int64 // those of them that [Table.keys] has already
	bytes int64
	ids   int64 // and holds
	held  int64 // ids and holds that the table then has
}

// keyBytes is about what a counter takes in memory, with the spare room of its partition.
const keyBytes = 80

// beyondTenant reports whether the tenant of a key, by the low half of its hash, may not have so much more.
func (r *room) beyondTenant(key uint64, a asked) bool {
	label := arith.LabelOf(key)
	share, bounded := r.usages.shares.share(label)
	if !bounded {
		return false
	}
	u := r.usages.of(label)
	used, left := r.keys.Load()-r.copied.Load()-a.noted, r.left()
	own, ids, bytes := u.keys.Load(), u.ids.Load(), u.bytes.Load()
	if label == 0 {
		own, bytes = max(used-r.usages.total.keys.Load(), 0), max(r.maxBytes-left-r.usages.total.bytes.Load(), 0)
	} else {
		bytes += own * keyBytes
	}
	a.bytes += a.keys * keyBytes
	if share > 0 {
		return own+a.keys > max(1, part(r.maxKeys, share)) || bytes+a.bytes > part(r.maxBytes, share) ||
			a.ids > 0 && ids+a.ids > max(1, part(r.maxKeys/2, share))
	}
	return !withinShare(own+a.keys, r.maxKeys-used-a.keys) ||
		r.maxBytes < unbounded && !withinShare(bytes+a.bytes, left-a.bytes) ||
		a.ids > 0 && !withinShare(ids+a.ids, (r.maxKeys+r.copied.Load())/2-a.held)
}

// part returns some thousandths of a whole.
func part(whole, thousandths int64) int64 {
	if thousandths >= limiter.WholeShare {
		return math.MaxInt64
	}
	return whole/limiter.WholeShare*thousandths + whole%limiter.WholeShare*thousandths/limiter.WholeShare
}
