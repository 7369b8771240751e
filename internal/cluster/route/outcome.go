package route

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Outcome is the result of a reset, a refund or an amendment. In Unanswered, Maybe and Forbidden each
// bit is a key of the charge; the lowest is the first key.
type Outcome struct {
	// Counters is the number of counters that a reset forgot.
	Counters int
	// Unanswered has the keys whose holders did not answer before the deadline. 0 means
	// that everything is done or void.
	Unanswered uint32
	// Maybe has the keys of Unanswered that some member was asked about: they may be
	// done or not. For the others of Unanswered nothing was done.
	Maybe uint32
	// Forbidden has the keys whose holder refuses resets of other members. None of them
	// is in Unanswered.
	Forbidden uint32
	// Shape is what the hold of a key knows of its check, if that was asked.
	Shape arith.Shape
	// Amended is the result of an amendment; nil if nobody answered.
	Amended *limiter.Amended
	// At is when a settlement charged what was used, by the clock of the member that did; 0 if that is not known.
	At limiter.Tick
	// Extension is what an extension of one key changed; nil if it changed nothing.
	Extension *table.Extension
}

// unanswered returns the outcome if no member answered.
func unanswered(k *arith.Charge, maybe bool) (x Outcome) {
	x.Unanswered = 1<<k.Len() - 1
	if maybe {
		x.Maybe = x.Unanswered
	}
	return x
}

// forbidden ends a reset that a member refuses, unless another member was asked too:
// that one may have executed it.
func (o *Call) forbidden(t *Turn, by peer.Instance) {
	o.mu.Lock()
	if i := o.progress.inquiry(by); i >= 0 && len(o.progress.sent) > 1 {
		o.progress.sent = slices.Delete(o.progress.sent, i, i+1)
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	o.concludedBy(t, by, Outcome{Forbidden: 1<<o.task.charge.Len() - 1})
}

// concludedBy ends a reset, a refund or an amendment with the outcome that a member reports, if that
// member was asked.
func (o *Call) concludedBy(t *Turn, by peer.Instance, x Outcome) {
	o.mu.Lock()
	if o.progress.ended || o.progress.inquiry(by) < 0 || o.task.kind == KindCheck || o.task.kind == KindExplain ||
		o.task.kind == KindAmend && x.Amended == nil {
		o.mu.Unlock()
		return
	}
	o.progress.ended, o.result.by, o.result.outcome = true, by, x
	o.mu.Unlock()
	o.retire(t)
}

// outcome adds up the outcomes of the parts.
func (s *fanOut) outcome() (x Outcome) {
	for _, r := range s.parts {
		part := &r.call.result.outcome
		x.Counters += part.Counters
		x.Amended = together(x.Amended, part.Amended, r.call.task.amend.Extend)
		for j, i := range r.keys {
			x.Unanswered |= part.Unanswered >> j & 1 << i
			x.Maybe |= part.Maybe >> j & 1 << i
			x.Forbidden |= part.Forbidden >> j & 1 << i
		}
	}
	if x.Amended != nil && x.Amended.Estimate > 0 && !refuses(x.Amended.State) && s.estimate > 0 {
		first := *x.Amended
		first.Estimate, x.Amended = s.estimate, &first
	}
	return x
}

// Asked returns the members that may have executed the call, or may execute it still, and
// how often this node has run it so.
func (o *Call) Asked() (members []peer.Instance, here int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.progress.sent {
		members = append(members, o.progress.sent[i].of)
	}
	return members, int(o.progress.tried)
}
