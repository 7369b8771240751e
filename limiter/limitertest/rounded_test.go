package limitertest

import (
	"context"
	"os"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// roundedSubject is a table whose answers are as coarse as a front door's.
type roundedSubject struct {
	*tableSubject
	step Tick
}

func (s *roundedSubject) Step() Tick { return s.step }

func (s *roundedSubject) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.round(d, s.tableSubject.CheckInto(ctx, r, d))
}

func (s *roundedSubject) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.round(d, s.tableSubject.PeekInto(ctx, r, d))
}

// Amend implements [Amender].
func (s *roundedSubject) Amend(ctx context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	out, err := s.tableSubject.Amend(ctx, r, a)
	out.RetryAfter = roundUp(limiter.Span(out.RetryAfter), s.step).Duration()
	return out, err
}

// round makes a decision coarse: it names one limit that denies.
func (s *roundedSubject) round(d *limiter.Decision, err error) error {
	if err != nil {
		return err
	}
	blocked := d.BlockedBy()
	for i := range d.Len() {
		l := d.Limit(i)
		l.RetryAfter, l.ResetAfter = roundUp(limiter.Span(l.RetryAfter), s.step).Duration(),
			roundUp(limiter.Span(l.ResetAfter), s.step).Duration()
		l.Allowed = l != blocked
	}
	arith.Conclude(d)
	return nil
}

// TestRoundedSubjectConforms: for any step, a subject need not be more precise than it
// states.
func TestRoundedSubjectConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	steps := []Tick{7}
	if os.Getenv("WEIR_SEEDS") != "" { // make test-long
		steps = append(steps, limiter.Millisecond)
	}
	for _, step := range steps {
		t.Run(span(step), func(t *testing.T) {
			Run(t, func(tb testing.TB, yaml string) Subject {
				return &roundedSubject{newTableSubject(tb, yaml).(*tableSubject), step}
			})
		})
	}
}

// TestDiffOfRounded: what is not a matter of rounding differs all the same, and
// a subject that does not say that it rounds is held to the tick.
func TestDiffOfRounded(t *testing.T) {
	coarse, fine := &roundedSubject{step: limiter.Millisecond}, &tableSubject{}
	l, err := limiter.NewLimit(limiter.Spec{Limit: 3, Window: limiter.Minute.Duration()})
	if err != nil {
		t.Fatal(err)
	}
	d := new(limiter.Decision)
	d.Clear()
	d.Grow(1)
	*d.Limit(0) = limiter.LimitDecision{Rule: &limiter.Rule{}, Limit: l, Allowed: true, Remaining: 2,
		ResetAfter: 2000 * limiter.TickDuration}
	want := OracleDecision{Allowed: true, BlockedBy: -1,
		Limits: []OracleLimit{{Allowed: true, Remaining: 2, ResetAfter: 1001}}}
	if s := diff(coarse, d, want); s != "" {
		t.Errorf("1.001 ms, told as 2 ms: %s", s)
	}
	if diff(fine, d, want) == "" {
		t.Error("a subject that tells ticks may be wrong by a millisecond")
	}
	if want.Limits[0].ResetAfter != 1001 {
		t.Error("the comparison changed what is wanted")
	}
	for what, change := range map[string]func(){
		"rounded down": func() { d.Limit(0).ResetAfter = 1000 * limiter.TickDuration },
		"remaining":    func() { d.Limit(0).ResetAfter, d.Limit(0).Remaining = 2000*limiter.TickDuration, 1 },
	} {
		if change(); diff(coarse, d, want) == "" {
			t.Errorf("%s: no difference is seen", what)
		}
	}
}

func TestRoundAnswer(t *testing.T) {
	for line, want := range map[string]string{
		"allowed  minute 1/3 left, resets in 55s": "allowed  minute 1/3 left, resets in 55s",
		"DENIED by a/b, retry after 1µs  minute 0/3 left, resets in 1m0.000001s": "DENIED by a/b, retry after 1ms  minute " +
			"0/3 left, resets in 1m0.001s",
		"second 0/5 left, resets in 2s, blocked, retry after 333.334ms, shadow": "second 0/5 left, resets in 2s, blocked, " +
			"retry after 334ms, shadow",
		"DENIED by a/b, never": "DENIED by a/b, never",
	} {
		if got := roundAnswer(line, limiter.Millisecond); got != want {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
		if got := roundAnswer(line, 1); got != line {
			t.Errorf("rounded to a tick it is another: %s", got)
		}
	}
}
