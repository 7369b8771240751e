package limitertest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Choices is the source of choices for a random trace: a generator with a seed, or the
// bytes of a fuzzer.
type Choices interface {
	// Pick returns a number from 0 to n-1, n >= 1.
	Pick(n int) int
	// More reports whether choices are left. Pick returns 0 when there are none.
	More() bool
}

// SeededChoices returns endless choices, the same for the same seed.
func SeededChoices(seed uint64) Choices {
	return seeded{rand.New(rand.NewPCG(seed, 0x5eed))}
}

type seeded struct{ r *rand.Rand }

func (s seeded) Pick(n int) int { return s.r.IntN(n) }
func (s seeded) More() bool     { return true }

// ByteChoices returns choices that use one byte each, and end with the bytes.
func ByteChoices(b []byte) Choices { return &bytesLeft{b} }

type bytesLeft struct{ b []byte }

func (c *bytesLeft) More() bool { return len(c.b) > 0 }

func (c *bytesLeft) Pick(n int) int {
	if len(c.b) == 0 {
		return 0
	}
	x := int(c.b[0])
	c.b = c.b[1:]
	return x % n
}

func pick[T any](c Choices, of ...T) T { return of[c.Pick(len(of))] }

// RandomSpec returns a random limit of the algorithm, with any options. It is usually
// small enough for a short trace to exhaust it, and its window is at most about
// longest.
func RandomSpec(c Choices, a limiter.Algorithm, name string, longest time.Duration) limiter.Spec {
	s := limiter.Spec{Name: name, Algorithm: a}
	s.Limit = pick[int64](c, 1, 2, 3, 3, 4, 5, 7, 10, 10, 100, 1000, 3_000_000_000, limiter.NarrowUnits)
	if a == limiter.SlidingLog {
		s.Limit = min(s.Limit, limiter.MaxLogLimit)
	}
	s.Window = pick(c, time.Second, time.Minute, time.Millisecond, 7*time.Millisecond, 1001*time.Microsecond, time.Hour,
		24*time.Hour, 7*24*time.Hour, 14*24*time.Hour, 400*24*time.Hour, 15*time.Minute, 10*time.Second)
	s.Window = min(s.Window, longest)
	switch a {
	case limiter.FixedWindow:
		s.Align = pick(c, limiter.AlignEpoch, limiter.AlignFirstHit)
	case limiter.SlidingWindow:
		s.Coverage = pick(c, limiter.CoverageStrict, limiter.CoverageLenient)
		s.SubWindows = pick(c, 1, 2, 3, 4, 7, 10, 13, 60)
		if m := time.Duration(s.SubWindows) * limiter.TickDuration; s.Window%m != 0 {
			s.Window += m - s.Window%m
		}
		s.Window = min(s.Window, limiter.MaxWindow-limiter.MaxWindow%(time.Duration(s.SubWindows)*limiter.TickDuration))
	case limiter.SlidingCounter:
		s.Rounding = pick(c, limiter.RoundExact, limiter.RoundFloor, limiter.RoundNearest, limiter.RoundCeil)
		if w := pick(c, 1000, 1000, 1000, 0, 1, 250, 333, 500, 999); w < 1000 {
			s.Weight = &w
		}
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		s.Burst = pick(c, 0, 0, 1, 2, 3, s.Limit/2, s.Limit*2)
		if s.Burst > limiter.NarrowUnits {
			s.Burst = 0
		}
		if len(s.Problems()) > 0 { // over 100 years to recover
			s.Burst = 0
		}
		if a == limiter.LeakyBucket {
			s.Drip = pick(c, limiter.DripContinuous, limiter.DripInterval)
			if s.Drip == limiter.DripInterval && c.Pick(2) == 0 {
				s.DripUnits = pick(c, s.Limit, 2, 5, s.Limit/2)
				s.Limit += (s.DripUnits - s.Limit%max(1, s.DripUnits)) % max(1, s.DripUnits)
				s.Limit = min(s.Limit, limiter.NarrowUnits-limiter.NarrowUnits%max(1, s.DripUnits))
			}
		}
	}
	s.CountRejected = pick(c, limiter.CountNone, limiter.CountNone, limiter.CountRoom, limiter.CountAll)
	switch c.Pick(6) {
	case 0:
		s.Block = s.Window
	case 1:
		s.Block = s.Window/3 + 7*time.Microsecond
		s.Block -= s.Block % time.Microsecond
	}
	return s
}

// RandomWideSpec returns a random limit as RandomSpec does. About half of the limits are above
// [limiter.NarrowUnits], close to it or close to [limiter.MaxUnits].
func RandomWideSpec(c Choices, a limiter.Algorithm, name string, longest time.Duration) limiter.Spec {
	s := RandomSpec(c, a, name, longest)
	if c.Pick(2) == 0 {
		return s
	}
	w := s
	w.Limit = pick[int64](c, limiter.NarrowUnits+1, 1<<40, limiter.MaxUnits-1, limiter.MaxUnits)
	w.DripUnits = 0
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		w.Burst = pick(c, 0, 1, w.Limit/2, limiter.MaxUnits)
	}
	if len(w.Problems()) > 0 {
		w.Block = 0 // its windows may not be whole seconds
	}
	if len(w.Problems()) > 0 { // a log, or over 100 years to recover
		return s
	}
	return w
}

// Step is one check of a trace.
type Step struct {
	Now  Tick
	Cost uint64
	Peek bool
	// Refund, if not negative, is the index of the step whose charge is refunded before
	// the check.
	Refund int
}

// Trace generates checks one at a time. Each depends on the oracle's last answer, so
// that it hits the instants and costs at which answers change.
type Trace struct {
	Oracle *Oracle
	// Steps and Answers are the checks so far, and the oracle's answers.
	Steps   []Step
	Answers []OracleDecision
	// Refunds adds refunds to the trace, Peeks adds peeks at a cost. (Checks with cost
	// 0 are always included.)
	Refunds, Peeks bool

	specs    []limiter.Spec
	now      Tick
	refunded map[int]bool
}

// NewTrace returns a trace that starts at start, against limits with these specs.
func NewTrace(start Tick, specs ...limiter.Spec) *Trace {
	return &Trace{Oracle: NewOracle(specs...), specs: specs, now: start, refunded: map[int]bool{}}
}

// Next generates a step and the oracle's answer. All are before the time of [limiter.Credit],
// which no clock reaches.
func (t *Trace) Next(c Choices) (Step, OracleDecision) {
	never := limiter.Credit()
	t.now = min(t.now+max(0, t.wait(c)), arith.Fields(&never).Time-1)
	s := Step{Now: t.now, Cost: t.cost(c), Refund: -1}
	s.Peek = t.Peeks && c.Pick(12) == 0
	if t.Refunds && c.Pick(5) == 0 {
		s.Refund = t.refundable(c)
	}
	if s.Refund >= 0 {
		old := t.Steps[s.Refund]
		t.refunded[s.Refund] = true
		t.Oracle.Refund(s.Now, old.Now, old.Cost)
	}
	d := t.Oracle.Check(s.Now, s.Cost, s.Peek)
	t.Steps, t.Answers = append(t.Steps, s), append(t.Answers, d)
	return s, d
}

// refundable returns one of the latest allowed charges that has not been refunded, or
// -1.
func (t *Trace) refundable(c Choices) int {
	back := c.Pick(4)
	for i := len(t.Steps) - 1; i >= 0; i-- {
		s := t.Steps[i]
		if t.refunded[i] || s.Peek || s.Cost == 0 || !t.Answers[i].Allowed {
			continue
		}
		if back == 0 {
			return i
		}
		back--
	}
	return -1
}

// wait returns the time until the next step.
func (t *Trace) wait(c Choices) Tick {
	s := t.specs[c.Pick(len(t.specs))]
	w := windowOf(s)
	jitter := Tick(c.Pick(3) - 1)
	last := OracleDecision{Limits: make([]OracleLimit, len(t.specs))}
	if n := len(t.Answers); n > 0 {
		last = t.Answers[n-1]
	}
	switch c.Pick(16) {
	case 0:
		return toNext(t.now-windowShift(w), w, 1) + jitter
	case 1:
		if m := s.SubWindows; m > 0 {
			return toNext(t.now, w/Tick(m), 1) + jitter
		}
		return toNext(t.now, w, s.Limit) + jitter
	case 2:
		return w + jitter
	case 3, 4:
		return last.RetryAfter + jitter
	case 5:
		return last.Limits[c.Pick(len(last.Limits))].RetryAfter + jitter
	case 6:
		return last.Limits[c.Pick(len(last.Limits))].ResetAfter + jitter
	case 7:
		return w/256*Tick(c.Pick(256)) + jitter
	case 8:
		return w/Tick(s.Limit) + jitter
	case 9:
		return max(1, jitter)
	case 10:
		return w / 16
	default:
		return 0
	}
}

// toNext returns the wait until the next multiple of span/parts, rounded up.
func toNext(now, span Tick, parts int64) Tick {
	now = max(0, now)
	_, past := product(parts, int64(now)).over(int64(span)) // in 1/parts ticks
	return Tick((int64(span) - past + parts - 1) / parts)
}

// cost returns a cost.
func (t *Trace) cost(c Choices) uint64 {
	i := c.Pick(len(t.specs))
	capacity := t.Oracle.limits[i].capacity
	left := capacity
	if n := len(t.Answers); n > 0 {
		left = t.Answers[n-1].Limits[i].Remaining
	}
	switch c.Pick(16) {
	case 0:
		return 0
	case 1:
		return 2
	case 2:
		return capacity
	case 3:
		return max(1, capacity/2)
	case 4:
		return max(1, capacity-1)
	case 5, 6:
		return max(1, left)
	case 7, 8:
		return min(left+1, t.most())
	case 9:
		return max(1, capacity/uint64(1+c.Pick(16)))
	case 10:
		if c.Pick(4) == 0 {
			return pick(c, capacity+1, t.most())
		}
		return 1
	default:
		return max(1, capacity/10)
	}
}

// most returns the largest cost that a decider of these limits takes.
func (t *Trace) most() (most uint64) {
	for _, s := range t.specs {
		most = max(most, min(mostUnits(s), limiter.MaxUnits))
	}
	return most
}

// Diff returns how a decision differs from the oracle's, "" if it does not.
func Diff(d *limiter.Decision, want OracleDecision) string {
	if d.Len() != len(want.Limits) {
		return fmt.Sprintf("%d limits were decided, want %d", d.Len(), len(want.Limits))
	}
	got := OracleDecision{
		Allowed: d.Allowed, Never: d.Never, ShadowDenied: d.ShadowDenied, RetryAfter: limiter.Span(d.RetryAfter),
		BlockedBy: -1, Limits: make([]OracleLimit, d.Len()),
	}
	for i := range got.Limits {
		l := d.Limit(i)
		got.Limits[i] = OracleLimit{l.Allowed, l.Never, l.Blocked, l.Remaining, limiter.Span(l.RetryAfter),
			limiter.Span(l.ResetAfter)}
		if l == d.BlockedBy() {
			got.BlockedBy = i
		}
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		return fmt.Sprintf("decided %s,\n    want %s", g, w)
	}
	return ""
}
