package cluster

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// received returns a core to which the third member has just handed over its partition,
// and a function that has the other member ask for a check. It returns the reply's status.
func received(t *testing.T) (*Core, *byHand, func(peer.Check) peer.ReplyStatus) {
	t.Helper()
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	e := peer.Epoch{Counter: 1, Instance: third}
	put(c, p, replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e, Heir: self})
	c.Deliver(&peer.Frame{From: third, To: self, Batches: []peer.Batch{{
		Partition: p.id, Kind: peer.Handover, Epoch: e, BaseEpoch: e, Ping: 1, Next: peer.Epoch{Counter: 2, Instance: self},
	}}})
	if look(p).Role != peer.Owned {
		t.Fatal("the handover was not taken")
	}
	rule := mesh.Definition(charge.Key(0).Rule)
	return c, h, func(q peer.Check) peer.ReplyStatus {
		t.Helper()
		drain(c)
		q.ID, q.Keys, q.Wait = 1, 1, uint32(limiter.Minute)
		c.Deliver(&peer.Frame{From: other, To: self, Rules: []peer.Rule{rule}, Keys: []peer.Key{{Hi: 1, Lo: 2, Cost: 1}},
			Checks: []peer.Check{q}})
		got := drain(c)[other].Replies
		if len(got) != 1 {
			t.Fatalf("the replies are %+v, want one", got)
		}
		return got[0].Status
	}
}

// The member that handed over may withhold the reply to a check whose charge came with the
// partition. So the new owner leaves such a check to it, unless it is out of reach or has
// had time to answer.
func TestTheGiverAnswers(t *testing.T) {
	_, h, ask := received(t)
	for _, as := range []peer.Check{{Sent: true}, {Heir: true, Sent: true}} {
		if got := ask(as); got != peer.Alive {
			t.Errorf("%+v is answered with the status %d, want Alive", as, got)
		}
	}
	if got := ask(peer.Check{}); got != peer.Decided {
		t.Errorf("a check that no other member was asked has the status %d", got)
	}
	if got := ask(peer.Check{Sent: true, Peek: true}); got != peer.Decided {
		t.Errorf("a peek, which charges nothing, has the status %d", got)
	}
	h.pass(DefaultDeadline)
	if got := ask(peer.Check{Sent: true}); got != peer.Decided {
		t.Errorf("after the deadline the status is %d", got)
	}
	c, _, ask := received(t)
	c.Down(third)
	if got := ask(peer.Check{Sent: true}); got != peer.Decided {
		t.Errorf("without the giver the status is %d", got)
	}
}

// So it does with a reset: the giver's reply waits until the handover is taken.
func TestTheGiverAnswersAReset(t *testing.T) {
	c, h, ask := received(t)
	ask(peer.Check{}) // a counter, and the rule
	reset := func(sent bool) []peer.Reply {
		c.Deliver(&peer.Frame{
			From: other, To: self, Rules: []peer.Rule{mesh.Definition(c.config.Rule(""))},
			Keys:    []peer.Key{{Hi: 1, Lo: 2, Cost: 1}},
			Refunds: []peer.Refund{{ID: 2, Keys: 1, Kind: peer.ResetKeys, Sent: sent}},
		})
		return drain(c)[other].Replies
	}
	id := int(c.partitions.parts[0].id)
	if got := reset(true); len(got) != 1 || got[0].Status != peer.Alive || c.table.Count(id) != 1 {
		t.Errorf("it says %+v, and has %d counters", got, c.table.Count(id))
	}
	h.pass(DefaultDeadline)
	if reset(true); c.table.Count(id) != 0 {
		t.Error("after the deadline it is not reset")
	}
	c, _, ask = received(t)
	ask(peer.Check{})
	if reset(false); c.table.Count(id) != 0 {
		t.Error("no other member was asked, and it is not reset")
	}
}

// The owner is silent, and its heir answers that it is alive. Then the owner hands over to
// the heir: that one is asked again, as owner.
func TestAnHeirThatBecomesTheOwnerIsAsked(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	heard(c, p)
	turn := c.begin()
	o := c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {})
	turn.end()
	first := drain(c)[third].Checks
	h.pass(100 * limiter.Millisecond)
	second := drain(c)[other].Checks
	if len(first) != 1 || len(second) != 1 || !second[0].Heir || !second[0].Sent {
		t.Fatalf("asked the owner %+v and its heir %+v", first, second)
	}
	c.Deliver(&peer.Frame{From: other, To: self,
		Replies: []peer.Reply{{ID: second[0].ID, Status: peer.Alive, Partition: p.id, Owner: look(p).Owner}}})
	next := peer.Epoch{Counter: 2, Instance: other}
	owned(c, p, next)
	c.Deliver(&peer.Frame{From: third, To: self,
		Replies: []peer.Reply{{ID: first[0].ID, Status: peer.NotOwner, Partition: p.id, Owner: next}}})
	h.pass(50 * limiter.Millisecond)
	if again := drain(c)[other].Checks; len(again) != 1 || again[0].Heir || again[0].Sent || o.Over() {
		t.Errorf("the new owner is asked %+v, want once, and no other member has the check", again)
	}
}

// The owner hands over and leaves, and the link to it breaks. Its heir is asked, and answers
// that the former owner may have executed the check. When that one is gone for the new owner
// as well, the check is decided there, and does not wait for its deadline.
func TestAnOwnerThatWasAskedAsHeirIsAskedAgain(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	heard(c, p)
	turn := c.begin()
	o := c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {})
	turn.end()
	drain(c)
	c.Down(third)
	asked := drain(c)[other].Checks
	if len(asked) != 1 || !asked[0].Heir || !asked[0].Sent {
		t.Fatalf("the heir is asked %+v", asked)
	}
	next := peer.Epoch{Counter: 2, Instance: other}
	c.Deliver(&peer.Frame{From: other, To: self,
		Replies: []peer.Reply{{ID: asked[0].ID, Status: peer.Alive, Partition: p.id, Owner: next}}})
	h.pass(50 * limiter.Millisecond)
	if again := drain(c)[other].Checks; len(again) != 1 || again[0].Heir || !again[0].Sent || o.Over() {
		t.Errorf("the new owner is asked %+v, want once, and that the former owner may have the check", again)
	}
}

// The owner hands over and leaves before the node that asks has heard of it, and the link to it breaks. The heir
// that is asked is that of another owner, and answers that this one is alive: so it is asked, and the check does not
// wait for its deadline. It is asked once.
func TestAnOwnerThatTheHeirNamesIsAsked(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	const fourth peer.Instance = 40
	members := append(slices.Clone(c.View().Members), peer.Member{Name: "d", Instance: fourth, State: peer.Active,
		Wire: peer.LeaseWire})
	c.SetView(view.New(self, members, h, 4, 4))
	c.Up(fourth)
	heard(c, p)
	turn := c.begin()
	o := c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {})
	turn.end()
	drain(c)
	c.Down(third)
	asked := drain(c)[other].Checks
	if len(asked) != 1 || !asked[0].Heir {
		t.Fatalf("the heir is asked %+v", asked)
	}
	next := peer.Epoch{Counter: 2, Instance: fourth}
	c.Deliver(&peer.Frame{From: other, To: self,
		Replies: []peer.Reply{{ID: asked[0].ID, Status: peer.Alive, Partition: p.id, Owner: next}}})
	h.pass(50 * limiter.Millisecond)
	var told []peer.Check
	for f := c.Take(fourth, true); f != nil; f = c.Take(fourth, true) {
		told = append(told, f.Checks...)
	}
	if len(told) != 1 || told[0].Heir || !told[0].Sent || o.Over() {
		t.Errorf("the owner is asked %+v, want once, and that the former owner may have the check", told)
	}
}

// The same where the heir is the node that asks: its call waits for the partition when the
// handover comes. It leaves the call to the giver, and decides it when that one has not
// answered in the time for it.
func TestACallThatWaitedForTheHandoverIsRoutedAgain(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	e := peer.Epoch{Counter: 1, Instance: third}
	put(c, p, replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e, Heir: self})
	turn := c.begin()
	answer := new(limiter.Decision)
	o := c.calls.Begin(&turn.Turn, charge, answer, h.now+2*DefaultDeadline, func() {})
	turn.end()
	h.pass(100 * limiter.Millisecond)
	if out := drain(c); len(out[third].Checks) != 1 || len(out[other].Checks) != 0 || c.Summary().Parked != 1 {
		t.Fatalf("the owner is asked %+v, another %+v, and %d wait here", out[third].Checks, out[other].Checks,
			c.Summary().Parked)
	}
	c.Deliver(&peer.Frame{From: third, To: self, Batches: []peer.Batch{{
		Partition: p.id, Kind: peer.Handover, Epoch: e, BaseEpoch: e, Ping: 1, Next: peer.Epoch{Counter: 2, Instance: self},
	}}})
	if look(p).Role != peer.Owned {
		t.Fatal("the handover was not taken")
	}
	if h.pass(30 * limiter.Millisecond); o.Over() {
		t.Error("the check is decided while the giver may answer it")
	}
	h.pass(DefaultDeadline)
	if !o.Over() || answer.Source == limiter.SourceFallbackLocal || answer.Len() != 1 {
		t.Errorf("the check has ended: %t, by %v", o.Over(), answer.Source)
	}
}
