package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/peer"
)

// When the deadline ends a check over several owners, its caller has his memory
// back: what becomes of the parts afterwards is written nowhere that he sees.
func TestSeveralAfterTheDeadline(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	charge := &limiter.Charge{}
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
	var owners []peer.Instance
	for lo := uint64(1); len(owners) < 2; lo += 1 << 60 {
		k := limiter.Key{Hash: limiter.Hash{Hi: lo, Lo: lo}, Rule: rule, Cost: 1, Index: uint8(len(owners))}
		id := table.PartitionOf(&k)
		if c.byID[id] == nil {
			c.manages(id)
		}
		p, owner := c.byID[id], []peer.Instance{other, third}[len(owners)]
		p.fresh, p.owner = false, peer.Epoch{Counter: 1, Instance: owner}
		p.aim()
		charge.Add(k)
		owners = append(owners, owner)
	}
	answer, told := new(limiter.Decision), 0
	c.Begin(charge, answer, h.now+20*limiter.Millisecond, func() {
		told++
		if answer.Source != limiter.SourceFallbackLocal && answer.Source != limiter.SourceFallbackOpen {
			t.Errorf("%v answers", answer.Source)
		}
		answer.Clear() // what the caller does next
		charge.Clear()
	})
	h.pass(100 * limiter.Millisecond)
	if told != 1 || answer.Len() != 0 || charge.Unnamed != 0 || charge.Len() != 0 {
		t.Errorf("told %d times, and afterwards there are %d limits", told, answer.Len())
	}
}
