package arith

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// A slice is a lease with a rate: its holder may use a burst at once, and the rate, in units a second. In any span of
// time it uses at most the burst and the rate times the span. A bucket is charged the rate as time passes, and the
// burst is lent, so what is left is a bucket of the other units. Of a window the burst and the rate times the window
// are lent: as much as the holder may use within one. A sliding_window counts up to a sub-window longer than its
// window, so it admits less than its limit of even traffic. Slices do not.

const (
	// MinSlice bounds how long a slice lasts, as MaxSlice does.
	MinSlice = limiter.Second
	// MaxSlice is a minute.
	MaxSlice = limiter.Minute
	// MaxRate bounds the rate of a slice, in units a second.
	MaxRate = 1<<29 - 1
	// MaxBurst bounds its burst, in units.
	MaxBurst = 1<<32 - 1
)

// Lends reports whether units of a rule's counters may be lent, or assigned as slices. A month is not divided into
// seconds: limits of calendar windows are not assigned.
func Lends(r *limiter.Rule, slices bool) bool {
	if !slices {
		return LeaseFor(r) > 0
	}
	for _, limit := range r.Limits {
		if l := of(limit); l.Cal != nil || l.Limit > MaxBurst {
			return false
		}
	}
	return lends(r)
}

// LongestLease bounds how long a lease with a rate may last; 0: it is no slice.
func LongestLease(rate uint64) limiter.Tick {
	if rate > 0 {
		return MaxSlice
	}
	return MaxLease
}

// Accrues reports whether the rate of a slice of a limit is charged as time passes. Of other limits it is lent.
func Accrues(l *limiter.Limit) bool { return of(l).leaks() }

// Accrued returns the units that a rate, in units a second, has up to an instant.
func Accrued(rate uint64, at limiter.Tick) uint64 {
	t := uint64(max(0, at))
	return t/uint64(limiter.Second)*rate + t%uint64(limiter.Second)*rate/uint64(limiter.Second)
}

// SliceUnits returns the units that a slice with a rate may use within a window of a limit; 0 for a bucket.
func SliceUnits(limit *limiter.Limit, rate uint64) uint64 {
	if Accrues(limit) {
		return 0
	}
	return quoUp(rate, uint64(of(limit).Window), uint64(limiter.Second))
}

// SliceRate returns the largest rate, up to [MaxRate], whose slices may use n units within a window of a limit.
func SliceRate(limit *limiter.Limit, n uint64) uint64 {
	hi, lo := bits.Mul64(n, uint64(limiter.Second))
	if hi >= uint64(of(limit).Window) {
		return MaxRate
	}
	return min(quo(hi, lo, uint64(of(limit).Window)), MaxRate)
}

// SlicesRate returns the rate of all slices of a limit together, if their holders may use so many units at once; 0 if
// the limit does not admit these.
func SlicesRate(limit *limiter.Limit, bursts uint64) uint64 {
	l := of(limit)
	switch {
	case bursts > l.Cap:
		return 0
	case l.leaks():
		return SliceRate(limit, l.Limit)
	default:
		return SliceRate(limit, l.Cap-bursts)
	}
}

// quoUp returns a*b/c, rounded up, for a quotient that fits.
func quoUp(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, c-1, 0)
	return quo(hi+carry, lo, c)
}

// Deny denies what a decision admits, for at least a time.
func Deny(d *limiter.Decision, wait limiter.Tick) {
	for i := range d.Len() {
		l := d.Limit(i)
		l.Allowed, l.RetryAfter = false, max(l.RetryAfter, wait.Duration())
	}
	Combine(d, true)
	Conclude(d)
}
