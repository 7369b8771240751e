package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// Backend keeps counters in place of a node's own table. Its methods are called from
// many goroutines. Costs and limits go to [limiter.MaxUnits]. If no instant is given, the
// backend uses a clock of its own. name returns the name of key k of charge i; for a refund,
// a reset and an explanation i is 0.
type Backend interface {
	// Decide decides charges one after the other, each as [table.Table.Decide] does,
	// and overwrites the decision with the same index. A charge with an ID is made once, as
	// there. If its ID is that of a hold that is over, its limits on concurrency deny it for
	// good. Decide returns an error if nothing was decided. A server that is down is not an
	// error: the rules define what to decide then.
	Decide(ctx context.Context, now arith.Instant, cs []*arith.Charge, ds []*Decision, name arith.KeyNamer) error
	// Refund takes back the charge that the receipt names, and forgets its ID, as
	// [table.Table.Refund] does. A receipt with a number (Once) must have an effect only
	// once, even if several nodes that share the backend ask, and none after
	// [limiter.ReceiptLife].
	Refund(ctx context.Context, now arith.Instant, c *arith.Charge, r Receipt, name arith.KeyNamer) error
	// Reset deletes the counters of a charge and returns how many there were.
	Reset(ctx context.Context, now arith.Instant, c *arith.Charge, name arith.KeyNamer) (int, error)
	// Explain returns what a check would find, without charging it: the instant, the
	// limits in their order, and what else the backend knows. The node adds the rest of the
	// explanation.
	Explain(ctx context.Context, now arith.Instant, c *arith.Charge, name arith.KeyNamer) (*Explanation, error)
	// Extras returns what else the backend does: BackendExtras{} if nothing. It may be called more
	// than once.
	Extras() BackendExtras
	// Close stops the backend.
	Close() error
}

// BackendExtras are what a [Backend] does beyond its methods. Each function may be nil: its comment
// says what a node does then.
type BackendExtras struct {
	// Amend settles or extends the hold of the charge's ID, which is not nil, as
	// [table.Table.Amend] does. After an error the hold may or may not have changed. A backend
	// with Amend has reservations: Decide holds a charge whose ID has a Hold. Nil: requests with a
	// Hold, settlements, and rules with limits on concurrency are refused.
	Amend func(ctx context.Context, now arith.Instant, c *arith.Charge, a limiter.Amend,
		name arith.KeyNamer) (Amended, error)
	// UseTable gives the backend the node's table to count in, such as for policies. [Open] calls it
	// before any method but Extras. So [Config] bounds these counters, and [Node.Stats],
	// [Node.Warnings] and the log report them. Nil: the table stays empty.
	UseTable func(t *table.Table)
	// Ready returns nil if the backend was usable once, otherwise why not: [Node.Ready] returns
	// it. It must not wait. Nil: the node is ready.
	Ready func() error
	// Warnings describes, for people, why the backend may decide otherwise than the rules say: see
	// [Node.Warnings]. It must not wait. Nil: there are none.
	Warnings func() []string
	// ObservePanics gives the backend the function to call with the place of each panic that it
	// recovers from: that of [Config.Observer], if it has one. [Open] calls it once, before the first
	// check. The function may be called from many goroutines. Nil: the backend recovers from none.
	ObservePanics func(observe func(place string))
}

// remote is the decider of a node with a backend.
type remote struct {
	*engine.Node
	backend Backend
	extras  BackendExtras
}

// now returns the time of the embedder's clock, if there is one.
func (b *remote) now() arith.Instant {
	if b.Clock == nil {
		return arith.Instant{}
	}
	return arith.At(b.Now())
}

func (b *remote) Check(ctx context.Context, set *rules.Set, r *Request, d *Decision, peek bool) error {
	q := engine.Question{Set: set, Request: r}
	m, err := set.Resolve(r, &q.Charge)
	if err != nil {
		return b.Refused(err)
	}
	q.Charge.Peek = peek
	if err := errors.Join(b.holds(r), engine.Unheld(m, &q.Charge)); err != nil {
		return b.Refused(err)
	}
	if err := b.decide(ctx, b.now(), &q, d); err != nil {
		return err
	}
	if err := engine.Spent(d); err != nil {
		d.Clear()
		return b.Refused(err)
	}
	if q.Charge.ID != nil && q.Charge.ID.Hold != 0 {
		d.Receipt = Receipt{} // a reservation is cancelled
	}
	b.Decided(set, r, m, d, nil)
	return nil
}

// holds returns an error for a request that is to be held, if the backend has no reservations, and for one that is to
// be lent.
func (b *remote) holds(r *Request) error {
	if r.Lent {
		return fmt.Errorf("%w: nothing is lent with this backend: leave it to the nodes of a cluster", ErrInvalid)
	}
	if b.extras.Amend != nil {
		return nil
	}
	return engine.WithoutHold(r, "with this backend")
}

func (b *remote) Amend(ctx context.Context, q *engine.Question, a limiter.Amend) (Amended, error) {
	if b.extras.Amend == nil {
		return Amended{}, engine.NoHolds("with this backend")
	}
	return b.extras.Amend(ctx, b.now(), &q.Charge, a, q.AppendName)
}

// decide asks the backend for the decision of a resolved request.
func (b *remote) decide(ctx context.Context, now arith.Instant, q *engine.Question, d *Decision) error {
	if err := b.backend.Decide(ctx, now, []*arith.Charge{&q.Charge}, []*Decision{d}, q.AppendName); err != nil {
		return b.Refused(err)
	}
	b.ReportFull()
	return nil
}

func (b *remote) CheckBatch(ctx context.Context, set *rules.Set, rs []Request, ds []Decision,
	peeks engine.Peeks) (bad engine.Undecided, _ error) {
	var refused engine.Undecided
	now := b.now()
	charges, matches := make([]arith.Charge, len(rs)), make([]rules.Match, len(rs))
	cs, out, index := make([]*arith.Charge, 0, len(rs)), make([]*Decision, 0, len(rs)), make([]int, 0, len(rs))
	for i := range rs {
		var err error
		if matches[i], err = set.Resolve(&rs[i], &charges[i]); err == nil {
			charges[i].Peek = peeks.Has(i)
			err = errors.Join(b.holds(&rs[i]), engine.Unheld(matches[i], &charges[i]))
		}
		if err != nil {
			refused.Add(i, &ds[i], b.Refused(err))
			continue
		}
		cs, out, index = append(cs, &charges[i]), append(out, &ds[i]), append(index, i)
	}
	name := func(dst []byte, i, k int) []byte {
		return set.AppendKeyName(dst, &rs[index[i]], cs[i].Key(k), nil)
	}
	if err := b.backend.Decide(ctx, now, cs, out, name); err != nil {
		return refused, b.Refused(err)
	}
	b.ReportFull()
	for i := range rs {
		switch {
		case len(refused.Index) > 0 && refused.Index[0] == i:
			bad.Add(i, &ds[i], refused.Errs[0])
			refused.Index, refused.Errs = refused.Index[1:], refused.Errs[1:]
			continue
		case engine.Spent(&ds[i]) != nil:
			bad.Add(i, &ds[i], b.Refused(engine.Spent(&ds[i])))
			continue
		case charges[i].ID != nil && charges[i].ID.Hold != 0:
			ds[i].Receipt = Receipt{}
		}
		b.Decided(set, &rs[i], matches[i], &ds[i], nil)
	}
	return bad, nil
}

func (b *remote) Refund(ctx context.Context, q *engine.Question, receipt Receipt) error {
	return b.backend.Refund(ctx, b.now(), &q.Charge, receipt, q.AppendName)
}

func (b *remote) Reset(ctx context.Context, q *engine.Question) (int, error) {
	return b.backend.Reset(ctx, b.now(), &q.Charge, q.AppendName)
}

func (b *remote) Explain(ctx context.Context, q *engine.Question, d *Decision) (*Explanation, error) {
	now := b.now()
	q.Charge.Peek, q.Charge.Dry = true, true
	if err := b.decide(ctx, now, q, d); err != nil {
		return nil, err
	}
	q.Charge.Peek, q.Charge.Dry = false, false
	return b.backend.Explain(ctx, now, &q.Charge, q.AppendName)
}

func (*remote) RulesSet(uint64) {}

func (b *remote) Warnings() []string {
	if b.extras.Warnings != nil {
		return b.extras.Warnings()
	}
	return nil
}

func (b *remote) Ready() error {
	if b.extras.Ready != nil {
		return b.extras.Ready()
	}
	return nil
}

func (b *remote) Close() error { return b.backend.Close() }
