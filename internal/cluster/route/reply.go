package route

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Reply takes in a reply of another member to a request of the call. from is the member's
// name, results are the reply's, and amended is the result of an amendment; nil if it is of
// another request. The caller has checked that their values are possible.
func (o *Call) Reply(t *Turn, f *peer.Frame, from string, r *peer.Reply, results []peer.Result, amended *peer.Amended) {
	switch r.Status {
	case peer.Decided:
		o.fill(t, f, from, r, results)
	case peer.Done:
		x := Outcome{Counters: int(r.Count), Amended: amendedIn(amended), Extension: extensionIn(amended)}
		if amended != nil {
			x.Shape, x.At = arith.Shape(amended.Shape), settledAt(amended)
		}
		o.concludedBy(t, f.From, x)
	case peer.Forbidden:
		o.forbidden(t, f.From)
	default:
		o.replied(t, f.From, r)
	}
}

// fill stores a decision of the member with the name from, and ends the call. It
// ignores decisions of members that were not asked.
func (o *Call) fill(t *Turn, f *peer.Frame, from string, r *peer.Reply, results []peer.Result) {
	if o.filled(t, f, from, r, results) {
		o.retire(t)
	}
}

// filled is fill without the end: it reports whether the caller must end the call.
func (o *Call) filled(t *Turn, f *peer.Frame, from string, r *peer.Reply, results []peer.Result) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress.ended || o.progress.inquiry(f.From) < 0 || o.task.kind != KindCheck && o.task.kind != KindExplain {
		return false
	}
	var few [4]*limiter.Rule
	rules := o.c.config.Rules.Applied(few[:0], f, r, o.task.charge)
	n := 0
	for i, rule := range rules {
		if r.Known&(1<<i) == 0 {
			n += len(rule.Limits)
		}
	}
	if n != int(r.Results) {
		// The reply has other limits than its rules: the call continues.
		return false
	}
	o.result.by, o.task.charge.Unnamed = f.From, r.Unnamed
	fillDecision(o.task.answer, o.task.charge, r.Known, rules, results[:n])
	if r.Idle && o.task.idle != nil {
		fillDecision(o.task.idle, o.task.charge, r.Known, rules, results[n:])
	}
	for i := range o.task.answer.Len() {
		o.task.answer.Limit(i).Owner = from
	}
	o.task.answer.Source = limiter.SourceOwner
	o.task.answer.Repeated = r.Repeated
	o.task.answer.SetRemarks(limiter.Remarks{Assigned: uint64(r.Count)})
	switch {
	case byShare(o.task.answer):
		o.task.answer.Source = limiter.SourceShare
	case r.Heir:
		o.task.answer.Source = limiter.SourceHeir
	}
	o.task.answer.Receipt = arith.NewReceipt(arith.ReceiptFields{
		Epoch: r.Receipt.Epoch.Counter + uint64(f.From), Time: limiter.Tick(r.Receipt.Time), Charged: r.Receipt.Charged,
		Set: r.Receipt.Set,
	})
	if arith.Fields(&o.task.answer.Receipt).Charged != 0 && !r.Repeated {
		o.c.clocks.compare(f.From, arith.Fields(&o.task.answer.Receipt).Time, o.task.begunAt, t.At)
	}
	if arith.Fields(&o.task.answer.Receipt).Charged != 0 {
		o.c.denials.forget(o.task.charge) // a charge lengthens the waits of cached denials
	} else if o.task.remember && !r.Provisional {
		o.c.denials.add(t.At, o.task.begunAt, o.task.charge.Key(0), o.task.answer)
	}
	if k := o.task.charge.Key(0); k.Rule.Leases && o.task.charge.Len() == 1 && o.task.kind == KindCheck &&
		o.c.Leases.WasWarm(k.Hash) {
		o.c.Leases.Heard(k, o.task.answer)
	}
	if o.task.kind == KindExplain {
		o.result.reasons = reasonsIn(f, r)
	}
	o.progress.ended = true
	return true
}

// fillDecision fills a decision with the answers of its limits, without the keys that are known.
func fillDecision(d *limiter.Decision, k *arith.Charge, known uint32, rules []*limiter.Rule, results []peer.Result) {
	d.Clear()
	d.Grow(len(results))
	n := 0
	for i := range k.Len() {
		key := k.Key(i)
		if known&(1<<i) != 0 {
			continue
		}
		for _, l := range rules[i].Limits {
			r := &results[n]
			*d.Limit(n) = limiter.LimitDecision{
				Rule: rules[i], Limit: l, Key: i, KeyIndex: key.Index, Cost: key.Cost,
				Allowed: r.Allowed, Never: r.Never, Blocked: r.Blocked, Overflow: r.Overflow,
				Remaining: r.Remaining, RetryAfter: limiter.Tick(r.RetryAfter).Duration(),
				ResetAfter: limiter.Tick(r.ResetAfter).Duration(), InForce: r.InForce,
			}
			n++
		}
	}
	arith.Combine(d, k.Peek)
	arith.Conclude(d)
}
