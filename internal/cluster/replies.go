package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// sendReply sends a decision to the member that asked.
func (c *Core) sendReply(t *turn, r replyTo, answer, idle *limiter.Decision) {
	out := peer.Reply{
		ID: r.id, Heir: answer.Source == limiter.SourceHeir, Idle: idle != nil, Results: uint16(answer.Len()),
		Receipt: receiptOut(answer.Receipt), Unnamed: r.unnamed, Provisional: r.provisional,
	}
	if r.rules == nil && r.told == nil {
		t.out.Reply(r.to, out, answer, idle)
		return
	}
	var reasons *peer.Explanation
	if r.told != nil {
		x := reasonsOut(r.id, r.told)
		reasons = &x
	}
	t.out.ReplyWith(r.to, out, answer, idle, r.rules, reasons, sizeOf(r.told))
}

func (c *Core) deliverReplies(t *turn, f *peer.Frame) {
	rest := f.Results
	from := ""
	if m := c.view.Load().Member(f.From); m != nil && len(f.Replies) > 0 {
		from = m.Name
	}
	var may credible
	if len(f.Replies) > 0 {
		may = c.credible(t.now)
	}
	for i := range f.Replies {
		r := &f.Replies[i]
		n := int(r.Results)
		if r.Idle {
			n *= 2
		}
		if n > len(rest) {
			return
		}
		results := rest[:n]
		rest = rest[n:]
		o := c.ops.get(r.ID)
		if o == nil {
			continue
		}
		if !may.reply(r) || !may.results(results) {
			c.distrust(f.From, "a reply")
			continue
		}
		switch r.Status {
		case peer.Decided:
			o.fill(t, f, from, r, results)
		case peer.Done:
			o.executed(t, f.From, int(r.Count))
		case peer.Forbidden:
			o.forbidden(t, f.From)
		default:
			o.replied(t, f.From, r)
		}
	}
}

// fill stores a decision of the member with the name from, and ends the operation. It
// ignores decisions of members that were not asked.
func (o *op) fill(t *turn, f *peer.Frame, from string, r *peer.Reply, results []peer.Result) {
	if o.filled(t, f, from, r, results) {
		o.retire(t)
	}
}

// filled is fill without the end: it reports whether the caller must end the operation.
func (o *op) filled(t *turn, f *peer.Frame, from string, r *peer.Reply, results []peer.Result) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.asked(f.From) < 0 || o.kind != opCheck && o.kind != opExplain {
		return false
	}
	var few [4]*limiter.Rule
	rules := o.c.rules.Applied(few[:0], f, r, o.charge)
	n := 0
	for _, rule := range rules {
		n += len(rule.Limits)
	}
	if n != int(r.Results) {
		// The reply has other limits than its rules: the operation continues.
		return false
	}
	o.by, o.charge.Unnamed = f.From, r.Unnamed
	fillDecision(o.answer, o.charge, rules, results[:n])
	if r.Idle && o.idle != nil {
		fillDecision(o.idle, o.charge, rules, results[n:])
	}
	for i := range o.answer.Len() {
		o.answer.Limit(i).Owner = from
	}
	o.answer.Source = limiter.SourceOwner
	if r.Heir {
		o.answer.Source = limiter.SourceHeir
	}
	o.answer.Receipt = limiter.Receipt{
		Epoch: r.Receipt.Epoch.Counter, Time: limiter.Tick(r.Receipt.Time), Charged: r.Receipt.Charged, Set: r.Receipt.Set,
	}
	if o.answer.Receipt.Charged != 0 {
		o.c.denials.forget(o.charge) // a charge lengthens the waits of cached denials
	} else if o.remember && !r.Provisional {
		o.c.denials.add(t.at, o.begunAt, o.charge.Key(0), o.answer)
	}
	if o.kind == opExplain {
		o.told = reasonsIn(f, r)
	}
	o.ended = true
	return true
}

// fillDecision fills a decision with the answers of its limits.
func fillDecision(d *limiter.Decision, k *limiter.Charge, rules []*limiter.Rule, results []peer.Result) {
	d.Clear()
	limiter.Grow(d, len(results))
	n := 0
	for i := range k.Len() {
		key := k.Key(i)
		for _, l := range rules[i].Limits {
			r := &results[n]
			*d.Limit(n) = limiter.LimitDecision{
				Rule: rules[i], Limit: l, Key: i, KeyIndex: key.Index, Cost: key.Cost,
				Allowed: r.Allowed, Never: r.Never, Blocked: r.Blocked, Overflow: r.Overflow,
				Remaining: r.Remaining, RetryAfter: limiter.Tick(r.RetryAfter).Duration(), ResetAfter: limiter.Tick(r.ResetAfter).Duration(),
			}
			n++
		}
	}
	limiter.Settle(d, k.Peek)
	limiter.Conclude(d)
}
