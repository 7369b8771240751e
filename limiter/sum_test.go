package limiter

import (
	"testing"
	"time"
)

// The counts of 2,049 full sub-windows of a wide limit are more than 64 bits have: their sum stays
// above the limit.
func TestSumsOfSubWindowsDoNotOverflow(t *testing.T) {
	l, err := NewLimit(Spec{Algorithm: SlidingWindow, Limit: MaxUnits, Window: time.Hour, SubWindows: MaxSubWindows})
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, l.subWords())
	for i := 1; i <= 2049; i++ {
		l.setSubCount(words, i, MaxUnits)
	}
	if s := (Counts{A: MaxUnits + 1}); !l.subsAgree(&s, words) {
		t.Errorf("the sum is %d", l.ringSum(words))
	}
}
