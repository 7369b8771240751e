package route

import (
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// attempt is how a call is sent to a member. id is its number with the number of
// this request, see [inquiry]. sent means that another member may have executed it, and
// define that the rules are defined too.
type attempt struct {
	id                 uint64
	heir, sent, define bool
}

// send sends a call to a member, as owner or as heir.
func (o *Call) send(t *Turn, to peer.Instance, heir bool) {
	o.mu.Lock()
	r := attempt{id: o.id, heir: heir, sent: len(o.progress.sent) > 1, define: o.progress.define}
	if i := o.progress.inquiry(to); i >= 0 {
		r.id = withTry(r.id, o.progress.sent[i].try)
	}
	o.mu.Unlock()
	o.write(t, to, r)
}

// write puts an attempt into the frame for a member.
func (o *Call) write(t *Turn, to peer.Instance, r attempt) {
	id, life := uint64(0), uint64(0)
	if o.task.charge.ID != nil {
		id, life = o.task.charge.ID.ID, uint64(limiter.Span(o.task.charge.ID.Life))
	}
	switch o.task.kind {
	case KindCheck, KindExplain:
		t.Out.Check(to, o.task.charge, r.define, peer.Check{
			ID: r.id, ChargeID: id, Life: life, Peek: o.task.charge.Peek, Prepare: o.task.prepare, Settles: o.task.prepare,
			Final: o.task.final, Heir: r.heir, Sent: r.sent, Explain: o.task.kind == KindExplain,
			Wait: uint32(min(max(0, o.task.until-t.Now), limiter.Minute)),
		})
		return
	}
	kind, receipt, hold := peer.RefundAll, o.task.refunded(), (*peer.Hold)(nil)
	switch {
	case o.task.kind == KindReset:
		kind = peer.ResetKeys
	case o.task.kind == KindAmend:
		kind, hold = peer.AmendHold, holdOut(r.id, o.task.charge.ID, o.task.amend, o.task.back)
	case o.task.ends:
		kind = peer.RefundReserved
	}
	t.Out.Refund(to, o.task.charge, r.define, peer.Refund{
		ID: r.id, ChargeID: id, Kind: kind, Denied: o.task.denied && id != 0, Heir: r.heir, Sent: r.sent,
		Receipt: mesh.Receipt(receipt, 0), Once: arith.Fields(&receipt).Once,
	}, hold)
}

// unasked reports whether a member has not been asked, or has answered that it did not execute the call.
func (o *Call) unasked(i peer.Instance) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.progress.inquiry(i) < 0
}
