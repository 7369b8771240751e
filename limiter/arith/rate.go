package arith

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// rate is a limit in the units of the arithmetic. Its methods choose by its algorithm.
type rate limiter.Compiled

// Each algorithm has a type, with the arithmetic of its own states. A rate whose algorithm is another must not be
// converted to it.
type (
	bucket  limiter.Compiled // token_bucket, gcra and continuous leaky_bucket: a rate that is Shared
	drips   limiter.Compiled // leaky_bucket by interval
	window  limiter.Compiled // fixed_window; where windows begin and end, for counter too
	counter limiter.Compiled // sliding_counter
	ring    limiter.Compiled // sliding_window: its sub-windows
	log     limiter.Compiled // sliding_log
)

func of(l *limiter.Limit) *rate { return (*rate)(&l.C) }

// quo returns hi:lo/d, for hi < d.
func quo(hi, lo, d uint64) uint64 { q, _ := bits.Div64(hi, lo, d); return q }
