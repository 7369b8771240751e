package cluster

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// timed is a byHand whose timers come when they are due, not with the next step.
type timed struct {
	*byHand
	timers []timer
}

type timer struct {
	at limiter.Tick
	do func()
}

func (h *timed) After(span limiter.Tick, f func()) {
	h.timers = append(h.timers, timer{h.now + span, f})
}

func (h *timed) pass(span limiter.Tick) {
	for end := h.now + span; ; {
		slices.SortStableFunc(h.timers, func(a, b timer) int { return int(a.at - b.at) })
		if len(h.timers) == 0 || h.timers[0].at > end {
			h.now = end
			return
		}
		next := h.timers[0]
		h.timers = h.timers[1:]
		h.now = max(h.now, next.at)
		next.do()
	}
}

// hasty returns a core that owns nothing, with timers, and begins a check within a time.
func hasty(t *testing.T) (h *timed, c *Core, begin func(within limiter.Tick) (answer *limiter.Decision, told *int)) {
	t.Helper()
	h = new(timed)
	c, _, hand, charge := singleWith(t, limiter.UnreachableLocal, func(x *Config) {
		h.byHand = x.Scheduler.(*byHand)
		x.Scheduler = h
	})
	h.byHand = hand
	return h, c, func(within limiter.Tick) (*limiter.Decision, *int) {
		answers, told := make([]limiter.Decision, 1), new(int)
		if open, _ := c.BeginMany([]arith.Charge{*charge.Clone()}, answers, within, false, func() { *told++ }); open != 1 {
			t.Fatal("premise: another member decides")
		}
		return &answers[0], told
	}
}

// A check with a deadline of its own is answered by the policy within a millisecond of it: a tick comes
// for it. One that is longer than the configured deadline changes nothing.
func TestADeadlineOfItsOwn(t *testing.T) {
	for _, test := range []struct{ within, from, to limiter.Tick }{
		{17300, 17300, 17300 + limiter.Millisecond}, {12 * limiter.Millisecond, 12 * limiter.Millisecond,
			13 * limiter.Millisecond},
		{DefaultDeadline + 1, DefaultDeadline, DefaultDeadline + replica.TickEvery},
		{0, DefaultDeadline, DefaultDeadline + replica.TickEvery},
	} {
		h, _, begin := hasty(t)
		h.pass(3 * limiter.Millisecond) // it begins between two ticks
		answer, told := begin(test.within)
		h.pass(test.from - 1)
		if *told != 0 {
			t.Errorf("within %v: it is answered before that", test.within)
		}
		h.pass(test.to - test.from + 1)
		if *told != 1 || answer.Source != limiter.SourceFallbackLocal {
			t.Errorf("within %v: after %v it is told %d times, by %v, want once, by the policy", test.within, test.to, *told,
				answer.Source)
		}
	}
}

// The owner is told how long its answer is waited for. One that comes later is written nowhere, and
// what it charged is not taken back: the policy may have let the request pass.
func TestAnAnswerAfterADeadlineOfItsOwn(t *testing.T) {
	h, c, begin := hasty(t)
	answer, _ := begin(17 * limiter.Millisecond)
	asked := drain(c)[third].Checks
	if len(asked) != 1 || asked[0].Wait != 17000 {
		t.Fatalf("the owner is asked %+v, want once, for 17 ms", asked)
	}
	h.pass(17 * limiter.Millisecond)
	by := *answer.Clone()
	if by.Source != limiter.SourceFallbackLocal {
		t.Fatalf("premise: the policy answers, not %v", by.Source)
	}
	drain(c)
	c.Deliver(decided(asked[0].ID))
	if answer.Source != by.Source || answer.Limit(0).Remaining != by.Limit(0).Remaining {
		t.Errorf("a late answer is written: %+v", answer)
	}
	if f := drain(c)[third]; len(f.Refunds) != 0 {
		t.Errorf("the late charge is taken back: %+v", f.Refunds)
	}
}

// Checks that end before their owner can be found silent leave a question behind, one at a time. It
// charges nothing, has the time, and is put to the heir in the end, which takes over.
func TestHastyChecksFindASilentOwner(t *testing.T) {
	h, c, begin := hasty(t)
	var owner, heir []peer.Check
	look := func() {
		f := drain(c)
		for _, q := range f[third].Checks {
			if q.Peek {
				owner = append(owner, q)
			}
		}
		heir = append(heir, f[other].Checks...)
	}
	for range 12 {
		begin(10 * limiter.Millisecond)
		h.pass(10 * limiter.Millisecond)
		look()
	}
	if len(owner) != 1 || len(heir) != 1 || !heir[0].Heir || !heir[0].Peek {
		t.Fatalf("the owner gets %+v and the heir %+v, want one question each", owner, heir)
	}
	// It is answered, and the next check that has no time asks again.
	c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: heir[0].ID, Status: peer.Decided, Results: 1}},
		Results: []peer.Result{{Allowed: true}}})
	begin(10 * limiter.Millisecond)
	h.pass(10 * limiter.Millisecond)
	if look(); len(owner) != 2 {
		t.Errorf("the owner gets %d questions, want a second one", len(owner))
	}
}
