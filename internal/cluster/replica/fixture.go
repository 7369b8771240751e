package replica

import "github.com/weirlimit/weir/internal/peer"

// Fixture is a state for tests to begin with, instead of the messages that lead to it.
type Fixture struct {
	Role  peer.Role
	Epoch peer.Epoch // of the state held
	Owner peer.Epoch // the highest ownership known
	// Heir is the heir that the owner has announced. The heir of an owner has every
	// change, and was appointed as the first of the epoch. An owner may have none.
	Heir peer.Instance
	// TookOver means that the owner has taken over from another.
	TookOver bool
	// Fresh means that the node does not know what the others hold.
	Fresh bool
}

// Begin puts the replica into a state, without the effects that a change to it has. The
// sequence and what an owner has begun stay. Requests that wait are handled again if this
// node decides now.
func (p *Replica) Begin(t *Step, f Fixture) {
	p.role, p.epoch, p.owner, p.heir, p.fresh = f.Role, f.Epoch, f.Owner, f.Heir, f.Fresh
	p.top = max(p.top, f.Epoch.Counter, f.Owner.Counter)
	p.claiming.round, p.appointment = nil, 0
	if f.Role == peer.Heir {
		p.appointment = 1
	}
	switch {
	case f.Role < peer.Sealed:
		p.disown()
	case p.own == nil:
		p.own = p.newOwnership(t)
		p.own.appointing, p.own.heard = 1, p.node.Pace.LastPing()
	}
	if own := p.own; own != nil {
		p.mine, own.tookOver = f.Epoch, f.TookOver
		switch {
		case f.Heir == 0:
			own.heir = nil
		case own.heir == nil || own.heir.to != f.Heir:
			own.heir = &target{to: f.Heir, base: f.Epoch, begun: true, whole: true, sent: p.seq, acked: p.seq, appointment: 1}
		}
		p.watch(t)
	}
	p.reroute(t)
	p.settleParked(t)
}
