package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
)

// Only so many snapshots may be under way to one member. If finished ones went on
// counting, the member could one day be made no heir any more, and get no handover, for
// as long as the connection lasts.
func TestSnapshotsThatAreOverCountNoMore(t *testing.T) {
	for what, over := range map[string]func(p *Replica, tn *Step){
		"the owner is fenced": func(p *Replica, tn *Step) {
			p.learn(tn, peer.Epoch{Counter: 9, Instance: other}, 0)
		},
		"the owner begins anew": func(p *Replica, tn *Step) {
			p.become(tn, peer.Epoch{Counter: 9, Instance: self}, false)
		},
		"the copy is given up": func(p *Replica, _ *Step) { p.own.stopPreparing() },
		"the copy has arrived": func(p *Replica, tn *Step) {
			p.own.next.reached(&peer.Ack{Partition: p.id, Epoch: p.epoch, Seq: p.seq, Ping: p.own.next.ping}, &p.state, tn.Now,
				p.node.Peers)
		},
		"the heir that lacked something has it": func(p *Replica, tn *Step) {
			p.own.stopPreparing()
			p.own.heir.reached(&peer.Ack{Partition: p.id, Epoch: p.epoch, Status: peer.Gap}, &p.state, tn.Now, p.node.Peers)
			p.own.snapshot(tn, p.own.heir)
			p.own.heir.reached(&peer.Ack{Partition: p.id, Epoch: p.epoch, Seq: p.seq, Ping: p.own.heir.ping}, &p.state, tn.Now,
				p.node.Peers)
		},
	} {
		l, p, tn := closedOwner(t)
		p.own.next = &target{to: third}
		p.own.snapshot(tn, p.own.next)
		if n := l.snapshots[third]; n != 1 {
			t.Errorf("%s: %d snapshots count as on their way while one is", what, n)
		}
		over(p, tn)
		if own := p.own; own != nil { // it may have begun others
			if own.next != nil && own.next.begun && !own.next.whole {
				own.next.uncount(p.node.Peers)
			}
		}
		for _, to := range []peer.Instance{other, third} {
			if n := l.snapshots[to]; n != 0 {
				t.Errorf("%s: %d snapshots to %v still count", what, n, to)
			}
		}
	}
}
