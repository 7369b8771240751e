package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A node that leaves says so on each of its connections, also to a member that its gossip has not shown it yet, and to
// one that connects while it leaves. Otherwise those give it requests to relay until it ends, and lose them.
func TestWhoLeavesTellsAllInReach(t *testing.T) {
	const later, last peer.Instance = 0xd, 0xe
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	c.Up(later)
	told := func(to peer.Instance) (n int) {
		for f := c.Take(to, true); f != nil; f = c.Take(to, true) {
			for _, k := range f.Known {
				if k.Instance == self && k.Gone && !k.Left {
					n++
				}
			}
		}
		return n
	}
	told(later)
	for range 2 {
		c.SetView(view.New(self, []peer.Member{
			{Name: "a", Instance: self, State: peer.Leaving, Wire: peer.LeaseWire - 1},
			{Name: "b", Instance: other, State: peer.Active, Wire: peer.LeaseWire - 1},
			{Name: "c", Instance: third, State: peer.Active, Wire: peer.LeaseWire - 1},
		}, h, 3, 3))
	}
	c.Up(last)
	for to, name := range map[peer.Instance]string{
		other: "a member of the view", later: "a member that is not in the view", last: "a member that connects",
	} {
		if n := told(to); n != 1 {
			t.Errorf("%s: it is told %d times, want once", name, n)
		}
	}
}
