package replica

import (
	"math"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Reply is a decision whose reply is withheld, perhaps by several partitions. Its
// methods may be called under the locks of any of them. Its wait ends once: by the last
// Release, or by the first Refuse.
type Reply interface {
	// Facts returns what the replica must know of it.
	Facts() *Withheld
	// Over reports whether its wait has ended, perhaps in another partition.
	Over() bool
	// TakeBack ends its wait, so that its charge can be taken back. It reports false if
	// the wait had ended already.
	TakeBack() bool
}

// Withheld is what a replica knows of a reply that is withheld. It does not change.
type Withheld struct {
	Charge  *limiter.Charge
	Receipt limiter.Receipt
	// Since is when it began to wait, Until the deadline of its request.
	Since, Until limiter.Tick
}

// withheldReply is a reply that this partition withholds.
type withheldReply struct {
	Reply
	stamp uint64
}

// release sends the withheld replies that need not wait any longer: the heir has their
// charges, or they fit within [Replica.cap].
func (p *Replica) release(t *Turn) {
	own := p.own
	acked := uint64(0)
	if own.heir != nil {
		acked = own.heir.acked
	}
	n := 0
	for _, h := range own.withheld {
		switch {
		case h.Over():
		case own.heir != nil && h.stamp <= acked || p.admits(t, h):
			p.releaseOne(t, h)
		default:
			own.withheld[n] = h
			n++
		}
	}
	clear(own.withheld[n:])
	own.withheld = own.withheld[:n]
	if n == 0 {
		own.waitSince, own.byPolicy = 0, false
	} else {
		own.waitSince = own.withheld[0].Facts().Since
	}
}

// admits reports whether a withheld reply fits within what may be answered now. If so,
// it counts the reply as answered.
func (p *Replica) admits(t *Turn, h withheldReply) bool {
	charge := h.Facts().Charge
	for i := range charge.Len() {
		k := charge.Key(i)
		if k.Cost == 0 || k.Rule.Replication == limiter.ReplicationOff || !p.holds(k) {
			continue
		}
		var have uint64
		if d := p.own.dirty.find(k.Hash.Hi); d != nil {
			have = d.old + d.new
		}
		if limit := p.cap(t, k.Rule); limit != math.MaxUint64 && have+uint64(k.Cost) > limit {
			return false
		}
	}
	for i := range charge.Len() {
		k := charge.Key(i)
		if k.Cost == 0 || !p.holds(k) {
			continue
		}
		if d := p.own.dirty.find(k.Hash.Hi); d != nil {
			if d.newSeq >= h.stamp {
				d.new += uint64(k.Cost)
			} else {
				d.old, d.oldSeq = d.old+uint64(k.Cost), max(d.oldSeq, h.stamp)
			}
		}
	}
	return true
}

// releaseOne ends a reply's wait in this partition. The reply is sent when the last partition
// lets it go.
func (p *Replica) releaseOne(t *Turn, h withheldReply) { t.add(Release, 0).Reply = h.Reply }

// takeBack undoes the charges of all withheld replies and answers their askers with
// status.
func (p *Replica) takeBack(t *Turn, status peer.ReplyStatus) {
	own := p.own
	for _, h := range own.withheld {
		if h.TakeBack() {
			p.undo(t, h)
			p.refuseReply(t, h.Reply, status)
		}
	}
	clear(own.withheld)
	own.withheld = own.withheld[:0]
	own.waitSince, own.byPolicy = 0, false
}

// undo takes back the charge of a withheld reply.
func (p *Replica) undo(t *Turn, h withheldReply) {
	w := h.Facts()
	p.node.Store.Refund(t.At, w.Charge, w.Receipt)
	for i := range w.Charge.Len() {
		if k := w.Charge.Key(i); p.holds(k) {
			p.Charged(t, k, 0)
		}
	}
}

// silentHeir reports whether replies have waited so long that the policy decides: the
// heir answered no ping in time that was sent after the replies began to wait.
//
// After a pause of this node, the heir may have taken over, and its message may be late
// because both nodes first work off what has piled up. So until the heir has answered a
// later ping, or EaseFor has passed, silentHeir reports false.
func (p *Replica) silentHeir(t *Turn) bool {
	own := p.own
	h := own.heir
	if since, ping := p.node.Pace.Awake(); t.Now-since < EaseFor && int32(own.heard-ping) <= 0 {
		return false
	}
	if h == nil {
		return t.Now-own.waitSince >= pingWithin
	}
	return h.waitSilentSince != 0 && h.waitSilentSince >= own.waitSince && t.Now-h.waitSilentSince >= p.node.Peers.Patience(h.to, pingWithin)
}

// expireWithheld takes back the charges of withheld replies whose deadline has passed.
func (p *Replica) expireWithheld(t *Turn) {
	own, n := p.own, 0
	for _, h := range own.withheld {
		switch {
		case h.Over():
		case t.Now >= h.Facts().Until:
			if h.TakeBack() {
				p.undo(t, h)
				p.refuseReply(t, h.Reply, peer.Overloaded)
			}
		default:
			own.withheld[n] = h
			n++
		}
	}
	clear(own.withheld[n:])
	own.withheld = own.withheld[:n]
	if n == 0 {
		own.waitSince, own.byPolicy = 0, false
	}
}

// Withhold keeps a reply until the heir has the charge. stamp is what
// [Replica.Charged] returned.
func (p *Replica) Withhold(t *Turn, r Reply, stamp uint64) {
	own := p.own
	own.withheld = append(own.withheld, withheldReply{Reply: r, stamp: stamp})
	if own.waitSince == 0 {
		own.waitSince = t.Now
	}
	own.makeUrgent(t)
	p.watch(t)
}

// Congested reports whether no further reply may be withheld. The replica must own.
func (p *Replica) Congested() bool { return len(p.own.withheld) >= maxWithheld }
