package model

// size is the number of members. more is how many of them are more than half.
const (
	size = 3
	more = size/2 + 1
)

// instance is one run of a member; 0 is none.
type instance uint8

func instanceOf(member int, run uint8) instance { return instance(1 + member + size*int(run)) }

func (i instance) member() int { return (int(i) - 1) % size }

// epoch names an ownership.
type epoch struct {
	counter uint8
	of      instance
}

func (e epoch) before(f epoch) bool {
	return e.counter < f.counter || e.counter == f.counter && e.of < f.of
}

// role is what a member holds.
type role uint8

const (
	nothing role = iota
	copied
	heir
	sealed
	owned
)

// kind is a kind of round.
type kind uint8

const (
	none kind = iota
	ask
	takeover
	renewal
	transfer
	reopening
)

// world is one state of everything. It is comparable.
type world struct {
	members [size]member
	// queues are the messages on their way, by sender and receiver, oldest first.
	queues   [size][size][room]message
	answered uint8 // units
	faults   uint8
	changes  uint8 // of the heir or the owner that the ring wanted
}

// room is how many messages may be on their way from one member to another. A member that
// finds no room waits.
const room = 1

// member is one member.
type member struct {
	run   uint8
	fresh bool
	sees  [size]uint8 // the run of each member that it knows

	state
	vote
	appointment, revokedNumber uint8
	revoked                    epoch
	own                        ownership
	round                      round
	top                        uint8 // the highest counter that it claimed
	asked                      uint8 // questions so far
}

// state is the state held, as of an epoch.
type state struct {
	role  role
	epoch epoch
	used  bool // the unit; it takes the place of the sequence
}

// vote is what a member has recorded and granted.
type vote struct {
	owner epoch // the highest
	grants
}

// grants is the highest claim that a member granted.
type grants struct {
	grant     uint8 // the counter
	grantTo   instance
	grantFor  instance
	grantKind kind
}

// ownership is what an owner does.
type ownership struct {
	heir, next                     instance
	heirHas                        bool  // the unit
	heirNumber, nextNumber, number uint8 // of appointments
	nextWhole                      bool
	renew                          bool // another heir needs another epoch
	withheld                       bool
	handover                       epoch
	retired                        instance
}

// round is a question to all members, and their answers.
type round struct {
	kind    kind
	id      uint8 // the counter of a claim, the number of a question
	base    epoch
	granted bool
	before  grants // what it had granted before this claim
	answers [size]answer
}

// claim returns the counter of a claim; 0 for a question.
func (r *round) claim() uint8 {
	if r.kind <= ask {
		return 0
	}
	return r.id
}

// answer is what a member answered to a claim or a question.
type answer struct {
	has, granted, fresh bool
	state
	vote
}

// content is a kind of message.
type content uint8

const (
	empty content = iota
	claims
	answers
	announces
	batch
	acks
	revokes
)

// message is a message between two instances. All its fields, and those of a world, have
// one byte, so that a world has no padding.
type message struct {
	content  content
	from, to instance
	kind     kind     // of claims
	id       uint8    // of claims and their answers
	who      instance // for whom is claimed, or who is heir
	answer   answer   // of answers; its state also of batches and acknowledgements, its vote.owner of all but questions
	next     epoch    // of handovers
	number   uint8    // of appointments
	needs    bool     // the appointment requires the unit
	drop     bool     // of revocations
	back     bool     // it answers a revocation
}

func (w *world) self(m int) instance { return instanceOf(m, w.members[m].run) }

// knows returns the instance of another member that a member knows.
func (w *world) knows(m, o int) instance { return instanceOf(o, w.members[m].sees[o]) }

// full reports whether there is no room for another message.
func (w *world) full(from, to int) bool { return w.queues[from][to][room-1].content != empty }

// under reports whether a message of a kind is on its way.
func (w *world) under(from, to int, c content) bool {
	for _, q := range w.queues[from][to] {
		if q.content == c {
			return true
		}
	}
	return false
}

// send puts a message on its way. There must be room.
func (w *world) send(from int, to instance, q message) {
	q.from, q.to = w.self(from), to
	queue := &w.queues[from][to.member()]
	for i := range queue {
		if queue[i].content == empty {
			queue[i] = q
			return
		}
	}
}

// take takes the oldest message.
func (w *world) take(from, to int) message {
	queue := &w.queues[from][to]
	q := queue[0]
	copy(queue[:], queue[1:])
	queue[room-1] = message{}
	return q
}

// prune drops the messages that will change nothing whenever they arrive, so that there are
// fewer states: answers to a round that is over, acknowledgements of an ownership that has
// ended, and announcements of an owner below the one recorded.
func (w *world) prune() {
	for from := range size {
		for to := range size {
			for i := range w.queues[from][to] {
				if q := &w.queues[from][to][i]; q.content != empty && w.dead(to, q) {
					*q = message{}
				}
			}
		}
	}
}

func (w *world) dead(m int, q *message) bool {
	p := &w.members[m]
	e := q.answer.owner
	switch {
	case q.to != w.self(m):
		return true
	case q.content == announces:
		return e.before(p.owner)
	case p.owner.before(e) && e.of != w.self(m):
		return false
	case q.content == answers:
		return p.round.kind != q.kind || p.round.id != q.id
	case q.content == acks:
		return p.role != owned || p.epoch != q.answer.epoch
	case q.content == revokes && q.back:
		return p.role != owned || p.epoch != e
	}
	return false
}

// begin is the state in which the first member owns, and the second is its heir.
func begin() world {
	var w world
	first := epoch{1, instanceOf(0, 0)}
	for m := range w.members {
		w.members[m].owner, w.members[m].grant = first, 1
	}
	a, b := &w.members[0], &w.members[1]
	a.state, b.state = state{role: owned, epoch: first}, state{role: heir, epoch: first}
	a.own = ownership{heir: instanceOf(1, 0), heirNumber: 1, number: 1}
	b.appointment = 1
	return w
}
