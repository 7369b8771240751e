package limitertest

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Each checker is held against a history that is just within the promise, and
// against the same one with one unit more.
func TestBoundFindsPlantedViolations(t *testing.T) {
	minute := func(a limiter.Algorithm) limiter.Spec {
		return limiter.Spec{Algorithm: a, Limit: 3, Window: time.Minute}
	}
	lenient := minute(limiter.SlidingWindow)
	lenient.Coverage = limiter.CoverageLenient
	firstHit := minute(limiter.FixedWindow)
	firstHit.Align = limiter.AlignFirstHit
	bucket := minute(limiter.TokenBucket)
	bucket.Burst = 2
	drip := minute(limiter.LeakyBucket)
	drip.Drip = limiter.DripInterval
	week := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: 7 * 24 * time.Hour}
	edge := 60*sec - 1
	for _, row := range []struct {
		name   string
		spec   limiter.Spec
		within []Admission
		extra  Admission // breaks the promise when it is put at index at
		at     int
	}{
		{"fixed window", minute(limiter.FixedWindow), []Admission{{edge, 3}, {60 * sec, 3}}, Admission{61 * sec, 1}, 2},
		{"fixed window, before the edge", minute(limiter.FixedWindow), []Admission{{edge, 3}, {60 * sec, 3}},
			Admission{edge, 1}, 1},
		{"week", week, []Admission{{4*limiter.Day - 1, 1}, {4 * limiter.Day, 1}}, Admission{11*limiter.Day - 1, 1}, 2},
		{"first hit", firstHit, []Admission{{5 * sec, 1}, {65*sec - 1, 2}, {65 * sec, 3}}, Admission{65*sec - 1, 1}, 2},
		{"log", minute(limiter.SlidingLog), []Admission{{0, 1}, {1, 2}, {60 * sec, 1}, {60*sec + 1, 2}},
			Admission{60 * sec, 1}, 3},
		{"strict sub-windows", minute(limiter.SlidingWindow), []Admission{{0, 3}, {60 * sec, 3}}, Admission{60*sec - 1, 1},
			1},
		{"lenient sub-windows", lenient, []Admission{{1, 3}, {60 * sec, 3}, {60*sec + 1, 3}}, Admission{60 * sec, 1}, 2},
		{"counter", minute(limiter.SlidingCounter), []Admission{{1, 3}, {60 * sec, 3}}, Admission{60 * sec, 1}, 2},
		{"tokens", bucket, []Admission{{0, 2}, {20 * sec, 1}, {60 * sec, 2}}, Admission{60 * sec, 1}, 3},
		{"tokens, one tick early", bucket, []Admission{{0, 2}, {20 * sec, 1}}, Admission{40*sec - 1, 1}, 2},
		{"drips", drip, []Admission{{20*sec - 1, 3}, {20 * sec, 1}}, Admission{40*sec - 2, 1}, 2},
	} {
		h := History{Admissions: row.within}
		if err := Bound(row.spec, h); err != nil {
			t.Errorf("%s: within the promise, but: %v", row.name, err)
		}
		var more History
		for i, a := range row.within {
			if i == row.at {
				more.Admissions = append(more.Admissions, row.extra)
			}
			more.Add(a.At, a.Cost)
		}
		if row.at == len(row.within) {
			more.Add(row.extra.At, row.extra.Cost)
		}
		if Bound(row.spec, more) == nil {
			t.Errorf("%s: the planted unit was not found", row.name)
		}
	}
}

// With refunds the windows of first_hit are not known: twice the limit in any
// interval is what is left to check.
func TestBoundOfDisturbedFirstHit(t *testing.T) {
	s := limiter.Spec{Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit, Limit: 3, Window: time.Minute}
	h := History{Admissions: []Admission{{50 * sec, 2}, {60 * sec, 3}}}
	if Bound(s, h) == nil {
		t.Error("five in one window were not found")
	}
	if h.Disturbed = true; Bound(s, h) != nil {
		t.Error("five in two windows were reported")
	}
	if h.Add(61*sec, 2); Bound(s, h) == nil {
		t.Error("seven in a minute were not found")
	}
}

// Products of large limits, windows and costs do not overflow.
func TestBoundOfLargeNumbers(t *testing.T) {
	s := limiter.Spec{Algorithm: limiter.GCRA, Limit: limiter.MaxUnits, Window: limiter.MaxWindow}
	w := windowOf(s)
	h := History{Admissions: []Admission{{0, limiter.MaxUnits}, {w / 2, limiter.MaxUnits / 2}, {w, limiter.MaxUnits / 2}}}
	if err := Bound(s, h); err != nil {
		t.Error(err)
	}
	if h.Add(w, 2); Bound(s, h) == nil {
		t.Error("two units too many were not found")
	}
}
