package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// A story is told by the machines of three members, a, b and c, for one partition. The
// test plays everything around them: a clock, ticks, connections that take a millisecond
// and clients. What they say is written down, see testdata.
type story struct {
	t       *testing.T
	text    strings.Builder
	now     limiter.Tick
	began   limiter.Tick
	id      uint16
	rule    *limiter.Rule
	key     arith.Key
	ring    []string // owner, then its successors, of those in view
	members []*actor
	flying  []flying
	cuts    map[[2]string]bool
	known   int // members that count
	asked   int // checks so far
	// answered and refused are the checks that ended, by number; admitted the units.
	answered, refused []int
	admitted          uint64
	last              string // the line written last, without its receiver
}

// flying is a message on its way.
type flying struct {
	at       limiter.Tick
	from, to peer.Instance
	m        Message
}

// actor is one member, and what a shell would hold of it.
type actor struct {
	*lab
	s           *story
	name        string
	self        peer.Instance
	p           *Replica
	view        *view.View
	step        Step
	state       peer.State
	watched     bool
	flush       bool
	dead        bool
	pausedUntil limiter.Tick
}

// question is a check of a client.
type question struct {
	Wait
	Withheld
	n    int
	over bool
	back bool // and its charge is taken back
}

func (q *question) Facts() *Wait { return &q.Wait }

// withheldCheck is a check whose reply is withheld.
type withheldCheck struct{ *question }

func (a withheldCheck) Facts() *Withheld        { return &a.Withheld }
func (a withheldCheck) Over() (over, back bool) { return a.over, a.back }
func (a withheldCheck) TakeBack() bool {
	if a.over {
		return false
	}
	a.over, a.back = true, true
	return true
}

// tell begins a story under a policy. The limit is 100 a day, so D is 5.
func tell(t *testing.T, policy limiter.Unreachable) *story {
	t.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s := &story{t: t, now: 1_800_000_000 * limiter.Second, cuts: map[[2]string]bool{}, known: 3,
		ring: []string{"a", "b", "c"}}
	s.began = s.now
	s.rule = &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}, OnUnreachable: policy}
	s.key = arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: s.rule}
	s.id = uint16(table.PartitionOf(&s.key))
	for i, name := range s.ring {
		s.members = append(s.members, s.actor(name, peer.Instance(0xa+i)))
	}
	s.all("abc")
	return s
}

// begun is tell, with a as owner, b as heir and c without a copy.
func begun(t *testing.T, policy limiter.Unreachable) *story {
	t.Helper()
	s := tell(t, policy)
	e := peer.Epoch{Counter: 1, Instance: s.of("a").self}
	for _, f := range []struct {
		name string
		role peer.Role
	}{{"a", peer.Owned}, {"b", peer.Heir}, {"c", peer.Nothing}} {
		x := Fixture{Role: f.role, Owner: e, Heir: s.of("b").self}
		if f.role != peer.Nothing {
			x.Epoch = e
		}
		m := s.of(f.name)
		m.do(func(t *Step) { m.p.Begin(t, x) })
	}
	s.flying, s.now = nil, s.began
	s.text.Reset() // what they asked when they began
	s.say("a owns, b is heir, c has no copy")
	return s
}

func (s *story) actor(name string, i peer.Instance) *actor {
	m := &actor{lab: newLab(), s: s, name: name, self: i, state: peer.Active}
	m.rand = rand.New(rand.NewPCG(uint64(i), 1))
	m.p = New(&Node{
		Self: i, Store: m.table, Peers: m, Pace: m, Staged: new(atomic.Int64), Prepared: new(atomic.Int64),
		Random: func(below limiter.Tick) limiter.Tick { return limiter.Tick(m.rand.Int64N(int64(below))) },
	}, s.id)
	return m
}

func (s *story) of(name string) *actor {
	for _, m := range s.members {
		if m.name == name {
			return m
		}
	}
	s.t.Fatalf("there is no member %s", name)
	return nil
}

// named returns the name of an instance. That of a former one has an apostrophe.
func (s *story) named(i peer.Instance) string {
	for _, m := range s.members {
		if m.self == i {
			return m.name
		}
	}
	if i == 0 {
		return "-"
	}
	return string(rune('a'+(i&0xf)-0xa)) + "'"
}

func (m *actor) Reachable(i peer.Instance) bool {
	name := m.s.named(i)
	return len(name) == 1 && name != "-" && !m.s.cuts[[2]string{m.name, name}] && !m.s.of(name).dead
}

// sees sets the view of a member: the names of those in it, which are active.
func (m *actor) sees(names string) {
	var in []peer.Member
	for _, o := range m.s.members {
		if strings.Contains(names, o.name) {
			in = append(in, peer.Member{Name: o.name, Instance: o.self, State: o.state})
		}
	}
	before := m.view
	m.view = view.New(m.self, in, order{m.s.ring, view.RingNames(in)}, m.s.known, m.s.known)
	for i := range in {
		delete(m.left, in[i].Instance)
	}
	for i := 0; before != nil && i < len(before.Members); i++ {
		if o := before.Members[i].Instance; !m.view.Has(o) {
			m.left[o] = m.s.now
		}
	}
	m.do(m.p.ViewChanged)
}

// all has all members that run see the same.
func (s *story) all(names string) {
	for _, m := range s.members {
		if !m.dead {
			m.sees(names)
		}
	}
}

// order is the ring of a story: the first of its names that is in view owns.
type order struct{ wanted, names []string }

func (o order) at(n int) int {
	for _, name := range o.wanted {
		if i := slices.Index(o.names, name); i >= 0 {
			if n--; n < 0 {
				return i
			}
		}
	}
	return -1
}

func (o order) Owner(int) int     { return o.at(0) }
func (o order) Successor(int) int { return o.at(1) }

// do runs a step of a member, and its effects.
func (m *actor) do(step func(*Step)) {
	m.step.Now, m.step.At, m.step.View, m.step.State = m.s.now, m.s.now, m.view, m.state
	step(&m.step)
	m.watched = m.watched || m.step.Watch
	m.flush = m.flush || m.step.Flush
	effects := slices.Clone(m.step.List)
	for i := range effects {
		effects[i].Keys = slices.Clone(effects[i].Keys)
	}
	m.step.Reset() // a check that is handled again steps in between
	for i := range effects {
		m.apply(&effects[i])
	}
}

// tick ticks the replica, and looks that nothing was to be done if its time had not come.
func (m *actor) tick(t *Step) {
	due := m.p.Due(t)
	m.watched = m.p.Tick(t) != Never
	if t.Now < due && t.Any() {
		m.s.t.Errorf("at %v %v did something, and nothing is due before %v: %+v", t.Now-m.s.began, m.self, due-m.s.began,
			t.Effects)
	}
}

func (m *actor) apply(e *Effect) {
	s := m.s
	switch e.Kind {
	case SendAnnounce:
		m.send(e.To, Message{Announce: &e.Announce}, s.announces(&e.Announce))
	case SendClaim:
		m.send(e.To, Message{Claim: &e.Claim}, s.claims(&e.Claim))
	case SendAnswer:
		m.send(e.To, Message{Answer: &e.Answer}, s.answers(&e.Answer))
	case SendRevoke:
		m.send(e.To, Message{Revoke: &e.Revoke}, s.revokes(&e.Revoke))
	case SendAck:
		m.send(e.To, Message{Ack: &e.Ack}, s.acks(&e.Ack))
	case SendBatch:
		msg := Message{Batch: &e.Batch}
		m.table.ExportIDs(int(s.id), e.IDs, s.now, func(x table.ID) { msg.IDs = append(msg.IDs, x) })
		for _, hi := range e.Keys {
			k := Entries{Hi: hi}
			m.table.ExportKey(int(s.id), hi, s.now, func(x table.Entry) { k.List = append(k.List, x) })
			msg.Keys = append(msg.Keys, k)
		}
		m.send(e.To, msg, s.batches(&e.Batch, len(msg.IDs)+len(msg.Keys)))
	case Refuse:
		q, ok := e.Request.(*question)
		if !ok {
			q = e.Reply.(withheldCheck).question
		}
		q.over = true
		s.refused = append(s.refused, q.n)
		s.line("%s refuses check %d: %s, the owner is %s", m.name, q.n, statuses[e.Status], s.epoch(e.Owner))
	case Expire:
		s.line("%s drops check %d: its deadline has passed", m.name, e.Request.(*question).n)
	case Rerun:
		q := e.Request.(*question)
		s.line("%s handles check %d again", m.name, q.n)
		m.decide(q)
	case Release:
		q := e.Reply.(withheldCheck).question
		q.over = true
		s.count(q)
		s.line("%s answers check %d", m.name, q.n)
	case Happened:
		s.line("%s: %s", m.name, events[e.Event])
	case Problem:
		s.t.Errorf("%s: %s: %v", m.name, e.What, e.Err)
	}
}

// send puts a message on its way, unless the connection is cut.
func (m *actor) send(to peer.Instance, msg Message, text string) {
	s, lost := m.s, ""
	if m.Reachable(to) {
		s.flying = append(s.flying, flying{s.now + limiter.Millisecond, m.self, to, msg})
	} else {
		lost = " (lost)"
	}
	line := fmt.Sprintf("%s -> %%s: %s%s", m.name, text, lost)
	if key := fmt.Sprint(s.now, line); key == s.last { // said to several
		whole := s.text.String()
		at := strings.LastIndex(whole, ": "+text)
		s.text.Reset()
		s.text.WriteString(whole[:at] + ", " + s.named(to) + whole[at:])
		return
	}
	s.line("%s", strings.Replace(line, "%s", s.named(to), 1))
	s.last = fmt.Sprint(s.now, line)
}

// line writes a line with the time.
func (s *story) line(format string, args ...any) {
	s.last = ""
	fmt.Fprintf(&s.text, "%5d ms  %s\n", (s.now-s.began)/limiter.Millisecond, fmt.Sprintf(format, args...))
}

// say writes what happens around the machines.
func (s *story) say(what string) {
	s.last = ""
	fmt.Fprintf(&s.text, "\n-- %s\n", what)
}

// count records that a check was answered, and admitted.
func (s *story) count(q *question) {
	s.answered = append(s.answered, q.n)
	s.admitted += q.Wait.Charge.Key(0).Cost
}

// ask has a client ask a member for units, and returns the number of the check. sent
// means that the owner was asked before.
func (s *story) ask(name string, units uint64, sent bool) int {
	return s.askAs(nil, name, units, sent)
}

// askAs is ask with an id, unless that is nil.
func (s *story) askAs(id *arith.Idempotency, name string, units uint64, sent bool) int {
	s.asked++
	q := &question{n: s.asked}
	q.Wait.Charge = &arith.Charge{ID: id}
	k := s.key
	k.Rule, k.Cost = s.rule, units
	q.Wait.Charge.Add(k)
	q.Wait.Until, q.Wait.Sent = s.now+300*limiter.Millisecond, sent
	s.line("client -> %s: check %d of %d units", name, q.n, units)
	s.of(name).decide(q)
	return q.n
}

// decide does what a shell does with a check.
func (m *actor) decide(q *question) {
	s, charge, role := m.s, q.Wait.Charge, m.p.Role()
	over := false
	if role == peer.Heir {
		m.do(func(t *Step) { over = m.p.TakesOver(t) })
	}
	if role == peer.Sealed || over {
		s.line("%s keeps check %d until it is known who owns", m.name, q.n)
		m.do(func(t *Step) { m.p.Park(t, q) })
		return
	}
	if m.p.Role() != peer.Owned {
		s.refused = append(s.refused, q.n)
		s.line("%s refuses check %d: not the owner, that is %s", m.name, q.n, s.epoch(m.p.Owner()))
		return
	}
	d := new(limiter.Decision)
	if units := m.p.Own().InDoubtOf(charge.Key(0)); units > 0 && !m.fits(charge) && m.contends(q) {
		s.line("%s keeps check %d: %d reserved units may be taken back", m.name, q.n, units)
		return
	}
	if err := m.table.Decide(s.now, charge, d); err != nil {
		s.t.Fatal(err)
	}
	if !d.Allowed {
		s.refused = append(s.refused, q.n)
		s.line("%s answers check %d: denied, %d left", m.name, q.n, d.Limit(0).Remaining)
		return
	}
	if d.Repeated {
		s.count(q)
		s.line("%s answers check %d: counted already, %d left", m.name, q.n, d.Limit(0).Remaining)
		return
	}
	var stamp uint64
	wait := false
	m.do(func(t *Step) {
		stamp, wait = m.p.Own().Charged(t, charge.Key(0), charge.ID, charge.ID != nil && charge.ID.Came != 0,
			charge.Key(0).Cost)
	})
	if q.Settles {
		m.do(func(t *Step) {
			m.p.Own().Prepare(t, charge.Key(0), charge.ID, s.of("c").self, arith.Fields(&d.Receipt).Time, q.Wait.Until, nil)
		})
	}
	q.Withheld = Withheld{Charge: charge, Receipt: d.Receipt, Since: s.now, Until: q.Wait.Until}
	if wait {
		s.line("%s admits check %d, and withholds the reply: its heir lacks too much", m.name, q.n)
		m.do(func(t *Step) { m.p.Own().Withhold(t, withheldCheck{q}, stamp) })
		return
	}
	s.count(q)
	s.line("%s answers check %d: admitted, %d left", m.name, q.n, d.Limit(0).Remaining)
}

// fits reports whether a check would be admitted.
func (m *actor) fits(charge *arith.Charge) bool {
	k, d := charge.Clone(), new(limiter.Decision)
	k.Peek = true
	return m.table.Decide(m.s.now, k, d) == nil && d.Allowed
}

func (m *actor) contends(q *question) (may bool) {
	m.do(func(t *Step) {
		if may = m.p.Own().MayWait(t, &q.Wait); may {
			m.p.Own().WaitFor(t, q)
		}
	})
	return may
}

// remaining returns how many units a member's counter has left.
func (m *actor) remaining() uint64 {
	k, d := &arith.Charge{Peek: true}, new(limiter.Decision)
	k.Add(m.s.key)
	if err := m.table.Decide(m.s.now, k, d); err != nil {
		m.s.t.Fatal(err)
	}
	return d.Limit(0).Remaining
}

// pass lets time go by, a millisecond at a time: messages arrive, ticks are due each
// 5 ms, and what was put off to the end of a turn is done.
func (s *story) pass(span limiter.Tick) {
	for end := s.now + span; ; s.now += limiter.Millisecond {
		for i := 0; i < len(s.flying); i++ {
			x := s.flying[i]
			m := s.member(x.to)
			if x.at > s.now || m != nil && m.pausedUntil > s.now {
				continue
			}
			s.flying = slices.Delete(s.flying, i, i+1)
			i--
			if m != nil && !m.dead {
				m.do(func(t *Step) { m.p.Step(t, x.from, x.m) })
			}
		}
		for _, m := range s.members {
			if m.dead || m.pausedUntil > s.now {
				continue
			}
			if m.flush {
				m.flush = false
				m.do(m.p.Flush)
			}
			if m.watched && (s.now-s.began)%TickEvery == 0 {
				m.do(m.tick)
			}
		}
		if s.now >= end {
			return
		}
	}
}

func (s *story) member(i peer.Instance) *actor {
	for _, m := range s.members {
		if m.self == i {
			return m
		}
	}
	return nil
}

// cut breaks the connections of a.
func (s *story) cut() {
	a := s.of("a").self
	for _, o := range []string{"b", "c"} {
		s.cuts[[2]string{"a", o}], s.cuts[[2]string{o, "a"}] = true, true
	}
	s.flying = slices.DeleteFunc(s.flying, func(x flying) bool { return x.from == a || x.to == a })
}

// mend connects a again.
func (s *story) mend() {
	clear(s.cuts)
	s.meet(s.of("a"), s.of("b"))
	s.meet(s.of("a"), s.of("c"))
}

// meet connects two members.
func (s *story) meet(m, o *actor) {
	m.do(func(t *Step) { m.p.Connected(t, o.self) })
	o.do(func(t *Step) { o.p.Connected(t, m.self) })
}

// crash ends a member.
func (s *story) crash(name string) { s.of(name).dead = true }

// forget has all members that run forget one that has crashed.
func (s *story) forget(name string) {
	s.known--
	for _, m := range s.members {
		m.forgotten = append(m.forgotten, s.of(name).self)
	}
}

// restart begins another instance of a member that has crashed. It knows nothing.
func (s *story) restart(name string) {
	at := slices.Index(s.members, s.of(name))
	s.members[at] = s.actor(name, s.members[at].self+0x10)
}

// owners returns the names of those that decide.
func (s *story) owners() (names string) {
	for _, m := range s.members {
		if !m.dead && m.p.Role() == peer.Owned {
			names += m.name
		}
	}
	return names
}

// heir returns the name of the heir of the owner with the highest epoch.
func (s *story) heir() string {
	best := Info{}
	for _, m := range s.members {
		if i := m.p.Info(s.now); !m.dead && i.Role == peer.Owned && best.Epoch.Before(i.Epoch) {
			best = i
		}
	}
	return s.named(best.Heir)
}
