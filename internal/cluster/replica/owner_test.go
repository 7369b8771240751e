package replica

import (
	"testing"

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
