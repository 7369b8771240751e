package cluster

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/peer"
)

// fourthJoins adds a member to those of a core.
func fourthJoins(c *Core, h *byHand) (fourth peer.Instance) {
	fourth = 0xd
	v := c.view.Load()
	c.SetView(NewView(self, append(v.Members[:3:3], peer.Member{Name: "d", Instance: fourth, State: peer.Active}), h, 4, 4))
	c.Up(fourth)
	for c.Take(fourth, true) != nil { // what is said to a newcomer
	}
	drain(c)
	return fourth
}

// The owner is out of reach, and so is the member that was to pass a check on to it
// before it has taken it: another one is to. Nothing stays on the links that are down.
func TestARelayGoesBeforeItIsGivenAnything(t *testing.T) {
	for _, left := range []int{1, 0} {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		fourth := fourthJoins(c, h)
		p.owner, p.heir = peer.Epoch{Counter: 1, Instance: third}, 0
		p.aim()
		relays := []peer.Instance{other, fourth}
		turn := c.begin()
		o := c.begun(turn, charge, new(limiter.Decision), 0, func() {})
		c.link(third).up = false // breaks before what is to be sent is
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
		if q := c.link(relays[0]); q.queued() != 0 || q.carry(new(peer.Frame)) != 0 {
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

// Where nobody can pass something on, whoever waits for it need not wait for an answer.
func TestWhatNobodyPassesOnIsKnownToBeLost(t *testing.T) {
	for what, frame := range map[string]func(id uint64) *peer.Frame{
		"check":  func(id uint64) *peer.Frame { return &peer.Frame{To: third, Checks: []peer.Check{{ID: id}}} },
		"refund": func(id uint64) *peer.Frame { return &peer.Frame{To: third, Refunds: []peer.Refund{{}, {ID: id}}} },
	} {
		c, p, _, charge := single(t, limiter.UnreachableLocal)
		p.aim()
		turn := c.begin()
		o := c.begun(turn, charge, new(limiter.Decision), 0, func() {})
		turn.end()
		if len(o.sent) != 1 || o.sent[0] != third {
			t.Fatalf("it waits for %v, want the owner", o.sent)
		}
		turn = c.begin()
		c.carry(turn, nil, []*peer.Frame{frame(o.id)})
		turn.end()
		if o.mu.Lock(); len(o.sent) == 1 && o.sent[0] == third {
			t.Errorf("%s: it still waits for the owner, which was not asked", what)
		}
		o.mu.Unlock()
	}
}

// A member is gone that this node was to pass something on to: whoever asked hears
// that it was not passed on.
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

// A name that starts again and again is another instance each time. What is kept of
// those that ended has a bound, and who is only out of reach, or of the view, stays.
func TestEndedInstancesAreForgotten(t *testing.T) {
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	members := c.view.Load().Members
	without := NewView(self, members[:2:2], h, 3, 3)
	const quick = 0x100 // instances of "d" that end after 10 s each
	most := 0
	for n := range 100 {
		i := peer.Instance(quick + n)
		c.SetView(NewView(self, append(members[:2:2], peer.Member{Name: "d", Instance: i, State: peer.Active}), h, 4, 4))
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
}

// The numbers of frames do not begin again where a link was forgotten: the other side
// remembers the highest, and would seem to confirm what it never got.
func TestNumbersOfFramesGoOn(t *testing.T) {
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	view := c.view.Load()
	c.SetMembers(view.Members, nil)
	last := uint64(0)
	for range 20 {
		turn := c.begin()
		c.introduce(turn, third)
		turn.end()
		last = c.Take(third, true).Number
	}
	c.Down(third)
	c.SetView(NewView(self, view.Members[:2:2], h, 3, 3))
	h.pass(2 * limiter.Minute)
	c.SetView(NewView(self, view.Members[:2:2], h, 3, 3))
	if c.links.Load().byID[third] != nil {
		t.Fatal("the link is not forgotten")
	}
	c.SetView(view)
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
