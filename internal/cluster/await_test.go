package cluster

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// decided is a reply of the third member that allows a check of one limit.
func decided(id uint64) *peer.Frame {
	return &peer.Frame{
		From: third, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Decided, Results: 1}},
		Results: []peer.Result{{Allowed: true, Remaining: 7}},
	}
}

// taken takes the frames for a member until one has a check, which another goroutine is
// about to send.
func taken(c *Core, from peer.Instance) peer.Check {
	for {
		if f := c.Take(from, true); f != nil && len(f.Checks) > 0 {
			return f.Checks[0]
		}
		runtime.Gosched()
	}
}

// A caller that stops waiting may reuse its memory: a later decision is written nowhere.
func TestNobodyWaitsForACheck(t *testing.T) {
	c, _, _, charge := single(t, limiter.UnreachableLocal)
	ctx, cancel := context.WithCancel(t.Context())
	answer, ended := new(limiter.Decision), make(chan error)
	go func() { ended <- c.Check(ctx, charge, answer) }()
	q := taken(c, third)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	if left := c.calls.Waiting(); left != 0 {
		t.Errorf("%d checks are under way still", left)
	}
	c.Deliver(decided(q.ID))
	if answer.Len() != 0 || answer.Source != limiter.SourceNone {
		t.Errorf("afterwards there is %+v", answer)
	}
	// The next caller waits for its own decision, and gets it although its context could
	// end.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- c.Check(ctx, charge, answer) }()
	q = taken(c, third)
	c.Deliver(decided(q.ID))
	if err := <-ended; err != nil || answer.Source != limiter.SourceOwner || answer.Limit(0).Remaining != 7 {
		t.Errorf("the next: %v, %+v", err, answer)
	}
}

// A decision that came before the context ended is returned.
func TestADecidedCheckIsNotAbandoned(t *testing.T) {
	c, _, h, charge := single(t, limiter.UnreachableLocal)
	tr := c.begin()
	told := 0
	o := c.calls.Begin(&tr.Turn, charge, new(limiter.Decision), 0, func() { told++ })
	tr.end()
	h.pass(DefaultDeadline + replica.TickEvery)
	if o == nil || told != 1 || o.Abandon() {
		t.Errorf("told %d times, and abandoned after its end", told)
	}
}

// CheckMany returns the undecided checks when the context ends.
func TestNobodyWaitsForManyChecks(t *testing.T) {
	c, p, _, like := single(t, limiter.UnreachableLocal)
	own(c, p)
	var charges []arith.Charge
	for range 3 {
		charges = append(charges, *spread(c, like, third))
	}
	charges[1] = *like.Clone()
	charges[1].Peek = true // it is decided at once
	answers := make([]limiter.Decision, 3)
	for _, first := range []int{0, 1, 2} { // of those that are asked of another
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan []int)
		go func() { ended <- c.CheckMany(ctx, charges, answers, 0) }()
		var qs []peer.Check
		for len(qs) < 2 {
			if f := c.Take(third, true); f != nil {
				qs = append(qs, f.Checks...)
			}
			runtime.Gosched()
		}
		for _, q := range qs[:first] {
			c.Deliver(decided(q.ID))
		}
		cancel()
		want := [][]int{{0, 2}, {2}, nil}[first]
		if got := <-ended; !slices.Equal(got, want) {
			t.Errorf("with %d of 2 answered, %v are not decided, want %v", first, got, want)
		}
		for _, q := range qs {
			c.Deliver(decided(q.ID))
		}
		for i := range answers {
			if got := answers[i].Source != limiter.SourceNone; got == slices.Contains(want, i) {
				t.Errorf("with %d of 2 answered, check %d has source %v", first, i, answers[i].Source)
			}
			answers[i].Clear()
		}
		if c.calls.Waiting() != 0 {
			t.Error("checks are under way still")
		}
	}
}

// The charges of a batch may be reused once it has begun: a check that waits is answered as it was asked.
func TestTheChargesOfABatchAreReused(t *testing.T) {
	c, _, h, like := single(t, limiter.UnreachableLocal)
	charges, answers := []arith.Charge{*spread(c, like, third)}, make([]limiter.Decision, 1)
	told := 0
	if open, _ := c.BeginMany(charges, answers, 0, false, func() { told++ }); open != 1 {
		t.Fatal("premise: another member decides")
	}
	charges[0].Clear()
	h.pass(DefaultDeadline + replica.TickEvery)
	if told != 1 || answers[0].Len() != 1 || answers[0].Source != limiter.SourceFallbackLocal {
		t.Errorf("told %d times, the answer is %+v", told, answers[0])
	}
}

// The names that an owner asks for with a decision come with the charge of the caller.
func TestNamesAreAskedForInABatch(t *testing.T) {
	c, _, _, like := single(t, limiter.UnreachableLocal)
	charges, answers := []arith.Charge{*spread(c, like, third)}, make([]limiter.Decision, 1)
	ended := make(chan []int)
	go func() { ended <- c.CheckMany(t.Context(), charges, answers, 0) }()
	reply := decided(taken(c, third).ID)
	reply.Replies[0].Unnamed = 1
	c.Deliver(reply)
	if lost := <-ended; len(lost) > 0 || answers[0].Source != limiter.SourceOwner || charges[0].Unnamed != 1 {
		t.Errorf("%v are not decided, the answer is %+v, and names of %b are wanted", lost, answers[0], charges[0].Unnamed)
	}
}

// The deadline may end a check while this node decides it. The caller then has the
// policy's answer, and its memory is not written any more.
func TestTheDeadlineWhileItIsDecidedHere(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	putAs(c, p, peer.Sealed) // it waits here
	answer, told := new(limiter.Decision), 0
	tr := c.begin()
	o := c.calls.Begin(&tr.Turn, charge, answer, h.now+40*limiter.Millisecond, func() { told++ })
	tr.end()
	if o == nil || look(p).Parked != 1 {
		t.Fatal("premise: it does not wait for its partition")
	}
	i := look(p)
	p.mu.Lock() // this is where it is decided
	tr = c.begin()
	p.r.Begin(tr.inputs(), replica.Fixture{Role: peer.Owned, Epoch: i.Epoch, Owner: i.Owner, Heir: i.Heir})
	q := tr.step.List[0].Request.(*route.Request)
	rerun := make(chan struct{})
	go func() {
		defer close(rerun)
		tr := c.begin()
		c.decider.rerun(tr, q)
		tr.end()
	}()
	for begun := false; !begun; runtime.Gosched() {
		_, here := o.Asked()
		begun = here > 0
	}
	tr = c.begin()
	tr.Now += 50 * limiter.Millisecond // past the deadline
	c.calls.Tick(&tr.Turn)
	tr.end()
	if told != 1 || answer.Source != limiter.SourceFallbackLocal {
		t.Fatalf("told %d times, by %v", told, answer.Source)
	}
	answer.Clear() // the caller reuses its memory
	charge.Clear()
	p.mu.Unlock()
	<-rerun
	if told != 1 || answer.Len() != 0 || c.table.Count(int(p.id)) != 1 {
		t.Errorf("told %d times, and afterwards there are %d limits, and %d counters", told, answer.Len(),
			c.table.Count(int(p.id)))
	}
}

// An abandoned check is not decided when its partition is settled.
func TestNobodyWaitsForAParkedCheck(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	putAs(c, p, peer.Sealed)
	answer := new(limiter.Decision)
	tr := c.begin()
	o := c.calls.Begin(&tr.Turn, charge, answer, h.now+limiter.Second, func() { t.Error("somebody is told") })
	tr.end()
	if !o.Abandon() || o.Abandon() {
		t.Error("it is not abandoned, once")
	}
	putAs(c, p, peer.Owned)
	if answer.Len() != 0 || c.table.Count(int(p.id)) != 0 {
		t.Errorf("%d limits are told, and %d counters charged", answer.Len(), c.table.Count(int(p.id)))
	}
}

// A request of another member that has waited here until its deadline is refused: that one may wait for longer.
func TestARequestThatHasWaitedIsRefused(t *testing.T) {
	for name, waits := range map[string]func(x *reservedAt){
		"parked":  func(x *reservedAt) { putAs(x.c, x.p, peer.Sealed) },
		"a rerun": func(*reservedAt) {}, // because of what is reserved; that is settled too late
	} {
		x := newReserved(t)
		waits(x)
		if r := x.check(other, 2, 5, peer.Check{Wait: uint32(40 * limiter.Millisecond)}); r != nil {
			t.Fatalf("%s: premise: it waits: %+v", name, r)
		}
		if name == "a rerun" {
			x.h.now += 50 * limiter.Millisecond // and no tick
			x.end(0, 9)
		} else {
			x.h.pass(50 * limiter.Millisecond)
		}
		if r := x.reply(other, 2); r == nil || r.Status != peer.Overloaded {
			t.Errorf("%s: it is told %+v", name, r)
		}
		if n := x.c.decider.pending.Load(); n != 0 {
			t.Errorf("%s: %d requests are counted", name, n)
		}
	}
}

// A withheld charge is taken back by its own receipt, whatever has been written to the
// caller's decision since.
func TestWithheldChargesAreTakenBackByTheirReceipt(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableClosed)
	own(c, p)
	answers := []limiter.Decision{{}, {}}
	for i := range answers { // D is 5: the second is withheld
		c.Begin(charge.Clone(), &answers[i], h.now+40*limiter.Millisecond, func() {})
	}
	if look(p).Withheld != 1 {
		t.Fatal("premise: nothing is withheld")
	}
	answers[1].Receipt = limiter.Receipt{}
	h.pass(50 * limiter.Millisecond)
	q, d := charge.Clone(), new(limiter.Decision)
	q.Peek = true
	if err := c.table.Decide(h.now, q, d); err != nil || d.Limit(0).Remaining != 95 {
		t.Errorf("%v, %d of 100 left, want 95", err, d.Limit(0).Remaining)
	}
}

// A charge after a reset is taken back like any other. What one frame says is of one instant, and
// so may be what the next one says. A turn that began earlier, and waited for the partition, may
// come after both.
func TestChargesAfterAResetAreTakenBack(t *testing.T) {
	for name, charges := range map[string]func(c *Core, reset, late *turn) *turn{
		"in its turn":                  func(_ *Core, reset, _ *turn) *turn { return reset },
		"in another turn":              func(c *Core, reset, _ *turn) *turn { reset.end(); return c.begin() },
		"in a turn that began earlier": func(_ *Core, reset, late *turn) *turn { reset.end(); return late },
	} {
		c, p, h, charge := single(t, limiter.UnreachableClosed)
		own(c, p)
		late := c.begin()
		h.now++
		reset := c.begin()
		h.now++
		c.Begin(charge.Clone(), new(limiter.Decision), 0, func() {})
		c.calls.Reset(&reset.Turn, charge.Clone(), func(route.Outcome) {})
		h.now = late.At // what begins now is of that instant
		turn := charges(c, reset, late)
		for range 2 { // D is 5, and the heir lacks the charge before the reset
			c.calls.Begin(&turn.Turn, charge.Clone(), new(limiter.Decision), h.now+40*limiter.Millisecond, func() {})
		}
		turn.end()
		if n := look(p).Withheld; n < 2 {
			t.Fatalf("%s: premise: %d replies are withheld", name, n)
		}
		h.pass(50 * limiter.Millisecond)
		q, d := charge.Clone(), new(limiter.Decision)
		q.Peek = true
		if err := c.table.Decide(h.now, q, d); err != nil || d.Limit(0).Remaining != 100 {
			t.Errorf("%s: %v, %d of 100 left, all are to be taken back", name, err, d.Limit(0).Remaining)
		}
	}
}

// If one of several owners does not answer, the policy decides only for its keys.
func TestThePolicyDecidesForItsKeysOnly(t *testing.T) {
	for range 20 { // calls are looked at in the order of their numbers
		c, _, h, like := single(t, limiter.UnreachableLocal)
		for range 7 {
			turn := c.begin()
			c.calls.Begin(&turn.Turn, like.Clone(), new(limiter.Decision), 0, func() {}).Abandon()
			turn.end()
		}
		drain(c)
		charge := spread(c, like, third, other)
		answer, told := new(limiter.Decision), 0
		c.Begin(charge, answer, 0, func() { told++ })
		c.Deliver(decided(drain(c)[third].Checks[0].ID))
		h.pass(DefaultDeadline + replica.TickEvery)
		if told != 1 || answer.Len() != 2 || answer.Limit(0).Owner != "c" || answer.Limit(0).Remaining != 7 ||
			answer.Limit(1).Owner != "" {
			t.Fatalf("told %d times: %+v", told, answer)
		}
	}
}
