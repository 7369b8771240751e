package cluster

import (
	"context"
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// faulty makes a core panic at the n-th possible point from now on and, if always, at
// each further one.
type faulty struct {
	left   int // 0 means never
	always bool
	caught int
}

func (x *faulty) in(c *Core) {
	c.config.Panicked = func(any) { x.caught++ }
	c.config.Fault = func(int) {
		if x.left > 0 {
			x.left--
			if x.left == 0 {
				if x.always {
					x.left = 1
				}
				panic("fault")
			}
		}
	}
}

// An owner panics while replies wait for its heir. The askers are told that nothing was
// executed, the heir is asked to take over, and nothing stays locked.
func TestAPanicBreaksThePartition(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	drain(c)
	rule := mesh.Definition(charge.Key(0).Rule)
	check := func(id uint64) {
		c.Deliver(&peer.Frame{
			From: third, To: self, Rules: []peer.Rule{rule},
			Keys: []peer.Key{{Hi: 1, Lo: 2, Cost: 5}}, Checks: []peer.Check{{ID: id, Keys: 1, Wait: uint32(limiter.Minute)}},
		})
	}
	check(1) // D units
	check(2) // waits for the heir
	drain(c)
	d, told := new(limiter.Decision), 0
	c.Begin(charge, d, 0, func() { told++ })
	if look(p).Withheld != 2 {
		t.Fatalf("%d replies wait, want two", look(p).Withheld)
	}

	x := &faulty{left: 1}
	x.in(c)
	h.pass(replica.TickEvery)
	if x.caught != 1 || !p.mu.TryLock() {
		t.Fatalf("%d panics were caught, want one, or the partition is locked", x.caught)
	}
	p.mu.Unlock()
	if look(p).Role != peer.Nothing || p.r.Own() != nil || c.table.Count(int(p.id)) != 0 {
		t.Errorf("it is still held: %s, %d counters", c.Describe(int(p.id)), c.table.Count(int(p.id)))
	}
	h.pass(replica.TickEvery)
	out := drain(c)
	if r := out[third].Replies; len(r) != 1 || r[0].ID != 2 || r[0].Status != peer.NotOwner {
		t.Errorf("who asked is told %+v, want that the second was not executed", r)
	}
	urged := slices.ContainsFunc(out[other].Claims, func(q peer.Claim) bool {
		return q.Kind == peer.Takeover && q.Counter == 0 && q.For == other
	})
	if !urged {
		t.Errorf("the heir is told %+v, want to take over", out[other].Claims)
	}
	if told != 0 {
		t.Error("its own check was answered before anybody could")
	}
	h.pass(2 * c.config.Deadline)
	if told != 1 || d.Source != limiter.SourceFallbackLocal {
		t.Errorf("its own check was answered %d times, by %v, want once by policy", told, d.Source)
	}

	// Another owner announces itself with this node as its heir: nothing is left of the
	// old ownership.
	e := peer.Epoch{Counter: 9, Instance: other}
	snapshot := func() *peer.Frame {
		c.Deliver(&peer.Frame{From: other, To: self, Batches: []peer.Batch{
			{Partition: p.id, Kind: peer.Snapshot, Epoch: e, First: true, Last: true, Seq: 1},
		}})
		return drain(c)[other]
	}
	if a := lastAck(t, snapshot()); a.Status != peer.Acked || look(p).Role != peer.Copy {
		t.Errorf("a snapshot is answered %+v, role %v", a, look(p).Role)
	}
	h.pass(replica.TickEvery)
	drain(c)
	h.pass(limiter.Second)
	for _, q := range drain(c)[other].Claims {
		if q.Kind == peer.Takeover {
			t.Errorf("the former heir is still asked to take over: %+v", q)
		}
	}

	// It breaks again within a minute: nothing is accepted until that minute is over.
	x.left = 1
	if f := snapshot(); len(f.Acks) != 0 || look(p).Role != peer.Nothing || !look(p).GivenUp ||
		c.Count(EventGivenUp) != 1 {
		t.Errorf("after the second panic a snapshot is answered %+v, role %v", f.Acks, look(p).Role)
	}
	if f := snapshot(); len(f.Acks) != 0 || x.caught != 2 {
		t.Errorf("a partition that was given up answers a snapshot by %+v", f.Acks)
	}
	c.Deliver(&peer.Frame{From: other, To: self, Batches: []peer.Batch{
		{Partition: p.id, Kind: peer.Handover, Epoch: e, BaseEpoch: e, Base: 1, Seq: 1,
			Next: peer.Epoch{Counter: 10, Instance: self}},
	}})
	if a := lastAck(t, drain(c)[other]); a.Status != peer.Refused {
		t.Errorf("a partition that was given up answers a handover by %+v", a)
	}
	h.pass(limiter.Minute + 2*replica.TickEvery)
	if a := lastAck(t, snapshot()); a.Status != peer.Acked || look(p).GivenUp {
		t.Errorf("after a minute a snapshot is answered %+v", a)
	}
}

// An owner panics in a step after it has found out that it is fenced. What the step
// has left to do before that is done: who waits is told. But nothing is sent of the
// state, which may be half changed.
func TestAPanicInAStepKeepsItsEffects(t *testing.T) {
	c, p, _, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	rule := mesh.Definition(charge.Key(0).Rule)
	for id := range uint64(2) { // D units, and one that waits for the heir
		c.Deliver(&peer.Frame{
			From: other, To: self, Rules: []peer.Rule{rule},
			Keys: []peer.Key{{Hi: 1, Lo: 2, Cost: 5}}, Checks: []peer.Check{{ID: id + 1, Keys: 1, Wait: uint32(limiter.Minute)}},
		})
	}
	drain(c)
	x := &faulty{left: 2} // after the step's begin: where it says whom to ask now
	x.in(c)
	owned(c, p, peer.Epoch{Counter: 9, Instance: third})
	out := drain(c)
	if x.caught != 1 || c.Count(EventFenced) != 1 || c.Count(EventBroken) != 1 {
		t.Fatalf("premise: %d panics, fenced %d times, broken %d times", x.caught, c.Count(EventFenced), c.Count(EventBroken))
	}
	if r := out[other].Replies; len(r) != 1 || r[0].ID != 2 || r[0].Status != peer.NotOwner ||
		r[0].Owner.Instance != third {
		t.Errorf("who waits is told %+v, want that the third member owns", r)
	}
	if b := out[third].Batches; len(b) != 0 {
		t.Errorf("of the state %+v is sent", b)
	}
	if n := c.decider.pending.Load(); n != 0 || look(p).Role != peer.Nothing {
		t.Errorf("%d count as waiting, and the role is %v", n, look(p).Role)
	}
}

// A partition that this node should own and has given up is answered by policy: at the
// deadline, and at once when the others have had their time to take over.
func TestGivenUpIsAnsweredByPolicy(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	c.Begin(charge.Clone(), new(limiter.Decision), 0, func() {})
	x := &faulty{left: 1, always: true}
	x.in(c)
	h.pass(12 * replica.TickEvery) // the heir is silent, so the batch is due again
	if !look(p).GivenUp {
		t.Fatal("it was not given up")
	}
	x.left = 0
	ask := func() (d *limiter.Decision, told int) {
		d = new(limiter.Decision)
		c.Begin(charge.Clone(), d, 0, func() { told++ })
		return d, told
	}
	if _, told := ask(); told != 0 {
		t.Error("it was answered before the heir could take over")
	}
	h.pass(2 * c.config.Deadline)
	if d, told := ask(); told != 1 || d.Source != limiter.SourceFallbackLocal {
		t.Errorf("it was answered %d times, by %v, want at once by policy", told, d.Source)
	}
	if n := c.calls.Waiting(); n != 0 {
		t.Errorf("%d checks wait", n)
	}
}

// An heir takes over when its owner, and no other member, says that it owns no more.
func TestTheHeirOfABrokenOwnershipTakesOver(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableLocal)
	e := peer.Epoch{Counter: 2, Instance: third}
	put(c, p, replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e})
	urge := func(from peer.Instance) bool {
		c.Deliver(&peer.Frame{From: from, To: self, Claims: []peer.Claim{{Partition: p.id, Kind: peer.Takeover, For: self}}})
		return slices.ContainsFunc(drain(c)[third].Claims, func(q peer.Claim) bool { return q.Kind == peer.Takeover })
	}
	if urge(other) {
		t.Error("anybody can have it take over")
	}
	if !urge(third) {
		t.Errorf("it does not take over: %s", c.Describe(int(p.id)))
	}
}

// Work that panics in a turn is not repeated, and all other work of the turn is done.
func TestAPanicEndsOneCall(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	x := &faulty{}
	x.in(c)
	put(c, p, replica.Fixture{Owner: look(p).Owner})
	told := 0
	begin := func(done func()) (*arith.Charge, *limiter.Decision) {
		asked, answer := charge.Clone(), new(limiter.Decision)
		c.Begin(asked, answer, 0, done)
		return asked, answer
	}
	begin(func() { panic("callback") })
	begin(func() { told++ })
	drain(c)
	asked, answer := begin(func() { told++ })
	id := drain(c)[third].Checks[0].ID
	asked.Key(0).Rule = nil // every use of it panics

	c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: id}}})
	if x.caught != 1 {
		t.Fatalf("a reply that panics was caught %d times", x.caught)
	}
	asked.Key(0).Rule = &limiter.Rule{Name: "broken", Limits: []*limiter.Limit{nil}}
	h.pass(2 * c.config.Deadline)
	if told != 2 || x.caught < 3 {
		t.Errorf("%d of two others were told, after %d panics", told, x.caught)
	}
	if answer.Allowed || answer.Source != limiter.SourceFallbackClosed {
		t.Errorf("what even the policy cannot answer is answered %+v, want a denial", answer)
	}
	if n := c.calls.Waiting(); n != 0 {
		t.Errorf("%d checks wait", n)
	}
	// A check that panics when it begins.
	broken := charge.Clone()
	broken.Key(0).Rule = nil
	d := new(limiter.Decision)
	if err := c.Check(t.Context(), broken, d); err != nil || d.Allowed {
		t.Errorf("a check that cannot be begun is answered %v, %+v", err, d)
	}
	charges, ds := []arith.Charge{*broken, *charge.Clone()}, make([]limiter.Decision, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n := c.CheckMany(ctx, charges, ds, 0); !slices.Equal(n, []int{1}) || ds[0].Allowed {
		t.Errorf("of a batch %v is undecided, want the second; the first is answered %+v", n, ds[0])
	}
}

// A check panics under the locks of its partition: the partition breaks, is unlocked, and
// the asker is told at once that nothing was executed.
func TestAPanicInACheckBreaksItsPartition(t *testing.T) {
	c, p, _, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	x := &faulty{left: 1}
	x.in(c)
	c.Deliver(&peer.Frame{
		From: third, To: self, Rules: []peer.Rule{mesh.Definition(charge.Key(0).Rule)},
		Keys: []peer.Key{{Hi: 1, Lo: 2, Cost: 5}}, Checks: []peer.Check{{ID: 1, Keys: 1, Wait: uint32(limiter.Minute)}},
	})
	if x.caught != 1 || !p.mu.TryLock() {
		t.Fatalf("%d panics were caught, want one, or the partition is locked", x.caught)
	}
	p.mu.Unlock()
	if c.Count(EventBroken) != 1 || look(p).Role != peer.Nothing {
		t.Errorf("it broke %d times and its role is %v, want that it broke once and holds nothing", c.Count(EventBroken),
			look(p).Role)
	}
	if r := drain(c)[third].Replies; len(r) != 1 || r[0].ID != 1 || r[0].Status != peer.NotOwner {
		t.Errorf("the asker is told %+v, want that the check was not executed", r)
	}
}
