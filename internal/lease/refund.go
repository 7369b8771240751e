package lease

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A check that a lease admitted is refunded by what became of the lease. While it lasts, its units come back to it.
// Once it is given back, what was used of it is a charge of its owner, and the refund takes back a part of that.

const (
	// maxPast bounds how many leases that were given back are remembered, for refunds: the latest ones. Receipts are good
	// for ten minutes, and a hot key has ten leases a second. At the bound they take 6 MB.
	maxPast = 1 << 16
	// maxLate bounds how many refunds wait for the answer to one that is being given back. Further ones are void.
	maxLate = 64
)

// past are leases that were given back, by their ids.
type past struct {
	of   map[uint64]*charged
	ids  []uint64 // the oldest one is at next, once there are maxPast
	next int
}

// charged is what an owner has charged of a lease.
type charged struct {
	key      arith.Hash
	epoch    uint64 // of the receipt of that charge, whose time is at
	at       limiter.Tick
	left     uint64 // units that were not refunded
	refunded numbers
}

// Late is a refund that waited for its lease to be given back: its receipt is that of the charge.
type Late struct {
	Charge  *arith.Charge
	Receipt limiter.Receipt
}

// numbers are those of receipts that were used. The number 0 is that of any.
type numbers map[uint64]bool

func (x *numbers) add(n uint64) {
	if n == 0 {
		return
	}
	if *x == nil {
		*x = make(numbers)
	}
	(*x)[n] = true
}

// add remembers a lease of which an owner has charged what was used, and returns the refunds that waited for that.
func (p *past) add(l *Lease, settled limiter.Receipt) (late []Late) {
	late, l.late = l.late, nil
	f := arith.Fields(&settled)
	if f.Time == 0 || l.used == 0 {
		return nil
	}
	x := &charged{key: l.Key.Hash, epoch: f.Epoch, at: f.Time, left: l.used - l.back, refunded: l.refunded}
	for i := range late {
		late[i].Receipt = x.receipt(late[i].Receipt)
	}
	if p.of == nil {
		p.of = make(map[uint64]*charged)
	}
	p.of[l.ID] = x
	if len(p.ids) < maxPast {
		p.ids = append(p.ids, l.ID)
		return late
	}
	delete(p.of, p.ids[p.next])
	p.ids[p.next] = l.ID
	p.next = (p.next + 1) % maxPast
	return late
}

// receipt returns the receipt by which the owner takes back what a receipt of the lease names.
func (x *charged) receipt(r limiter.Receipt) limiter.Receipt {
	f := arith.Fields(&r)
	f.Epoch, f.Time = x.epoch, x.at
	return r
}

// refund is [Holder.Refund] of a lease that was given back.
func (x *charged) refund(k *arith.Key, r limiter.Receipt) (owner limiter.Receipt, done bool) {
	once := arith.Fields(&r).Once
	switch {
	case x.key != k.Hash:
		return limiter.Receipt{}, false
	case x.refunded[once] || k.Cost > x.left:
		return limiter.Receipt{}, true // it was refunded before
	}
	x.left -= k.Cost
	x.refunded.add(once)
	return x.receipt(r), true
}

// Refund takes back a check that a lease admitted, by its receipt: the number of that is good once. It reports whether
// that is so; the receipt that it returns, unless its time is 0, is one for the owner of the key. Of a lease that is
// being given back the refund waits, see [Holder.Returned].
func (h *Holder) Refund(t Instant, c *arith.Charge, r limiter.Receipt) (owner limiter.Receipt, done bool) {
	f := arith.Fields(&r)
	if c.Len() != 1 || f.Epoch == 0 || f.Parts != nil || !c.Fits(r) {
		return limiter.Receipt{}, false
	}
	k := c.Key(0)
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.past.of[f.Epoch]; x != nil {
		return x.refund(k, r)
	}
	at := slices.IndexFunc(h.all, func(l *Lease) bool { return l.ID == f.Epoch && !l.gone })
	if at < 0 || h.all[at].Key.Hash != k.Hash {
		return limiter.Receipt{}, false
	}
	l := h.all[at]
	s, _ := h.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.refunded[f.Once] || k.Cost > l.used-l.back:
		return limiter.Receipt{}, true // it was refunded before
	case !l.over(t):
		l.used -= k.Cost
	case len(l.late) == maxLate:
		return limiter.Receipt{}, true
	default:
		l.late = append(l.late, Late{c.Clone(), r})
		l.back += k.Cost
	}
	l.refunded.add(f.Once)
	return limiter.Receipt{}, true
}
