package weir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/waiting"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// Check decides a request and charges it if it is allowed. A denial is a decision, not
// an error. [Node.CheckInto] does the same without allocating the decision.
//
// An error means that nothing was decided and nothing counted. It wraps [ErrInvalid]
// for a request that cannot be decided, is [ErrClosed], or is the context's error.
// There is one exception: if the context ends while another member or the backend is
// being asked, the check may have been counted. The error then wraps the context's and
// says so.
func (n *Node) Check(ctx context.Context, r Request) (Decision, error) {
	var d Decision
	if err := n.check(ctx, &r, &d, false); err != nil {
		return Decision{}, err
	}
	return d, nil
}

// Peek returns what Check would answer, and charges nothing. Its errors are those of
// Check.
func (n *Node) Peek(ctx context.Context, r Request) (Decision, error) {
	var d Decision
	if err := n.check(ctx, &r, &d, true); err != nil {
		return Decision{}, err
	}
	return d, nil
}

// Allow checks a key against limits that need no rules file: it charges one unit if all
// of the limits admit it. Make the limits once, with [NewLimit]. The limits of one call
// need different names; equal keys with limits of equal names share counters.
//
// Allow(ctx, key, limits...) is Check of the request {Path: key, Limits: limits}; check
// that request for another cost, to refund or to reset it. The errors are those of
// Check. Without limits the error wraps [ErrInvalid].
func (n *Node) Allow(ctx context.Context, key string, limits ...*Limit) (Decision, error) {
	if len(limits) == 0 {
		return Decision{}, fmt.Errorf("%w: Allow of key %.100q has no limits: give at least one", ErrInvalid, key)
	}
	return n.Check(ctx, Request{Path: key, Limits: limits})
}

// Wait checks a request until it is allowed. After a denial it waits for as long as the
// decision says, and up to a tenth longer (at most a minute), so that not all callers check
// at the same instant. After a denial without a time it waits for 10 ms, and twice as long after each
// further one in a row, up to a second. Waits pass in real time, also with [Config.Now].
//
// Wait gives up at once, with an error that wraps [ErrWait], if the cost is above what the
// rule ever admits, or if the context's deadline is earlier than the check could be
// allowed; the error wraps [context.DeadlineExceeded] in the second case. If the context
// ends while Wait waits, the error is the context's. Other errors are those of Check. The
// decision is the last one, so after an error of the first two kinds it says why.
//
// Nobody keeps a place in a queue: of several that wait for one unit, any may get it, and
// the others go on waiting. With count_rejected each denial counts.
func (n *Node) Wait(ctx context.Context, r Request) (Decision, error) {
	var d Decision
	err := waiting.Until(ctx, &d, func() error { return n.check(ctx, &r, &d, false) }, waiting.Sleep, rand.Float64)
	return d, err
}

// CheckInto is Check with the memory of the caller: it reads r and overwrites d. The
// node keeps neither. If d is used again, a check of up to four limits allocates
// nothing, unless the request brings its own limits. After an error d is a denial without a
// reason.
func (n *Node) CheckInto(ctx context.Context, r *Request, d *Decision) error {
	return n.check(ctx, r, d, false)
}

// PeekInto is Peek with the memory of the caller, as CheckInto.
func (n *Node) PeekInto(ctx context.Context, r *Request, d *Decision) error {
	return n.check(ctx, r, d, true)
}

func (n *Node) check(ctx context.Context, r *Request, d *Decision, peek bool) error {
	if err := n.usable(ctx); err != nil {
		d.Refuse()
		return err
	}
	return n.checkBy(ctx, n.node.Rules.Load(), r, d, peek)
}

// checkBy decides a request by a set of rules, and by its alternatives if the first ones deny. If all deny, the
// decision is that of the alternative that has room first.
func (n *Node) checkBy(ctx context.Context, set *rules.Set, r *Request, d *Decision, peek bool) error {
	if err := n.decider.Check(ctx, set, r, d, peek); err != nil {
		d.Refuse()
		return err
	}
	for next, _ := set.Next(r, d); next != nil; {
		at, other := next, new(Decision)
		var beside time.Duration
		if err := n.decider.Check(ctx, at, r, other, peek); err != nil {
			d.Refuse()
			return err
		}
		next, beside = at.Next(r, other)
		if sooner(other, d) {
			set, *d = at, *other
		} else if !d.Never {
			d.RetryAfter = max(d.RetryAfter, beside)
		}
	}
	if arith.Fields(&d.Receipt).Charged != 0 {
		set.Mark(&d.Receipt)
	}
	if set.Doubled() {
		arith.Fold(d)
	}
	return nil
}

// sooner reports whether a decision of an alternative is better than those before it, which are denials.
func sooner(d, than *Decision) bool {
	return d.Allowed || !d.Never && (than.Never || d.RetryAfter < than.RetryAfter)
}

// CheckBatch decides requests one after the other, all at the same instant. The
// decisions are in the order of the requests. Requests that go on to the next quota of "any" are
// decided after the others. A request that cannot be decided gets a
// denied decision without a reason, and its error is in the [*BatchError] that is
// returned. The other requests are decided all the same. If the context ends while
// another member or the backend is being asked, the context's error is among those, as
// for Check. Any other error means that no request was decided.
func (n *Node) CheckBatch(ctx context.Context, rs []Request) ([]Decision, error) {
	ds := make([]Decision, len(rs))
	err := n.CheckBatchInto(ctx, rs, ds)
	if _, some := errors.AsType[*BatchError](err); err != nil && !some {
		return nil, err
	}
	return ds, err
}

// CheckBatchInto is CheckBatch with the memory of the caller: it overwrites the
// decision with the index of each request. There must be as many decisions as requests,
// else the error wraps [ErrInvalid] and nothing was decided. After any error but a
// [*BatchError] all decisions are denials without a reason.
func (n *Node) CheckBatchInto(ctx context.Context, rs []Request, ds []Decision) error {
	return n.checkBatch(ctx, rs, ds, engine.Peeks{})
}

// PeekBatchInto is CheckBatchInto for a batch with peeks: request i is only peeked, as by
// Peek, if peeks[i] is true. If peeks is nil, all requests are. Otherwise there must be as
// many as requests, else the error wraps [ErrInvalid] and nothing was decided.
func (n *Node) PeekBatchInto(ctx context.Context, rs []Request, ds []Decision, peeks []bool) error {
	if peeks != nil && len(peeks) != len(rs) {
		refuseAll(ds)
		return fmt.Errorf("%w: a batch of %d requests has %d elements in peeks: give one for each request, or nil if all "+
			"are peeks", ErrInvalid, len(rs), len(peeks))
	}
	return n.checkBatch(ctx, rs, ds, engine.Peeks{All: peeks == nil, Each: peeks})
}

func (n *Node) checkBatch(ctx context.Context, rs []Request, ds []Decision, peeks engine.Peeks) error {
	err := n.usable(ctx)
	if err == nil && len(rs) != len(ds) {
		err = fmt.Errorf("%w: a batch of %d requests needs as many decisions, not %d", ErrInvalid, len(rs), len(ds))
	}
	if err != nil {
		refuseAll(ds)
		return err
	}
	set := n.node.Rules.Load()
	bad, err := n.decider.CheckBatch(ctx, set, rs, ds, peeks)
	if err != nil {
		refuseAll(ds)
		return err
	}
	n.goOn(ctx, set, rs, ds, peeks, &bad)
	if set.Doubled() {
		for i := range ds {
			arith.Fold(&ds[i])
		}
	}
	if len(bad.Errs) > 0 {
		return &BatchError{Index: bad.Index, Errs: bad.Errs}
	}
	return nil
}

// goOn decides by the next alternatives what a set has denied, all requests for one alternative together. So a batch
// costs one more question for each alternative, not one for each request, and what goes on comes after the others.
func (n *Node) goOn(ctx context.Context, set *rules.Set, rs []Request, ds []Decision, peeks engine.Peeks,
	bad *engine.Undecided) {
	var left []int
	next := set
	for i := range rs {
		if to, _ := set.Next(&rs[i], &ds[i]); to != nil {
			left, next = append(left, i), to
		}
	}
	var failed map[int]error
	for at := next; len(left) > 0; at = next {
		asked, others := make([]Request, len(left)), make([]Decision, len(left))
		part := engine.Peeks{Each: make([]bool, len(left))}
		for k, i := range left {
			asked[k], part.Each[k] = rs[i], peeks.Has(i)
		}
		wrong, err := n.decider.CheckBatch(ctx, at, asked, others, part)
		if err != nil {
			wrong = engine.Undecided{}
			for k := range left {
				wrong.Add(k, &others[k], err)
			}
		}
		for j, k := range wrong.Index {
			if failed == nil {
				failed = make(map[int]error)
			}
			failed[left[k]] = wrong.Errs[j]
			ds[left[k]].Refuse()
		}
		still := left[:0]
		for k, i := range left {
			if failed[i] != nil {
				continue
			}
			to, beside := at.Next(&asked[k], &others[k])
			if to != nil {
				still, next = append(still, i), to
			}
			if sooner(&others[k], &ds[i]) {
				if ds[i] = others[k]; arith.Fields(&ds[i].Receipt).Charged != 0 {
					at.Mark(&ds[i].Receipt)
				}
			} else if !ds[i].Never {
				ds[i].RetryAfter = max(ds[i].RetryAfter, beside)
			}
		}
		left = still
	}
	if failed == nil {
		return
	}
	for j, i := range bad.Index {
		failed[i] = bad.Errs[j]
	}
	*bad = engine.Undecided{}
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		bad.Add(i, &ds[i], failed[i])
	}
}

// refuseAll leaves no answer to an earlier request in decisions that are used again.
func refuseAll(ds []Decision) {
	for i := range ds {
		ds[i].Refuse()
	}
}

// Reset deletes the counters of the keys of a request, with their blocks, and returns
// how many there were. Resetting again does no harm. The id and the hold of the request do
// not matter.
//
// In a cluster, if no member that holds some of the keys answers within the cluster's
// deadline, the error wraps [ErrUnanswered], names those keys and states whether they
// may have been reset; the count is of the other keys. If the context ends first,
// the error wraps the context's. If a member that holds some of the keys accepts no
// resets from other members, the error wraps [ErrForbidden] and names those keys.
func (n *Node) Reset(ctx context.Context, r Request) (int, error) {
	if err := n.usable(ctx); err != nil {
		return 0, err
	}
	r.ID, r.IDTTL, r.Hold = "", 0, 0
	set := n.node.Rules.Load()
	var sets []*rules.Set
	for i, by := range append([]*rules.Set{set}, set.Charged(&r)...) { // and what was charged before operators decided
		if i > 0 && by == set {
			continue
		}
		if others := by.Alternatives(&r); others != nil {
			sets = append(sets, others...)
		} else {
			sets = append(sets, by)
		}
	}
	var qs []*engine.Question
	var failed error
	for _, at := range sets { // all before the first is reset
		q := &engine.Question{Set: at, Request: &r}
		if _, err := at.Resolve(&r, &q.Charge); err != nil {
			failed = err
			continue
		}
		qs = append(qs, q)
	}
	if len(qs) == 0 {
		return 0, failed
	}
	count := 0
	for _, q := range qs {
		more, err := n.decider.Reset(ctx, q) // what all have in common is reset by the first
		if count += more; err != nil {
			return count, err
		}
	}
	return count, nil
}

func (n *Node) resolve(ctx context.Context, r *Request) (*engine.Question, error) {
	if err := n.usable(ctx); err != nil {
		return nil, err
	}
	return resolveBy(n.node.Rules.Load(), r)
}

func resolveBy(set *rules.Set, r *Request) (*engine.Question, error) {
	q := &engine.Question{Set: set, Request: r}
	_, err := set.Resolve(r, &q.Charge)
	return q, err
}
