package redisstore

import (
	"context"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// undo cancels the reservations of a round that its decisions do not charge. All that are
// cancelled are one list of calls, so a round waits for them once.
type undo struct {
	refunds, asks []*call // asks: what remains after the refunds
	undone        []undone
}

// undone is a charge of which parts are cancelled.
type undone struct {
	charge      int
	parts       []part
	ids         *memory
	first, last int // its asks
}

// concludeParts combines the parts of charge i into its decision. Policies decide the
// parts that failed. Each part has charged what it admitted, as a reservation that counts
// for everyone. If the combined decision does not charge it, u cancels the reservation. A
// lost cancellation leaves only its own charge behind.
func (b *batch) concludeParts(i int, parts []part, ids *memory, u *undo) {
	s, c, d, w := b.store, b.charges[i], b.decisions[i], parts[0].when
	if w.now == serverClock {
		w.now = s.clock.now()
	}
	charged := make([]bool, d.Len()) // of each limit; the receipt knows of the first 64 only
	keys := policyKeys(c, parts, charged)
	byPolicy := make([]verdict, len(keys))
	for v := range byPolicy {
		byPolicy[v] = s.fallback.decide(w.now, c, keys[v], d, charged)
	}
	for p := range parts {
		if parts[p].call.err != nil {
			s.countPolicy(parts[p].call)
		}
	}
	ids.settle(c, d)
	cancel := charged
	for j := range cancel {
		if keep, _ := arith.ToCharge(d, j); keep || !cancel[j] {
			cancel[j] = false
			continue
		}
		if j < 64 {
			arith.Fields(&d.Receipt).Charged &^= 1 << j
		}
	}
	of := arith.Fields(&d.Receipt)
	of.Epoch &= of.Charged
	for v := range byPolicy {
		s.fallback.cancel(w.now, &byPolicy[v], cancel)
	}
	if !b.undo(u, w, i, parts, ids, cancel) {
		ids.conclude(c, d)
	}
}

// undo adds to u the calls that cancel reservations of charge i, and those that ask what
// remains then in every part that Redis decided. It reports whether there are any.
func (b *batch) undo(u *undo, w when, i int, parts []part, ids *memory, cancel []bool) bool {
	s, c, refunds, first, allowed := b.store, b.charges[i], len(u.refunds), len(u.asks), b.decisions[i].Allowed
	for p := range parts {
		part := &parts[p]
		if part.call.err != nil {
			continue
		}
		first := part.offset
		for n := part.first; n < part.last; n++ {
			if r := s.calls.refund(w, arith.NewReceipt(arith.ReceiptFields{Time: w.now}), func(j int) bool {
				return cancel[j]
			}, c, ids.undo(part, n, first, len(c.Key(n).Rule.Limits), cancel, allowed), i, n, first, b.name); r != nil {
				r.kind = kindCancel
				u.refunds = append(u.refunds, r)
			}
			first += len(c.Key(n).Rule.Limits)
		}
	}
	if len(u.refunds) == refunds {
		return false
	}
	for p := range parts {
		part := &parts[p]
		if part.call.err != nil {
			continue
		}
		ask, err := s.calls.decision(w, modePeek, c, nil, i, part.first, part.last, b.name)
		if err != nil {
			continue // not reached: the script has been used before
		}
		ask.kind, ask.part = kindRemains, p+1
		u.asks = append(u.asks, ask)
	}
	u.undone = append(u.undone, undone{i, parts, ids, first, len(u.asks)})
	return true
}

// cancel makes the calls of u, and concludes its charges. The calls that ask what remains
// follow when the refunds are answered: a refund whose script has to be loaded first would
// run after the calls that were sent behind it. When the time of the batch is used up, the
// refunds are still made, but not waited for, and nothing is asked.
func (b *batch) cancel(ctx context.Context, u *undo) error {
	if len(u.undone) == 0 {
		return nil
	}
	if _, err := b.store.ask(ctx, b.until, u.refunds); err != nil {
		return err
	}
	asked := !b.late()
	if asked {
		var err error
		if u.asks, err = b.store.ask(ctx, b.until, u.asks); err != nil {
			return err
		}
	}
	for _, n := range u.undone {
		d := b.decisions[n.charge]
		if asked {
			n.afterwards(b.charges[n.charge], u.asks[n.first:n.last], d)
		}
		n.ids.conclude(b.charges[n.charge], d)
	}
	return nil
}

// policyKeys notes which limits Redis has charged, and returns the keys that policies
// decide: all of them as one verdict, or, if Redis decides others, in verdicts of so few
// limits that a receipt can take back each.
func policyKeys(c *arith.Charge, parts []part, charged []bool) (verdicts [][]int) {
	failed, limits := 0, 0
	for p := range parts {
		part := &parts[p]
		if part.call.err != nil {
			failed++
			continue
		}
		for j := range part.size {
			charged[part.offset+j] = part.call.reply[1+perLimit*j]&flagCharged != 0
		}
	}
	for p := range parts {
		if parts[p].call.err == nil {
			continue
		}
		for n := parts[p].first; n < parts[p].last; n++ {
			size := len(c.Key(n).Rule.Limits)
			if limits += size; verdicts == nil || failed < len(parts) && limits > 64 {
				verdicts, limits = append(verdicts, nil), size
			}
			last := &verdicts[len(verdicts)-1]
			*last = append(*last, n)
		}
	}
	return verdicts
}

// countPolicy counts a call whose part a policy decides.
func (s *Store) countPolicy(c *call) {
	switch {
	case c.lane != nil:
		c.lane.health.policy()
	case s.single != nil:
		s.single.health.policy()
	default:
		s.routing.policy()
	}
}

// afterwards takes over what remains after the cancellations. Whether each limit
// admitted the check, and which limits were charged, stays unchanged.
func (n *undone) afterwards(c *arith.Charge, asks []*call, d *limiter.Decision) {
	for _, ask := range asks {
		if ask.err != nil {
			continue
		}
		part := n.parts[ask.part-1]
		if part.call = ask; len(ask.reply) != 1+perLimit*part.size {
			continue
		}
		var now limiter.Decision
		now.Grow(d.Len())
		part.fill(c, &now)
		for j := part.offset; j < part.offset+part.size; j++ {
			out, left := d.Limit(j), now.Limit(j)
			out.Remaining, out.ResetAfter, out.Blocked = left.Remaining, left.ResetAfter, left.Blocked
			out.RetryAfter = max(out.RetryAfter, left.RetryAfter)
		}
	}
}
