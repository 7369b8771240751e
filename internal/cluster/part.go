package cluster

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// part is what this node holds of one partition, what it knows of it, and what
// it is about. All but the atomics is under mu.
type part struct {
	c      *Core
	id     uint16
	closed bool
	// to and toHeir are whom to ask: read without the lock.
	to, toHeir atomic.Uint64
	// givenUpAt is since when the partition is given up, 0: it is not. It is read without
	// the lock.
	givenUpAt atomic.Int64

	mu sync.Mutex

	// What is held: a state of the lineage of epoch, up to seq. unpushed tells
	// that it was decided upon under epoch, by this node, and that a later owner
	// has not merged it yet.
	role        peer.Role
	epoch       peer.Epoch
	seq         uint64
	appointment uint32 // as heir, under epoch
	unpushed    bool
	pushedAt    limiter.Tick
	pushedTo    peer.Instance
	pushes      int           // how often it was sent again
	pushFrom    peer.Instance // whose push is coming in
	pushNext    uint64
	staged      []table.Entry
	stagedSeq   uint64
	stagedNext  uint64 // the part that is to come
	stagedBytes int64
	stagedAt    limiter.Tick // when the last part came
	revoked     peer.Epoch   // of the last revocation
	revokedN    uint32

	// What is known.
	owner     peer.Epoch
	heir      peer.Instance
	top       uint64
	grant     uint64
	grantTo   peer.Instance
	grantFor  peer.Instance
	grantKind peer.ClaimKind
	fresh     bool
	mine      peer.Epoch   // the highest under which this node owned
	disproved []peer.Epoch // that nobody ever owned under

	// What is going on.
	round    *round
	tries    int // of a claim that was refused
	rounds   uint32
	own      *ownership
	parked   []parked
	seekAt   limiter.Tick // when the view owner asks next, 0: not now
	seekIn   limiter.Tick // its back-off
	lost     [2]lostOwner // the owner, the heir
	quiet    limiter.Tick // no takeover before: its owner was alive
	lent     bool         // the table counts it as a copy
	flushing bool         // to be flushed with the end of a turn
	active   bool         // on the core's list of partitions to look at
	doubtAt  limiter.Tick // the owner is not doubted before
	doubtOf  peer.Epoch   // who was doubted last
	doubtIn  limiter.Tick // and the back-off of that

	// After a panic, see broken.go.
	brokeAt limiter.Tick // when it broke last, 0: never
	givenUp bool         // it is not to be held, until giveUpFor after that
	yields  bool         // it was owned here, under the owner that is known
	urgeAt  limiter.Tick // when the heir is asked next to take over
	urges   int          // how often it was
}

// lostOwner is an owner or heir that is out of view and silent, for the last
// resort.
type lostOwner struct {
	owner peer.Instance
	since limiter.Tick
}

// watch has the partition looked at with the next tick; mu is held.
func (p *part) watch(t *turn) {
	if !p.active {
		p.active = true
		p.c.activate(p)
	}
	t.arm = true
}

// aim publishes whom to ask, and tells the table whether this is a copy.
func (p *part) aim() {
	p.fault()
	p.point()
}

func (p *part) point() {
	if lent := p.role < peer.Sealed; lent != p.lent {
		p.lent = lent
		p.c.table.SetCopy(int(p.id), lent)
	}
	switch {
	case p.role >= peer.Sealed:
		p.to.Store(uint64(p.c.self))
	case p.owner.Instance != 0 && p.owner.Instance != p.c.self:
		p.to.Store(uint64(p.owner.Instance))
	default:
		p.to.Store(uint64(p.c.view.Load().owner(p.id)))
	}
	heir := p.heir
	if p.role == peer.Heir {
		heir = p.c.self
	}
	p.toHeir.Store(uint64(heir))
}

// learn takes note of an owner, and of its heir where the epoch is not older
// than what is known. Whoever owned under a lower epoch stops here.
func (p *part) learn(t *turn, owner peer.Epoch, heir peer.Instance) {
	p.top = max(p.top, owner.Counter)
	if owner.Instance == p.c.self && p.owner.Before(owner) || slices.Contains(p.disproved, owner) {
		return // the owner itself would have been the first to know
	}
	switch owner.Compare(p.owner) {
	case -1:
		return
	case 0:
		if p.heir == 0 && p.role < peer.Sealed {
			p.heir = heir // only the owner's own word replaces one that is known
			p.aim()
		}
		return
	}
	p.owner, p.heir = owner, heir
	if p.role == peer.Heir && p.epoch.Before(owner) {
		// No appointment of an earlier epoch counts.
		p.role, p.appointment = peer.Copy, 0
	}
	if p.role >= peer.Sealed && owner.Instance != p.c.self {
		p.overtaken(t)
	}
	p.seekAt, p.seekIn = 0, 0
	p.aim()
	p.settleParked(t)
}

// overtaken ends an ownership because there is a later one: p.owner.
func (p *part) overtaken(t *turn) {
	own := p.own
	if own.handover != nil && p.owner == own.handover.next {
		p.confirmed(t)
		return
	}
	p.takeBack(t, peer.NotOwner)
	p.disown()
	p.round = nil
	p.role, p.appointment, p.unpushed, p.pushes = peer.Copy, 0, true, 0
	p.pushedTo = 0
	p.c.event(EventFenced, int(p.id))
	p.push(t)
	p.watch(t)
}

// become makes this node the owner under an epoch.
func (p *part) become(t *turn, e peer.Epoch, tookOver bool) {
	before := p.owner.Instance
	p.role, p.epoch, p.owner, p.mine, p.heir = peer.Owned, e, e, e, 0
	p.top = max(p.top, e.Counter)
	p.appointment, p.fresh, p.unpushed = 0, false, false
	p.unstage()
	p.round, p.seekAt, p.seekIn = nil, 0, 0
	p.disown()
	p.own = &ownership{open: p.seq + 1, first: e.Counter, since: t.now, tookOver: tookOver, heard: p.c.pings.Load()}
	if tookOver {
		// It was just found silent: another becomes heir meanwhile.
		p.own.shunned, p.own.shunUntil = before, t.now+shunFor
	}
	p.aim()
	p.announce(t, 0)
	p.manage(t)
	p.settleParked(t)
	p.watch(t)
}

// announce tells a member, or all for 0, who owns and who is heir.
func (p *part) announce(t *turn, to peer.Instance) {
	a := peer.Announce{Partition: p.id, Epoch: p.epoch}
	if h := p.own.heir; h != nil {
		a.Heir = h.to
	}
	add := func(_ *link, f *peer.Frame) { f.Announces = append(f.Announces, a) }
	if to != 0 {
		p.c.send(t, to, 40, false, add)
		return
	}
	for i := range p.c.view.Load().Members {
		p.c.send(t, p.c.view.Load().Members[i].Instance, 40, false, add)
	}
}

func (p *part) onAnnounce(t *turn, from peer.Instance, a peer.Announce) {
	if a.Epoch.Before(p.owner) {
		// Whoever says so has been overtaken and does not know.
		p.tell(t, from)
		if from == p.owner.Instance {
			p.doubt(t)
		}
		return
	}
	p.learn(t, a.Epoch, a.Heir)
	if p.owner == a.Epoch && from == a.Epoch.Instance && p.role < peer.Sealed {
		p.heir = a.Heir
		p.aim()
	}
	if p.role == peer.Copy && !p.unpushed && a.Heir != 0 && a.Heir != p.c.self && p.epoch.Before(a.Epoch) {
		p.drop()
	}
	if p.unpushed {
		p.push(t)
	}
}

// tell names the highest owner that is known.
func (p *part) tell(t *turn, to peer.Instance) {
	a := peer.Announce{Partition: p.id, Epoch: p.owner, Heir: p.heir}
	p.c.send(t, to, 40, false, func(_ *link, f *peer.Frame) { f.Announces = append(f.Announces, a) })
}

// drop forgets a copy that nobody needs.
func (p *part) drop() {
	p.c.table.Drop(int(p.id))
	p.role, p.seq, p.appointment = peer.Nothing, 0, 0
	p.epoch = peer.Epoch{}
	p.unstage()
}

// connected does what a new connection to a member calls for.
func (p *part) connected(t *turn, i peer.Instance) {
	if p.own != nil {
		p.announce(t, i)
		for _, g := range []*target{p.own.heir, p.own.next} {
			if g != nil && g.to == i {
				g.again()
				p.watch(t)
			}
		}
		if h := p.own.handover; h != nil && h.next.Instance == i {
			h.sentAt = 0
			p.watch(t)
		}
	}
	if p.round != nil && p.round.lacks(i) {
		p.round.ask(t, p, i)
	}
	if p.unpushed && p.owner.Instance == i {
		p.pushedTo = 0
		p.push(t)
	}
}

// viewChanged looks at what a new view means for the partition.
func (p *part) viewChanged(t *turn) {
	p.aim()
	if p.own != nil && p.unguarded() {
		p.release(t) // it is alone now: nobody's word is waited for
	}
	if p.round != nil {
		p.round.viewChanged(t, p)
	}
	p.manage(t)
}

// manage works towards the state that the view calls for. It is called after
// anything that may have changed something, and does nothing twice.
func (p *part) manage(t *turn) {
	switch {
	case p.givenUp:
	case p.role == peer.Owned:
		p.manageHeir(t)
	case p.role == peer.Sealed:
	case p.fresh:
		p.learnFirst(t)
	case p.role == peer.Heir && p.round == nil && !p.c.view.Load().has(p.owner.Instance):
		p.takeOver(t)
	case p.role != peer.Heir && p.c.view.Load().owner(p.id) == p.c.self:
		p.seek(t)
	}
}

// tick looks after what waits, and reports whether anything does.
func (p *part) tick(t *turn) bool {
	p.fault()
	if p.round != nil {
		p.round.tick(t, p)
	}
	if p.own != nil {
		p.tickOwner(t)
	}
	if p.unpushed && t.now-p.pushedAt >= backedOff(resendAfter, p.pushes) {
		p.pushes++
		p.pushedTo = 0
		p.push(t)
		if p.pushes >= doubtAfter {
			p.doubt(t)
		}
	}
	p.expireParked(t)
	broken := p.tickBroken(t)
	p.manage(t)
	staging := p.tickStage(t)
	return staging || broken || p.round != nil || p.own != nil && (p.own.busy() || p.lonely() || p.own.giver != 0 && t.now-p.own.since <= backAfter) || p.unpushed || len(p.parked) > 0 || p.seekAt != 0 || p.fresh && p.c.mayLearn()
}

// late tells that this node stood still for a while: what the silence of others
// seemed to say counts from now.
func (p *part) late(t *turn) {
	if p.round != nil {
		p.round.restart(t, p)
	}
	for i := range p.lost {
		p.lost[i].since = t.now
	}
	if own := p.own; own != nil {
		for _, g := range []*target{own.heir, own.next} {
			if g != nil {
				g.waitFrom(t.now)
			}
		}
		if own.waitSince != 0 {
			own.waitSince = t.now
		}
		if h := own.handover; h != nil {
			h.sentAt, h.goneAt = 0, 0
		}
	}
}
