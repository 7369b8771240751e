package route

import (
	"sync"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// refunds take back the charges of a check that several owners decided: one call for each
// part of its receipt. A part whose owner has lost the partition since is void, as every
// receipt is then; the others are taken back all the same. A credit has a part for each key,
// since any owner can take it.
type refunds struct {
	mu   sync.Mutex
	open int // calls that have not ended, and the one that starts them
	out  Outcome
	done func(Outcome)
}

// refundPart is what one owner takes back.
type refundPart struct {
	keys    uint16 // of the whole charge, one bit each
	charge  *arith.Charge
	receipt limiter.Receipt
}

// partsOf returns the parts of a receipt, or of a credit; none if it is not one of this
// charge.
func partsOf(charge *arith.Charge, r limiter.Receipt) (out []refundPart) {
	f := arith.Fields(&r)
	if f.Parts == nil {
		for i := range charge.Len() {
			c := some(charge, 1<<i)
			out = append(out, refundPart{keys: 1 << i, charge: c, receipt: c.Credit()})
		}
		return out
	}
	if len(*f.Parts) > limiter.MaxKeys {
		return nil
	}
	seen := uint16(0)
	for i, p := range *f.Parts {
		if p.Keys == 0 || p.Keys&seen != 0 || int(p.Keys)>>charge.Len() != 0 {
			return nil
		}
		seen |= p.Keys
		own := arith.ReceiptFields{Epoch: p.Epoch, Time: p.Time, Charged: p.Charged, Set: p.Set, Once: onceOf(f.Once, i)}
		out = append(out, refundPart{keys: p.Keys, charge: some(charge, p.Keys), receipt: arith.NewReceipt(own)})
	}
	return out
}

// some returns a charge of some of the keys of another.
func some(charge *arith.Charge, keys uint16) *arith.Charge {
	c := &arith.Charge{ID: charge.ID}
	for i := range charge.Len() {
		if keys>>i&1 != 0 {
			c.Add(*charge.Key(i))
		}
	}
	return c
}

// refundParts takes back what each owner charged. It calls done once, when all parts have
// ended.
func (c *Router) refundParts(t *Turn, charge *arith.Charge, r limiter.Receipt, done func(Outcome)) {
	s := &refunds{open: 1, done: func(o Outcome) {
		c.denials.forget(charge)
		done(o)
	}}
	parts := partsOf(charge, r)
	s.open += len(parts)
	for i := range parts {
		p := &parts[i]
		c.start(t, &Call{task: task{kind: KindRefund, charge: p.charge, answer: new(limiter.Decision), receipt: &p.receipt,
			done: func(_ *Turn, o *Call) {
				s.ended(o.result.outcome, p.keys)
			}}})
	}
	s.ended(Outcome{}, 0)
}

// onceOf returns the number of a part of a receipt: two parts may have come to one owner.
func onceOf(once uint64, part int) uint64 {
	if once == 0 {
		return 0
	}
	if once += uint64(part); once == 0 {
		return 1 << 63
	}
	return once
}

// ended adds the outcome of a call for some keys of the charge, one bit each.
func (s *refunds) ended(part Outcome, keys uint16) {
	s.mu.Lock()
	s.out.Unanswered |= spread(part.Unanswered, keys)
	s.out.Maybe |= spread(part.Maybe, keys)
	s.open--
	last, out := s.open == 0, s.out
	s.mu.Unlock()
	if last {
		s.done(out)
	}
}

// spread returns the bits of a part as bits of the whole: its bit n is the n-th of keys.
func spread(bits uint32, keys uint16) (out uint32) {
	for i := range limiter.MaxKeys {
		if keys>>i&1 != 0 {
			out |= bits & 1 << i
			bits >>= 1
		}
	}
	return out
}

// partReceipt adds the receipt of a part that an owner decided, without the charges that
// undo names. first has the index of each key's first limit in the whole decision, in
// which charged has one bit for each limit.
func partReceipt(parts arith.ReceiptParts, charged uint64, r *portion, undo uint64,
	first []int) (arith.ReceiptParts, uint64) {
	of := r.answer.Receipt
	f := arith.Fields(&of)
	if f.Charged &^= undo; r.call.result.by == 0 || f.Charged == 0 {
		return parts, charged
	}
	p := arith.ReceiptPart{Epoch: f.Epoch, Time: f.Time, Charged: f.Charged, Set: f.Set}
	for _, i := range r.keys {
		p.Keys |= 1 << i
	}
	at := make([]int, len(r.keys)) // limits of each key seen so far
	for k := range r.answer.Len() {
		l := r.answer.Limit(k)
		if i := first[r.keys[l.Key]] + at[l.Key]; f.Has(k) && i < 64 {
			charged |= 1 << i
		}
		at[l.Key]++
	}
	return append(parts, p), charged
}
