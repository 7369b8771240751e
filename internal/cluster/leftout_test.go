package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A denial of the other keys begins a block of one of them. The heir gets that one.
func TestABlockOfTheOtherKeysIsCopied(t *testing.T) {
	c, p, h, charge := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Window: 24 * time.Hour,
		Block: time.Hour})
	k := charge.Key(0)
	x := &identified{reservedAt{T: t, c: c, p: p, h: h, key: peer.Key{Hi: k.Hash.Hi, Lo: k.Hash.Lo},
		rule: mesh.Definition(k.Rule)}, 77}
	x.try(third, 1, false)
	key, more := x.key, x.key
	key.Cost, more.Hi, more.Index, more.Cost = 4, x.key.Hi+1, 1, 10
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{more},
		Checks: []peer.Check{{ID: 2, Keys: 1, Wait: uint32(firstWait)}}})
	x.acknowledge()
	more.Cost = 1
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{key, more},
		Checks: []peer.Check{{
			ID: 3, Keys: 2, Wait: uint32(firstWait), ChargeID: x.id, Life: uint64(limiter.Minute),
		}}})
	x.h.pass(20 * limiter.Millisecond)
	var copied []uint64
	for f := x.c.Take(other, true); f != nil; f = x.c.Take(other, true) {
		for i := range f.Entries {
			copied = append(copied, f.Entries[i].Hi)
		}
	}
	if len(copied) != 1 || copied[0] != more.Hi {
		t.Errorf("copied is %x, want %x", copied, more.Hi)
	}
}
