package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A receipt is good at the owner that gave it, for as long as it owns. The other side of a
// split counts its epochs in the same way.
func TestReceiptsOfAnotherLineage(t *testing.T) {
	const stranger = 1 << 40 // instances are random, and not a few apart
	_, p, tn := closedOwner(t)
	first := limiter.Receipt{Epoch: p.Lineage()}
	p.renewed(tn, peer.Epoch{Counter: 7, Instance: self})
	for name, one := range map[string]struct {
		epoch uint64
		want  bool
	}{
		"of the first epoch":                   {first.Epoch, true},
		"of the present epoch":                 {p.Lineage(), true},
		"from before this node owned":          {first.Epoch - 1, false},
		"of a later epoch":                     {p.Lineage() + 1, false},
		"of another member, the first epoch":   {4 + stranger, false},
		"of another member, the present epoch": {7 + stranger, false},
		"of no member":                         {4, false},
	} {
		if got := p.own.Issued(limiter.Receipt{Epoch: one.epoch}); got != one.want {
			t.Errorf("a receipt %s is good: %t, want %t", name, got, one.want)
		}
	}
}
