package redisstore

import (
	"context"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// concludeParts makes a decision of several parts, some of which policies may
// have to decide. Each part has charged what it admitted: that was a reservation,
// and counts for everyone. Where the parts together come to something else it is
// cancelled. A cancellation that is lost leaves its own charge behind, nothing
// else. One that comes late is still made, but not waited for.
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
	d.Settle(c.Peek)
	charged := d.Receipt
	var keep uint64
	for j := range min(d.Len(), 64) {
		if charge, _ := d.Charges(j); charge {
			keep |= 1 << j
		}
	}
	cancel := charged.Charged &^ keep
	d.Receipt.Charged &= keep
	s.fallback.cancel(w.now, &byPolicy, cancel, d)
	if !d.Allowed || cancel != 0 {
		// One after the other: a refund that finds no script comes after what was
		// asked behind it.
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
	d.Conclude()
	return nil
}

// countPolicy notes that a part is decided by policy.
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

// cancellations makes the calls that take back reservations, and those that ask
// what is left in every part that was decided in Redis.
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
			continue // not reached: the script was there before
		}
		ask.part = p + 1
		asks = append(asks, ask)
	}
	return refunds, asks
}

// afterwards takes over what is left after cancellations. Whether a limit had
// admitted the check, and which were charged, stays.
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
		now.Grow(d.Len())
		s.fill(c, &part, &now)
		for j := part.offset; j < part.offset+part.size; j++ {
			out, left := d.Limit(j), now.Limit(j)
			out.Remaining, out.ResetAfter, out.Blocked = left.Remaining, left.ResetAfter, left.Blocked
			out.RetryAfter = max(out.RetryAfter, left.RetryAfter)
		}
	}
}
