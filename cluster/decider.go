package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// decider decides what callers of this node ask. It is safe for concurrent use.
type decider struct {
	member *member
	checks atomic.Uint64 // those that were decided
	rooms  sync.Pool     // *batchRoom, for batches

	// closing is read-locked during each call to the core, so that none is under way
	// when the core stops.
	closing sync.RWMutex
	closed  bool
}

// close makes further calls fail. It returns when none is under way.
func (x *decider) close() {
	x.closing.Lock()
	defer x.closing.Unlock()
	x.closed = true
}

// enter begins a call to the core. Unless it returns an error, the caller must call
// closing.RUnlock.
func (x *decider) enter() error {
	x.closing.RLock()
	switch {
	case x.closed:
		x.closing.RUnlock()
		return weir.ErrClosed
	case x.member.announcer.joining.Load():
		x.closing.RUnlock()
		return fmt.Errorf("%w: ask another one until it is ready", weir.ErrJoining)
	}
	return nil
}

// Check implements [engine.Decider]: it waits until the owner, the heir or a policy has
// decided.
func (x *decider) Check(ctx context.Context, set *rules.Set, r *limiter.Request, d *limiter.Decision, peek bool) error {
	if err := x.enter(); err != nil {
		return x.member.Refused(err)
	}
	defer x.closing.RUnlock()
	c := new(arith.Charge)
	match, err := set.Resolve(r, c)
	if err != nil {
		return x.member.Refused(err)
	}
	if err := x.lendable(r); err != nil {
		return x.member.Refused(err)
	}
	c.Peek = peek
	if err := engine.Unheld(match, c); err != nil {
		return x.member.Refused(err)
	}
	if x.member.config.Tracer != nil {
		c.Trace = x.member.config.Tracer.Parent(ctx)
	}
	if err := x.member.core.CheckWithin(ctx, c, d, patience(ctx)); err != nil {
		return x.member.Refused(notAwaited(err, "the check may have been counted"))
	}
	if err := engine.Spent(d); err != nil {
		d.Clear()
		return x.member.Refused(err)
	}
	x.checks.Add(1)
	x.decided(set, r, c, match, d, nil)
	return nil
}

// patience returns how long checks of a context wait for other members; 0 means the deadline.
func patience(ctx context.Context) limiter.Tick {
	return limiter.Tick(engine.Patience(ctx) / limiter.TickDuration)
}

// decided completes a decision. It also sends the names of keys that entered a list of
// top keys.
func (x *decider) decided(set *rules.Set, r *limiter.Request, c *arith.Charge, match rules.Match, d *limiter.Decision,
	alike *engine.Tally) {
	if c.Unnamed != 0 && !strings.HasPrefix(r.Tenant, arith.OwnTenants) {
		var buf [limiter.MaxKeyBytes]byte
		for i := range c.Len() {
			if c.Unnamed&(1<<i) != 0 {
				x.member.core.SetName(c.Key(i), set.AppendKeyName(buf[:0], r, c.Key(i), nil))
			}
		}
	}
	if c.ID != nil && c.ID.Hold != 0 {
		d.Receipt = limiter.Receipt{} // a reservation is cancelled, which is done once
	}
	x.member.Decided(set, r, match, d, alike)
}

// Amend implements [engine.Decider].
func (x *decider) Amend(ctx context.Context, q *engine.Question, a limiter.Amend) (limiter.Amended, error) {
	if err := x.enter(); err != nil {
		return limiter.Amended{}, err
	}
	defer x.closing.RUnlock()
	if err := x.lendable(q.Request); err != nil {
		return limiter.Amended{}, err
	}
	done := make(chan route.Outcome, 1)
	x.member.core.Amend(&q.Charge, a, func(o route.Outcome) { done <- o })
	what := "settlement"
	if a.Extend {
		what = "extension"
	}
	select {
	case o := <-done: // the deadline bounds it
		if err := x.unanswered(q, o, what, "ask again, which does no harm"); err != nil {
			return limiter.Amended{}, err
		}
		return *o.Amended, nil
	case <-ctx.Done():
		return limiter.Amended{}, notAwaited(ctx.Err(), "the "+what+
			" may have been made, of all keys or some; ask again, which does no harm")
	}
}

// CheckBatch implements [engine.Decider]. Checks for one owner share frames.
func (x *decider) CheckBatch(ctx context.Context, set *rules.Set, rs []limiter.Request, ds []limiter.Decision,
	peeks engine.Peeks) (all engine.Undecided, _ error) {
	if err := x.enter(); err != nil {
		return all, x.member.Refused(err)
	}
	defer x.closing.RUnlock()
	var bad engine.Undecided
	room := x.room(len(rs))
	defer x.rooms.Put(room)
	charges, matches := room.charges, room.matches
	for i := range rs {
		var err error
		charges[i].Lend(&room.ids[i]) // a copy is made of those that are not decided at once
		if matches[i], err = set.Resolve(&rs[i], &charges[i]); err == nil {
			err = x.lendable(&rs[i])
		}
		charges[i].Peek = peeks.Has(i)
		if err == nil {
			err = engine.Unheld(matches[i], &charges[i])
		}
		if err != nil {
			bad.Add(i, &ds[i], x.member.Refused(err))
			charges[i].Clear() // an empty charge asks nothing
		}
	}
	if x.member.config.Tracer != nil && len(charges) > 0 {
		charges[0].Trace = x.member.config.Tracer.Parent(ctx)
	}
	undecided := x.member.core.CheckMany(ctx, charges, ds, patience(ctx))
	x.checks.Add(uint64(len(rs) - len(bad.Index) - len(undecided)))
	var alike engine.Tally
	defer alike.Tell(x.member.Observer.Checked)
	for i := range rs {
		switch {
		case len(bad.Index) > 0 && bad.Index[0] == i:
			all.Add(i, &ds[i], bad.Errs[0])
			bad.Index, bad.Errs = bad.Index[1:], bad.Errs[1:]
		case len(undecided) > 0 && undecided[0] == i:
			all.Add(i, &ds[i], x.member.Refused(notAwaited(ctx.Err(), "the check may have been counted")))
			undecided = undecided[1:]
		case engine.Spent(&ds[i]) != nil:
			all.Add(i, &ds[i], x.member.Refused(engine.Spent(&ds[i])))
		default:
			x.decided(set, &rs[i], &charges[i], matches[i], &ds[i], &alike)
		}
	}
	return all, nil
}

type batchRoom struct {
	charges []arith.Charge
	ids     []arith.Idempotency
	matches []rules.Match
}

// room returns memory for a batch of n checks, which the caller gives back to the pool. What was there before is
// overwritten by [rules.Set.Resolve].
func (x *decider) room(n int) *batchRoom {
	const most = 1 << 12
	room, _ := x.rooms.Get().(*batchRoom)
	if room == nil || max(n, cap(room.charges)) > most {
		room = new(batchRoom)
	}
	room.charges = slices.Grow(room.charges[:0], n)[:n]
	room.ids = slices.Grow(room.ids[:0], n)[:n]
	room.matches = slices.Grow(room.matches[:0], n)[:n]
	return room
}

// notAwaited returns the error for a context that ended before the answer arrived.
func notAwaited(err error, unknown string) error {
	return fmt.Errorf("weir: the context ended before the answer arrived, and %s: %w", unknown, err)
}

// Refund implements [engine.Decider].
func (x *decider) Refund(ctx context.Context, q *engine.Question, r limiter.Receipt) error {
	if err := x.enter(); err != nil {
		return err
	}
	defer x.closing.RUnlock()
	done := make(chan route.Outcome, 1)
	x.member.core.Refund(&q.Charge, r, func(o route.Outcome) { done <- o })
	select {
	case o := <-done: // the deadline bounds it
		return x.unanswered(q, o, "refund",
			"asked again, others' charges might be taken back; left alone, at most a little too much is denied")
	case <-ctx.Done():
		return notAwaited(ctx.Err(), "the refund may have been made")
	}
}

// Reset implements [engine.Decider].
func (x *decider) Reset(ctx context.Context, q *engine.Question) (int, error) {
	if err := x.enter(); err != nil {
		return 0, err
	}
	defer x.closing.RUnlock()
	done := make(chan route.Outcome, 1)
	x.member.core.Reset(&q.Charge, func(o route.Outcome) { done <- o })
	select {
	case o := <-done: // the deadline bounds it
		return o.Counters, errors.Join(refusing(q, o), x.unanswered(q, o, "reset", "ask again, which does no harm"))
	case <-ctx.Done():
		return 0, notAwaited(ctx.Err(), "the keys may have been reset, all or some")
	}
}

// unanswered returns the error of a reset, refund or amendment if some holder of its keys did not
// answer, otherwise nil. It names those keys, and tells which of them may have been
// changed; then says what to do about those.
func (x *decider) unanswered(q *engine.Question, o route.Outcome, what, then string) error {
	if o.Unanswered == 0 {
		return nil
	}
	var not, maybe []string
	for i := range q.Charge.Len() {
		switch {
		case o.Maybe>>i&1 != 0:
			maybe = append(maybe, strconv.Quote(q.Name(i)))
		case o.Unanswered>>i&1 != 0:
			not = append(not, strconv.Quote(q.Name(i)))
		}
	}
	text := ""
	if len(maybe) > 0 {
		text = fmt.Sprintf("; the %s may have been done or not for %s: %s", what, strings.Join(maybe, ", "), then)
	}
	if len(not) > 0 {
		text += fmt.Sprintf("; there was no %s for %s: ask again", what, strings.Join(not, ", "))
	}
	if all := uint32(1)<<q.Charge.Len() - 1; o.Unanswered|o.Forbidden != all {
		text += "; for the other keys it is done"
	}
	return fmt.Errorf("weir: %w within %v%s", weir.ErrUnanswered, x.member.config.Deadline, text)
}

// refusing returns the error of a reset if some holder of its keys refuses resets of
// other members, otherwise nil. It names those keys.
func refusing(q *engine.Question, o route.Outcome) error {
	if o.Forbidden == 0 {
		return nil
	}
	var keys []string
	for i := range q.Charge.Len() {
		if o.Forbidden>>i&1 != 0 {
			keys = append(keys, strconv.Quote(q.Name(i)))
		}
	}
	text := ""
	if all := uint32(1)<<q.Charge.Len() - 1; o.Unanswered|o.Forbidden != all {
		text = "; for the other keys it is done"
	}
	return fmt.Errorf("weir: %w: %s is held by a member that takes no resets from other members: start all members with "+
		"--allow-reset (Cluster.RefuseResets)%s",
		weir.ErrForbidden, strings.Join(keys, ", "), text)
}

// RulesSet implements [engine.Decider]: it tells the others which rules are in force
// here.
func (x *decider) RulesSet(hash uint64) {
	x.member.membership.SetRules(hash)
	x.member.census.compare()
}

// Ready implements [engine.Decider].
func (x *decider) Ready() error { return x.member.membership.Ready() }

// Close implements [engine.Decider].
func (x *decider) Close() error { return x.member.end(false) }
