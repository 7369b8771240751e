// Package replica is the protocol of one partition at one node: a state machine that
// decides who owns the partition, who is heir, what is copied, and which replies are
// withheld. It takes messages, ticks and views, and leaves what is to be done as
// [Effects]. It has no lock, starts nothing, and knows neither links nor calls.
package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Replica is this node's replica of one partition: the state held, what is known of it,
// and what is going on. It is not safe for concurrent use: the shell locks it.
type Replica struct {
	node   *Node
	id     uint16
	closed bool

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
	round   *round
	tries   int // refusals of the present claim in a row
	rounds  uint32
	own     *ownership
	parked  []Request
	seekAt  limiter.Tick // when the view owner asks next; 0 if it need not
	seekIn  limiter.Tick // back-off of those questions
	lost    [2]lostOwner // the owner and the heir, for gone
	quiet   limiter.Tick // no takeover before this time: its owner was alive
	lent    bool         // the table counts this partition as a copy
	doubtAt limiter.Tick // the owner is not doubted before this time
	doubtOf peer.Epoch   // the owner that was doubted last
	doubtIn limiter.Tick // back-off of those doubts

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

// New returns the replica of a partition about which nothing is known yet. node must not
// change any more.
func New(node *Node, id uint16) *Replica {
	return &Replica{node: node, id: id, closed: int(id) >= table.Partitions, fresh: true}
}

// watch asks for a tick.
func (p *Replica) watch(t *Turn) { t.Watch = true }

// fault lets a test panic here.
func (p *Replica) fault() {
	if f := p.node.Fault; f != nil {
		f(p.id)
	}
}

// holds reports whether a key belongs to this partition.
func (p *Replica) holds(k *limiter.Key) bool { return table.PartitionOf(k) == int(p.id) }

// aim publishes the owner and heir to ask, and tells the table whether this is a copy.
func (p *Replica) aim(t *Turn) {
	p.fault()
	p.point(t)
}

func (p *Replica) point(t *Turn) {
	if lent := p.role < peer.Sealed; lent != p.lent {
		p.lent = lent
		p.node.Store.SetCopy(int(p.id), lent)
	}
	t.Routed = true
}

// Route returns the owner and the heir to ask, 0 if unknown, and when the partition was
// given up, 0 if it is not.
func (p *Replica) Route(t *Turn) (owner, heir peer.Instance, givenUp limiter.Tick) {
	switch {
	case p.role >= peer.Sealed:
		owner = p.node.Self
	case p.owner.Instance != 0 && p.owner.Instance != p.node.Self:
		owner = p.owner.Instance
	default:
		owner = t.View.Owner(p.id)
	}
	heir = p.heir
	if p.role == peer.Heir {
		heir = p.node.Self
	}
	if p.givenUp {
		givenUp = p.brokeAt
	}
	return owner, heir, givenUp
}

// n0 returns the number of members that majorities are counted of. While this node is
// joining it is at least the number of seed addresses.
func (p *Replica) n0(t *Turn, closed bool) int {
	n := t.View.N0(closed)
	if t.State == peer.Joining {
		n = max(n, p.node.Seeds)
	}
	return n
}

// mayLearn reports whether a fresh node may ask the others for their state: it is not
// joining, or its view has at least one other member.
func (t *Turn) mayLearn() bool { return t.State != peer.Joining || len(t.View.Members) > 1 }

// lastHope reports whether this node is leaving and no active member is left.
func (t *Turn) lastHope() bool {
	first := t.View.Owner(0)
	return t.State == peer.Leaving && first != 0 && !t.View.Active(first)
}

// learn records an owner, and its heir, unless a later owner is known. An owner under a
// lower epoch stops deciding here.
func (p *Replica) learn(t *Turn, owner peer.Epoch, heir peer.Instance) {
	p.top = max(p.top, owner.Counter)
	if owner.Instance == p.node.Self && p.owner.Before(owner) || slices.Contains(p.disproved, owner) {
		return // this node would have been the first to know of its own epoch
	}
	switch owner.Compare(p.owner) {
	case -1:
		return
	case 0:
		if p.heir == 0 && p.role < peer.Sealed {
			p.heir = heir // a known heir is replaced only by what the owner itself says
			p.aim(t)
		}
		return
	}
	p.owner, p.heir = owner, heir
	if p.role == peer.Heir && p.epoch.Before(owner) {
		// No appointment of an earlier epoch counts.
		p.role, p.appointment = peer.Copy, 0
	}
	if p.role >= peer.Sealed && owner.Instance != p.node.Self {
		p.overtaken(t)
	}
	p.seekAt, p.seekIn = 0, 0
	p.aim(t)
	p.settleParked(t)
}

// overtaken ends this node's ownership because there is a later one, p.owner.
func (p *Replica) overtaken(t *Turn) {
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
	t.event(Fenced)
	p.push(t)
	p.watch(t)
}

// become makes this node the owner under an epoch.
func (p *Replica) become(t *Turn, e peer.Epoch, tookOver bool) {
	before := p.owner.Instance
	p.role, p.epoch, p.owner, p.mine, p.heir = peer.Owned, e, e, e, 0
	p.top = max(p.top, e.Counter)
	p.appointment, p.fresh, p.unpushed = 0, false, false
	p.unstage()
	p.round, p.seekAt, p.seekIn = nil, 0, 0
	p.disown()
	p.own = &ownership{open: p.seq + 1, first: e.Counter, since: t.Now, tookOver: tookOver, heard: p.node.Pace.LastPing()}
	if tookOver {
		// The former owner was just found silent, so another member becomes heir
		// meanwhile.
		p.own.shunned, p.own.shunUntil = before, t.Now+shunFor
	}
	p.aim(t)
	p.announce(t, 0)
	p.manage(t)
	p.settleParked(t)
	p.watch(t)
}

// Message is a message of another member. One of its pointers is set.
type Message struct {
	Announce *peer.Announce
	Claim    *peer.Claim
	Answer   *peer.Answer
	Revoke   *peer.Revoke
	Ack      *peer.Ack
	Batch    *peer.Batch
	Keys     []Entries // of Batch; valid during the step only
}

// Step handles a message of another member.
func (p *Replica) Step(t *Turn, from peer.Instance, m Message) {
	switch {
	case m.Announce != nil:
		p.onAnnounce(t, from, *m.Announce)
	case m.Claim != nil:
		p.onClaim(t, from, *m.Claim)
	case m.Answer != nil:
		p.onAnswer(t, from, *m.Answer)
	case m.Revoke != nil:
		p.onRevoke(t, from, *m.Revoke)
	case m.Batch != nil:
		p.onBatch(t, from, m.Batch, m.Keys)
	case m.Ack != nil:
		p.onAck(t, from, m.Ack)
	}
}

// Learn records an owner that another member named in a reply. denies means that the
// member named it because it does not own the partition itself; if this node knows a
// later owner, it doubts that one.
func (p *Replica) Learn(t *Turn, owner peer.Epoch, denies bool) {
	if p.learn(t, owner, 0); denies && owner.Before(p.owner) {
		p.Doubt(t)
	}
}

// Introduce announces the partition to a member, if this node owns it.
func (p *Replica) Introduce(t *Turn, to peer.Instance) {
	if p.own != nil {
		p.announce(t, to)
	}
}

// announce tells a member, or all members if to is 0, who owns the partition and who is
// heir.
func (p *Replica) announce(t *Turn, to peer.Instance) {
	a := peer.Announce{Partition: p.id, Epoch: p.epoch}
	if h := p.own.heir; h != nil {
		a.Heir = h.to
	}
	if to != 0 {
		t.sendAnnounce(to, a)
		return
	}
	for i := range t.View.Members {
		if m := t.View.Members[i].Instance; m != p.node.Self {
			t.sendAnnounce(m, a)
		}
	}
}

func (p *Replica) onAnnounce(t *Turn, from peer.Instance, a peer.Announce) {
	if a.Epoch.Before(p.owner) {
		// The sender has been overtaken and does not know it.
		p.tell(t, from)
		if from == p.owner.Instance {
			p.Doubt(t)
		}
		return
	}
	p.learn(t, a.Epoch, a.Heir)
	if p.owner == a.Epoch && from == a.Epoch.Instance && p.role < peer.Sealed {
		p.heir = a.Heir
		p.aim(t)
	}
	if p.role == peer.Copy && !p.unpushed && a.Heir != 0 && a.Heir != p.node.Self && p.epoch.Before(a.Epoch) {
		p.drop()
	}
	if p.unpushed {
		p.push(t)
	}
}

// tell sends a member the highest owner that this node knows.
func (p *Replica) tell(t *Turn, to peer.Instance) {
	a := peer.Announce{Partition: p.id, Epoch: p.owner, Heir: p.heir}
	t.sendAnnounce(to, a)
}

// drop discards a copy that is not needed.
func (p *Replica) drop() {
	p.node.Store.Drop(int(p.id))
	p.role, p.seq, p.appointment = peer.Nothing, 0, 0
	p.epoch = peer.Epoch{}
	p.unstage()
}

// Connected does what a new connection to a member calls for: it announces, and repeats
// what may have been lost.
func (p *Replica) Connected(t *Turn, i peer.Instance) {
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

// ViewChanged adapts the partition to a new view.
func (p *Replica) ViewChanged(t *Turn) {
	p.aim(t)
	if p.own != nil && p.unguarded(t) {
		p.release(t) // no member can be its heir now, so no reply waits
	}
	if p.round != nil {
		p.round.viewChanged(t, p)
	}
	p.manage(t)
}

// manage works towards the state that the view calls for. It is called after any change,
// and is idempotent.
func (p *Replica) manage(t *Turn) {
	switch {
	case p.givenUp:
	case p.role == peer.Owned:
		p.manageHeir(t)
	case p.role == peer.Sealed:
	case p.fresh:
		p.learnFirst(t)
	case p.role == peer.Heir && p.round == nil && !t.View.Has(p.owner.Instance):
		p.takeOver(t)
	case p.role != peer.Heir && t.View.Owner(p.id) == p.node.Self:
		p.seek(t)
	}
}

// Tick does the work that is due, and reports whether more is pending.
func (p *Replica) Tick(t *Turn) bool {
	p.fault()
	if p.round != nil {
		p.round.tick(t, p)
	}
	if p.own != nil {
		p.tickOwner(t)
	}
	if p.unpushed && t.Now-p.pushedAt >= backedOff(resendAfter, p.pushes) {
		p.pushes++
		p.pushedTo = 0
		p.push(t)
		if p.pushes >= doubtAfter {
			p.Doubt(t)
		}
	}
	p.expireParked(t)
	broken := p.tickBroken(t)
	p.manage(t)
	staging := p.tickStage(t)
	return staging || broken || p.round != nil || p.own != nil && (p.own.busy() || p.lonely() || p.own.giver != 0 && t.Now-p.own.since <= backAfter) || p.unpushed || len(p.parked) > 0 || p.seekAt != 0 || p.fresh && t.mayLearn()
}

// Late restarts all waits after this node was paused, because the silence of others
// during the pause proves nothing.
func (p *Replica) Late(t *Turn) {
	if p.round != nil {
		p.round.restart(t, p)
	}
	for i := range p.lost {
		p.lost[i].since = t.Now
	}
	if own := p.own; own != nil {
		for _, g := range []*target{own.heir, own.next} {
			if g != nil {
				g.waitFrom(t.Now)
			}
		}
		if own.waitSince != 0 {
			own.waitSince = t.Now
		}
		if h := own.handover; h != nil {
			h.sentAt, h.goneAt = 0, 0
		}
	}
}
