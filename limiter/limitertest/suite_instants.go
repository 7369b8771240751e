package limitertest

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// retryAfter: at the promised instant the same cost is allowed, and one tick earlier it
// is denied. (For a [Rounder] the promise is rounded up, so it is denied one step
// earlier.)
func retryAfter(t *testing.T, f Factory) {
	eachAlgorithm(t, func(t *testing.T, a limiter.Algorithm) {
		trials, file := newTrials(100, 6000, one(a))
		keepPromises(t, newAsker(t, f, file.String()), trials)
	})
}

// retryAfterSeveralLimits: the same for several limits, with one promise for all.
func retryAfterSeveralLimits(t *testing.T, f Factory) {
	trials, file := newTrials(200, 7000, several)
	keepPromises(t, newAsker(t, f, file.String()), trials)
}

// keepPromises brings two callers into the same state, in which a check is denied. It
// checks again for one of them at the promised instant and for the other a tick
// earlier. (A single caller is not enough: if denials are counted, the early check
// would move the instant.) The same two test the other promise, reset-after.
func keepPromises(t *testing.T, ask *asker, trials []trial) {
	kept := 0
	for _, tr := range trials {
		trace := NewTrace(ask.now, tr.specs...)
		for i := range 60 {
			s, _ := trace.Next(tr.choices)
			ask.goTo(s.Now)
			early, late := ask.check(tr.rule, "early", s.Cost), ask.check(tr.rule, "late", s.Cost)
			if early.Allowed || early.Never || i < 8 {
				continue
			}
			if early.RetryAfter != late.RetryAfter || early.RetryAfter <= 0 {
				t.Fatalf("seed %d: denied with retry after %d and %d ticks\n%s", tr.seed, limiter.Span(early.RetryAfter),
					limiter.Span(late.RetryAfter), trace)
			}
			ask.keepRetry(t, tr, max(s.Cost, 1), limiter.Span(early.RetryAfter))
			ask.keepReset(t, tr)
			kept++
			break
		}
	}
	if 2*kept < len(trials) {
		t.Errorf("only %d of %d trials came to a denial", kept, len(trials))
	}
}

func (a *asker) keepRetry(t *testing.T, tr trial, cost uint64, wait Tick) {
	at := a.now + wait
	a.goTo(at - stepOf(a.s))
	if d := a.check(tr.rule, "early", cost); d.Allowed {
		t.Fatalf("seed %d: cost %d was allowed a tick before the promised instant\n  limits %+v", tr.seed, cost, tr.specs)
	}
	a.goTo(at)
	if d := a.check(tr.rule, "late", cost); !d.Allowed {
		t.Fatalf("seed %d: cost %d was denied at the promised instant\n  limits %+v\n  %v", tr.seed, cost, tr.specs,
			describe(d))
	}
}

// keepReset: one tick before the promised reset, some limit does not have all its
// capacity or is blocked; at the reset all have it.
func (a *asker) keepReset(t *testing.T, tr trial) {
	d := a.check(tr.rule, "late", 0)
	resets := make([]Tick, d.Len())
	last := Tick(0)
	for i := range resets {
		resets[i] = a.now + limiter.Span(d.Limit(i).ResetAfter)
		last = max(last, resets[i])
	}
	if last > a.now {
		a.goTo(last - stepOf(a.s))
		d = a.check(tr.rule, "late", 0)
		for i, at := range resets {
			if l := d.Limit(i); at == last && l.Remaining == l.Limit.Capacity() {
				t.Fatalf("seed %d: limit %d was as new before the promised instant\n  limits %+v", tr.seed, i, tr.specs)
			}
		}
	}
	a.goTo(last)
	d = a.check(tr.rule, "late", 0)
	for i := range resets {
		if l := d.Limit(i); l.Remaining != l.Limit.Capacity() || l.Blocked || l.ResetAfter != 0 {
			t.Fatalf("seed %d: limit %d was not as new at the promised instant: %v\n  limits %+v", tr.seed, i, describe(d),
				tr.specs)
		}
	}
}

// bounds: no limit ever admits more than its algorithm promises, for any sequence of
// checks. It uses none of the decider's own numbers, only which checks were admitted.
func bounds(t *testing.T, f Factory) {
	eachAlgorithm(t, func(t *testing.T, a limiter.Algorithm) {
		trials, file := newTrials(60, 8000, one(a))
		ask := newAsker(t, f, file.String())
		var p premise
		for _, tr := range trials {
			h := History{Disturbed: tr.specs[0].CountRejected != limiter.CountNone}
			greedy := NewTrace(ask.now, tr.specs...)
			for range 100 {
				s, _ := greedy.Next(tr.choices)
				ask.goTo(s.Now)
				d := ask.check(tr.rule, "u", s.Cost)
				p.count(d.Allowed)
				if d.Allowed && s.Cost > 0 {
					h.Add(ask.now, s.Cost)
				}
			}
			if err := Bound(tr.specs[0], h); err != nil {
				t.Fatalf("seed %d: %v\n  limit %+v", tr.seed, err, tr.specs[0])
			}
		}
		p.hold(t)
	})
}

// refundsBounds: the bounds hold for what remains after refunds.
func refundsBounds(t *testing.T, f Factory) {
	eachAlgorithm(t, func(t *testing.T, a limiter.Algorithm) {
		trials, file := newTrials(20, 9000, one(a))
		ask := newAsker(t, f, file.String())
		needRefunds(t, ask.s)
		refunded := 0
		for _, tr := range trials {
			var h History
			h.Disturbed = true
			var receipts []limiter.Receipt
			greedy := NewTrace(ask.now, tr.specs...)
			for range 60 {
				s, _ := greedy.Next(tr.choices)
				ask.goTo(s.Now)
				if n := len(receipts); n > 0 && tr.choices.Pick(4) == 0 {
					i := n - 1 - tr.choices.Pick(min(n, 3))
					if h.Admissions[i].Cost > 0 {
						ask.refund(tr.rule, "u", h.Admissions[i].Cost, receipts[i])
						h.Admissions[i].Cost = 0
						refunded++
					}
				}
				if d := ask.check(tr.rule, "u", s.Cost); d.Allowed && s.Cost > 0 {
					h.Add(ask.now, s.Cost)
					receipts = append(receipts, d.Receipt)
				}
			}
			if err := Bound(tr.specs[0], h); err != nil {
				t.Fatalf("seed %d: %v\n  limit %+v", tr.seed, err, tr.specs[0])
			}
		}
		if refunded < len(trials) {
			t.Errorf("only %d charges were taken back", refunded)
		}
	})
}

// refunds: one of two callers makes an additional charge and has it refunded.
// Afterwards it has no more remaining than the other.
func refunds(t *testing.T, f Factory) {
	eachAlgorithm(t, func(t *testing.T, a limiter.Algorithm) {
		trials, file := newTrials(150, 10000, one(a))
		ask := newAsker(t, f, file.String())
		needRefunds(t, ask.s)
		compared := 0
		for _, tr := range trials {
			if forgets(tr.specs[0]) {
				continue
			}
			if ask.compareRefund(t, tr) {
				compared++
			}
		}
		if 10*compared < len(trials) {
			t.Errorf("only %d of %d trials could be compared", compared, len(trials))
		}
	})
}

// forgets reports whether a limit may drop rejected units to count others. A refund
// does not restore the dropped ones.
func forgets(s limiter.Spec) bool {
	return s.CountRejected == limiter.CountAll && (s.Algorithm == limiter.SlidingLog || s.Limit > 1e6)
}

// compareRefund returns false for a trial in which the charge changed other decisions,
// or in which a first_hit window ended that the charge had begun. The following
// decisions cannot be compared then.
func (a *asker) compareRefund(t *testing.T, tr trial) bool {
	spec, c := tr.specs[0], tr.choices
	trace := NewTrace(a.now, spec)
	both := func(steps int) bool {
		for range steps {
			s, _ := trace.Next(c)
			a.goTo(s.Now)
			if a.check(tr.rule, "more", s.Cost).Allowed != a.check(tr.rule, "less", s.Cost).Allowed {
				return false
			}
		}
		return true
	}
	both(2 + c.Pick(6))
	before := a.check(tr.rule, "more", 0).Limit(0)
	cost := uint64(1 + c.Pick(int(max(1, min(before.Remaining, 1<<30)))))
	x := a.check(tr.rule, "more", cost)
	if !x.Allowed {
		return false
	}
	made, ends := a.now, a.now+limiter.Span(x.Limit(0).ResetAfter)
	if !both(c.Pick(3)) {
		return false
	}
	a.goTo(min(a.now+windowOf(spec)/256*Tick(c.Pick(128)), max(a.now, ends-1)))
	if spec.Align == limiter.AlignFirstHit && a.now >= ends {
		return false
	}
	a.refund(tr.rule, "more", cost, x.Receipt)
	for _, wait := range []Tick{0, 1, windowOf(spec) / 7, windowOf(spec) / 2, windowOf(spec)} {
		a.goTo(a.now + wait)
		more, less := a.check(tr.rule, "more", 0).Limit(0), a.check(tr.rule, "less", 0).Limit(0)
		if more.Remaining > less.Remaining {
			t.Fatalf("seed %d: a charge of %d at %d, taken back, leaves %d at %d; had it not been made %d would be left\n  "+
				"limit %+v",
				tr.seed, cost, made, more.Remaining, a.now, less.Remaining, spec)
		}
		if exactRefund(spec) && more.Remaining < less.Remaining {
			t.Fatalf("seed %d: a charge of %d at %d, taken back, leaves %d at %d instead of %d\n  limit %+v",
				tr.seed, cost, made, more.Remaining, a.now, less.Remaining, spec)
		}
	}
	return true
}

// exactRefund reports whether after a refund the counter is as if the charge had not
// been made.
func exactRefund(s limiter.Spec) bool {
	switch s.Algorithm {
	case limiter.FixedWindow:
		return s.Align == limiter.AlignEpoch
	case limiter.SlidingLog, limiter.SlidingWindow, limiter.SlidingCounter:
		return true
	}
	return false
}

// String returns the whole trace, which is needed to find out why an answer is wrong.
func (t *Trace) String() string {
	text := ""
	for _, s := range t.specs {
		text += "  limit " + spellLimit(s) + "\n"
	}
	for i, s := range t.Steps {
		text += fmt.Sprintf("  step %d: %+v (+%d) -> allowed %v, retry %d\n",
			i, s, s.Now-t.Steps[max(0, i-1)].Now, t.Answers[i].Allowed, t.Answers[i].RetryAfter)
	}
	return text
}
