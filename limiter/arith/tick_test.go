package arith_test

import (
	"testing"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

// An instant that was not given is none, whatever the given ones are.
func TestInstant(t *testing.T) {
	clock := func() Tick { return 7 }
	if i := (Instant{}); i.Given() || i.Or(clock) != 7 {
		t.Errorf("none: %+v", i)
	}
	for _, at := range []Tick{-1, 0, 5} {
		if i := At(at); !i.Given() || i.Or(clock) != max(0, at) {
			t.Errorf("at %d: %+v", at, i)
		}
	}
}
