package arith

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// The counts of 2,049 full sub-windows of a wide limit are more than 64 bits have: their sum stays
// above the limit.
func TestSumsOfSubWindowsDoNotOverflow(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: limiter.MaxUnits, Window: time.Hour,
		SubWindows: limiter.MaxSubWindows})
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, (*ring)(of(l)).words())
	for i := 1; i <= 2049; i++ {
		(*ring)(of(l)).setCount(words, i, limiter.MaxUnits)
	}
	if s := (Counts{A: limiter.MaxUnits + 1}); !(*ring)(of(l)).agrees(&s, words) {
		t.Errorf("the sum is %d", (*ring)(of(l)).sum(words))
	}
}
