package weir

import (
	"context"
	"strings"
	"sync"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// local is the decider of a node that counts in its own table.
type local struct {
	*engine.Node
	lookaheads sync.Pool // of *lookahead
	withIDs    sync.Pool // of *withID
}

// withID is a charge with the memory for its id. Each is used by one check at a time.
type withID struct {
	arith.Charge
	id arith.Idempotency
}

func (l *local) Check(_ context.Context, set *rules.Set, r *Request, d *Decision, peek bool) error {
	if r.ID == "" {
		var c arith.Charge
		return l.check(set, r, &c, d, peek)
	}
	c, _ := l.withIDs.Get().(*withID)
	if c == nil {
		c = new(withID)
		c.Charge.Lend(&c.id)
	}
	err := l.check(set, r, &c.Charge, d, peek)
	l.withIDs.Put(c) // not after a panic
	return err
}

func (l *local) check(set *rules.Set, r *Request, c *arith.Charge, d *Decision, peek bool) error {
	m, err := set.Resolve(r, c)
	if err != nil {
		return l.Refused(err)
	}
	c.Peek = peek
	err = l.decide(set, l.Now(), r, c, m, d, nil)
	l.ReportFull()
	return err
}

// decide decides a resolved request. If alike is not nil the decision is added to that
// tally, else it is reported to the observer at once.
func (l *local) decide(set *rules.Set, now limiter.Tick, r *Request, c *arith.Charge, m rules.Match, d *Decision,
	alike *engine.Tally) error {
	if err := engine.Unheld(m, c); err != nil {
		return l.Refused(err)
	}
	if err := engine.Decide(l.Table, &l.Slices, now, c, d); err != nil {
		return l.Refused(err)
	}
	if c.Unnamed != 0 && !strings.HasPrefix(r.Tenant, arith.OwnTenants) {
		l.nameKeys(set, r, c)
	}
	if c.ID != nil && c.ID.Hold != 0 {
		d.Receipt = Receipt{} // a reservation is cancelled, which a node makes sure is done once
	}
	l.Decided(set, r, m, d, alike)
	return nil
}

// nameKeys gives the table the names of keys that entered a list of top keys.
func (l *local) nameKeys(set *rules.Set, r *Request, c *arith.Charge) {
	var buf [limiter.MaxKeyBytes]byte
	for i := range c.Len() {
		if c.Unnamed&(1<<i) != 0 {
			l.Table.SetName(c.Key(i), set.AppendKeyName(buf[:0], r, c.Key(i), nil))
		}
	}
}

// upcoming is a request of a batch that is resolved but not yet decided.
type upcoming struct {
	charge arith.Charge
	id     arith.Idempotency // of charge
	match  rules.Match
	err    error
}

// lookahead holds the requests of a batch between the one being decided and the one
// whose counters are being prefetched.
type lookahead [table.Ahead]upcoming

func (l *local) CheckBatch(_ context.Context, set *rules.Set, rs []Request, ds []Decision,
	peeks engine.Peeks) (bad engine.Undecided, _ error) {
	now := l.Now()
	next, _ := l.lookaheads.Get().(*lookahead)
	if next == nil {
		next = new(lookahead)
		for i := range next {
			next[i].charge.Lend(&next[i].id)
		}
	}
	defer l.lookaheads.Put(next)
	var alike engine.Tally
	defer alike.Tell(l.Observer.Checked)
	// One loop, without a function for what is done ahead: that costs each check 5 ns.
	for last := range len(rs) + table.Ahead - 1 {
		if last < len(rs) {
			u := &next[last%table.Ahead]
			if u.match, u.err = set.Resolve(&rs[last], &u.charge); u.err == nil {
				u.charge.Peek = peeks.Has(last)
				l.Table.PrefetchPartitions(&u.charge)
			}
		}
		if near := last - (table.Ahead-1)/2; near >= 0 && near < len(rs) {
			if u := &next[near%table.Ahead]; u.err == nil {
				l.Table.Prefetch(&u.charge)
			}
		}
		i := last - (table.Ahead - 1)
		if i < 0 {
			continue
		}
		u := &next[i%table.Ahead]
		err := u.err
		if err == nil {
			err = l.decide(set, now, &rs[i], &u.charge, u.match, &ds[i], &alike)
		} else {
			err = l.Refused(err)
		}
		if err != nil {
			bad.Add(i, &ds[i], err)
		}
	}
	l.ReportFull()
	return bad, nil
}

func (l *local) Amend(_ context.Context, q *engine.Question, a limiter.Amend) (limiter.Amended, error) {
	out, _ := l.Table.Amend(l.Now(), &q.Charge, a)
	return out, nil
}

func (l *local) Refund(_ context.Context, q *engine.Question, receipt Receipt) error {
	l.Table.Refund(l.Now(), &q.Charge, receipt)
	return nil
}

func (l *local) Reset(_ context.Context, q *engine.Question) (int, error) {
	return l.Table.Reset(l.Now(), &q.Charge), nil
}

func (l *local) Explain(_ context.Context, q *engine.Question, d *Decision) (*Explanation, error) {
	now := l.Now()
	return &Explanation{Now: now, Limits: l.Table.Explain(now, &q.Charge, d)}, nil
}

func (*local) RulesSet(uint64) {}

func (*local) Ready() error { return nil }

func (*local) Warnings() []string { return nil }

func (*local) Close() error { return nil }
