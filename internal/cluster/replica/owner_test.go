package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A receipt is good at the owner that gave it, for as long as it owns: under each of its
// epochs, and not after another member has owned.
func TestReceiptsOfAnotherLineage(t *testing.T) {
	l, p, tn := closedOwner(t)
	began := l.now
	tn.Now += limiter.Second
	tn.At = tn.Now
	p.renewed(tn, peer.Epoch{Counter: 7, Instance: self})
	for name, one := range map[string]struct {
		receipt limiter.Receipt
		want    bool
	}{
		"of the first epoch":          {arith.NewReceipt(arith.ReceiptFields{Epoch: p.Lineage(), Time: began}), true},
		"of the present epoch":        {arith.NewReceipt(arith.ReceiptFields{Epoch: p.Lineage(), Time: tn.At}), true},
		"from before this node owned": {arith.NewReceipt(arith.ReceiptFields{Epoch: p.Lineage(), Time: began - 1}), false},
		"of another member":           {arith.NewReceipt(arith.ReceiptFields{Epoch: uint64(other), Time: tn.At}), false},
		"of no member":                {arith.NewReceipt(arith.ReceiptFields{Time: tn.At}), false},
	} {
		if got := p.own.Issued(one.receipt); got != one.want {
			t.Errorf("a receipt %s is good: %t, want %t", name, got, one.want)
		}
	}
}

// A partition keeps a bounded number of replies for which later attempts wait, though others withhold them.
func TestTooManyAwaitedRepliesAreCongestion(t *testing.T) {
	p, tn := begins(peer.Owned)
	o := p.Own()
	for i := range maxWithheld {
		if o.Congested() {
			t.Fatalf("it is congested by %d replies", i)
		}
		Await(tn, o, withheldCheck{&question{}})
	}
	if !o.Congested() {
		t.Errorf("%d replies are no congestion", maxWithheld)
	}
}

// An heir that was asked to give up its appointment for another member, and is wanted again before it has answered,
// may have given it up: it is asked until it answers, and then appointed anew.
func TestAnHeirThatIsWantedAgainIsAskedWhatItIs(t *testing.T) {
	l, p, tn := closedOwner(t)
	before := tn.View
	tn.View = view.New(self, members(self, other, third), seats{0, 2}, 3, 3)
	p.ViewChanged(tn)
	b := sent(tn, SendBatch)[0].Batch
	tn.Reset()
	p.Step(tn, third, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Acked, Epoch: b.Epoch, Ping: b.Ping, Seq: b.Seq,
		Owner: b.Epoch}})
	if r := sent(tn, SendRevoke); len(r) != 1 || r[0].To != other {
		t.Fatalf("premise: the heir is asked to give up its appointment: %+v", r)
	}
	tn.View = before
	p.ViewChanged(tn)
	tn.Reset()
	l.now += resendAfter
	tn.Now, tn.At = l.now, l.now
	p.Tick(tn)
	r := sent(tn, SendRevoke)
	if len(r) != 1 || r[0].To != other || p.settled(tn) {
		t.Fatalf("the heir is wanted again: it is asked %+v, and the partition is settled: %t", r, p.settled(tn))
	}
	p.Step(tn, other, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Revoked, Epoch: p.epoch,
		Appointment: r[0].Revoke.Appointment, Owner: p.owner}})
	if p.own.heir != nil || p.own.next == nil || p.own.next.to != other {
		t.Errorf("it has given it up, and is not appointed anew: heir %+v, next %+v", p.own.heir, p.own.next)
	}
}
