package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The charge of a check is taken back for all its keys if one partition withholds the reply until the
// deadline. So an attempt that shares a key with it waits, also if the partition of that key does not
// withhold the reply: since its heir has the charge, or since the charge is within D.
func TestAnAttemptWaitsForAReplyWithheldElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		cost     uint64 // of the key that both attempts have; D is 1
		answered bool   // all is acknowledged in the end
	}{
		"acknowledged here, taken back":   {4, false},
		"acknowledged here, then there":   {4, true},
		"never withheld here, taken back": {1, false},
		"never withheld here, then acked": {1, true},
	} {
		x := newIdentified(t, limiter.ReplicationLag)
		like := &limiter.Charge{}
		like.Add(limiter.Key{Hash: limiter.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r")})
		more := spread(x.c, like, self).Key(0)
		there := x.c.byID[table.PartitionOf(more)]
		own(x.c, there)
		acked := func(p *partition) {
			e := look(p).Epoch
			x.c.Deliver(&peer.Frame{From: other, To: self, Acks: []peer.Ack{{Partition: p.id, Epoch: e, Seq: 1 << 30, Appointment: 1, Owner: e}}})
			x.h.pass(2 * replica.TickEvery)
		}
		const wait = 2 * limiter.Second
		here := x.key
		here.Cost = test.cost
		x.c.Deliver(&peer.Frame{
			From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{here, {Hi: more.Hash.Hi, Lo: more.Hash.Lo, Cost: 4, Index: 1}},
			Checks: []peer.Check{{ID: 1, Keys: 2, Wait: uint32(firstWait), ChargeID: x.id, Life: uint64(limiter.Minute)}},
		})
		x.wants(10-test.cost, name+": at first")
		acked(x.p)
		if r := x.reply(third, 1); r != nil || look(x.p).Withheld != 0 || look(there).Withheld != 1 {
			t.Fatalf("%s: premise: the reply is withheld there only: %+v", name, r)
		}
		if r := x.check(other, 2, test.cost, peer.Check{Wait: uint32(wait), ChargeID: x.id, Life: uint64(limiter.Minute)}); r != nil {
			t.Fatalf("%s: another attempt is told %+v", name, r)
		}
		if test.answered {
			acked(there)
		} else {
			x.h.pass(firstWait + 2*replica.TickEvery) // then the first gives up
			acked(x.p)
		}
		r := x.reply(other, 2)
		if r == nil || r.Status != peer.Decided || r.Repeated != test.answered {
			t.Errorf("%s: then it is told %+v", name, r)
		}
		x.wants(10-test.cost, name+": in the end")
	}
}

// An attempt may be decided in another partition as soon as a reply is over. So it is not over before its
// charge is taken back.
func TestAReplyIsOverWhenItsChargeIsTakenBack(t *testing.T) {
	h := new(withheldReply)
	undone := false
	if !h.TakeBack(func() { undone = true; notOver(t, h) }) || !undone || !h.Over() {
		t.Errorf("taken back %t, over %t", undone, h.Over())
	}
	if h.TakeBack(func() { t.Error("a charge is taken back twice") }) {
		t.Error("a reply ends twice")
	}
}

func notOver(t *testing.T, h *withheldReply) {
	t.Helper()
	if h.Over() {
		t.Error("a reply is over before its charge is taken back")
	}
}
