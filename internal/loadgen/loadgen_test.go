package loadgen

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// Calls are due in steps, at the given rate, and none is sent twice.
func TestPace(t *testing.T) {
	s := Plan{Rate: 2500, Long: 10 * time.Millisecond}
	due := make(chan time.Duration, 100)
	// The start is so long ago that all steps are over, so none is waited for.
	sent, err := s.pace(t.Context(), time.Now().Add(-time.Hour), nil, due)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[time.Duration]int64{}
	for at := range due {
		counts[at]++
	}
	unsent := map[time.Duration]int64{}
	s.unsent(0, func(at time.Duration, n int64) { unsent[at] = n })
	total := int64(0)
	for k := range 10 {
		at := time.Duration(k) * step
		if want := []int64{1, 2, 3, 2, 3, 2, 3, 2, 3, 2}[k]; unsent[at] != want || counts[at] > want {
			t.Errorf("at %v %d are due and %d were handed out, want %d", at, unsent[at], counts[at], want)
		}
		total += unsent[at]
	}
	rest := int64(0)
	s.unsent(sent, func(_ time.Duration, n int64) { rest += n })
	if total != 23 || sent+rest != total {
		t.Errorf("%d were handed out and %d not, of %d", sent, rest, total)
	}
	broken := errors.New("the timer broke")
	if _, err := s.pace(t.Context(), time.Now().Add(time.Hour), func() error {
		return broken
	}, make(chan time.Duration)); !errors.Is(err, broken) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Plan{Rate: 1, Long: time.Hour}).pace(ctx, time.Now(), nil, make(chan time.Duration)); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
}

// Steps come, and end.
func TestSteps(t *testing.T) {
	next, stop, err := openSteps()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 5 {
		if err := next(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 4*step { // they may have waited for us, but none is early
		t.Errorf("five steps took %v", took)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Waits are what a sorted list of them says, to 1 %, also when two are merged.
func TestWaits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var one, two Waits
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(1 + rng.Uint64N(1<<(1+rng.UintN(41))))
		all = append(all, d, d)
		if w := &one; i%2 == 0 {
			w.Add(d, 2)
		} else {
			two.Add(d, 2)
		}
	}
	one.Merge(&two)
	one.Merge(nil)
	one.Merge(new(Waits))
	slices.Sort(all)
	if one.Count() != uint64(len(all)) || one.Most() != min(all[len(all)-1], longest) {
		t.Errorf("%d, the longest %v; want %d, %v", one.Count(), one.Most(), len(all), all[len(all)-1])
	}
	for _, part := range []float64{0, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(part*float64(len(all))+0.5)-1)]
		if got := one.At(part); got < min(want, longest) || float64(got) > 1.01*float64(want) {
			t.Errorf("%v are %v, want %v", part, got, want)
		}
	}
	if one.Add(time.Hour, 1); one.Most() != longest || one.At(1) != longest || new(Waits).At(0.5) != 0 {
		t.Errorf("an hour is %v", one.Most())
	}
}

// Without a rate each caller makes its calls in turn, and as many as it must.
func TestInTurn(t *testing.T) {
	var made [3]int
	calls := make([]Call, len(made))
	for i := range calls {
		calls[i] = func(_ context.Context, c Clock, due time.Duration) (time.Duration, error) {
			made[i]++
			if now := c.Now(); now < due {
				t.Errorf("a call of %v was made at %v", due, now)
			}
			return c.Now(), nil
		}
	}
	r, err := Plan{Least: 5, Pause: func(int) time.Duration { return 1 }}.Run(t.Context(), calls)
	if err != nil || made != [3]int{5, 5, 5} || r.Late.Count()+r.Unsent.Count() != 0 {
		t.Errorf("%v calls, %+v, %v", made, r, err)
	}
}

// At a rate each call that is due is made or told as unsent, by its weight.
func TestAtARate(t *testing.T) {
	var made atomic.Uint64
	call := func(_ context.Context, c Clock, due time.Duration) (time.Duration, error) {
		made.Add(1)
		return c.Now(), nil
	}
	r, err := Plan{Rate: 2500, Long: 10 * time.Millisecond, Weight: 3}.Run(t.Context(), []Call{call, call})
	if err != nil || r.Late.Count() != 3*made.Load() || r.Late.Count()+r.Unsent.Count() != 3*23 {
		t.Errorf("%d calls, late %d, unsent %d, %v", made.Load(), r.Late.Count(), r.Unsent.Count(), err)
	}
}

// Calls that are due while every caller waits for an answer beyond the end are unsent.
func TestBusyToTheEnd(t *testing.T) {
	const long = 10 * time.Millisecond
	r, err := Plan{Rate: 1000, Long: long}.Run(t.Context(), []Call{
		func(_ context.Context, c Clock, _ time.Duration) (time.Duration, error) {
			<-time.After(long) // which ends after the run
			return c.Now(), nil
		},
	})
	if err != nil || r.Late.Count() > 1 || r.Late.Count()+r.Unsent.Count() != 10 {
		t.Errorf("%d begun, %d unsent, %v", r.Late.Count(), r.Unsent.Count(), err)
	}
}

// An error of one caller ends the others, and is what Run returns.
func TestOneFails(t *testing.T) {
	broken := errors.New("broken")
	for _, rate := range []float64{0, 1000} {
		_, err := Plan{Rate: rate, Long: time.Hour}.Run(t.Context(), []Call{
			func(ctx context.Context, _ Clock, _ time.Duration) (time.Duration, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			},
			func(context.Context, Clock, time.Duration) (time.Duration, error) { return 0, broken },
		})
		if !errors.Is(err, broken) {
			t.Errorf("at %v: %v", rate, err)
		}
	}
}

// At most so many are called at a time, and the first error is returned.
func TestEach(t *testing.T) {
	var now, most, all atomic.Int64
	broken := errors.New("broken")
	err := Each(50, 3, func(i int) error {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		all.Add(1)
		now.Add(-1)
		if i > 20 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || most.Load() > 3 || all.Load() != 50 {
		t.Errorf("%d of %d at a time, %v", most.Load(), all.Load(), err)
	}
	if Each(1, 0, nil) == nil {
		t.Error("none at a time")
	}
}
