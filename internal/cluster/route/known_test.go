package route

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// What a settlement says of itself and of its keys reaches the other member. Of several owners the keys add up.
func TestSettlementsAcrossTheWire(t *testing.T) {
	if h := holdOut(1, &arith.Idempotency{Life: time.Minute}, limiter.Amend{Lent: true}, nil); !h.Lent {
		t.Errorf("%+v", h)
	}
	reply := AmendedOut(1, &Outcome{Amended: &limiter.Amended{State: limiter.AmendCharged, Known: 2}})
	a := amendedIn(&reply)
	if a.Known != 2 || together(a, a, false).Known != 4 {
		t.Errorf("%+v", a)
	}
}
