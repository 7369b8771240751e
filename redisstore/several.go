package redisstore

import (
	"context"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// concludeParts combines the parts of a charge into its decision. Policies decide the
// parts that failed. Each part has charged what it admitted, as a reservation that
// counts for everyone. If the combined decision does not charge it, the reservation is
// cancelled. A lost cancellation leaves only its own charge behind. A late one is still
// made, but not waited for.
func (s *Store) concludeParts(ctx context.Context, until time.Time, w when, c *limiter.Charge, i int, parts []part, d *limiter.Decision, name limiter.KeyNamer) error {
	if w.now == serverClock {
		w.now = s.clock()
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
	limiter.Settle(d, c.Peek)
	cancel, some := charged, false
	for j := range cancel {
		if keep, _ := limiter.ToCharge(d, j); keep || !cancel[j] {
			cancel[j] = false
			continue
		}
		if some = true; j < 64 {
			d.Receipt.Charged &^= 1 << j
		}
	}
	d.Receipt.Epoch &= d.Receipt.Charged
	for v := range byPolicy {
		s.fallback.cancel(w.now, &byPolicy[v], cancel)
	}
	if !d.Allowed || some {
		// In sequence: a refund whose script has to be loaded first would run after the
		// calls that were sent behind it.
		refunds, asks := s.cancellations(w, c, i, parts, cancel, name)
		if len(refunds) > 0 {
			if _, err := s.ask(ctx, until, refunds); err != nil {
				return err
			}
		}
		if len(asks) > 0 {
			var err error
			if asks, err = s.ask(ctx, until, asks); err != nil {
				return err
			}
			s.afterwards(c, parts, asks, d)
		}
	}
	limiter.Conclude(d)
	return nil
}

// policyKeys notes which limits Redis has charged, and returns the keys that policies
// decide: all of them as one verdict, or, if Redis decides others, in verdicts of so few
// limits that a receipt can take back each.
func policyKeys(c *limiter.Charge, parts []part, charged []bool) (verdicts [][]int) {
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

// cancellations returns the calls that cancel reservations, and those that ask what
// remains in every part that Redis decided. All parts were decided at one instant.
func (s *Store) cancellations(w when, c *limiter.Charge, i int, parts []part, cancel []bool, name limiter.KeyNamer) (refunds, asks []*call) {
	for p := range parts {
		part := &parts[p]
		if part.call.err != nil {
			continue
		}
		first := part.offset
		for n := part.first; n < part.last; n++ {
			if r := s.refund(w, w.now, func(j int) bool { return cancel[j] }, c, i, n, first, name); r != nil {
				refunds = append(refunds, r)
			}
			first += len(c.Key(n).Rule.Limits)
		}
		ask, err := s.decision(w, modePeek, c, i, part.first, part.last, name)
		if err != nil {
			continue // not reached: the script has been used before
		}
		ask.part = p + 1
		asks = append(asks, ask)
	}
	return refunds, asks
}

// afterwards takes over what remains after the cancellations. Whether each limit
// admitted the check, and which limits were charged, stays unchanged.
func (s *Store) afterwards(c *limiter.Charge, parts []part, asks []*call, d *limiter.Decision) {
	for _, ask := range asks {
		if ask.err != nil {
			continue
		}
		part := parts[ask.part-1]
		if part.call = ask; len(ask.reply) != 1+perLimit*part.size {
			continue
		}
		var now limiter.Decision
		limiter.Grow(&now, d.Len())
		s.fill(c, &part, &now)
		for j := part.offset; j < part.offset+part.size; j++ {
			out, left := d.Limit(j), now.Limit(j)
			out.Remaining, out.ResetAfter, out.Blocked = left.Remaining, left.ResetAfter, left.Blocked
			out.RetryAfter = max(out.RetryAfter, left.RetryAfter)
		}
	}
}
