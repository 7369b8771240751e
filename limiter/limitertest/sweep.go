package limitertest

import (
	"fmt"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// Admission is a cost that was admitted at an instant.
type Admission struct {
	At   Tick
	Cost uint64
}

// History is the admissions of one limit of one key, in the order of time.
type History struct {
	Admissions []Admission
	// Disturbed reports that charges were refunded (these are not among the
	// admissions), or that units of other checks were counted. The windows of align
	// first_hit can then not be derived from the admissions; instead, any interval is
	// checked against twice the limit.
	Disturbed bool
}

// Add appends an admission.
func (h *History) Add(at Tick, cost uint64) {
	h.Admissions = append(h.Admissions, Admission{at, cost})
}

// Bound searches a history for more than the limit promises to admit. It returns an
// error with the first such interval, or nil. The promises, for a limit L:
//
//   - fixed_window: L in each window.
//   - sliding_log, and sliding_window with strict coverage: L in any interval of a
//     window's length.
//   - sliding_counter, and sliding_window with lenient coverage: 2L in such an
//     interval.
//   - the buckets: burst + rate·Δ in any interval of length Δ, and the units of one drip
//     more with drip interval.
//
// Bound does not know how an algorithm decides. Its time is quadratic in the length of
// the history.
func Bound(s limiter.Spec, h History) error {
	w, most := windowOf(s), uint64(s.Limit)
	switch s.Algorithm {
	case limiter.FixedWindow:
		if s.Calendar != limiter.CalendarNone {
			return boundCalendar(h.Admissions, newCalendarModel(s), most)
		}
		if s.Align == limiter.AlignEpoch {
			return boundAligned(h.Admissions, w, most)
		}
		if h.Disturbed {
			return boundSliding(h.Admissions, w, 2*most)
		}
		return boundFirstHit(h.Admissions, w, most)
	case limiter.SlidingLog:
		return boundSliding(h.Admissions, w, most)
	case limiter.SlidingWindow:
		if s.Coverage == limiter.CoverageStrict {
			return boundSliding(h.Admissions, w, most)
		}
		return boundSliding(h.Admissions, w, 2*most)
	case limiter.SlidingCounter:
		return boundSliding(h.Admissions, w, 2*most)
	default:
		burst := uint64(burstOf(s))
		if s.Drip == limiter.DripInterval {
			burst += uint64(max(1, s.DripUnits))
		}
		return boundBucket(h.Admissions, w, most, burst)
	}
}

// boundAligned: at most most in each window since the epoch.
func boundAligned(as []Admission, w Tick, most uint64) error {
	sums := map[int64]uint64{}
	for _, a := range as {
		i := windowIndex(a.At, w)
		if sums[i] += a.Cost; sums[i] > most {
			start := windowStart(i, w)
			return excess(sums[i], most, start, start+w)
		}
	}
	return nil
}

// boundCalendar: at most most in each calendar window.
func boundCalendar(as []Admission, m *calendarModel, most uint64) error {
	sums := map[int64]uint64{}
	for _, a := range as {
		i := m.slot(a.At)
		if sums[i] += a.Cost; sums[i] > most {
			start := Tick(i) * limiter.Second
			return excess(sums[i], most, start, a.At+1)
		}
	}
	return nil
}

// boundFirstHit: at most most in each window that begins with the first
// admission after the last window.
func boundFirstHit(as []Admission, w Tick, most uint64) error {
	var start Tick
	var sum uint64
	for i, a := range as {
		if i == 0 || a.At >= start+w {
			start, sum = a.At, 0
		}
		if sum += a.Cost; sum > most {
			return excess(sum, most, start, start+w)
		}
	}
	return nil
}

// boundSliding: at most most in (t-w, t] for every t. Only the intervals that end with
// an admission need to be checked.
func boundSliding(as []Admission, w Tick, most uint64) error {
	for i, last := range as {
		var sum uint64
		for j := i; j >= 0 && as[j].At > last.At-w; j-- {
			sum += as[j].Cost
		}
		if sum > most {
			return excess(sum, most, last.At-w+1, last.At+1)
		}
	}
	return nil
}

// boundBucket: at most burst + limit·Δ/w in every interval of length Δ that
// begins and ends with an admission, both included.
func boundBucket(as []Admission, w Tick, limit, burst uint64) error {
	for i, first := range as {
		var sum uint64
		for _, last := range as[i:] {
			sum += last.Cost
			if sum <= burst {
				continue
			}
			hi, lo := bits.Mul64(sum-burst, uint64(w))
			mostHi, mostLo := bits.Mul64(limit, uint64(last.At-first.At))
			if hi > mostHi || hi == mostHi && lo > mostLo {
				q, _ := bits.Div64(mostHi, mostLo, uint64(w))
				return excess(sum, burst+q, first.At, last.At+1)
			}
		}
	}
	return nil
}

func excess(sum, most uint64, from, until Tick) error {
	return fmt.Errorf("admitted %d units from %v to before %v (%v), at most %d are promised",
		sum, from.Time().Format(timeLayout), until.Time().Format(timeLayout), (until - from).Duration(), most)
}

const timeLayout = "2006-01-02T15:04:05.000000"
