package lease

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A check that a lease admitted is refunded by what became of the lease. While it lasts, its units come back to it.
// Once it is given back, what was used of it is a charge of its owner, and the refund takes back a part of that.

const (
	// maxPast bounds how many leases that were given back are remembered, for refunds: the latest ones.
	maxPast = 1 << 13
	// maxLate bounds how many refunds wait for the answer to one that is being given back. Further ones are void.
	maxLate = 64
)

// past are leases that were given back, and what their owners have charged.
type past struct {
	of   map[uint64]*Lease
	ids  []uint64 // the oldest one is at next, once there are maxPast
	next int
}

// Late is a refund that waited for its lease to be given back: its receipt is that of the charge.
type Late struct {
	Charge  *arith.Charge
	Receipt limiter.Receipt
}

// add remembers a lease of which an owner has charged what was used, and returns the refunds that waited for that.
func (p *past) add(l *Lease, settled limiter.Receipt) (late []Late) {
	late, l.late = l.late, nil
	if l.settled = settled; arith.Fields(&settled).Time == 0 || l.used == 0 {
		return nil
	}
	for i := range late {
		late[i].Receipt = l.charged(late[i].Receipt)
	}
	if p.of == nil {
		p.of = make(map[uint64]*Lease)
	}
	p.of[l.ID] = l
	if len(p.ids) < maxPast {
		p.ids = append(p.ids, l.ID)
		return late
	}
	delete(p.of, p.ids[p.next])
	p.ids[p.next] = l.ID
	p.next = (p.next + 1) % maxPast
	return late
}

// charged returns the receipt by which the owner takes back what a receipt of the lease names.
func (l *Lease) charged(r limiter.Receipt) limiter.Receipt {
	to, from := arith.Fields(&r), arith.Fields(&l.settled)
	to.Epoch, to.Time = from.Epoch, from.Time
	return r
}

// Refund takes back a check that a lease admitted, by its receipt: the number of that is good once. It reports whether
// that is so; the receipt that it returns, unless its time is 0, is one for the owner of the key. Of a lease that is
// being given back the refund waits, see [Holder.Returned].
func (h *Holder) Refund(t Instant, c *arith.Charge, r limiter.Receipt) (owner limiter.Receipt, done bool) {
	f := arith.Fields(&r)
	if c.Len() != 1 || f.Epoch == 0 || f.Parts != nil || !c.Fits(r) {
		return limiter.Receipt{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.past.of[f.Epoch]
	if l == nil {
		at := slices.IndexFunc(h.all, func(l *Lease) bool { return l.ID == f.Epoch && !l.gone })
		if at < 0 {
			return limiter.Receipt{}, false
		}
		l = h.all[at]
	}
	k := c.Key(0)
	if l.Key.Hash != k.Hash {
		return limiter.Receipt{}, false
	}
	s, _ := h.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.refunded[f.Once] || k.Cost > l.used-l.back:
		return limiter.Receipt{}, true // it was refunded before
	case l.gone:
		owner = l.charged(r)
	case !l.over(t):
		l.used -= k.Cost
	case len(l.late) == maxLate:
		return limiter.Receipt{}, true
	default:
		l.late = append(l.late, Late{c.Clone(), r})
	}
	if l.gone || l.over(t) {
		l.back += k.Cost
	}
	if f.Once != 0 {
		if l.refunded == nil {
			l.refunded = make(map[uint64]bool)
		}
		l.refunded[f.Once] = true
	}
	return owner, true
}
