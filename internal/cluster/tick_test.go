package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A partition whose batch is under way needs no tick until the batch may be sent again.
// An acknowledgement brings that forward to when the next batch is due.
func TestABatchIsDueAfterAnAcknowledgement(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	check := func() {
		k := charge.Clone()
		k.Key(0).Cost = 1 // less than D: no batch is urgent
		c.Begin(k, new(limiter.Decision), 0, func() {})
	}
	check()
	h.pass(2 * replica.TickEvery)
	sent := drain(c)[other].Batches
	if len(sent) != 1 {
		t.Fatalf("premise: %d batches, want that of the first check", len(sent))
	}
	check()
	h.pass(replica.TickEvery)
	c.Deliver(&peer.Frame{From: other, To: self, Acks: []peer.Ack{
		{Partition: p.id, Epoch: sent[0].Epoch, Seq: sent[0].Seq, Appointment: sent[0].Appointment, Ping: sent[0].Ping},
	}})
	if b := drain(c)[other].Batches; len(b) != 0 {
		t.Errorf("the acknowledgement sends %+v, and the second check's batch is not due", b)
	}
	h.pass(replica.TickEvery)
	if b := drain(c)[other].Batches; len(b) != 1 || b[0].Seq != sent[0].Seq+1 {
		t.Errorf("two ticks after the second check %+v is sent, want its batch", b)
	}
	h.pass(20 * replica.TickEvery)
	if b := drain(c)[other].Batches; len(b) == 0 {
		t.Error("a batch that is not acknowledged is not sent again")
	}
}
