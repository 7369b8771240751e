package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// asking returns a core whose only partition another member owns, and the request that
// the core sends it to have the key explained.
func asking(t *testing.T) (h *byHand, c *Core, told *[]route.Explained, q peer.Check) {
	t.Helper()
	c, _, h, charge := single(t, limiter.UnreachableClosed)
	told = new([]route.Explained)
	c.Explain(charge, func(all []route.Explained) { *told = all })
	f := c.Take(third, true)
	if f == nil || len(f.Checks) != 1 {
		t.Fatalf("sent %+v", f)
	}
	return h, c, told, f.Checks[0]
}

// A member of the previous version takes the request for a peek and answers without
// reasons. That is reported at once, not at the deadline.
func TestAnOldMemberDoesNotExplain(t *testing.T) {
	_, c, told, q := asking(t)
	if !q.Peek || !q.Explain || q.Keys != 1 {
		t.Fatalf("asked %+v, which an old member would charge", q)
	}
	reply := &peer.Frame{From: third, To: self,
		Replies: []peer.Reply{{ID: q.ID, Results: 1}}, Results: []peer.Result{{Allowed: true, Remaining: 9}}}
	c.Deliver(reply)
	if x := *told; len(x) != 1 || x[0].By != third || !x[0].Mute || x[0].Limits != nil {
		t.Errorf("told %+v", x)
	}
	c.Deliver(reply) // again: no operation waits any more
}

// Reasons for other limits than the reply's are ignored, and so is a reply after the
// deadline.
func TestExplanationsThatDoNotFit(t *testing.T) {
	_, c, told, q := asking(t)
	c.Deliver(&peer.Frame{From: third, To: self,
		Replies: []peer.Reply{{ID: q.ID, Results: 1}}, Results: []peer.Result{{}},
		Explained: []peer.Explanation{{ID: q.ID + 1, Limits: make([]peer.LimitExplanation, 1)},
			{ID: q.ID, Limits: make([]peer.LimitExplanation, 2)}}})
	if x := *told; len(x) != 1 || !x[0].Mute {
		t.Errorf("told %+v", x)
	}
	h, c, told, q := asking(t)
	h.pass(DefaultDeadline + 50*limiter.Millisecond)
	if x := *told; len(x) != 1 || x[0].By != 0 || x[0].Owner != third {
		t.Fatalf("after the deadline: %+v", x)
	}
	c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: q.ID, Results: 1}},
		Results: []peer.Result{{}}})
	if x := *told; x[0].By != 0 {
		t.Errorf("what came too late is %+v", x)
	}
}

// An owner that explains a key, to another member or to its own caller, charges nothing,
// copies nothing to its heir and asks for no name. That also holds for a blocked key.
func TestExplainingCopiesNothing(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: 24 * time.Hour,
		Block: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	k := charge.Key(0)
	k.Rule.Limits, k.Cost = []*limiter.Limit{l}, 1
	own(c, p)
	var d limiter.Decision
	for range 2 {
		c.Check(t.Context(), charge, &d)
	}
	if !d.Limit(0).Blocked {
		t.Fatalf("%+v", &d)
	}
	h.pass(500 * limiter.Millisecond)
	for copies(c, p, h) > 0 { // until its heir has all
	}
	seq := look(p).Seq
	var here []route.Explained
	c.Explain(charge, func(all []route.Explained) { here = all })
	key := peer.Key{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Cost: 1}
	for id := range uint64(40) { // one in 16 is looked at for the list of top keys
		c.Deliver(&peer.Frame{From: other, To: self, Rules: []peer.Rule{{ID: k.Rule.ID(), Name: "r"}},
			Checks: []peer.Check{{ID: id + 1, Keys: 1, Peek: true, Explain: true, Wait: 1000}}, Keys: []peer.Key{key}})
	}
	h.pass(500 * limiter.Millisecond)
	var f peer.Frame
	for g := c.Take(other, true); g != nil; g = c.Take(other, true) {
		f.Batches, f.Replies = append(f.Batches, g.Batches...), append(f.Replies, g.Replies...)
		f.Explained = append(f.Explained, g.Explained...)
	}
	if len(f.Replies) != 40 || len(f.Explained) != 40 || f.Explained[39].ID != 40 || f.Replies[39].ID != 40 {
		t.Fatalf("%d replies, %d explanations", len(f.Replies), len(f.Explained))
	}
	for i := range f.Batches {
		if f.Batches[i].Keys != 0 {
			t.Errorf("its heir gets %+v", f.Batches[i])
		}
	}
	if i := look(p); i.Seq != seq || i.Changed != 0 {
		t.Errorf("%d keys are to be copied, and the state has gone from %d to %d", i.Changed, seq, i.Seq)
	}
	if f.Replies[15].Unnamed|f.Replies[31].Unnamed != 0 {
		t.Error("a name is asked for")
	}
	if len(here) != 1 || here[0].By != self || here[0].Owner != self ||
		!strings.HasPrefix(here[0].Limits[0].Arithmetic, "blocked until ") {
		t.Errorf("at home: %+v", here)
	}
	if got, want := f.Explained[0].Limits[0].Arithmetic, here[0].Limits[0].Arithmetic; got != want {
		t.Errorf("to another it says %q, at home %q", got, want)
	}
}

// An explanation of a key with many counts has the newest of them, says so, and takes no
// more than 20 KiB.
func TestExplanationsAreBounded(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	var limits []*limiter.Limit
	for i := range limiter.MaxLimits {
		l, err := limiter.NewLimit(limiter.Spec{
			Name: fmt.Sprint("l", i), Algorithm: limiter.SlidingWindow, Limit: 1000, Window: time.Hour,
			SubWindows: limiter.MaxSubWindows,
		})
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, l)
	}
	charge.Key(0).Rule.Limits = limits
	own(c, p)
	var d limiter.Decision
	c.Check(t.Context(), charge, &d)
	h.pass(10 * limiter.Second)
	var x route.Explained
	c.Explain(charge, func(all []route.Explained) { x = all[0] })
	if size := sizeOf(x.Limits); len(x.Limits) != limiter.MaxLimits || size > 20<<10 {
		t.Fatalf("%d limits in %d bytes", len(x.Limits), size)
	}
	for _, l := range x.Limits {
		last := l.State[len(l.State)-1]
		if n := len(l.Counts); n != maxCounts/limiter.MaxLimits || last.Name != "listed" ||
			!strings.HasPrefix(last.Value, fmt.Sprintf("the newest %d of ", n)) {
			t.Errorf("%d counts, and %q", n, last)
		}
		if l.Counts[len(l.Counts)-1].End <= h.now {
			t.Errorf("the last count ends at %v", l.Counts[len(l.Counts)-1].End.Time())
		}
	}
}

// A request without keys is explained at once.
func TestNothingToExplain(t *testing.T) {
	c, _, _, _ := single(t, limiter.UnreachableLocal)
	told := false
	c.Explain(&arith.Charge{}, func(all []route.Explained) { told = len(all) == 0 })
	var d limiter.Decision
	if route.Together(nil, &d); !told || !d.Allowed || d.Source != limiter.SourceNone {
		t.Errorf("told %v, allowed %v by %v", told, d.Allowed, d.Source)
	}
}
