package waiting

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// denials answers with each of some decisions in turn, and allows in the end.
type denials struct {
	list  []limiter.Decision
	asked int
	slept []time.Duration
	part  float64 // of the greatest jitter
}

func (s *denials) until(ctx context.Context) (limiter.Decision, error) {
	var d limiter.Decision
	err := Until(ctx, &d, func() error {
		d = limiter.Decision{Allowed: true}
		if s.asked < len(s.list) {
			d = s.list[s.asked]
		}
		s.asked++
		return nil
	}, func(ctx context.Context, span time.Duration) error {
		s.slept = append(s.slept, span)
		return ctx.Err()
	}, func() float64 { return s.part })
	return d, err
}

// A check is repeated when its denial says, and after a short pause if it does not say.
func TestWaitsAsToldTo(t *testing.T) {
	s := &denials{list: []limiter.Decision{{RetryAfter: time.Hour}, {RetryAfter: 90 * time.Second}, {}}}
	d, err := s.until(t.Context())
	if err != nil || !d.Allowed || s.asked != 4 {
		t.Fatalf("%v, %+v, after %d checks", err, d, s.asked)
	}
	if len(s.slept) != 3 || s.slept[0] != time.Hour || s.slept[1] != 90*time.Second || s.slept[2] != least {
		t.Errorf("it waited %v", s.slept)
	}
}

// A denial that names no time is repeated less and less often, at last once a second,
// until one names a time.
func TestPausesDouble(t *testing.T) {
	s := &denials{list: slices.Concat(make([]limiter.Decision, 10), []limiter.Decision{{RetryAfter: time.Minute}},
		make([]limiter.Decision, 2))}
	if d, err := s.until(t.Context()); err != nil || !d.Allowed {
		t.Fatal(err, d)
	}
	const ms = time.Millisecond
	want := []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second, time.Second,
		time.Second, time.Minute, 10 * ms, 20 * ms}
	if !slices.Equal(s.slept, want) {
		t.Errorf("it waited %v, want %v", s.slept, want)
	}
}

// Callers that wait for the same time do not ask again at the same instant. None of them
// waits more than a minute longer for that, or beyond its deadline.
func TestWaitsAreSpread(t *testing.T) {
	list := []limiter.Decision{{RetryAfter: 100 * time.Minute}, {}} // so a tenth is more than the longest jitter
	for part, want := range map[float64][]time.Duration{
		0: {100 * time.Minute, 10 * time.Millisecond}, 0.5: {100*time.Minute + 30*time.Second, 10500 * time.Microsecond},
		1: {101 * time.Minute, 11 * time.Millisecond},
	} {
		s := &denials{list: list, part: part}
		if _, err := s.until(t.Context()); err != nil || !slices.Equal(s.slept, want) {
			t.Errorf("with %v of the jitter it waited %v, want %v; %v", part, s.slept, want, err)
		}
	}
	// the longest overflow if they are lengthened
	for _, wait := range []time.Duration{time.Minute, math.MaxInt64 - 1, math.MaxInt64} {
		s := &denials{list: []limiter.Decision{{RetryAfter: wait}}, part: 1}
		if _, err := s.until(t.Context()); err != nil || len(s.slept) != 1 || s.slept[0] < wait ||
			s.slept[0]-wait > 6*time.Second {
			t.Errorf("for a wait of %v it waited %v, %v", wait, s.slept, err)
		}
	}
	short, end := context.WithTimeout(t.Context(), 100*time.Minute+50*time.Second)
	defer end()
	s := &denials{list: list[:1], part: 1}
	if _, err := s.until(short); err != nil || s.slept[0] != 100*time.Minute {
		t.Errorf("near the deadline it waited %v, %v", s.slept, err)
	}
}

// What no wait helps is an error at once, and so is what the context does not leave time for.
func TestGivesUpAtOnce(t *testing.T) {
	s := &denials{list: []limiter.Decision{{Never: true, Rule: "r"}}}
	if d, err := s.until(t.Context()); !errors.Is(err, limiter.ErrWait) ||
		!strings.Contains(err.Error(), `"r" never admits`) || d.Allowed || len(s.slept) > 0 {
		t.Errorf("never: %v, %+v, waited %v", err, d, s.slept)
	}
	short, end := context.WithTimeout(t.Context(), time.Hour)
	defer end()
	s = &denials{list: []limiter.Decision{{RetryAfter: 2 * time.Hour}}}
	if _, err := s.until(short); !errors.Is(err, limiter.ErrWait) || !errors.Is(err, context.DeadlineExceeded) ||
		len(s.slept) > 0 {
		t.Errorf("too late: %v, waited %v", err, s.slept)
	}
	s = &denials{list: []limiter.Decision{{RetryAfter: time.Minute}}}
	if d, err := s.until(short); err != nil || !d.Allowed {
		t.Errorf("in time: %v, %+v", err, d)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	s = &denials{list: []limiter.Decision{{RetryAfter: time.Minute}, {}, {}}}
	if d, err := s.until(ended); !errors.Is(err, context.Canceled) || errors.Is(err, limiter.ErrWait) || d.Allowed ||
		s.asked != 1 {
		t.Errorf("ended while it waits: %v, %+v, after %d checks", err, d, s.asked)
	}
}

// Sleep ends with its context.
func TestSleepEnds(t *testing.T) {
	if err := Sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := Sleep(ended, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
