package model

import (
	"hash/maphash"
	"slices"
	"strings"
	"unsafe"
)

// Protection is one rule of the protocol that can be left out.
type Protection uint

// The protections.
const (
	EpochsAreRecorded       Protection = 1 << iota // a majority records an epoch before its owner decides
	LaterOwnersEndClaims                           // an answer that names a later owner ends a claim
	RenewalsAreNotOverruled                        // a takeover ends where a renewal was granted
	GrantsBind                                     // a member grants no counter below one that it granted
	GrantsBindHeirs                                // a member that granted a later claim accepts no appointment
	FreshMembersDoNotVote                          // a member that has just started grants nothing
	EarlierOwnersAreFenced                         // batches of an earlier owner are refused
	AppointmentsCount                              // an acknowledgement counts if it names the appointment
	HeirsAreRevoked                                // another heir is appointed when the last one has confirmed
	// Who gives a claim up keeps its grant to it if members may have recorded its epoch.
	RecordedClaimsBind
)

// Config bounds what is explored.
type Config struct {
	// Counters is the highest counter of an epoch, and Asks how many questions a member asks
	// that has just started. Without any it never votes.
	Counters, Asks uint8
	// Changes is how often the ring wants another heir or owner. With Handoffs it wants another owner only, and
	// an owner renews its epoch only if it must, which leaves fewer states.
	Changes  uint8
	Handoffs bool
	// Faults is how many faults there are at most, and Restarts how many of them may be
	// members that restart without memory. The others are links that break: what is on its
	// way between two members is lost.
	Faults, Restarts uint8
	// Without are the protections that are left out.
	Without Protection
}

// Result is what an exploration found.
type Result struct {
	States int
	// Answered is in how many of them the unit is answered.
	Answered int
	// Violation is the shortest way to a state that breaks the promise, step by step; nil
	// if there is none.
	Violation []string
}

// explorer is one exploration.
type explorer struct {
	Config
	seed maphash.Seed
}

func (x *explorer) without(p Protection) bool { return x.Without&p != 0 }

// step is one thing that may happen next.
type step struct {
	what  string // with %m and %o for the members
	m, o  int
	world world
}

func (s *step) String() string {
	name := func(m int) string { return string(rune('a' + m)) }
	return strings.NewReplacer("%m", name(s.m), "%o", name(s.o)).Replace(s.what)
}

// Explore explores all states, those first that need the fewest steps, until one breaks the
// promise. It remembers states by 64-bit hashes: with n of them, the chance that one was
// taken for another is about n*n / 2^65.
func Explore(c Config) Result {
	x := &explorer{Config: c, seed: maphash.MakeSeed()}
	first, answered := begin(), 0
	came := map[uint64]uint64{x.hash(&first): 0} // from which state
	level := []world{first}
	var steps []step
	for len(level) > 0 {
		var next []world
		for i := range level {
			from := x.hash(&level[i])
			steps = x.steps(&level[i], steps[:0])
			for j := range steps {
				to := &steps[j].world
				h := x.hash(to)
				if _, seen := came[h]; seen {
					continue
				}
				came[h] = from
				answered += int(to.answered)
				if to.answered > 1 {
					return Result{States: len(came), Answered: answered, Violation: x.way(came, h)}
				}
				next = append(next, *to)
			}
		}
		level = next
	}
	return Result{States: len(came), Answered: answered}
}

// hash is of the bytes of a world, which has no padding.
func (x *explorer) hash(w *world) uint64 {
	return maphash.Bytes(x.seed, unsafe.Slice((*byte)(unsafe.Pointer(w)), unsafe.Sizeof(*w)))
}

// way returns the steps that lead to a state.
func (x *explorer) way(came map[uint64]uint64, to uint64) (names []string) {
	var hashes []uint64
	for h := to; h != 0; h = came[h] {
		hashes = append(hashes, h)
	}
	slices.Reverse(hashes)
	w := begin()
	for _, h := range hashes[1:] {
		steps := x.steps(&w, nil)
		i := slices.IndexFunc(steps, func(s step) bool { return x.hash(&s.world) == h })
		names, w = append(names, steps[i].String()), steps[i].world
	}
	return names
}

// steps appends everything that may happen next to out, which is empty.
func (x *explorer) steps(w *world, out []step) []step {
	add := func(what string, m, o int, do func(*world)) {
		out = append(out, step{what: what, m: m, o: o, world: *w})
		next := &out[len(out)-1].world
		do(next)
		next.prune()
	}
	for m := range size {
		if x.atOnce(w, m, add); len(out) > 0 {
			return out
		}
	}
	for m := range size {
		x.own(w, m, add)
		x.rounds(w, m, add)
		for o := range size {
			if o != m {
				x.between(w, m, o, add)
			}
		}
		if p := &w.members[m]; w.faults < x.Faults && p.run < x.Restarts && x.restarts(w) < x.Restarts {
			add("%m restarts", m, m, func(w *world) { w.restart(m) })
		}
	}
	return out
}

func (x *explorer) restarts(w *world) (n uint8) {
	for i := range w.members {
		n += w.members[i].run
	}
	return n
}

// restart begins another instance of a member, which knows nothing.
func (w *world) restart(m int) {
	p := &w.members[m]
	*p = member{run: p.run + 1, fresh: true, sees: p.sees}
	p.sees[m] = p.run
	for o := range size {
		w.queues[m][o], w.queues[o][m] = [room]message{}, [room]message{}
	}
	w.faults++
}

type adder = func(what string, m, o int, do func(*world))

// between is what may happen between two members: a message arrives, one is sent, the link
// breaks, or one learns that the other has restarted.
func (x *explorer) between(w *world, m, o int, add adder) {
	p := &w.members[m]
	if q := w.queues[m][o][0]; q.content != empty && (!w.full(o, m) || !asks(q.content)) {
		add("%m's "+q.content.String()+" reaches %o", m, o, func(w *world) {
			if q := w.take(m, o); q.to == w.self(o) {
				x.deliver(w, o, &q)
			}
		})
	}
	if w.faults < x.Faults && m < o && (w.queues[m][o][0].content != empty || w.queues[o][m][0].content != empty) {
		add("the link of %m and %o breaks", m, o, func(w *world) {
			w.queues[m][o], w.queues[o][m] = [room]message{}, [room]message{}
			w.faults++
		})
	}
	if p.sees[o] != w.members[o].run {
		add("%m sees that %o has restarted", m, o, func(w *world) {
			w.members[m].sees[o] = w.members[o].run
			w.members[m].round.answers[o] = answer{}
		})
	}
	if w.full(m, o) {
		return
	}
	if a := &p.round.answers[o]; p.round.kind != none && !w.under(m, o, claims) &&
		(!a.has || p.round.kind > ask && a.fresh || p.round.granted && a.granted && a.owner != w.claimed(m)) {
		add("%m asks %o", m, o, func(w *world) {
			r := &w.members[m].round
			q := message{content: claims, kind: r.kind, id: r.id, who: w.members[m].grantFor}
			if r.granted && r.answers[o].granted {
				q.answer.owner = w.claimed(m)
			}
			w.send(m, w.knows(m, o), q)
		})
	}
	if p.role < sealed {
		return
	}
	to := w.knows(m, o)
	if w.members[o].owner.before(p.epoch) && !w.under(m, o, announces) {
		q := message{content: announces, who: p.own.heir}
		q.answer.owner = p.epoch
		add("%m announces itself to %o", m, o, func(w *world) { w.send(m, to, q) })
	}
	x.feed(w, m, o, to, add)
}

func asks(c content) bool { return c == claims || c == batch || c == revokes }

func (c content) String() string {
	return [...]string{"", "claim", "answer", "announcement", "batch", "acknowledgement", "revocation"}[c]
}

// deliver has a member take a message in.
func (x *explorer) deliver(w *world, m int, q *message) {
	switch q.content {
	case claims:
		x.onClaim(w, m, q)
	case answers:
		x.onAnswer(w, m, q)
	case announces:
		x.onAnnounce(w, m, q)
	case batch:
		x.onBatch(w, m, q)
	case acks:
		x.onAck(w, m, q)
	case revokes:
		if q.back {
			w.onRevoked(m, q)
		} else {
			x.onRevoke(w, m, q)
		}
	}
}

// feed is what an owner sends to a member that has, or gets, a copy.
func (x *explorer) feed(w *world, m, o int, to instance, add adder) {
	p := &w.members[m]
	own := &p.own
	send := func(what string, q message) {
		if !w.under(m, o, q.content) {
			add(what, m, o, func(w *world) { w.send(m, to, q) })
		}
	}
	whole, revoke := message{content: batch}, message{content: revokes}
	whole.answer.epoch, whole.answer.used, revoke.answer.owner = p.epoch, p.used, p.epoch
	if p.role == sealed {
		if own.heir == to {
			whole.number, whole.next = own.heirNumber, own.handover
			send("%m hands over to %o", whole)
		}
		return
	}
	switch {
	case own.next == to && (!own.nextWhole || own.nextNumber != 0):
		whole.number, whole.needs = own.nextNumber, p.used
		send("%m sends a copy to %o", whole)
	case own.heir == to && p.used && !own.heirHas:
		whole.number = own.heirNumber
		send("%m sends changes to %o", whole)
	}
	switch {
	case own.heir == to && own.next != 0 && own.nextWhole:
		revoke.number = own.heirNumber
		send("%m revokes %o", revoke)
	case own.retired == to && own.heir != 0 && own.heir != to && own.next != to:
		revoke.drop = true
		send("%m dismisses %o", revoke)
	}
}

// own is what an owner may do by itself.
func (x *explorer) own(w *world, m int, add adder) {
	p := &w.members[m]
	own := &p.own
	claim := func(what string, k kind, who instance) {
		x.counters(w, m, func(c uint8) {
			add(what, m, m, func(w *world) { w.start(m, k, who, w.members[m].epoch, c) })
		})
	}
	switch {
	case p.role == sealed && p.round.kind == none:
		claim("%m claims back what it handed over", reopening, w.self(m))
	case p.role != owned:
		return
	case !p.used:
		add("%m admits the unit", m, m, func(w *world) {
			p := &w.members[m]
			p.used, p.own.withheld = true, true
		})
	}
	if p.round.kind != none || p.role == sealed {
		return
	}
	for o := range size {
		if to := w.knows(m, o); o != m && own.next == 0 && own.heir != 0 && own.heir != to && w.changes < x.Changes &&
			!x.Handoffs {
			add("%m prepares %o", m, o, func(w *world) {
				w.members[m].own.next = to
				w.changes++
			})
		}
	}
	if own.renew || !x.Handoffs && (own.heir != 0 || own.nextNumber != 0) {
		claim("%m renews its epoch", renewal, w.self(m))
	}
	if own.heir != 0 && own.next == 0 && own.heirHas == p.used && w.changes < x.Changes {
		x.counters(w, m, func(c uint8) {
			add("%m begins a handoff", m, m, func(w *world) {
				p := &w.members[m]
				w.start(m, transfer, p.own.heir, p.epoch, c)
				w.changes++
			})
		})
	}
}

// atOnce is what a member does in the same step as what it follows from.
func (x *explorer) atOnce(w *world, m int, add adder) {
	p := &w.members[m]
	own, r := &p.own, &p.round
	if r.kind > ask && w.complete(m) {
		last := p.owner.of
		waits := r.kind == takeover && last != 0 && last.member() != m && !r.answers[last.member()].has
		switch {
		case !r.granted && !waits:
			add("%m has enough grants", m, m, func(w *world) { w.members[m].round.granted = true })
			return
		case r.granted && x.recorded(w, m):
			add("%m succeeds with its claim", m, m, func(w *world) { w.succeed(m) })
			return
		}
	}
	if p.role != owned || r.kind != none || own.renew {
		return
	}
	switch {
	case own.next != 0 && own.next != w.knows(m, own.next.member()):
		add("%m prepares another", m, m, func(w *world) {
			own := &w.members[m].own
			own.renew = own.nextNumber != 0
			own.next, own.nextNumber, own.nextWhole = 0, 0, false
		})
	case own.nextWhole && own.nextNumber == 0 && (own.heir == 0 || x.without(HeirsAreRevoked)):
		add("%m appoints", m, m, func(w *world) {
			own := &w.members[m].own
			own.number++
			own.nextNumber = own.number
		})
	case own.next == 0 && own.heir == 0:
		for o := range size {
			if o != m {
				add("%m prepares %o", m, o, func(w *world) { w.members[m].own.next = w.knows(m, o) })
			}
		}
	}
}

// rounds is what a member may do about claims and questions.
func (x *explorer) rounds(w *world, m int, add adder) {
	p := &w.members[m]
	switch {
	case p.round.kind > ask:
		if w.complete(m) && !p.round.granted {
			add("%m waits no longer for the owner", m, m, func(w *world) { w.members[m].round.granted = true })
		}
	case p.round.kind == none && p.role == heir && !p.fresh:
		x.counters(w, m, func(c uint8) {
			add("%m begins a takeover", m, m, func(w *world) { w.start(m, takeover, w.self(m), w.members[m].epoch, c) })
		})
	case p.round.kind == none && p.fresh && p.asked < x.Asks:
		add("%m asks what the others hold", m, m, func(w *world) { w.start(m, ask, 0, epoch{}, 0) })
	}
}
