package arith

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// rate is a limit in the units of the arithmetic. Its methods are what differs from one algorithm to the next.
type rate limiter.Compiled

func of(l *limiter.Limit) *rate { return (*rate)(&l.C) }

// quo returns hi:lo/d, for hi < d.
func quo(hi, lo, d uint64) uint64 { q, _ := bits.Div64(hi, lo, d); return q }
