package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Outcome is what came of a reset or a refund. The bits of Unanswered, Maybe and
// Forbidden are those of the charge's keys, the first key's the lowest.
type Outcome struct {
	// Counters is how many counters a reset forgot.
	Counters int
	// Unanswered names the keys of which nobody who holds them answered before the
	// deadline; 0: all is done, or is void.
	Unanswered uint32
	// Maybe names those of them that were asked of somebody: it may be done or not.
	// For the others of Unanswered nothing was done.
	Maybe uint32
	// Forbidden names those that whoever holds them does not have reset by other
	// members. They are none of Unanswered.
	Forbidden uint32
}

// unanswered is the outcome where nobody answered.
func unanswered(k *limiter.Charge, maybe bool) (x Outcome) {
	x.Unanswered = 1<<k.Len() - 1
	if maybe {
		x.Maybe = x.Unanswered
	}
	return x
}

// executed ends a reset or refund that was executed elsewhere.
func (o *op) executed(t *turn, by peer.Instance, counters int) {
	o.concludedBy(t, by, Outcome{Counters: counters})
}

// forbidden ends a reset that a member does not take from others, unless another one was
// asked too, which may have done it.
func (o *op) forbidden(t *turn, by peer.Instance) {
	o.mu.Lock()
	if i := o.asked(by); i >= 0 && len(o.sent) > 1 {
		o.sent = slices.Delete(o.sent, i, i+1)
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	o.concludedBy(t, by, Outcome{Forbidden: 1<<o.charge.Len() - 1})
}

// concludedBy ends a reset or refund as a member says, if that was asked.
func (o *op) concludedBy(t *turn, by peer.Instance, x Outcome) {
	o.mu.Lock()
	if o.ended || o.asked(by) < 0 || o.kind != opReset && o.kind != opRefund {
		o.mu.Unlock()
		return
	}
	o.ended, o.by, o.outcome = true, by, x
	o.mu.Unlock()
	o.retire(t)
}

// outcome sums what came of the parts.
func (s *several) outcome() (x Outcome) {
	for _, r := range s.parts {
		part := &r.op.outcome
		x.Counters += part.Counters
		for j, i := range r.keys {
			x.Unanswered |= part.Unanswered >> j & 1 << i
			x.Maybe |= part.Maybe >> j & 1 << i
			x.Forbidden |= part.Forbidden >> j & 1 << i
		}
	}
	return x
}
