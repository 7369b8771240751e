package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
)

// TestAJoiningNodeAsksInSteps: a node that still joins by its state, and owns the partition by
// its view, asks again later. It does not ask without end in one call.
func TestAJoiningNodeAsksInSteps(t *testing.T) {
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	p.fresh = false
	tn := l.turn(view.New(self, members(self), seats{0, 0}, 1, 1))
	tn.State = peer.Joining
	p.ViewChanged(tn)
	if p.seeking.seekAt <= tn.Now || p.claiming.round != nil {
		t.Fatalf("asks again at %d, with round %+v; want later than %d", p.seeking.seekAt, p.claiming.round, tn.Now)
	}
	tn.State = peer.Active
	tn.Now = p.seeking.seekAt
	p.Tick(tn)
	if p.role == peer.Nothing {
		t.Errorf("an active node that is alone does not own the partition: %v", p.role)
	}
}
