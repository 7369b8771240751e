package replica

import (
	"math"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Never is later than any tick.
const Never limiter.Tick = math.MaxInt64

// Due returns the time before which [Replica.Tick] would do nothing, unless another step
// comes first: the present time if the next tick may have work, [Never] if it has none.
func (p *Replica) Due(t *Step) limiter.Tick {
	if p.settled(t) {
		return p.own.nextDue(t.Now, p.seq)
	}
	return t.Now
}

// pending reports whether a replica that is not settled needs another tick.
func (p *Replica) pending(t *Step) bool {
	return p.breakage.givenUp || p.breakage.yields || p.claiming.round != nil || p.pushing.unpushed || p.keptUntil != 0 ||
		len(p.waiting) > 0 || p.seeking.seekAt != 0 || p.staging.staged != nil || p.fresh && t.mayLearn() ||
		p.own != nil && (p.own.busy(t) || p.own.noStandby() || p.own.from.recent(t.Now))
}

// settled reports whether a tick has nothing to do here but to send the heir what changed.
// That is so for most partitions of a busy node at most times, and so they are left alone
// until a batch is due.
func (p *Replica) settled(t *Step) bool {
	own := p.own
	switch {
	case own == nil || own.heir == nil || own.heir.lapsed || p.role != peer.Owned:
		return false
	case own.next != nil || own.revoking || own.renew || own.suspended != 0 || own.waitSince != 0:
		return false
	case len(own.withheld)+len(own.awaited)+len(own.inDoubt)+len(own.Waits.waiters) > 0 || t.Now >= own.lateUntil():
		return false
	case p.breakage.givenUp || p.breakage.yields || p.claiming.round != nil || p.pushing.unpushed || len(p.waiting) > 0 ||
		p.seeking.seekAt != 0 || p.staging.staged != nil || p.fresh:
		return false
	case own.from.recent(t.Now):
		return false
	}
	return t.View.Owner(p.id) == p.node.Self && own.heir.to == t.View.Successor(p.id) && t.View.Active(own.heir.to)
}

// nextDue returns when a settled owner has something to do.
func (o *Ownership) nextDue(now limiter.Tick, seq uint64) limiter.Tick {
	return min(o.copiesDue(now, seq), o.lateUntil())
}

// copiesDue returns when the heir is to be sent something, which a settled owner does at
// the present time at the earliest; Never if it lacks nothing. While a batch is not
// acknowledged, that is the first time at which it may be sent again.
func (o *Ownership) copiesDue(now limiter.Tick, seq uint64) limiter.Tick {
	switch h := o.heir; {
	case o.dirtyAt == 0 && h.begun && h.sent <= h.acked && h.acked >= seq:
		return Never
	case h.sentAt != 0:
		return max(now, h.sentAt+resendAfter)
	case o.urgent || !h.begun || h.acked < seq:
		return now
	default:
		return max(now, o.dirtyAt+batchEvery)
	}
}
