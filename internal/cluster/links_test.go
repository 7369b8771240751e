package cluster

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// fourthJoins adds a member to those of a core.
func fourthJoins(c *Core, h *byHand) (fourth peer.Instance) {
	fourth = 0xd
	v := c.view.Load()
	c.SetView(view.New(self, append(v.Members[:3:3], peer.Member{Name: "d", Instance: fourth, State: peer.Active}), h, 4, 4))
	c.Up(fourth)
	for c.Take(fourth, true) != nil { // what is said to a newcomer
	}
	drain(c)
	return fourth
}

// The owner is out of reach, and its relay fails before it has taken a check: another
// relay gets it. Nothing stays on the links that are down.
func TestARelayGoesBeforeItIsGivenAnything(t *testing.T) {
	for _, left := range []int{1, 0} {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		fourth := fourthJoins(c, h)
		put(c, p, replica.Fixture{Owner: peer.Epoch{Counter: 1, Instance: third}})
		relays := []peer.Instance{other, fourth}
		turn := c.begin()
		o := c.begun(turn, charge, new(limiter.Decision), 0, func() {})
		c.link(third).up = false // the link to the owner breaks before the check is sent
		turn.end()
		if len(c.link(other).carried) == 0 {
			relays = []peer.Instance{fourth, other}
		}
		if q := c.link(relays[0]).carried; o == nil || len(q) != 1 || len(q[0].Checks) != 1 {
			t.Fatalf("%v is to pass on %v, want the check", relays[0], q)
		}
		if left == 0 {
			c.Down(relays[1])
		}
		c.Down(relays[0])
		if q := c.link(relays[0]); q.queued() != 0 || q.carry(new(peer.Frame)) {
			t.Errorf("%d frames wait for a member that is gone, or it takes more", q.queued())
		}
		if q := c.link(relays[1]).carried; len(q) != left || left == 1 && q[0].Checks[0].ID != o.id {
			t.Errorf("with %d other members: %v is to pass on %v", left, relays[1], q)
		}
		if o.mu.Lock(); len(o.sent) != left {
			t.Errorf("with %d other members: it waits for %v", left, o.sent)
		}
		o.mu.Unlock()
		if n := c.Summary().Queued; n != left {
			t.Errorf("with %d other members: %d frames are queued", left, n)
		}
	}
}

// If no member can relay a request, its asker is told at once.
func TestWhatNobodyPassesOnIsKnownToBeLost(t *testing.T) {
	for what, frame := range map[string]func(id uint64) *peer.Frame{
		"check":  func(id uint64) *peer.Frame { return &peer.Frame{To: third, Checks: []peer.Check{{ID: id}}} },
		"refund": func(id uint64) *peer.Frame { return &peer.Frame{To: third, Refunds: []peer.Refund{{}, {ID: id}}} },
	} {
		c, _, _, charge := single(t, limiter.UnreachableLocal)
		turn := c.begin()
		o := c.begun(turn, charge, new(limiter.Decision), 0, func() {})
		turn.end()
		if len(o.sent) != 1 || o.sent[0].of != third {
			t.Fatalf("it waits for %v, want the owner", o.sent)
		}
		turn = c.begin()
		c.carry(turn, nil, []*peer.Frame{frame(o.id)})
		turn.end()
		if o.mu.Lock(); len(o.sent) == 1 && o.sent[0].of == third {
			t.Errorf("%s: it still waits for the owner, which was not asked", what)
		}
		o.mu.Unlock()
	}
}

// A relay without room is skipped, a frame that a member has already is not given to it
// again, and an abandoned request is not relayed.
func TestWhoPassesWhatOn(t *testing.T) {
	c, _, h, charge := single(t, limiter.UnreachableLocal)
	fourth := fourthJoins(c, h)
	relays := []*link{c.link(other), c.link(fourth)}
	for range maxRelayed {
		relays[0].carry(new(peer.Frame))
	}
	turn := c.begin()
	o := c.begun(turn, charge, new(limiter.Decision), 0, func() {})
	asks := &peer.Frame{From: self, To: third, Checks: []peer.Check{{ID: o.id}}}
	tells := &peer.Frame{From: self, To: third, Replies: []peer.Reply{{ID: 9}}}
	c.carry(turn, relays, []*peer.Frame{asks, tells, tells})
	if q := relays[1].carried; len(q) != 2 || q[0] != asks || q[1] != tells {
		t.Errorf("the one with room is to pass on %v, want both frames, once", q)
	}
	c.link(third).up = false
	relays[0].carried, relays[1].carried = nil, nil
	dead := &peer.Frame{From: self, To: third, Checks: []peer.Check{{ID: o.id + 1<<40}}}
	c.carryOn(turn, []*peer.Frame{dead, tells})
	if a, b := len(relays[0].carried), len(relays[1].carried); a != 1 || b != 1 {
		t.Errorf("the others are to pass on %d and %d frames, want the reply and not a check that is over", a, b)
	}
	turn.end()
}

// A frame for a member that is in reach again is sent directly when its relay fails.
func TestInReachAgainBeforeItIsPassedOn(t *testing.T) {
	c, p, _, charge := single(t, limiter.UnreachableLocal)
	put(c, p, replica.Fixture{Owner: peer.Epoch{Counter: 1, Instance: third}})
	turn := c.begin()
	o := c.begun(turn, charge, new(limiter.Decision), 0, func() {})
	c.send(turn, third, 40, false, func(_ *link, f *peer.Frame) { f.Replies = append(f.Replies, peer.Reply{ID: 9}) })
	c.link(third).up = false
	turn.end()
	told := slices.Clone(c.link(other).carried)
	if len(told) != 2 {
		t.Fatalf("%d frames are to be passed on, want two", len(told))
	}
	c.Up(third)
	c.Down(other)
	got := drain(c)[third]
	if len(got.Checks) != 1 || got.Checks[0].ID != o.id || len(got.Replies) != 1 {
		t.Errorf("it is given %+v and %+v, want the check and the reply", got.Checks, got.Replies)
	}
	for _, f := range told {
		if len(f.Replies) > 0 && f.Number != 0 {
			t.Error("a frame that others may still have is sent as if it were nobody else's")
		}
	}
}

// The report that a check was not relayed may come twice, the second time after the same
// member was asked again. It says nothing about the second request.
func TestWordOfAnEarlierAsking(t *testing.T) {
	c, _, h, charge := single(t, limiter.UnreachableLocal)
	turn := c.begin()
	o := c.begun(turn, charge, new(limiter.Decision), 0, func() {})
	o.hasHeir = true // so that the owner is asked again
	turn.end()
	lost := func(id uint64) {
		c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Lost, Owner: peer.Epoch{Instance: third}}}})
		h.pass(10 * retryEvery)
	}
	asked := func() (ids []uint64) {
		for _, q := range drain(c)[third].Checks {
			ids = append(ids, q.ID)
		}
		return ids
	}
	first := asked()
	if len(first) != 1 {
		t.Fatalf("asked %x, want one check", first)
	}
	lost(first[0])
	second := asked()
	if len(second) != 1 || second[0] == first[0] {
		t.Fatalf("asked %x again after %x, want one check by another number", second, first)
	}
	lost(first[0])
	if again := asked(); len(again) != 0 {
		t.Errorf("asked a third time, %x, while the second may be executed", again)
	}
	lost(second[0])
	if again := asked(); len(again) != 1 {
		t.Errorf("asked %x, want once more, as the second was lost too", again)
	}
	if o.over() || c.ops.get(first[0]) != o || c.ops.take(second[0]) != o {
		t.Error("the operation is not found by the numbers it was asked by")
	}
}

// A member for which this node was to relay a request is gone: the asker is told that it
// was not relayed.
func TestWhatCannotBePassedOnIsSaid(t *testing.T) {
	c, _, _, _ := single(t, limiter.UnreachableLocal)
	c.Deliver(&peer.Frame{From: other, To: third, Checks: []peer.Check{{ID: 7}}, Refunds: []peer.Refund{{ID: 8}, {}}})
	if n := c.Summary().Queued; n != 1 {
		t.Fatalf("%d frames are queued, want the one to be passed on", n)
	}
	c.Down(third)
	said := drain(c)
	if r := said[other].Replies; len(r) != 2 || r[0].ID != 7 || r[1].ID != 8 || r[0].Status != peer.Lost || r[1].Status != peer.Lost || r[0].Owner.Instance != third {
		t.Errorf("said %+v, want that 7 and 8 are lost", r)
	}
	if n := len(said[third].Checks); n != 0 || c.Summary().Queued != 0 {
		t.Errorf("%d checks and %d frames are left", n, c.Summary().Queued)
	}
}

// A name that restarts again and again is a new instance each time. What is kept of
// ended instances is bounded. An instance that is only out of reach, or only out of the
// view, stays.
func TestEndedInstancesAreForgotten(t *testing.T) {
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	members := c.view.Load().Members
	without := view.New(self, members[:2:2], h, 3, 3)
	const quick = 0x100 // instances of "d" that end after 10 s each
	most := 0
	for n := range 100 {
		i := peer.Instance(quick + n)
		c.SetView(view.New(self, append(members[:2:2], peer.Member{Name: "d", Instance: i, State: peer.Active}), h, 4, 4))
		c.Up(i)
		h.pass(10 * limiter.Second)
		c.Down(i)
		c.SetView(without)
		most = max(most, len(c.links.Load().list), len(c.silenced))
	}
	if most > 12 || len(c.links.Load().byID) != len(c.links.Load().list) {
		t.Errorf("at most %d links or former members were kept, want those of a minute", most)
	}
	if l := c.links.Load().byID[third]; l == nil || !l.up {
		t.Error("the link to a member that is out of view and connected is forgotten")
	}
	c.Down(other)
	c.Down(third)
	c.SetView(without)
	if c.links.Load().byID[third] == nil {
		t.Error("a link that has just come down is forgotten")
	}
	h.pass(2 * limiter.Minute)
	c.SetView(without)
	if c.links.Load().byID[other] == nil {
		t.Error("the link to a member in view is forgotten")
	}
	if c.links.Load().byID[third] != nil {
		t.Error("the link to a member that is out of view and reach for two minutes is kept")
	}
	c.Down(third)
	if c.reachable(third) || c.links.Load().byID[third] != nil {
		t.Error("a failed attempt to reach who is forgotten makes a link")
	}
	c.link(third)
	if c.links.Load().byID[third] != nil {
		t.Error("the link to somebody who is neither in view nor connected is kept")
	}
	c.Up(third)
	c.Down(third)
	c.SetView(without)
	if c.links.Load().byID[third] == nil {
		t.Error("the link to a member that was just connected, and is not in view yet, is forgotten")
	}
}

// The numbers of frames continue after a link was removed: the other side remembers the
// highest, and would seem to confirm frames that it never got.
func TestNumbersOfFramesGoOn(t *testing.T) {
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	fourth := fourthJoins(c, h)
	whole := c.view.Load()
	c.registry.Set(whole.Members, nil, h.now)
	last := uint64(0)
	for n := range 21 {
		turn := c.begin()
		c.introduce(turn, third)
		c.introduce(turn, fourth)
		turn.end()
		last = c.Take(third, true).Number
		if n == 0 {
			c.Take(fourth, true) // its numbers stay low
		}
	}
	c.Down(third)
	c.Down(fourth)
	without := view.New(self, whole.Members[:2:2], h, 4, 4)
	c.SetView(without)
	h.pass(2 * limiter.Minute)
	c.SetView(without)
	if c.links.Load().byID[third] != nil || c.links.Load().byID[fourth] != nil {
		t.Fatal("the links are not forgotten")
	}
	c.SetView(whole)
	c.Up(third)
	f := c.Take(third, true)
	if f == nil || f.Number <= last {
		t.Fatalf("it begins with %+v, want a number above %d", f, last)
	}
	c.Deliver(&peer.Frame{From: third, To: self, Number: 1, Got: last})
	if l := c.link(third); l.lacks == 0 {
		t.Error("a frame that was not received is confirmed")
	}
}
