// Package replica is the protocol of one partition at one node: a state machine that
// decides who owns the partition, who is heir, what is copied, and which replies are
// withheld. It takes messages, ticks and views, and leaves what is to be done as
// [Effects]. It has no lock, starts nothing, and knows neither links nor calls.
package replica

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Replica is this node's replica of one partition. It is not safe for concurrent use: the
// shell locks it.
type Replica struct {
	// What a tick looks at in each partition comes first, in few cache lines.
	own      *Ownership // nil unless this node decides or has sealed
	waiting  parked     // until it is known who owns
	claiming claiming
	breakage breakage
	pushing  pushing
	seeking  seeking
	held
	arriving arriving
	doubting doubting
}

// held is what this node holds of the partition, and knows of it. It changes by what
// other members say, and by what the replica decides.
type held struct {
	identity
	asCopy bool // the table counts this partition as a copy
	state
	staging staging
	knowledge
}

// identity is which partition it is, and of which node. It does not change.
type identity struct {
	node   *Node
	id     uint16
	closed bool
}

// state is the state held: the counters under epoch, up to seq.
type state struct {
	role        peer.Role
	epoch       peer.Epoch
	seq         uint64
	appointment uint32     // number of its appointment as heir under epoch; 0 if it is not heir
	revoked     peer.Epoch // epoch of the last revocation
	revokedN    uint32     // the last appointment that it revoked
	restored    bool       // a copy was read from the disk, see [state.FromDisk]
	saving      *saving    // what the disk lacks; nil without one
}

// knowledge is what is known of the partition, and what was promised.
type knowledge struct {
	owner peer.Epoch // the highest owner
	heir  peer.Instance
	top   uint64 // the highest counter of any epoch or claim seen
	vote
	fresh     bool         // this node has not heard yet what the others hold
	keptUntil limiter.Tick // when a copy of an earlier epoch is dropped, see dropOutdated; 0 if it is not to be
	mine      peer.Epoch   // the highest epoch under which this node owned
	disproved []peer.Epoch // epochs that their instance denies ever having owned
}

// vote is the highest claim that a member granted: the one with the counter grant, to grantTo,
// for grantFor to own.
type vote struct {
	grant     uint64
	grantTo   peer.Instance
	grantFor  peer.Instance
	grantKind peer.ClaimKind
}

// pushing is what a former owner sends the present one. unpushed means that this node
// decided under its epoch as an owner that has been fenced, and that the later owner
// has not merged that state yet.
type pushing struct {
	unpushed bool
	pushedAt limiter.Tick
	pushedTo peer.Instance
	pushes   int // resends of the push
}

// arriving is the push that a former owner sends to this node.
type arriving struct {
	pushFrom peer.Instance
	pushNext uint64 // index of the next part
}

// claiming is the claim or question under way.
type claiming struct {
	round  *claimRound
	rounds uint32       // number of the last round
	tries  int          // refusals of the present claim in a row
	quiet  limiter.Tick // no takeover before this time: its owner was alive
}

// seeking is the search of the view owner for an owner, heir or copy, and of an heir for its
// owner.
type seeking struct {
	seekAt limiter.Tick // when it asks or claims next; 0 if it need not
	seekIn limiter.Tick // back-off of its questions
	lost   [2]lostOwner // the owner and the heir, for gone
}

// doubting is when this node doubts the owner that it believes in.
type doubting struct {
	doubtAt limiter.Tick // the owner is not doubted before this time
	doubtOf peer.Epoch   // the owner that was doubted last
	doubtIn limiter.Tick // back-off of those doubts
}

// breakage is what is kept of a panic, see [Replica.Break].
type breakage struct {
	brokeAt limiter.Tick // when it broke last; 0 if never
	givenUp bool         // nothing is held of it until giveUpFor after brokeAt
	yields  bool         // this node owned it and stopped; its heir is asked to take over
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
	p := &Replica{held: held{identity: identity{node: node, id: id, closed: int(id) >= table.Partitions}}}
	p.fresh = true
	if node.SaveEvery > 0 {
		p.saving = new(saving)
	}
	return p
}

// watch asks for a tick.
func (p *Replica) watch(t *Step) { t.Watch = true }

// fault lets a test panic here.
func (p *identity) fault() {
	if f := p.node.Fault; f != nil {
		f(p.id)
	}
}

// holds reports whether a key belongs to this partition.
func (p *identity) holds(k *arith.Key) bool { return table.PartitionOf(k) == int(p.id) }

// reroute publishes the owner and heir to ask, and tells the table whether this is a copy.
func (p *held) reroute(t *Step) {
	p.fault()
	p.point(t)
}

func (p *held) point(t *Step) {
	if asCopy := p.role < peer.Sealed; asCopy != p.asCopy {
		p.asCopy = asCopy
		p.node.Store.SetCopy(int(p.id), asCopy)
	}
	t.Routed = true
}

// Route returns the owner and the heir to ask, 0 if unknown, and when the partition was
// given up, 0 if it is not.
func (p *Replica) Route(t *Step) (owner, heir peer.Instance, givenUp limiter.Tick) {
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
	if p.breakage.givenUp {
		givenUp = p.breakage.brokeAt
	}
	return owner, heir, givenUp
}

// n0 returns the number of members that majorities are counted of. While this node is
// joining it is at least the number of seed addresses.
func (p *identity) n0(t *Step, closed bool) int {
	n := t.View.N0(closed)
	if t.State == peer.Joining {
		n = max(n, p.node.Seeds)
	}
	return n
}

// mayLearn reports whether a fresh node may ask the others for their state: it is not
// joining, or its view has at least one other member.
func (t *Step) mayLearn() bool { return t.State != peer.Joining || len(t.View.Members) > 1 }

// lastToLeave reports whether this node is leaving and no active member is left.
func (t *Step) lastToLeave() bool {
	first := t.View.Owner(0)
	return t.State == peer.Leaving && first != 0 && !t.View.Active(first)
}

// Message is a message of another member. One of its pointers is set.
type Message struct {
	Announce *peer.Announce
	Claim    *peer.Claim
	Answer   *peer.Answer
	Revoke   *peer.Revoke
	Ack      *peer.Ack
	Batch    *peer.Batch
	Keys     []Entries  // of Batch; valid during the step only
	IDs      []table.ID // of Batch, as long; they come before its keys
	Source   uint8      // the number of who sent them, see [table.Table.Source]
}

// Step handles a message of another member.
func (p *Replica) Step(t *Step, from peer.Instance, m Message) {
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
		p.onBatch(t, from, m)
	case m.Ack != nil:
		p.onAck(t, from, m.Ack)
	}
}

// Learn records an owner that another member named in a reply. denies means that the
// member named it because it does not own the partition itself; if this node knows a
// later owner, it doubts that one.
func (p *Replica) Learn(t *Step, owner peer.Epoch, denies bool) {
	if p.learn(t, owner, 0); denies && owner.Before(p.owner) {
		p.Doubt(t)
	}
}

// Introduce announces the partition to a member, if this node owns it.
func (p *Replica) Introduce(t *Step, to peer.Instance) {
	if p.own != nil {
		p.own.announce(t, to)
	}
}

// drop discards a copy that is not needed.
func (p *held) drop() {
	p.node.Store.Drop(int(p.id))
	p.role, p.seq, p.appointment = peer.Nothing, 0, 0
	p.epoch, p.keptUntil = peer.Epoch{}, 0
	p.saving.replaced()
	p.staging.unstage(p.node)
}

// Connected does what a new connection to a member calls for: it announces, and repeats
// what may have been lost.
func (p *Replica) Connected(t *Step, i peer.Instance) {
	if p.own != nil {
		p.own.announce(t, i)
		p.own.retired.again(i)
		p.own.retired.dismiss(t, p.own)
		for _, g := range []*target{p.own.heir, p.own.next} {
			if g != nil && g.to == i {
				g.resend()
				p.watch(t)
			}
		}
		if h := p.own.handover; h != nil && h.next.Instance == i {
			h.sentAt = 0
			p.watch(t)
		}
	}
	if p.claiming.round != nil && p.claiming.round.lacks(i) {
		p.claiming.round.sendTo(t, p, i)
	}
	if p.pushing.unpushed && p.owner.Instance == i {
		p.pushing.pushedTo = 0
		p.push(t)
	}
}

// ViewChanged adapts the partition to a new view.
func (p *Replica) ViewChanged(t *Step) {
	p.reroute(t)
	if p.own != nil && p.own.isolated(t) {
		p.own.release(t) // no member can be its heir now, so no reply waits
	}
	if p.claiming.round != nil {
		p.claiming.round.viewChanged(t, p)
	}
	p.manage(t)
}

// manage works towards the state that the view calls for. It is called after any change,
// and is idempotent.
func (p *Replica) manage(t *Step) {
	switch {
	case p.breakage.givenUp:
	case p.role == peer.Owned:
		p.manageHeir(t)
	case p.role == peer.Sealed:
	case p.fresh:
		p.learnFirst(t)
	case p.role == peer.Heir:
		if p.claiming.round == nil {
			p.missOwner(t)
		}
	case t.View.Owner(p.id) == p.node.Self:
		p.seek(t)
	}
}

// Tick does the work that is due, and returns when it is to be called again, [Never] if
// no work is pending.
func (p *Replica) Tick(t *Step) limiter.Tick {
	p.fault()
	if p.settled(t) {
		p.Flush(t)
		return p.own.nextDue(t.Now, p.seq)
	}
	if p.claiming.round != nil {
		p.claiming.round.tick(t, p)
	}
	if p.own != nil {
		p.tickOwner(t)
	}
	if p.pushing.unpushed && t.Now-p.pushing.pushedAt >= backedOff(resendAfter, p.pushing.pushes) {
		p.pushing.pushes++
		p.pushing.pushedTo = 0
		p.push(t)
		if p.pushing.pushes >= doubtAfter {
			p.Doubt(t)
		}
	}
	p.waiting.expire(t)
	p.tickBroken(t)
	p.tickKept(t)
	p.manage(t)
	p.staging.tick(t, p.node)
	if p.pending(t) {
		return t.Now
	}
	return Never
}

// Late restarts all waits after this node was paused, because the silence of others
// during the pause proves nothing.
func (p *Replica) Late(t *Step) {
	if p.claiming.round != nil {
		p.claiming.round.restart(t, p)
	}
	for i := range p.seeking.lost {
		p.seeking.lost[i].since = t.Now
	}
	if p.keptUntil != 0 {
		p.keptUntil = t.Now + keepFor
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
