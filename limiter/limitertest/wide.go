package limitertest

import "math/bits"

// wide is a 128-bit integer. The oracle's fractions are wide numerators over a
// denominator that is fixed for each model, so nothing is ever rounded. math/big would
// do, but is too slow for fuzzing.
type wide struct {
	hi int64
	lo uint64
}

func wideOf(n int64) wide { return wide{n >> 63, uint64(n)} }

// product returns a·b; both must not be negative.
func product(a, b int64) wide { return wideOf(a).times(b) }

// times returns w·b; both must not be negative. A product that does not fit is an error
// in the model, whose numbers are all bounded.
func (w wide) times(b int64) wide {
	over, hi := bits.Mul64(uint64(w.hi), uint64(b))
	carry, lo := bits.Mul64(w.lo, uint64(b))
	hi, more := bits.Add64(hi, carry, 0)
	if w.hi < 0 || b < 0 || over != 0 || more != 0 || int64(hi) < 0 {
		panic("limitertest: a product of the oracle does not fit in 128 bits")
	}
	return wide{int64(hi), lo}
}

func (w wide) plus(x wide) wide {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	return wide{w.hi + x.hi + int64(carry), lo}
}

func (w wide) minus(x wide) wide {
	lo, borrow := bits.Sub64(w.lo, x.lo, 0)
	return wide{w.hi - x.hi - int64(borrow), lo}
}

// over returns w/d rounded down, and the remainder; w >= 0, d > 0.
func (w wide) over(d int64) (wide, int64) {
	hi, rest := bits.Div64(0, uint64(w.hi), uint64(d))
	lo, rest := bits.Div64(rest, w.lo, uint64(d))
	return wide{int64(hi), lo}, int64(rest)
}

func (w wide) less(x wide) bool { return w.hi < x.hi || w.hi == x.hi && w.lo < x.lo }

func (w wide) atMost(x wide) bool { return !x.less(w) }

func smaller(a, b wide) wide {
	if b.less(a) {
		return b
	}
	return a
}

func larger(a, b wide) wide {
	if a.less(b) {
		return b
	}
	return a
}
