package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A connection breaks between the decision to use it and the end of the turn: the check
// goes to the heir, and the heir's link is woken in the same turn. Otherwise the link
// would count as woken for ever, and nothing more would be sent on it.
func TestWhoIsAskedAtTheEndOfATurnIsWoken(t *testing.T) {
	c, p, _, charge := single(t, limiter.UnreachableLocal)
	heard(c, p)
	c.mesh.Introduced(peer.Known{Name: "b", Instance: other, Gone: true}) // it leaves, so it is no relay
	turn := c.begin()
	if c.calls.Begin(&turn.Turn, charge, new(limiter.Decision), 0, func() {}) == nil {
		t.Fatal("it is decided here")
	}
	turn.Out.Down(third, turn.Now)
	turn.end()
	if turn.pending() {
		t.Errorf("left over: links %v, %d operations, %d others", turn.Out.Pending(), turn.Ended(), len(turn.later))
	}
	if asked := drain(c)[other].Checks; len(asked) != 1 || !asked[0].Heir {
		t.Errorf("asked %+v, want one check, as heir", asked)
	}
}

// A reply with other limits than its rules decides nothing; the next valid one does.
func TestAReplyOfOtherLimits(t *testing.T) {
	c, _, _, charge := single(t, limiter.UnreachableLocal)
	answer, told := new(limiter.Decision), 0
	c.Begin(charge, answer, 0, func() { told++ })
	id := drain(c)[third].Checks[0].ID
	c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: id, Results: 2}},
		Results: make([]peer.Result, 2)})
	if left := c.calls.Waiting(); told != 0 || left != 1 {
		t.Fatalf("told %d times, %d under way", told, left)
	}
	c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: id, Results: 1}},
		Results: []peer.Result{{Allowed: true, Remaining: 7}}})
	if told != 1 || !answer.Allowed || answer.Limit(0).Remaining != 7 || answer.Limit(0).Owner != "c" {
		t.Errorf("told %d times: %+v", told, answer)
	}
}
