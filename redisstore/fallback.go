package redisstore

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// fallback decides by the policies of rules, in this process. Its counters live for
// their whole windows, even if Redis recovers, and are never merged into Redis.
type fallback struct {
	table *table.Table
	nodes int64

	mu     sync.Mutex
	shares map[any]*limiter.Limit // by the parameters of the whole limit
}

func newFallback(c *Config) *fallback {
	return &fallback{table: table.New(table.Config{}), nodes: int64(c.Nodes)}
}

// use makes policies count in a table instead of one of the store's own, which has
// the default bounds. It must be called before the first check. [weir.Open] calls it with
// the node's table, whose bounds and reports then are those of the policies' counters.
func (f *fallback) use(t *table.Table) { f.table = t }

// verdict is a decision by policy, kept so that it can be taken back.
type verdict struct {
	charge  arith.Charge
	receipt limiter.Receipt
	index   []int // of each limit, in the whole decision
}

// closedRetry is the retry wait of a rule whose policy is to deny.
const closedRetry = limiter.Second

// decide decides some keys of a charge and fills in the results of their limits. The
// receipt marks their charges as made in this process, and charged is set for each limit
// that was charged and can be cancelled.
func (f *fallback) decide(now limiter.Tick, c *arith.Charge, keys []int, d *limiter.Decision,
	charged []bool) (v verdict) {
	var own limiter.Decision
	closed := false
	for _, n := range keys {
		k := *c.Key(n)
		closed = closed || isClosed(k.Rule)
		k.Rule = f.share(k.Rule)
		v.charge.Add(k)
	}
	v.charge.Peek, v.charge.ID = c.Peek || closed, heldByPolicy(c.ID, &v.charge)
	full := f.table.Decide(now, &v.charge, &own) != nil
	if v.receipt = own.Receipt; own.Repeated {
		v.receipt = limiter.Receipt{} // it is the earlier attempt's to take back
	}
	at, next, offset := 0, 0, 0
	for n := range c.Len() {
		k := c.Key(n)
		if next == len(keys) || keys[next] != n {
			offset += len(k.Rule.Limits)
			continue
		}
		next++
		d.Source = outermost(d.Source, k.Rule)
		for j, l := range k.Rule.Limits {
			out := d.Limit(offset + j)
			if full {
				*out = limiter.LimitDecision{Cost: k.Cost, Overflow: true, RetryAfter: closedRetry.Duration()}
			} else {
				*out = *own.Limit(at)
			}
			if out.Limit != nil && out.Limit != l {
				out.InForce = out.Limit.Limit()
			}
			out.Rule, out.Limit, out.Key, out.KeyIndex = k.Rule, l, n, k.Index
			byShare := out.Never
			out.Never = max(k.Cost, 1) > l.Capacity()
			if byShare && !out.Never { // only the share can never admit it, and Redis may come back
				out.RetryAfter = closedRetry.Duration()
			}
			if isClosed(k.Rule) {
				out.Allowed, out.Remaining, out.RetryAfter = false, 0, closedRetry.Duration()
			}
			v.index = append(v.index, offset+j)
			of, made := arith.Fields(&d.Receipt), arith.Fields(&v.receipt)
			if charged[offset+j] = made.Has(at); made.Has(at) && offset+j < 64 {
				arith.NoteCharged(d, offset+j, now)
				of.Time = made.Time
				of.Epoch |= 1 << (offset + j)
			}
			at++
		}
		offset += len(k.Rule.Limits)
	}
	return v
}

// heldByPolicy returns the id by which a policy holds a charge: without a hold a limit on concurrency
// would count nothing. No settlement comes here, so what is held is free when its time is over, and a
// rate beside it keeps its charge. Other charges by policies are final, and have no id.
func heldByPolicy(id *arith.Idempotency, c *arith.Charge) *arith.Idempotency {
	if id == nil || id.Hold == 0 {
		return nil
	}
	for i := range c.Len() {
		if slices.ContainsFunc(c.Key(i).Rule.Limits, func(l *limiter.Limit) bool {
			return l.Algorithm() == limiter.Concurrency
		}) {
			own := *id
			own.Keep = true
			return &own
		}
	}
	return nil
}

// cancel takes back those charges of a verdict that the whole decision does not make.
// cancelled has them by the numbers of the whole decision.
func (f *fallback) cancel(now limiter.Tick, v *verdict, cancelled []bool) {
	r := v.receipt
	back := arith.Fields(&r)
	back.Charged = 0
	for at, j := range v.index {
		if cancelled[j] && arith.Fields(&v.receipt).Has(at) {
			back.Charged |= 1 << at
		}
	}
	switch {
	case back.Charged == 0:
	case v.charge.ID == nil:
		f.table.UndoIn(table.EveryPartition, now, &v.charge, r)
	default:
		first := 0
		for i := range v.charge.Len() {
			all := limitsOf(&v.charge, i, first)
			if gone := back.Charged & all; gone != 0 {
				f.table.CancelHold(now, &v.charge, i, back.Time, gone>>first, gone == arith.Fields(&v.receipt).Charged&all)
			}
			first += len(v.charge.Key(i).Rule.Limits)
		}
	}
}

// refund takes back the charges that a receipt marks as made in this process.
func (f *fallback) refund(now limiter.Tick, c *arith.Charge, r limiter.Receipt) {
	of := arith.Fields(&r)
	of.Charged, of.Epoch = of.Charged&of.Epoch, 0
	f.table.Refund(now, f.shared(c), r)
}

// reset deletes the counters of a charge and returns how many there were.
func (f *fallback) reset(now limiter.Tick, c *arith.Charge) int {
	return f.table.Reset(now, f.shared(c))
}

// shared returns the charge with this process's share of each limit.
func (f *fallback) shared(c *arith.Charge) *arith.Charge {
	var own arith.Charge
	for n := range c.Len() {
		k := *c.Key(n)
		k.Rule = f.share(k.Rule)
		own.Add(k)
	}
	return &own
}

func isClosed(r *limiter.Rule) bool {
	return r.OnUnreachable == limiter.UnreachableClosed && !r.Shadow
}

// outermost returns the source of a decision that includes the policy of r: the
// strictest of the sources.
func outermost(s limiter.Source, r *limiter.Rule) limiter.Source {
	policy := limiter.SourceFallbackOpen
	switch {
	case isClosed(r):
		policy = limiter.SourceFallbackClosed
	case r.OnUnreachable != limiter.UnreachableOpen:
		policy = limiter.SourceFallbackLocal
	}
	if s == limiter.SourceRedis {
		return policy
	}
	return max(s, policy)
}

// share returns a rule with this process's share of its limits.
func (f *fallback) share(r *limiter.Rule) *limiter.Rule {
	if f.nodes <= 1 || r.OnUnreachable == limiter.UnreachableOpen {
		return r
	}
	own := *r
	own.Limits = make([]*limiter.Limit, len(r.Limits))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, l := range r.Limits {
		own.Limits[i] = f.shareOf(l)
	}
	return &own
}

func (f *fallback) shareOf(l *limiter.Limit) *limiter.Limit {
	if part := f.shares[l.C.P]; part != nil {
		return part
	}
	s := l.Spec()
	s.Limit = max(1, s.Limit/f.nodes)
	if s.Burst > 0 {
		s.Burst = max(1, s.Burst/f.nodes)
	}
	part, err := limiter.NewLimit(s)
	if err != nil {
		// Rounded down, the rate would be too low for the burst: see limiter.Spec.
		s.Burst = 0
		if part, err = limiter.NewLimit(s); err != nil {
			part = l
		}
	}
	if f.shares == nil || len(f.shares) >= maxParams {
		f.shares = make(map[any]*limiter.Limit)
	}
	f.shares[l.C.P] = part
	return part
}
