package route

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Call is one check, refund, reset, explanation or amendment on keys of one owner, from its
// start to its end; if its keys have several owners, it is split. It may be sent to several members in turn.
// It is not sent to a member again unless that member has said that it did not execute it.
type Call struct {
	c    *Router
	task task

	mu       sync.Mutex
	id       uint64
	progress progress
	result   result
}

// task is what a call is about. It does not change while the call is under way.
type task struct {
	kind    Kind
	prepare bool // part of a check over several owners: what it charges may be taken back
	exact   bool // it has a deadline of its own, at which a tick ends it
	final   bool // of such a part: there is no time to begin the check anew; of one that peeks: the check is no peek
	ends    bool // a refund that ends a reservation; only the member that made it is asked
	denied  bool // the whole check of that reservation was denied
	// holder is the other member that made that reservation; 0: this node did.
	holder peer.Instance
	// remember means that a denial may be cached.
	remember bool
	amend    limiter.Amend    // what is done with a reservation
	back     *table.Extension // what is taken back; nil if nothing is

	charge  *arith.Charge
	answer  *limiter.Decision
	idle    *limiter.Decision // of a reservation: the answer if another part denies
	receipt *limiter.Receipt  // of a refund; nil: it is none
	until   limiter.Tick      // changes once, see outlasts
	begunAt limiter.Tick      // in the counters' time
	// wake is called when the call has ended; if done is set, done is called instead.
	wake func()
	done func(*Turn, *Call)
}

// progress is who was asked, and what is to be done next. The call's lock guards it.
type progress struct {
	sent     []inquiry  // members that were asked and may have executed it
	one      [2]inquiry // storage for sent
	tries    uint16     // number of requests sent, see inquiry
	ended    bool
	divided  bool            // it was split; its parts end it
	define   bool            // a member does not know the rules
	hasHeir  bool            // the heir was asked
	late     bool            // of a refund that ends a reservation: its check has been answered
	anew     anew            // why the check begins anew
	took     limiter.Tick    // how long the longest attempt took after which it began anew
	askedAt  limiter.Tick    // when the owner was asked; 0 if it was not
	owner    peer.Instance   // the member that was asked as owner
	heirs    []peer.Instance // members that were asked as heir
	again    limiter.Tick    // when to route again; 0 if not scheduled
	attempts int32           // attempts, and replies that did not decide it
	tried    int32           // runs at this node that may have executed it, or still may
}

// result is how a call ended. The call's lock guards it.
type result struct {
	by       peer.Instance              // the member that decided; 0 for a policy
	outcome  Outcome                    // of what is not a check
	reasons  []limiter.LimitExplanation // of an explanation; nil if there are none
	contests bool                       // it ended because other charges were not settled in time
}

// inquiry is one request to a member. A reply carries the number of its request (try): a
// reply to an earlier request says nothing about this one, and may arrive late or twice.
type inquiry struct {
	of  peer.Instance
	try uint16
}

// record records that a member is asked. The call is locked.
func (o *progress) record(to peer.Instance) {
	o.sent = append(o.sent, inquiry{to, o.tries})
	o.tries = (o.tries + 1) & maxTry
}

// inquiry returns the index of a member in sent; -1 if it was not asked, or has said that
// it did not execute the call. The call is locked.
func (o *progress) inquiry(i peer.Instance) int {
	for at := range o.sent {
		if o.sent[at].of == i {
			return at
		}
	}
	return -1
}

// refunded returns the receipt of a refund, an empty one of another call.
func (o *task) refunded() limiter.Receipt {
	if o.receipt == nil {
		return limiter.Receipt{}
	}
	return *o.receipt
}

// notify tells the caller that the call has ended.
func (o *Call) notify(t *Turn) {
	if o.task.done != nil {
		o.task.done(t, o)
		return
	}
	o.task.wake()
}

// retire removes an ended call from the table; its caller is told at the end of the
// turn. It is called once, by the code that set ended.
func (o *Call) retire(t *Turn) {
	o.c.calls.remove(o)
	t.ended = append(t.ended, o)
}

// Abandon ends the call without telling its caller. It reports whether the
// call had not ended yet; then nothing is written to the caller's memory any more.
func (o *Call) Abandon() bool {
	o.mu.Lock()
	was := o.progress.ended
	o.progress.ended = true
	o.mu.Unlock()
	if !was {
		o.c.calls.remove(o)
	}
	return !was
}

// Over reports whether the call has ended.
func (o *Call) Over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.progress.ended
}

// Route sends the call to the node that should decide it.
func (o *Call) Route(t *Turn) {
	if o.Over() {
		return
	}
	if o.task.ends {
		endReservation(t, o)
		return
	}
	if o.task.kind == KindCheck && (o.c.pointless(t, &o.task) || o.c.deserted(t, o.task.charge)) {
		o.policy(t)
		return
	}
	to, same := o.c.Owner(o.task.charge)
	switch {
	case !same && o.task.prepare && o.clean():
		o.Contest(t) // its keys have different owners now: the whole check is split anew
	case !same && o.task.kind == KindCheck && !o.task.prepare && o.split(t):
	case !same && (o.task.kind == KindReset || o.task.kind == KindAmend):
		if !o.split(t) {
			o.later(t, RetryEvery) // until one member owns all keys, or the owner that was asked answers
		}
	case to == o.c.config.Self:
		o.here(t)
	case to == 0:
		o.later(t, RetryEvery)
	default:
		o.askOwner(t, to)
	}
}

// Retry has the call routed again a little later.
func (o *Call) Retry(t *Turn) { o.later(t, RetryEvery) }

// later schedules another routing: after the given wait, or, from the fifth attempt on,
// after a wait that grows with the attempts up to 20 ms.
func (o *Call) later(t *Turn, after limiter.Tick) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress.attempts++; o.progress.attempts > 4 {
		after = min(after*limiter.Tick(o.progress.attempts), 20*limiter.Millisecond)
	}
	o.progress.again = t.Now + after
	o.progress.askedAt, o.progress.owner = 0, 0
	o.c.calls.expect(o)
	t.Tick = true
}

// askOwner sends the call to the owner.
func (o *Call) askOwner(t *Turn, to peer.Instance) {
	o.mu.Lock()
	if o.progress.ended {
		o.mu.Unlock()
		return
	}
	if o.progress.inquiry(to) >= 0 {
		// The owner may have executed it. Only its reply, or the heir's, can help.
		o.mu.Unlock()
		o.later(t, RetryEvery)
		return
	}
	if !o.c.config.Mesh.Reachable(to) {
		if o.progress.hasHeir {
			// The heir has answered that the owner is alive. The check goes to the owner
			// by a relay.
			o.progress.record(to)
			o.progress.askedAt, o.progress.owner, o.progress.again = t.Now, to, 0
			o.c.calls.expect(o)
			o.mu.Unlock()
			o.send(t, to, false)
			return
		}
		o.progress.owner = to
		o.mu.Unlock()
		o.askHeir(t)
		return
	}
	o.progress.record(to)
	o.progress.askedAt, o.progress.owner, o.progress.again = t.Now, to, 0
	o.c.calls.expect(o)
	o.mu.Unlock()
	o.send(t, to, false)
}

// askHeir asks the heir, because the owner does not answer. If the heir is unknown, it
// asks the member that the ring would choose, then any other.
func (o *Call) askHeir(t *Turn) {
	c := o.c
	p := c.where(o.task.charge.Key(0))
	heir, v := p.Heir, c.config.View()
	o.mu.Lock()
	if o.progress.ended || o.task.kind == KindRefund && (len(o.progress.sent) > 0 || o.progress.tried > 0) {
		// Another member may have executed the refund. Executed twice, it would admit
		// too much.
		o.mu.Unlock()
		return
	}
	if heir == 0 || slices.Contains(o.progress.heirs, heir) {
		heir = 0
		for _, m := range append([]peer.Instance{v.Successor(p.Partition), v.Owner(p.Partition)}, instances(v)...) {
			if m != 0 && m != o.progress.owner && !slices.Contains(o.progress.heirs, m) && o.progress.inquiry(m) < 0 {
				heir = m
				break
			}
		}
	}
	if heir == 0 || o.progress.inquiry(heir) >= 0 {
		o.progress.heirs = nil
		o.mu.Unlock()
		o.later(t, RetryEvery)
		return
	}
	o.progress.heirs = append(o.progress.heirs, heir)
	o.progress.hasHeir = true
	sent := o.progress.inquiry(o.progress.owner) >= 0
	if heir != c.config.Self {
		o.progress.record(heir)
	}
	o.progress.again = 0
	if !sent {
		o.progress.askedAt = t.Now
	}
	o.c.calls.expect(o)
	o.mu.Unlock()
	if heir == c.config.Self {
		o.asHeir(t, sent)
		return
	}
	o.send(t, heir, true)
}

func instances(v *view.View) []peer.Instance {
	out := make([]peer.Instance, len(v.Members))
	for i := range v.Members {
		out[i] = v.Members[i].Instance
	}
	return out
}

// Contest ends a part of a check that was not executed, so that the whole check is tried
// again.
func (o *Call) Contest(t *Turn) {
	if !o.task.prepare || t.Now >= o.task.until {
		o.later(t, RetryEvery) // the policy answers, if it is time
		return
	}
	o.mu.Lock()
	if o.progress.ended {
		o.mu.Unlock()
		return
	}
	o.progress.ended, o.result.contests = true, true
	o.mu.Unlock()
	o.retire(t)
}

// clean reports whether no member can have executed the call.
func (o *Call) clean() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.progress.sent) == 0 && o.progress.tried == 0 && !o.progress.ended
}

// lost handles that a member may not answer any more.
func (o *Call) lost(t *Turn, i peer.Instance) {
	o.mu.Lock()
	if o.task.ends && o.progress.inquiry(i) >= 0 {
		o.mu.Unlock()
		o.policy(t) // it may be lost, and no other member may be asked
		return
	}
	mine := !o.progress.ended && o.progress.inquiry(i) >= 0 &&
		(o.progress.owner == i || slices.Contains(o.progress.heirs, i))
	o.mu.Unlock()
	if mine {
		o.askHeir(t)
	}
}

// tick does the work that is due.
func (o *Call) tick(t *Turn) {
	o.mu.Lock()
	again, asked, heir, over, divided, owner, until := o.progress.again, o.progress.askedAt, o.progress.hasHeir,
		o.progress.ended, o.progress.divided, o.progress.owner, o.task.until
	o.mu.Unlock()
	switch {
	case over, divided && t.Now-until < limiter.Second: // its parts end it, unless a panic lost one
	case t.Now >= until && o.task.ends && outlasts(t, o):
	case t.Now >= until:
		o.policy(t)
	case again != 0 && t.Now >= again:
		o.mu.Lock()
		o.progress.again = 0
		o.mu.Unlock()
		o.Route(t)
	case again == 0 && asked != 0 && !heir && owner != o.c.config.Self &&
		t.Now-asked >= o.c.config.Mesh.Patience(owner, SilentAfter):
		o.askHeir(t)
	}
}

// replied handles a reply that does not decide the call.
func (o *Call) replied(t *Turn, from peer.Instance, r *peer.Reply) {
	o.mu.Lock()
	who := from
	if r.Status == peer.Lost {
		who = r.Owner.Instance
	}
	i := o.progress.inquiry(who)
	if i < 0 || tryOf(r.ID) != o.progress.sent[i].try {
		// A duplicate, or a reply to an earlier request: a reply may travel two ways,
		// and its consequences must not happen twice.
		o.mu.Unlock()
		return
	}
	o.progress.sent = slices.Delete(o.progress.sent, i, i+1) // the member did not execute it
	ended, heir, asOwner := o.progress.ended, o.progress.hasHeir, from == o.progress.owner
	asHeir := false
	if r.Status == peer.NeedRule {
		o.progress.define = true
		if at := slices.Index(o.progress.heirs, from); at >= 0 && from != o.progress.owner {
			o.progress.heirs, asHeir = slices.Delete(o.progress.heirs, at, at+1), true
		}
	}
	o.progress.attempts++
	tired := o.progress.attempts > maxAttempts
	o.mu.Unlock()
	if ended {
		return
	}
	if o.task.ends {
		notEnded(t, o, r.Status)
		return
	}
	if r.Status == peer.Contested && o.task.prepare {
		o.Contest(t)
		return
	}
	if r.Status == peer.Lost {
		if heir {
			o.later(t, RetryEvery)
		} else {
			o.askHeir(t) // no member could relay it to the owner
		}
		return
	}
	if r.Owner.Instance != 0 {
		t.Node.Learn(r.Partition, r.Owner, r.Status == peer.NotOwner)
	}
	switch {
	case r.Status == peer.Alive:
		// If it is the owner itself, the former owner answers, or this one in the end: when
		// it does not reach that one any more.
		// If it has not been asked, the member that was asked as owner was that before.
		if asOwner || r.Owner.Instance != 0 && o.unasked(r.Owner.Instance) {
			o.later(t, 4*RetryEvery)
		}
	case r.Status == peer.Overloaded || tired:
		o.later(t, 4*RetryEvery)
	case asHeir:
		o.askHeir(t)
	case r.Status == peer.NeedRule:
		o.Route(t)
	case r.Owner.Instance != 0 && r.Owner.Instance != from:
		to, _ := o.c.Owner(o.task.charge)
		if to == r.Owner.Instance {
			o.Route(t)
			return
		}
		o.later(t, RetryEvery)
	default:
		o.later(t, RetryEvery)
	}
}

// policy ends a call that no member answered in time. A check is answered by its
// rule's policy. The outcome of any other call says what is not known.
func (o *Call) policy(t *Turn) {
	o.mu.Lock()
	if o.progress.ended {
		o.mu.Unlock()
		return
	}
	o.progress.ended = true
	if o.task.kind != KindCheck {
		o.result.outcome = unanswered(o.task.charge, len(o.progress.sent) > 0 || o.progress.tried > 0)
	}
	hasty := o.hasty(t.Now)
	o.mu.Unlock()
	at := o.c.where(o.task.charge.Key(0)).Partition
	t.Node.Doubt(at)
	if hasty {
		inquire(t, o, at)
	}
	if o.task.kind == KindCheck {
		if !lent(o.task.charge) {
			o.c.config.Places.FellBack(at)
		}
		o.c.policies.answer(t, o.task.charge, o.task.answer, o.task.idle)
	}
	o.retire(t)
}
