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
	var keys []int
	for p := range parts {
		if parts[p].call.err != nil {
			for n := parts[p].first; n < parts[p].last; n++ {
				keys = append(keys, n)
			}
			s.countPolicy(ctx, &parts[p])
		}
	}
	var byPolicy verdict
	if len(keys) > 0 {
		byPolicy = s.fallback.decide(w.now, c, keys, d)
	}
	limiter.Settle(d, c.Peek)
	charged := d.Receipt
	var keep uint64
	for j := range min(d.Len(), 64) {
		if charge, _ := limiter.ToCharge(d, j); charge {
			keep |= 1 << j
		}
	}
	cancel := charged.Charged &^ keep
	d.Receipt.Charged &= keep
	s.fallback.cancel(w.now, &byPolicy, cancel, d)
	if !d.Allowed || cancel != 0 {
		// In sequence: a refund whose script has to be loaded first would run after the
		// calls that were sent behind it.
		refunds, asks := s.cancellations(w, c, i, parts, cancel, charged.Time, name)
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

// countPolicy counts a part that a policy decides.
func (s *Store) countPolicy(ctx context.Context, p *part) {
	if s.single != nil {
		s.single.health.policy()
		return
	}
	if s.routing.down() {
		s.routing.policy()
		return
	}
	if l, err := s.lane(ctx, p.call.route); err == nil {
		l.health.policy()
	}
}

// cancellations returns the calls that cancel reservations, and those that ask what
// remains in every part that Redis decided.
func (s *Store) cancellations(w when, c *limiter.Charge, i int, parts []part, cancel uint64, at limiter.Tick, name limiter.KeyNamer) (refunds, asks []*call) {
	for p := range parts {
		part := &parts[p]
		if part.call.err != nil {
			continue
		}
		first := part.offset
		for n := part.first; n < part.last; n++ {
			if r := s.refund(w, at, cancel, c, i, n, first, name); r != nil {
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
