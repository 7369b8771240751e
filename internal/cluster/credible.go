package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// A frame's contents are checked before they are used: the sender may be a faulty
// member, or no member at all.
//
// Counters of epochs and sequences of batches only grow, and the highest one wins. So a
// value that is far too high would leave no room for later ones, for ever. Both have an
// upper bound that grows with time, faster than the protocol needs: claims of one
// partition are at least 10 ms apart and few members claim at a time; a sequence grows
// with each batch. The bound is computed from the time since 1970 and not from known
// values, so it also holds for members that just started, and after any split; a value
// at the bound has room again a moment later. Clocks may differ by centuries before a
// valid counter is refused.
const (
	counterSlack = 1 << 32
	counterEvery = limiter.Millisecond // the bound grows by one in this time
	seqSlack     = 1 << 40
	seqEvery     = 1 // the bound grows by one in this many ticks
)

// credible has the bounds of valid values at one instant.
type credible struct {
	counter, seq uint64
}

func credibleAt(now limiter.Tick) credible {
	since := uint64(max(0, now))
	return credible{counterSlack + since/uint64(counterEvery), seqSlack + since/seqEvery}
}

func (*credible) part(id uint16) bool { return id < 2*table.Partitions }

// epoch reports whether an epoch is valid. A counter above 0 needs an owner.
func (b *credible) epoch(e peer.Epoch) bool {
	return e.Counter <= b.counter && (e.Instance != 0 || e.Counter == 0)
}

func (b *credible) announce(a *peer.Announce) bool { return b.part(a.Partition) && b.epoch(a.Epoch) }

func (b *credible) claim(k *peer.Claim) bool {
	return b.part(k.Partition) && k.Kind <= peer.Reopen && k.Counter <= b.counter
}

func (b *credible) answer(a *peer.Answer) bool {
	return b.part(a.Partition) && a.Role <= peer.Owned && a.GrantKind <= peer.Reopen &&
		b.epoch(a.Epoch) && b.epoch(a.Owner) && a.Seq <= b.seq && max(a.Top, a.Grant) <= b.counter
}

// revoke reports whether a revocation is valid: only the owner revokes.
func (b *credible) revoke(from peer.Instance, r *peer.Revoke) bool {
	return b.part(r.Partition) && b.epoch(r.Epoch) && r.Epoch.Instance == from
}

// batch reports whether a batch is valid: only an owner, or a former one, sends batches.
func (b *credible) batch(from peer.Instance, x *peer.Batch) bool {
	return b.part(x.Partition) && x.Kind <= peer.Push && x.Epoch.Instance == from &&
		b.epoch(x.Epoch) && b.epoch(x.BaseEpoch) && b.epoch(x.Next) && max(x.Base, x.Seq, x.Appointed) <= b.seq
}

// saved reports whether a batch that was read from a disk is valid: it may be of any owner.
func (b *credible) saved(x *peer.Batch) bool {
	return b.part(x.Partition) && x.Kind <= peer.Snapshot && b.epoch(x.Epoch) && b.epoch(x.BaseEpoch) &&
		x.Epoch.Counter > 0 && x.Appointment == 0 && max(x.Base, x.Seq) <= b.seq
}

// entries reports whether all keys belong to the partition of their batch.
func (b *credible) entries(id uint16, keys []replica.Entries) bool {
	for i := range keys {
		for j := range keys[i].List {
			e := &keys[i].List[j]
			at := table.PartitionOfHash(e.Lo^arith.NameID(e.Limit), int(id) >= table.Partitions)
			if e.Hi != keys[i].Hi || at != int(id) {
				return false
			}
		}
	}
	return true
}

func (b *credible) ack(a *peer.Ack) bool {
	return b.part(a.Partition) && a.Status <= peer.Merged && b.epoch(a.Epoch) && b.epoch(a.Owner) && a.Seq <= b.seq &&
		a.Top <= b.counter
}

func (b *credible) check(q *peer.Check) bool {
	return q.Keys > 0 && q.Keys <= limiter.MaxKeys && (q.ChargeID == 0 && q.Life == 0 || q.ChargeID != 0 && b.life(q.Life))
}

// life reports whether an id may be remembered for so many microseconds.
func (*credible) life(us uint64) bool {
	return us >= uint64(limiter.Span(limiter.MinIDTTL)) && us <= uint64(limiter.Span(limiter.MaxIDTTL))
}

// keys reports whether the keys of a check differ from each other: the check of a
// counter's capacity does not allow for two charges in one check.
func (b *credible) keys(keys []peer.Key) bool {
	for i := range keys {
		for j := range i {
			if keys[i].Hi == keys[j].Hi {
				return false
			}
		}
	}
	return true
}

func (b *credible) refund(q *peer.Refund) bool {
	return q.Keys > 0 && q.Keys <= limiter.MaxKeys && q.Kind <= peer.RefundLeased
}

// held reports whether what a check says of a reservation is valid; nil is: there is none.
func (b *credible) held(q *peer.Check, h *peer.Hold) bool {
	return h == nil || q.ChargeID != 0 && b.life(h.Span) && h.Life == 0 && !h.Extend && !h.Ignore && !h.Back && !h.Named &&
		!h.Lacks && arith.Shape(h.Shape).Valid() &&
		(h.Rate == 0 || h.Lent && h.Rate <= arith.MaxRate) && (!h.Fast || h.Rate > 0) &&
		(!h.Lent || h.Keep && q.Keys == 1 && !q.Peek && !q.Prepare && limiter.Tick(h.Span) <= arith.LongestLease(h.Rate))
}

// amendment reports whether an amendment says how, and no other refund does.
func (b *credible) amendment(q *peer.Refund, h *peer.Hold) bool {
	if q.Kind != peer.AmendHold || h == nil {
		return q.Kind != peer.AmendHold && h == nil
	}
	if h.Lent && (h.Extend || h.Ignore) || h.Rate != 0 || h.Fast || h.Shape != 0 || h.Back != (h.End != 0) ||
		h.Back && (h.Extend || h.Ignore || q.Keys != 1) || h.Extend && h.Named {
		return false
	}
	return q.ChargeID != 0 && b.life(h.Life) && (h.Extend && b.life(h.Span) || !h.Extend && h.Span == 0)
}

// amended reports whether the result of an amendment is valid; nil is: it is another reply.
func (b *credible) amended(a *peer.Amended) bool {
	return a == nil || a.State <= uint8(limiter.AmendLacks) && arith.Shape(a.Shape).Valid() && a.RetryAfter >= 0 &&
		a.RetryAfter <= int64(longestWait) && a.Known <= limiter.MaxKeys
}

func (b *credible) reply(r *peer.Reply) bool {
	return r.Status <= peer.Forbidden && (r.Owner.Instance == 0 || b.part(r.Partition)) && b.epoch(r.Owner)
}

// longestWait bounds the spans in an answer: a bucket's debt ends at 100 years, and one
// check adds no more than that again.
const longestWait = 2 * 36_525 * limiter.Day

// results reports whether the spans of answers are valid: the asker calculates with
// them.
func (b *credible) results(all []peer.Result) bool {
	for i := range all {
		if r := &all[i]; min(r.RetryAfter, r.ResetAfter) < 0 || max(r.RetryAfter, r.ResetAfter) > int64(longestWait) {
			return false
		}
	}
	return true
}
