package cluster

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// part is this node's replica of one partition: the state held, what is known of it, and
// what is going on. mu guards all fields except the atomics.
type part struct {
	c      *Core
	id     uint16
	closed bool
	// to and toHeir are the owner and the heir to ask, 0 if unknown. They are read
	// without the lock.
	to, toHeir atomic.Uint64
	// givenUpAt is when the partition was given up; 0 if it is not. It is read without
	// the lock.
	givenUpAt atomic.Int64

	mu sync.Mutex

	// The state held: the counters under epoch, up to seq. unpushed means that this node
	// decided under epoch as an owner that has been overtaken, and that the later owner
	// has not merged that state yet.
	role        peer.Role
	epoch       peer.Epoch
	seq         uint64
	appointment uint32 // number of its appointment as heir under epoch; 0 if it is not heir
	unpushed    bool
	pushedAt    limiter.Tick
	pushedTo    peer.Instance
	pushes      int           // resends of the push
	pushFrom    peer.Instance // sender of the push that is arriving
	pushNext    uint64
	staged      []table.Entry
	stagedSeq   uint64
	stagedNext  uint64 // index of the next part
	stagedBytes int64
	stagedAt    limiter.Tick // when the last part arrived
	revoked     peer.Epoch   // epoch of the last revocation
	revokedN    uint32

	// What is known of the partition: the highest owner, its heir, the highest counter
	// of any epoch or claim seen (top), and the highest claim that this node granted
	// (grant).
	owner     peer.Epoch
	heir      peer.Instance
	top       uint64
	grant     uint64
	grantTo   peer.Instance
	grantFor  peer.Instance
	grantKind peer.ClaimKind
	fresh     bool
	mine      peer.Epoch   // the highest epoch under which this node owned
	disproved []peer.Epoch // epochs that their instance denies ever having owned

	// The work in progress.
	round    *round
	tries    int // refusals of the present claim in a row
	rounds   uint32
	own      *ownership
	parked   []parked
	seekAt   limiter.Tick // when the view owner asks next; 0 if it need not
	seekIn   limiter.Tick // back-off of those questions
	lost     [2]lostOwner // the owner and the heir, for gone
	quiet    limiter.Tick // no takeover before this time: its owner was alive
	lent     bool         // the table counts this partition as a copy
	flushing bool         // to be flushed at the end of the turn
	active   bool         // on the core's list of partitions to look at
	doubtAt  limiter.Tick // the owner is not doubted before this time
	doubtOf  peer.Epoch   // the owner that was doubted last
	doubtIn  limiter.Tick // back-off of those doubts

	// State after a panic, see broken.go.
	brokeAt limiter.Tick // when it broke last; 0 if never
	givenUp bool         // nothing is held of it until giveUpFor after brokeAt
	yields  bool         // this node owned it when it broke; its heir is asked to take over
	urgeAt  limiter.Tick // when the heir is asked next
	urges   int          // how often it was asked
}

// lostOwner is an owner or heir that is silent and that this node never saw in the view;
// since is when it was first asked. The last resort uses it.
type lostOwner struct {
	owner peer.Instance
	since limiter.Tick
}

// watch schedules the partition for the next tick. mu is held.
func (p *part) watch(t *turn) {
	if !p.active {
		p.active = true
		p.c.activate(p)
	}
	t.arm = true
}

// aim publishes the owner and heir to ask, and tells the table whether this is a copy.
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
		p.to.Store(uint64(p.c.view.Load().Owner(p.id)))
	}
	heir := p.heir
	if p.role == peer.Heir {
		heir = p.c.self
	}
	p.toHeir.Store(uint64(heir))
}

// learn records an owner, and its heir, unless a later owner is known. An owner under a
// lower epoch stops deciding here.
func (p *part) learn(t *turn, owner peer.Epoch, heir peer.Instance) {
	p.top = max(p.top, owner.Counter)
	if owner.Instance == p.c.self && p.owner.Before(owner) || slices.Contains(p.disproved, owner) {
		return // this node would have been the first to know of its own epoch
	}
	switch owner.Compare(p.owner) {
	case -1:
		return
	case 0:
		if p.heir == 0 && p.role < peer.Sealed {
			p.heir = heir // a known heir is replaced only by what the owner itself says
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

// overtaken ends this node's ownership because there is a later one, p.owner.
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
		// The former owner was just found silent, so another member becomes heir
		// meanwhile.
		p.own.shunned, p.own.shunUntil = before, t.now+shunFor
	}
	p.aim()
	p.announce(t, 0)
	p.manage(t)
	p.settleParked(t)
	p.watch(t)
}

// announce tells a member, or all members if to is 0, who owns the partition and who is
// heir.
func (p *part) announce(t *turn, to peer.Instance) {
	a := peer.Announce{Partition: p.id, Epoch: p.epoch}
	if h := p.own.heir; h != nil {
		a.Heir = h.to
	}
	if to != 0 {
		p.c.sendAnnounce(t, to, a)
		return
	}
	for i := range p.c.view.Load().Members {
		p.c.sendAnnounce(t, p.c.view.Load().Members[i].Instance, a)
	}
}

func (p *part) onAnnounce(t *turn, from peer.Instance, a peer.Announce) {
	if a.Epoch.Before(p.owner) {
		// The sender has been overtaken and does not know it.
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

// tell sends a member the highest owner that this node knows.
func (p *part) tell(t *turn, to peer.Instance) {
	a := peer.Announce{Partition: p.id, Epoch: p.owner, Heir: p.heir}
	p.c.sendAnnounce(t, to, a)
}

// drop discards a copy that is not needed.
func (p *part) drop() {
	p.c.table.Drop(int(p.id))
	p.role, p.seq, p.appointment = peer.Nothing, 0, 0
	p.epoch = peer.Epoch{}
	p.unstage()
}

// connected does what a new connection to a member calls for: it announces, and repeats
// what may have been lost.
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

// viewChanged adapts the partition to a new view.
func (p *part) viewChanged(t *turn) {
	p.aim()
	if p.own != nil && p.unguarded() {
		p.release(t) // no member can be its heir now, so no reply waits
	}
	if p.round != nil {
		p.round.viewChanged(t, p)
	}
	p.manage(t)
}

// manage works towards the state that the view calls for. It is called after any change,
// and is idempotent.
func (p *part) manage(t *turn) {
	switch {
	case p.givenUp:
	case p.role == peer.Owned:
		p.manageHeir(t)
	case p.role == peer.Sealed:
	case p.fresh:
		p.learnFirst(t)
	case p.role == peer.Heir && p.round == nil && !p.c.view.Load().Has(p.owner.Instance):
		p.takeOver(t)
	case p.role != peer.Heir && p.c.view.Load().Owner(p.id) == p.c.self:
		p.seek(t)
	}
}

// tick does the work that is due, and reports whether more is pending.
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

// late restarts all waits after this node was paused, because the silence of others
// during the pause proves nothing.
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
