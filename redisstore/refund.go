package redisstore

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Refund takes back the charge that a receipt names, as [table.Table.Refund] does,
// where it was made: in Redis, or by a policy in this process. An error states that
// Redis did not answer, so the refund may be lost. A lost refund denies slightly too
// much and never admits more.
func (s *Store) Refund(ctx context.Context, now arith.Instant, c *arith.Charge, r limiter.Receipt,
	name arith.KeyNamer) error {
	f := arith.Fields(&r)
	if s.closed.Load() {
		return ErrClosed
	}
	if f.Parts != nil || !c.Fits(r) { // with parts it is one of a cluster
		return nil
	}
	w := s.clock.when(now, 1)
	if f.Epoch != 0 {
		s.fallback.refund(now.Or(s.clock.now), c, r)
	}
	var calls []*call
	first := 0
	byPolicy, credit := f.Epoch, f.IsCredit()
	f.Charged &^= byPolicy
	for n := range c.Len() {
		var id *forgotten
		if all := limitsOf(c, n, first); c.ID != nil && !credit && byPolicy&all == 0 {
			id = &forgotten{bits: f.Charged & all >> first, after: -1}
		}
		if made := s.calls.refund(w, r, f.Has, c, id, 0, n, first, name); made != nil {
			calls = append(calls, made)
		}
		first += len(c.Key(n).Rule.Limits)
	}
	_, err := s.finish(ctx, calls, "the refund may be lost")
	return err
}

// Reset deletes the counters for the keys of a charge, in Redis and in this process,
// and returns how many there were. Earlier receipts become void. An error states that
// Redis did not answer.
func (s *Store) Reset(ctx context.Context, now arith.Instant, c *arith.Charge, name arith.KeyNamer) (int, error) {
	if s.closed.Load() {
		return 0, ErrClosed
	}
	count, w := s.fallback.reset(now.Or(s.clock.now), c), s.clock.when(now, 1)
	var calls []*call
	for n := range c.Len() {
		calls = append(calls, s.calls.reset(w, c, n, name))
	}
	calls, err := s.finish(ctx, calls, "the counters may be as they were")
	for _, made := range calls {
		if made.err == nil && len(made.reply) == 2 {
			count += int(made.reply[1])
		}
	}
	return count, err
}

// finish makes calls and returns them, with the first error of any.
func (s *Store) finish(ctx context.Context, calls []*call, otherwise string) ([]*call, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	calls, err := s.ask(ctx, s.config.deadline(), calls)
	if err != nil {
		return nil, err
	}
	for _, made := range calls {
		if made.err != nil {
			return calls, fmt.Errorf("%s: redis: %w", otherwise, made.err)
		}
	}
	return calls, nil
}
