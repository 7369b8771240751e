package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// onTheirWay returns how many snapshots count as under way to a member.
func onTheirWay(c *Core, to peer.Instance) int {
	l := c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.snapshots
}

// Only so many snapshots may be under way to one member. If finished ones went on
// counting, the member could one day be made no heir any more, and get no handover, for
// as long as the connection lasts.
func TestSnapshotsThatAreOverCountNoMore(t *testing.T) {
	for what, over := range map[string]func(c *Core, p *part, tn *turn){
		"the owner is overtaken": func(_ *Core, p *part, tn *turn) {
			p.learn(tn, peer.Epoch{Counter: 9, Instance: other}, 0)
		},
		"the owner begins anew": func(_ *Core, p *part, tn *turn) {
			p.become(tn, peer.Epoch{Counter: 9, Instance: self}, false)
		},
		"the copy is given up": func(_ *Core, p *part, _ *turn) { p.leaveOff() },
		"the copy has arrived": func(_ *Core, p *part, tn *turn) {
			p.reached(p.own.next, &peer.Ack{Partition: p.id, Epoch: p.epoch, Seq: p.seq, Ping: p.own.next.ping}, tn.now)
		},
		"the heir that lacked something has it": func(_ *Core, p *part, tn *turn) {
			p.leaveOff()
			p.reached(p.own.heir, &peer.Ack{Partition: p.id, Epoch: p.epoch, Status: peer.Gap}, tn.now)
			p.snapshot(tn, p.own.heir)
			p.reached(p.own.heir, &peer.Ack{Partition: p.id, Epoch: p.epoch, Seq: p.seq, Ping: p.own.heir.ping}, tn.now)
		},
	} {
		c, p, _, _ := single(t, limiter.UnreachableClosed)
		own(c, p, 4)
		tn := c.begin()
		p.mu.Lock()
		p.own.next = &target{to: third}
		p.snapshot(tn, p.own.next)
		if n := onTheirWay(c, third); n != 1 {
			t.Errorf("%s: %d snapshots count as on their way while one is", what, n)
		}
		over(c, p, tn)
		if own := p.own; own != nil { // it may have begun others
			if own.next != nil && own.next.begun && !own.next.whole {
				p.uncount(own.next)
			}
		}
		for _, to := range []peer.Instance{other, third} {
			if n := onTheirWay(c, to); n != 0 {
				t.Errorf("%s: %d snapshots to %v still count", what, n, to)
			}
		}
		p.mu.Unlock()
		tn.end()
	}
}
