package mesh

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Check asks a member for a decision. Its keys are those of the charge; define means
// that the definitions of their rules are sent too.
func (w *Writer) Check(to peer.Instance, charge *arith.Charge, define bool, q peer.Check) {
	l := w.to(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := w.request(l, charge, define)
	q.Keys = uint8(charge.Len())
	f.Checks = append(f.Checks, q)
	if c := charge.Trace; c != nil {
		f.Traces = append(f.Traces, peer.Trace{ID: q.ID, TraceHi: c.TraceHi, TraceLo: c.TraceLo, Span: c.Span})
	}
	if c := charge.ID; c != nil && c.Hold > 0 {
		f.Holds = append(f.Holds, peer.Hold{ID: q.ID, Span: uint64(limiter.Span(c.Hold)), Keep: c.Keep, Lent: c.Lent,
			Shape: uint8(c.Shape), Rate: c.Rate, Fast: c.Fast})
	}
	w.wake(l)
}

// Refund asks a member for a refund or a reset of the keys of a charge, or to amend its
// reservation: h, unless nil, says how.
func (w *Writer) Refund(to peer.Instance, charge *arith.Charge, define bool, q peer.Refund, h *peer.Hold) {
	l := w.to(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := w.request(l, charge, define)
	q.Keys = uint8(charge.Len())
	f.Refunds = append(f.Refunds, q)
	if h != nil {
		f.Holds = append(f.Holds, *h)
	}
	// The keys of refunds follow those of checks.
	l.out.closeRequests()
	w.wake(l)
}

// to returns the link to a member. It remembers the last one.
func (w *Writer) to(i peer.Instance) *link {
	if w.last == nil || w.last.to != i {
		w.last = w.mesh.link(i)
	}
	return w.last
}

// request returns the frame of requests with the keys of another one, for which an
// answer is expected. The link's lock is held.
func (w *Writer) request(l *link, charge *arith.Charge, define bool) *peer.Frame {
	o := &l.out
	if f := o.requests.filling; f != nil && len(f.Checks) >= maxRequests {
		o.closeRequests()
	}
	if o.requests.filling == nil {
		o.requests.filling = w.mesh.frame(l.to)
		o.rule = nil
	}
	f := o.requests.filling
	keys := f.Keys // stored in the frame when complete, so that a panic leaves no keys without their check
	for i := range charge.Len() {
		k := charge.Key(i)
		keys = append(keys, peer.Key{
			Hi: k.Hash.Hi, Lo: k.Hash.Lo, Rule: o.ruleIndex(f, k.Rule, define),
			Closed: k.Rule.Class() == limiter.Closed, Index: k.Index, Cost: k.Cost, By: k.By,
		})
	}
	f.Keys = keys
	l.line.expects = true
	return f
}

// ruleIndex is the function ruleIndex for the frame of requests. It remembers the last
// rule.
func (o *outbox) ruleIndex(f *peer.Frame, r *limiter.Rule, define bool) uint16 {
	if define {
		return ruleIndex(f, r, true)
	}
	if o.rule != r {
		o.rule, o.ruleAt = r, ruleIndex(f, r, false)
	}
	return o.ruleAt
}

// ruleIndex returns the index of a rule in a frame, and appends the rule if necessary.
// With define it appends the whole definition, otherwise only name and ID.
func ruleIndex(f *peer.Frame, r *limiter.Rule, define bool) uint16 {
	id := r.ID()
	for i := len(f.Rules) - 1; i >= 0; i-- {
		// Two plans with the same numbers have one ID: at the receiver their numbers may differ.
		if f.Rules[i].ID == id && f.Rules[i].Choice == r.Choice() && f.Rules[i].UpTo == r.Ceiling() &&
			f.Rules[i].Onward == r.LeadsOn() && (f.Rules[i].Defined || !define) {
			return uint16(i)
		}
	}
	f.Rules = append(f.Rules, ruleToPeer(r, id, define))
	return uint16(len(f.Rules) - 1)
}

// Amended sends the result of an amendment.
func (w *Writer) Amended(to peer.Instance, r peer.Reply, a peer.Amended) {
	w.write(to, 100, false, false, func(_ *draft, f *peer.Frame) {
		f.Replies = append(f.Replies, r)
		f.Amended = append(f.Amended, a)
	})
}

// replies are decisions for one member that will share a frame.
type replies struct {
	to      peer.Instance
	list    []peer.Reply
	results []peer.Result
}

// maxReplies is the most replies that are collected before they are sent. maxResults is
// the number of results from which on no further reply is collected. A frame may have
// 65536 of each.
const (
	maxReplies = 256
	maxResults = 4096
)

// Reply sends a decision to the member that asked; idle, unless nil, is the answer if
// another part of the check denies. Decisions for one member share a frame, which is
// sent at the end of the turn or earlier.
func (w *Writer) Reply(to peer.Instance, r peer.Reply, answer, idle *limiter.Decision) {
	q := &w.replies
	if q.to != to || len(q.list) == maxReplies || len(q.results) >= maxResults {
		w.sendReplies()
		q.to = to
	}
	q.list = append(q.list, r)
	q.results = appendResults(q.results, answer)
	if idle != nil {
		q.results = appendResults(q.results, idle)
	}
}

// sendReplies puts the collected replies into a frame.
func (w *Writer) sendReplies() {
	q := &w.replies
	if len(q.list) == 0 {
		return
	}
	list, results := q.list, q.results
	q.list, q.results = q.list[:0], q.results[:0] // cleared first, so that a panic does not make them be sent for ever
	w.write(q.to, 40*len(list)+32*len(results), false, false, func(_ *draft, f *peer.Frame) {
		f.Replies = append(f.Replies, list...)
		f.Results = append(f.Results, results...)
	})
	clear(list)
}

// ReplyWith is [Writer.Reply] for a decision with the rules that were applied, or with
// reasons. rules are those of the keys, if they differ from those that were asked for.
// reasons may be nil; they take roughly size bytes.
func (w *Writer) ReplyWith(to peer.Instance, r peer.Reply, answer, idle *limiter.Decision, rules []*limiter.Rule,
	reasons *peer.Explanation, size int) {
	bytes := 40 + 32*answer.Len() + size
	if idle != nil {
		bytes += 32 * idle.Len()
	}
	for _, rule := range rules {
		bytes += 40 + 64*len(rule.Limits)
	}
	w.write(to, bytes, false, false, func(_ *draft, f *peer.Frame) {
		for _, rule := range rules {
			r.Rules = append(r.Rules, ruleIndex(f, rule, true))
		}
		f.Replies = append(f.Replies, r)
		f.Results = appendResults(f.Results, answer)
		if idle != nil {
			f.Results = appendResults(f.Results, idle)
		}
		if reasons != nil {
			f.Explained = append(f.Explained, *reasons)
		}
	})
}

func appendResults(out []peer.Result, d *limiter.Decision) []peer.Result {
	for i := range d.Len() {
		l := d.Limit(i)
		out = append(out, peer.Result{
			Allowed: l.Allowed, Never: l.Never, Blocked: l.Blocked, Overflow: l.Overflow,
			Remaining: l.Remaining, RetryAfter: int64(limiter.Span(l.RetryAfter)), ResetAfter: int64(limiter.Span(l.ResetAfter)),
			InForce: l.InForce,
		})
	}
	return out
}

// Receipt returns a receipt as frames carry it. In a reply, issuer is the member that
// gives the receipt: its instance is left out, since the receiver knows it.
func Receipt(r limiter.Receipt, issuer peer.Instance) peer.Receipt {
	f := arith.Fields(&r)
	return peer.Receipt{Epoch: peer.Epoch{Counter: f.Epoch - uint64(issuer)}, Time: int64(f.Time), Charged: f.Charged,
		Set: f.Set}
}
