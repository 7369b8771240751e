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

// A copy that has what a batch builds on, and did not take it, has no room: it is sent the same after a while. One that
// lacks something is sent that at once.
func TestACopyWithoutRoomIsSentTheSameLater(t *testing.T) {
	for has, want := range map[uint64][2]int{2: {0, 1}, 1: {1, 1}} {
		_, p, tn := closedOwner(t)
		o, g := p.own, p.own.heir
		o.held.seq, g.begun, g.base, g.sent, g.acked = 3, true, p.epoch, 2, 2
		sends := func() int {
			o.feed(tn, g, false)
			n := len(sent(tn, SendBatch))
			tn.List = nil
			return n
		}
		if sends() != 1 {
			t.Fatal("premise: it is sent what it lacks")
		}
		p.Step(tn, other, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Gap, Epoch: p.epoch, Owner: p.owner,
			Ping: g.ping, Seq: has}})
		atOnce := sends()
		tn.Now += resendAfter
		if got := [2]int{atOnce, sends()}; got != want {
			t.Errorf("it has %d of 2: sent at once and later %d, want %d", has, got, want)
		}
	}
}
