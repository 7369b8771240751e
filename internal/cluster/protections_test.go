package cluster

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// These tests show, one step at a time, what the simulator needs many seeds for: the
// test plays the neighbours of a core.

// byHand is a scheduler whose time stands still unless the test moves it. When
// standStill has counted down the readings of the clock, the node has been paused for 5
// s.
type byHand struct {
	now        limiter.Tick
	timer      []func()
	standStill int
}

func (h *byHand) Now() limiter.Tick {
	if h.standStill > 0 {
		if h.standStill--; h.standStill == 0 {
			h.now += 5 * limiter.Second
		}
	}
	return h.now
}

func (h *byHand) After(_ limiter.Tick, f func()) { h.timer = append(h.timer, f) }
func (h *byHand) Wake(peer.Instance)             {}
func (h *byHand) Owner(int) int                  { return 0 }
func (h *byHand) Successor(int) int              { return 1 }

// pass advances the time in steps of a tick.
func (h *byHand) pass(span limiter.Tick) {
	for end := h.now + span; h.now < end; {
		h.now += replica.TickEvery
		due := h.timer
		h.timer = nil
		for _, f := range due {
			f()
		}
	}
}

const (
	self  peer.Instance = 0xa
	other peer.Instance = 0xb
	third peer.Instance = 0xc
)

// single returns a core that manages one partition, the test key's, and that partition.
// The node is active with two others, and owns nothing.
func single(t *testing.T, policy limiter.Unreachable) (*Core, *partition, *byHand, *arith.Charge) {
	t.Helper()
	return singleWith(t, policy, func(*Config) {})
}

// singleWith is single with a configuration that the test changes.
func singleWith(t *testing.T, policy limiter.Unreachable, change func(*Config)) (*Core, *partition, *byHand,
	*arith.Charge) {
	t.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}, OnUnreachable: policy}
	charge := &arith.Charge{}
	charge.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: r, Cost: 5})
	h := &byHand{now: 1_800_000_000 * limiter.Second}
	config := Config{
		Self:  peer.Member{Name: "a", Instance: self, State: peer.Active},
		Table: table.New(table.Config{}), Fallback: table.New(table.Config{}),
		Scheduler: h, Network: h, Rand: rand.New(rand.NewPCG(1, 1)),
		Rule:       func(string) *limiter.Rule { return r },
		Partitions: []int{table.PartitionOf(charge.Key(0))},
	}
	change(&config)
	c := New(config)
	c.decider.shares.few.askAt.Store(math.MaxInt64) // the members of these tests confirm nothing
	p := c.partitions.parts[0]
	// another member owns, so this one does not seek
	put(c, p, replica.Fixture{Owner: peer.Epoch{Counter: 1, Instance: third}})
	members := []peer.Member{
		{Name: "a", Instance: self, State: peer.Active, Wire: peer.LeaseWire - 1},
		{Name: "b", Instance: other, State: peer.Active, Wire: peer.LeaseWire - 1},
		{Name: "c", Instance: third, State: peer.Active, Wire: peer.LeaseWire - 1},
	}
	c.SetView(view.New(self, members, h, 3, 3))
	for _, i := range []peer.Instance{other, third} {
		c.Up(i)
	}
	drain(c)
	return c, p, h, charge
}

// drain takes all frames and merges them into one for each member.
func drain(c *Core) map[peer.Instance]*peer.Frame {
	out := map[peer.Instance]*peer.Frame{other: {}, third: {}}
	for to, sum := range out {
		for f := c.Take(to, true); f != nil; f = c.Take(to, true) {
			sum.Answers = append(sum.Answers, f.Answers...)
			sum.Acks = append(sum.Acks, f.Acks...)
			sum.Batches = append(sum.Batches, f.Batches...)
			sum.Claims = append(sum.Claims, f.Claims...)
			sum.Revokes = append(sum.Revokes, f.Revokes...)
			sum.Replies = append(sum.Replies, f.Replies...)
			sum.Results = append(sum.Results, f.Results...)
			sum.Checks = append(sum.Checks, f.Checks...)
			sum.Refunds = append(sum.Refunds, f.Refunds...)
			sum.Holds = append(sum.Holds, f.Holds...)
		}
	}
	return out
}

func lastAck(t *testing.T, f *peer.Frame) peer.Ack {
	t.Helper()
	if len(f.Acks) == 0 {
		t.Fatal("nothing was acknowledged")
	}
	return f.Acks[len(f.Acks)-1]
}

func lastAnswer(t *testing.T, f *peer.Frame) peer.Answer {
	t.Helper()
	if len(f.Answers) == 0 {
		t.Fatal("nothing was answered")
	}
	return f.Answers[len(f.Answers)-1]
}

// own makes the core the owner under the counter 3, with other as its heir.
func own(c *Core, p *partition) {
	e := peer.Epoch{Counter: 3, Instance: self}
	put(c, p, replica.Fixture{Role: peer.Owned, Epoch: e, Owner: e, Heir: other})
	drain(c)
}

// put puts the replica of a partition into a state.
func put(c *Core, p *partition, f replica.Fixture) {
	t := c.begin()
	p.mu.Lock()
	p.r.Begin(t.inputs(), f)
	p.apply(t)
	p.mu.Unlock()
	t.end()
}

// putAs changes the role of this node, and nothing else.
func putAs(c *Core, p *partition, role peer.Role) {
	i := look(p)
	put(c, p, replica.Fixture{Role: role, Epoch: i.Epoch, Owner: i.Owner, Heir: i.Heir})
}

// heard has the owner of a partition announce other as its heir.
func heard(c *Core, p *partition) {
	owner := look(p).Owner
	c.Deliver(&peer.Frame{From: owner.Instance, To: self,
		Announces: []peer.Announce{{Partition: p.id, Epoch: owner, Heir: other}}})
}

// owned has a member become the owner of a partition.
func owned(c *Core, p *partition, e peer.Epoch) {
	c.Deliver(&peer.Frame{From: e.Instance, To: self, Announces: []peer.Announce{{Partition: p.id, Epoch: e}}})
}

// look returns what the node holds of a partition.
func look(p *partition) replica.Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Info(0)
}

func TestAPromotedHeirAcknowledgesNothing(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableClosed)
	own(c, p)
	before := peer.Epoch{Counter: 2, Instance: third}
	c.Deliver(&peer.Frame{From: third, To: self, Batches: []peer.Batch{
		{Partition: p.id, Kind: peer.Delta, Epoch: before, BaseEpoch: before, Appointment: 1, Ping: 7},
	}})
	if a := lastAck(t, drain(c)[third]); a.Status != peer.Fenced || a.Owner != look(p).Epoch || a.Appointment != 0 {
		t.Errorf("an owner that was fenced is answered %+v, want Fenced by %v", a, look(p).Epoch)
	}
}

func TestACounterIsGrantedToOneClaimant(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableClosed)
	claim := func(from peer.Instance, counter uint64) peer.Answer {
		c.Deliver(&peer.Frame{From: from, To: self, Claims: []peer.Claim{
			{Partition: p.id, Kind: peer.Renew, Round: 1, Counter: counter, For: from},
		}})
		return lastAnswer(t, drain(c)[from])
	}
	if a := claim(other, 5); !a.Granted {
		t.Errorf("the first claim of 5 is answered %+v", a)
	}
	if a := claim(third, 5); a.Granted || a.Grant != 5 || a.GrantFor != other {
		t.Errorf("the second claim of 5 is answered %+v, want a refusal that names the first", a)
	}
	if a := claim(third, 4); a.Granted {
		t.Error("a counter below one that was granted is granted")
	}
	if a := claim(other, 5); !a.Granted {
		t.Error("the first claimant is refused when it asks again")
	}
}

func TestAGrantBinds(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableClosed)
	c.Deliver(&peer.Frame{From: other, To: self, Claims: []peer.Claim{
		{Partition: p.id, Kind: peer.Takeover, Round: 1, Counter: 5, For: other},
	}})
	drain(c)
	lower := peer.Epoch{Counter: 4, Instance: third}
	c.Deliver(&peer.Frame{From: third, To: self, Batches: []peer.Batch{
		{Partition: p.id, Kind: peer.Snapshot, Epoch: lower, First: true, Last: true, Seq: 1},
		{Partition: p.id, Kind: peer.Delta, Epoch: lower, BaseEpoch: lower, Base: 1, Seq: 1, Appointment: 1, Appointed: 1},
	}})
	if a := lastAck(t, drain(c)[third]); a.Status != peer.Refused || a.Top < 5 {
		t.Errorf("an appointment under a counter below the granted one is answered %+v, want a refusal that names 5", a)
	}
	putAs(c, p, peer.Heir)
	c.Deliver(&peer.Frame{From: third, To: self, Batches: []peer.Batch{
		{Partition: p.id, Kind: peer.Handover, Epoch: lower, BaseEpoch: lower, Base: 1, Seq: 1,
			Next: peer.Epoch{Counter: 4, Instance: self}},
	}})
	if look(p).Role == peer.Owned {
		t.Error("a handover under a counter below the granted one is accepted")
	}
}

func TestAFreshInstanceHasNoSay(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableClosed)
	put(c, p, replica.Fixture{Owner: look(p).Owner, Fresh: true})
	c.Deliver(&peer.Frame{From: other, To: self, Claims: []peer.Claim{
		{Partition: p.id, Kind: peer.Takeover, Round: 1, Counter: 5, For: other},
	}})
	if a := lastAnswer(t, drain(c)[other]); a.Granted || !a.Fresh {
		t.Errorf("a fresh instance answers a claim with %+v", a)
	}
	e := peer.Epoch{Counter: 6, Instance: third}
	c.Deliver(&peer.Frame{From: third, To: self, Batches: []peer.Batch{
		{Partition: p.id, Kind: peer.Snapshot, Epoch: e, First: true, Last: true, Seq: 1},
		{Partition: p.id, Kind: peer.Delta, Epoch: e, BaseEpoch: e, Base: 1, Seq: 1, Appointment: 1, Appointed: 1},
	}})
	if a := lastAck(t, drain(c)[third]); a.Status != peer.Refused {
		t.Errorf("a fresh instance answers an appointment with %+v", a)
	}
}

func TestARevokedHeirKeepsItsCopy(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableClosed)
	var d limiter.Decision
	if err := c.table.Decide(h.now, charge, &d); err != nil {
		t.Fatal(err)
	}
	e := peer.Epoch{Counter: 2, Instance: third}
	put(c, p, replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e})
	c.Deliver(&peer.Frame{From: third, To: self, Revokes: []peer.Revoke{{Partition: p.id, Epoch: e, Appointment: 1}}})
	if a := lastAck(t, drain(c)[third]); a.Status != peer.Revoked || a.Appointment != 1 {
		t.Errorf("a revocation is answered %+v", a)
	}
	if look(p).Role != peer.Copy || c.table.Count(int(p.id)) != 1 {
		t.Errorf("after its revocation the heir has role %d and %d counters, want its copy", look(p).Role,
			c.table.Count(int(p.id)))
	}
	// It may go only after another member has accepted.
	c.Deliver(&peer.Frame{From: third, To: self, Revokes: []peer.Revoke{{Partition: p.id, Epoch: e, Drop: true}}})
	if look(p).Role != peer.Nothing || c.table.Count(int(p.id)) != 0 {
		t.Errorf("a copy that is not needed any more stays: role %d, %d counters", look(p).Role, c.table.Count(int(p.id)))
	}
}

// Withheld charges are taken back before a state is merged: afterwards they would be
// taken from what the other owner admitted.
func TestWithheldChargesAreTakenBackBeforeMerging(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	done := 0
	for range 2 { // D is 5: the first is answered, the second withheld
		c.Begin(charge, new(limiter.Decision), h.now+40*limiter.Millisecond, func() { done++ })
	}
	if done != 1 {
		t.Fatalf("%d of 2 checks are answered, want 1", done)
	}
	l := mesh.Definition(charge.Key(0).Rule).Limits[0]
	key := charge.Key(0)
	begun := int64(h.now-h.now%limiter.Day) - int64(h.now)
	c.Deliver(&peer.Frame{From: third, To: self, Limits: []peer.Limit{l},
		Batches: []peer.Batch{{Partition: p.id, Kind: peer.Push, Epoch: peer.Epoch{Counter: 2, Instance: third}, First: true,
			Last: true, Keys: 1}},
		Entries: []peer.Entry{{Hi: key.Hash.Hi, Lo: key.Hash.Lo ^ arith.NameID(key.Rule.Limits[0]), First: true,
			Time: begun, A: 12}},
	})
	if a := lastAck(t, drain(c)[third]); a.Status != peer.Merged {
		t.Fatalf("a push is answered %+v", a)
	}
	h.pass(100 * limiter.Millisecond) // everything that waits expires
	var d limiter.Decision
	q := charge.Clone()
	q.Peek = true
	if err := c.table.Decide(h.now, q, &d); err != nil {
		t.Fatal(err)
	}
	if left := d.Limit(0).Remaining; left > 88 {
		t.Errorf("%d of 100 left after 12 were merged, want 88 at most", left)
	}
}

// The policy releases replies only if a ping that was sent after they began to wait was
// not answered: an earlier silence may have another cause.
func TestThePingIsSentAfterTheWaitBegan(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	answered := 0
	ask := func() { c.Begin(charge, new(limiter.Decision), h.now+limiter.Second, func() { answered++ }) }
	ask() // D is 5: answered; its batch is never acknowledged
	h.pass(45 * limiter.Millisecond)
	ask()
	h.pass(30 * limiter.Millisecond)
	if answered != 1 {
		t.Fatal("the policy let a reply go 30 ms after it began to wait")
	}
	h.pass(60 * limiter.Millisecond)
	if answered != 2 || c.Count(EventRaised) == 0 {
		t.Errorf("%d checks are answered, want both: no ping was answered for 50 ms", answered)
	}
}

// An heir is suspended by the length of its silence, not of the replies' waits: the
// policy releases replies earlier, and each wait would start anew. After an answer the
// heir has its full time again.
func TestAnHeirIsGivenUpByItsSilence(t *testing.T) {
	for _, answers := range []bool{false, true} {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		own(c, p)
		answered := 0
		ask := func() { c.Begin(charge.Clone(), new(limiter.Decision), h.now+limiter.Second, func() { answered++ }) }
		ask() // D is 5: answered, and sent to the heir
		h.pass(3 * replica.TickEvery)
		sent := drain(c)[other].Batches
		if len(sent) != 1 || answered != 1 {
			t.Fatalf("premise: %d batches are sent, and %d checks answered", len(sent), answered)
		}
		h.pass(85 * limiter.Millisecond)
		if answers {
			c.Deliver(&peer.Frame{From: other, To: self, Acks: []peer.Ack{
				{Partition: p.id, Epoch: look(p).Epoch, Ping: sent[0].Ping, Seq: sent[0].Seq, Appointment: 1, Owner: look(p).Epoch},
			}})
			ask()
		}
		ask() // it waits from now on, 100 ms after the first
		if got := look(p).Suspended; got != 0 {
			t.Fatalf("after 100 ms %v is given up", got)
		}
		h.pass(40 * limiter.Millisecond)
		renews := false
		for _, q := range drain(c)[third].Claims {
			renews = renews || q.Kind == peer.Renew
		}
		if renews == answers || (look(p).Suspended == other) == answers {
			t.Errorf("answered %t: after 140 ms %v is given up, renewal %t", answers, look(p).Suspended, renews)
		}
	}
}

// After a takeover the source of answers is the heir, until it has an heir of its own or
// no other member is left; then it is the owner.
func TestTheSourceAfterATakeover(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	source := func() limiter.Source {
		q, d := charge.Clone(), new(limiter.Decision)
		q.Peek = true
		c.Begin(q, d, 0, func() {})
		return d.Source
	}
	own(c, p)
	if got := source(); got != limiter.SourceOwner {
		t.Errorf("an owner answers as %v", got)
	}
	e := look(p).Epoch
	after := replica.Fixture{Role: peer.Owned, Epoch: e, Owner: e, TookOver: true}
	put(c, p, after)
	if got := source(); got != limiter.SourceHeir {
		t.Errorf("who has just taken over answers as %v", got)
	}
	after.Heir = other
	put(c, p, after)
	if got := source(); got != limiter.SourceOwner {
		t.Errorf("who has taken over, and has an heir, answers as %v", got)
	}
	after.Heir = 0
	put(c, p, after)
	c.SetView(view.New(self, []peer.Member{{Name: "a", Instance: self, State: peer.Active}}, h, 3, 1))
	if got := source(); got != limiter.SourceOwner {
		t.Errorf("who has taken over, and is alone, answers as %v", got)
	}
}
