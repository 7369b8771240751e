package cluster

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// fourthJoins adds a member to those of a core.
func fourthJoins(c *Core, h *byHand) (fourth peer.Instance) {
	fourth = 0xd
	v := c.view.Load()
	c.SetView(view.New(self, append(v.Members[:3:3], peer.Member{Name: "d", Instance: fourth, State: peer.Active}), h, 4,
		4))
	c.Up(fourth)
	for c.Take(fourth, true) != nil { // what is said to a newcomer
	}
	drain(c)
	return fourth
}

// relayed returns a core that has given a check to a relay: the link to the owner broke
// before the check was sent.
func relayed(t *testing.T) (*Core, *route.Call, peer.Instance) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	fourth := fourthJoins(c, h)
	put(c, p, replica.Fixture{Owner: peer.Epoch{Counter: 1, Instance: third}})
	turn := c.begin()
	o := c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {})
	turn.Out.Down(third, turn.Now)
	turn.end()
	if o == nil {
		t.Fatal("it is decided here")
	}
	return c, o, fourth
}

// The owner is out of reach, and its relay fails before it has taken a check: another
// relay gets it. Nothing stays on the links that are down.
func TestARelayGoesBeforeItIsGivenAnything(t *testing.T) {
	c, _, fourth := relayed(t)
	relays := []peer.Instance{other, fourth}
	if c.Take(other, true) == nil {
		relays = []peer.Instance{fourth, other}
	}
	for _, left := range []int{1, 0} {
		c, o, _ := relayed(t)
		if left == 0 {
			c.Down(relays[1])
		}
		c.Down(relays[0])
		if to, _ := o.Asked(); len(to) != left {
			t.Errorf("with %d other members: it waits for %v", left, to)
		}
		if n := c.Summary().Queued; n != left {
			t.Errorf("with %d other members: %d frames are queued", left, n)
		}
		if c.Take(relays[0], true) != nil {
			t.Error("a frame waits for a member that is gone")
		}
		if f := c.Take(relays[1], true); (f != nil) != (left == 1) || f != nil && !c.calls.Waits(f.Checks[0].ID) {
			t.Errorf("with %d other members: %v is to relay %+v", left, relays[1], f)
		}
	}
}

// If no member can relay a request, its asker is told at once.
func TestWhatNobodyPassesOnIsKnownToBeLost(t *testing.T) {
	c, _, _, charge := single(t, limiter.UnreachableLocal)
	c.Down(other)
	turn := c.begin()
	o := c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {})
	if to, _ := o.Asked(); !slices.Equal(to, []peer.Instance{third}) {
		t.Fatalf("it waits for %v, want the owner", to)
	}
	turn.Out.Down(third, turn.Now)
	turn.end()
	if to, _ := o.Asked(); slices.Contains(to, third) {
		t.Error("it still waits for the owner, which was not asked")
	}
}

// A check for a member that is in reach again is sent directly when its relay fails.
func TestInReachAgainBeforeItIsPassedOn(t *testing.T) {
	c, p, _, charge := single(t, limiter.UnreachableLocal)
	put(c, p, replica.Fixture{Owner: peer.Epoch{Counter: 1, Instance: third}})
	turn := c.begin()
	c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {})
	turn.Out.Down(third, turn.Now)
	turn.end()
	c.Up(third)
	c.Down(other)
	if got := drain(c)[third]; len(got.Checks) != 1 || !c.calls.Waits(got.Checks[0].ID) {
		t.Errorf("it is given %+v, want the check", got.Checks)
	}
}

// The report that a check was not executed may come twice, the second time after the
// same member was asked again. It says nothing about the second request.
func TestWordOfAnEarlierAsking(t *testing.T) {
	c, _, h, charge := single(t, limiter.UnreachableLocal)
	turn := c.begin()
	o := c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {})
	turn.end()
	lost := func(id uint64) {
		c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Overloaded}}})
		h.pass(50 * limiter.Millisecond)
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
	if o.Over() || !c.calls.Waits(first[0]) || !c.calls.Waits(second[0]) {
		t.Error("the call is not found by the numbers it was asked by")
	}
}

// A name that restarts again and again is a new instance each time. What is kept of
// ended instances is bounded.
func TestEndedInstancesAreForgotten(t *testing.T) {
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	members := c.view.Load().Members
	without := view.New(self, members[:2:2], h, 3, 3)
	most := 0
	for n := range 100 {
		i := peer.Instance(0x100 + n)
		c.SetView(view.New(self, append(members[:2:2], peer.Member{Name: "d", Instance: i, State: peer.Active}), h, 4, 4))
		c.Up(i)
		h.pass(10 * limiter.Second)
		c.Down(i)
		c.SetView(without)
		most = max(most, c.Summary().Links, len(c.absent.since))
	}
	if most > 12 {
		t.Errorf("at most %d links or former members were kept, want those of a minute", most)
	}
}
