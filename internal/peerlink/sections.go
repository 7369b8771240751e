package peerlink

import "github.com/weirlimit/weir/internal/peer"

type sections struct {
	claims    []column[peer.Claim]
	answers   []column[peer.Answer]
	announces []column[peer.Announce]
	revokes   []column[peer.Revoke]
	batches   []column[peer.Batch]
	ids       []column[peer.ID]
	entries   []column[peer.Entry] // without their words
	acks      []column[peer.Ack]
	checks    []column[peer.Check]
	keys      []column[peer.Key]
	refunds   []column[peer.Refund]
	replies   []column[peer.Reply] // without their rules
	results   []column[peer.Result]
	traces    []column[peer.Trace]
	holds     []column[peer.Hold]
	amended   []column[peer.Amended]
}

func newSections() *sections {
	return &sections{
		claims: claimColumns(), answers: answerColumns(), announces: announceColumns(), revokes: revokeColumns(),
		batches: batchColumns(), ids: idColumns(), entries: entryColumns(), acks: ackColumns(),
		checks: checkColumns(), keys: keyColumns(), refunds: refundColumns(),
		replies: replyColumns(), results: resultColumns(), traces: traceColumns(),
		holds: holdColumns(), amended: amendedColumns(),
	}
}

func claimColumns() []column[peer.Claim] {
	type T = peer.Claim
	return []column[T]{
		varints[T, uint16]{2, func(x *T) *uint16 { return &x.Partition }},
		octets[T, peer.ClaimKind]{3, func(x *T) *peer.ClaimKind { return &x.Kind }},
		varints[T, uint32]{4, func(x *T) *uint32 { return &x.Round }},
		varints[T, uint64]{5, func(x *T) *uint64 { return &x.Counter }},
		fixed[T, peer.Instance]{6, func(x *T) *peer.Instance { return &x.For }},
	}
}

func answerColumns() []column[peer.Answer] {
	type T = peer.Answer
	return []column[T]{
		varints[T, uint16]{2, func(x *T) *uint16 { return &x.Partition }},
		varints[T, uint32]{3, func(x *T) *uint32 { return &x.Round }},
		flags[T]{4,
			func(x *T) byte { return bit(x.Granted, 1) | bit(x.Fresh, 2) | bit(x.FromDisk, 4) },
			func(x *T, b byte) { x.Granted, x.Fresh, x.FromDisk = b&1 != 0, b&2 != 0, b&4 != 0 }},
		octets[T, peer.Role]{5, func(x *T) *peer.Role { return &x.Role }},
		varints[T, uint64]{6, func(x *T) *uint64 { return &x.Epoch.Counter }},
		fixed[T, peer.Instance]{7, func(x *T) *peer.Instance { return &x.Epoch.Instance }},
		varints[T, uint64]{8, func(x *T) *uint64 { return &x.Seq }},
		varints[T, uint64]{9, func(x *T) *uint64 { return &x.Owner.Counter }},
		fixed[T, peer.Instance]{10, func(x *T) *peer.Instance { return &x.Owner.Instance }},
		fixed[T, peer.Instance]{11, func(x *T) *peer.Instance { return &x.Heir }},
		varints[T, uint64]{12, func(x *T) *uint64 { return &x.Top }},
		varints[T, uint64]{13, func(x *T) *uint64 { return &x.Grant }},
		octets[T, peer.ClaimKind]{14, func(x *T) *peer.ClaimKind { return &x.GrantKind }},
		fixed[T, peer.Instance]{15, func(x *T) *peer.Instance { return &x.GrantFor }},
		fixed[T, peer.Instance]{16, func(x *T) *peer.Instance { return &x.Ended }},
	}
}

func announceColumns() []column[peer.Announce] {
	type T = peer.Announce
	return []column[T]{
		varints[T, uint16]{2, func(x *T) *uint16 { return &x.Partition }},
		varints[T, uint64]{3, func(x *T) *uint64 { return &x.Epoch.Counter }},
		fixed[T, peer.Instance]{4, func(x *T) *peer.Instance { return &x.Epoch.Instance }},
		fixed[T, peer.Instance]{5, func(x *T) *peer.Instance { return &x.Heir }},
	}
}

func revokeColumns() []column[peer.Revoke] {
	type T = peer.Revoke
	return []column[T]{
		varints[T, uint16]{2, func(x *T) *uint16 { return &x.Partition }},
		varints[T, uint64]{3, func(x *T) *uint64 { return &x.Epoch.Counter }},
		fixed[T, peer.Instance]{4, func(x *T) *peer.Instance { return &x.Epoch.Instance }},
		varints[T, uint32]{5, func(x *T) *uint32 { return &x.Appointment }},
		flags[T]{6,
			func(x *T) byte { return bit(x.Drop, 1) },
			func(x *T, b byte) { x.Drop = b&1 != 0 }},
	}
}

func batchColumns() []column[peer.Batch] {
	type T = peer.Batch
	return []column[T]{
		varints[T, uint16]{2, func(x *T) *uint16 { return &x.Partition }},
		octets[T, peer.BatchKind]{3, func(x *T) *peer.BatchKind { return &x.Kind }},
		varints[T, uint64]{4, func(x *T) *uint64 { return &x.Epoch.Counter }},
		fixed[T, peer.Instance]{5, func(x *T) *peer.Instance { return &x.Epoch.Instance }},
		varints[T, uint64]{6, func(x *T) *uint64 { return &x.BaseEpoch.Counter }},
		fixed[T, peer.Instance]{7, func(x *T) *peer.Instance { return &x.BaseEpoch.Instance }},
		varints[T, uint64]{8, func(x *T) *uint64 { return &x.Base }},
		varints[T, uint64]{9, func(x *T) *uint64 { return &x.Seq }},
		flags[T]{10,
			func(x *T) byte { return bit(x.First, 1) | bit(x.Last, 2) },
			func(x *T, b byte) { x.First, x.Last = b&1 != 0, b&2 != 0 }},
		varints[T, uint32]{11, func(x *T) *uint32 { return &x.Appointment }},
		varints[T, uint64]{12, func(x *T) *uint64 { return &x.Appointed }},
		varints[T, uint32]{13, func(x *T) *uint32 { return &x.Ping }},
		varints[T, uint64]{14, func(x *T) *uint64 { return &x.Next.Counter }},
		fixed[T, peer.Instance]{15, func(x *T) *peer.Instance { return &x.Next.Instance }},
		varints[T, uint32]{16, func(x *T) *uint32 { return &x.Keys }},
		varints[T, uint32]{17, func(x *T) *uint32 { return &x.IDs }},
	}
}

func idColumns() []column[peer.ID] {
	type T = peer.ID
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.Hi }},
		fixed[T, uint64]{3, func(x *T) *uint64 { return &x.Lo }},
		zigzags[T]{4, false, func(x *T) *int64 { return &x.Time }},
		zigzags[T]{5, true, func(x *T) *int64 { return &x.Until }},
		varints[T, uint32]{6, func(x *T) *uint32 { return &x.A }},
		varints[T, uint32]{7, func(x *T) *uint32 { return &x.B }},
	}
}

func entryColumns() []column[peer.Entry] {
	type T = peer.Entry
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.Hi }},
		fixed[T, uint64]{3, func(x *T) *uint64 { return &x.Lo }},
		varints[T, uint16]{4, func(x *T) *uint16 { return &x.Limit }},
		flags[T]{5,
			func(x *T) byte { return bit(x.First, 1) | bit(x.Gone, 2) },
			func(x *T, b byte) { x.First, x.Gone = b&1 != 0, b&2 != 0 }},
		zigzags[T]{6, true, func(x *T) *int64 { return &x.Time }},
		zigzags[T]{7, true, func(x *T) *int64 { return &x.Until }},
		varints[T, uint32]{8, func(x *T) *uint32 { return &x.A }},
		varints[T, uint32]{9, func(x *T) *uint32 { return &x.B }},
	}
}

func ackColumns() []column[peer.Ack] {
	type T = peer.Ack
	return []column[T]{
		varints[T, uint16]{2, func(x *T) *uint16 { return &x.Partition }},
		octets[T, peer.AckStatus]{3, func(x *T) *peer.AckStatus { return &x.Status }},
		varints[T, uint64]{4, func(x *T) *uint64 { return &x.Epoch.Counter }},
		fixed[T, peer.Instance]{5, func(x *T) *peer.Instance { return &x.Epoch.Instance }},
		varints[T, uint32]{6, func(x *T) *uint32 { return &x.Appointment }},
		varints[T, uint32]{7, func(x *T) *uint32 { return &x.Ping }},
		varints[T, uint64]{8, func(x *T) *uint64 { return &x.Seq }},
		varints[T, uint64]{9, func(x *T) *uint64 { return &x.Owner.Counter }},
		fixed[T, peer.Instance]{10, func(x *T) *peer.Instance { return &x.Owner.Instance }},
		varints[T, uint64]{11, func(x *T) *uint64 { return &x.Top }},
	}
}

func checkColumns() []column[peer.Check] {
	type T = peer.Check
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.ID }},
		octets[T, uint8]{3, func(x *T) *uint8 { return &x.Keys }},
		flags[T]{4,
			func(x *T) byte {
				return bit(x.Peek, 1) | bit(x.Prepare, 2) | bit(x.Heir, 4) | bit(x.Sent, 8) | bit(x.Explain, 16) | bit(x.Settles,
					32) | bit(x.Final, 64)
			},
			func(x *T, b byte) {
				x.Peek, x.Prepare, x.Heir, x.Sent, x.Explain, x.Settles, x.Final = b&1 != 0, b&2 != 0, b&4 != 0, b&8 != 0,
					b&16 != 0, b&32 != 0, b&64 != 0
			}},
		varints[T, uint32]{5, func(x *T) *uint32 { return &x.Wait }},
		fixed[T, uint64]{6, func(x *T) *uint64 { return &x.ChargeID }},
		varints[T, uint64]{7, func(x *T) *uint64 { return &x.Life }},
	}
}

func keyColumns() []column[peer.Key] {
	type T = peer.Key
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.Hi }},
		fixed[T, uint64]{3, func(x *T) *uint64 { return &x.Lo }},
		varints[T, uint16]{4, func(x *T) *uint16 { return &x.Rule }},
		flags[T]{5,
			func(x *T) byte { return bit(x.Closed, 1) },
			func(x *T, b byte) { x.Closed = b&1 != 0 }},
		octets[T, uint8]{6, func(x *T) *uint8 { return &x.Index }},
		units[T]{7, func(x *T) *uint64 { return &x.Cost }},
		varints[T, uint16]{8, func(x *T) *uint16 { return &x.By }},
	}
}

func refundColumns() []column[peer.Refund] {
	type T = peer.Refund
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.ID }},
		octets[T, uint8]{3, func(x *T) *uint8 { return &x.Keys }},
		octets[T, peer.RefundKind]{4, func(x *T) *peer.RefundKind { return &x.Kind }},
		varints[T, uint64]{5, func(x *T) *uint64 { return &x.Receipt.Epoch.Counter }},
		fixed[T, peer.Instance]{6, func(x *T) *peer.Instance { return &x.Receipt.Epoch.Instance }},
		fixed[T, int64]{7, func(x *T) *int64 { return &x.Receipt.Time }},
		varints[T, uint64]{8, func(x *T) *uint64 { return &x.Receipt.Charged }},
		fixed[T, uint64]{9, func(x *T) *uint64 { return &x.Receipt.Set }},
		flags[T]{10,
			func(x *T) byte { return bit(x.Heir, 1) | bit(x.Sent, 2) | bit(x.Denied, 4) },
			func(x *T, b byte) { x.Heir, x.Sent, x.Denied = b&1 != 0, b&2 != 0, b&4 != 0 }},
		fixed[T, uint64]{11, func(x *T) *uint64 { return &x.Once }},
		fixed[T, uint64]{12, func(x *T) *uint64 { return &x.ChargeID }},
	}
}

func replyColumns() []column[peer.Reply] {
	type T = peer.Reply
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.ID }},
		octets[T, peer.ReplyStatus]{3, func(x *T) *peer.ReplyStatus { return &x.Status }},
		flags[T]{4,
			func(x *T) byte {
				return bit(x.Heir, 1) | bit(x.Idle, 2) | bit(x.Provisional, 4) | bit(x.Repeated, 8)
			},
			func(x *T, b byte) {
				x.Heir, x.Idle, x.Provisional, x.Repeated = b&1 != 0, b&2 != 0, b&4 != 0, b&8 != 0
			}},
		flags[T]{5,
			func(x *T) byte { return byte(x.Results) },
			func(x *T, b byte) { x.Results |= uint16(b) }},
		varints[T, uint64]{6, func(x *T) *uint64 { return &x.Owner.Counter }},
		fixed[T, peer.Instance]{7, func(x *T) *peer.Instance { return &x.Owner.Instance }},
		varints[T, uint64]{8, func(x *T) *uint64 { return &x.Receipt.Epoch.Counter }},
		fixed[T, peer.Instance]{9, func(x *T) *peer.Instance { return &x.Receipt.Epoch.Instance }},
		fixed[T, int64]{10, func(x *T) *int64 { return &x.Receipt.Time }},
		varints[T, uint64]{11, func(x *T) *uint64 { return &x.Receipt.Charged }},
		fixed[T, uint64]{12, func(x *T) *uint64 { return &x.Receipt.Set }},
		varints[T, uint32]{13, func(x *T) *uint32 { return &x.Count }},
		varints[T, uint16]{16, func(x *T) *uint16 { return &x.Partition }},
		varints[T, uint32]{17, func(x *T) *uint32 { return &x.Unnamed }},
		flags[T]{18,
			func(x *T) byte { return byte(x.Results >> 8) },
			func(x *T, b byte) { x.Results |= uint16(b) << 8 }},
		varints[T, uint32]{19, func(x *T) *uint32 { return &x.Known }},
	}
}

func resultColumns() []column[peer.Result] {
	type T = peer.Result
	return []column[T]{
		flags[T]{2,
			func(x *T) byte {
				return bit(x.Allowed, 1) | bit(x.Never, 2) | bit(x.Blocked, 4) | bit(x.Overflow, 8)
			},
			func(x *T, b byte) {
				x.Allowed, x.Never, x.Blocked, x.Overflow = b&1 != 0, b&2 != 0, b&4 != 0, b&8 != 0
			}},
		units[T]{3, func(x *T) *uint64 { return &x.Remaining }},
		zigzags[T]{4, false, func(x *T) *int64 { return &x.RetryAfter }},
		zigzags[T]{5, false, func(x *T) *int64 { return &x.ResetAfter }},
		units[T]{6, func(x *T) *uint64 { return &x.InForce }},
	}
}

func traceColumns() []column[peer.Trace] {
	type T = peer.Trace
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.ID }},
		fixed[T, uint64]{3, func(x *T) *uint64 { return &x.TraceHi }},
		fixed[T, uint64]{4, func(x *T) *uint64 { return &x.TraceLo }},
		fixed[T, uint64]{5, func(x *T) *uint64 { return &x.Span }},
	}
}

func holdColumns() []column[peer.Hold] {
	type T = peer.Hold
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.ID }},
		varints[T, uint64]{3, func(x *T) *uint64 { return &x.Span }},
		varints[T, uint64]{4, func(x *T) *uint64 { return &x.Life }},
		flags[T]{5,
			func(x *T) byte {
				return bit(x.Keep, 1) | bit(x.Extend, 2) | bit(x.Ignore, 4) | bit(x.Back, 8) | bit(x.Named, 16) |
					bit(x.Lent, 32) | bit(x.Lacks, 64) | bit(x.Fast, 128)
			},
			func(x *T, b byte) {
				x.Keep, x.Extend, x.Ignore, x.Back, x.Named = b&1 != 0, b&2 != 0, b&4 != 0, b&8 != 0, b&16 != 0
				x.Lent, x.Lacks, x.Fast = b&32 != 0, b&64 != 0, b&128 != 0
			}},
		varints[T, uint64]{6, func(x *T) *uint64 { return &x.End }},
		varints[T, uint64]{7, func(x *T) *uint64 { return &x.WasEnd }},
		octets[T, uint8]{8, func(x *T) *uint8 { return &x.Shape }},
		varints[T, uint64]{9, func(x *T) *uint64 { return &x.Rate }},
	}
}

func amendedColumns() []column[peer.Amended] {
	type T = peer.Amended
	return []column[T]{
		fixed[T, uint64]{2, func(x *T) *uint64 { return &x.ID }},
		octets[T, uint8]{3, func(x *T) *uint8 { return &x.State }},
		units[T]{4, func(x *T) *uint64 { return &x.First }},
		units[T]{5, func(x *T) *uint64 { return &x.Estimate }},
		varints[T, uint64]{6, func(x *T) *uint64 { return &x.Over }},
		zigzags[T]{7, false, func(x *T) *int64 { return &x.RetryAfter }},
		units[T]{8, func(x *T) *uint64 { return &x.Was }},
		varints[T, uint64]{9, func(x *T) *uint64 { return &x.End }},
		varints[T, uint64]{10, func(x *T) *uint64 { return &x.WasEnd }},
		octets[T, uint8]{11, func(x *T) *uint8 { return &x.Shape }},
		octets[T, uint8]{12, func(x *T) *uint8 { return &x.Known }},
	}
}
