package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// What clients borrow is counted apart from what they check, and a peek borrows nothing.
func TestALeaseIsNoCheck(t *testing.T) {
	checks, lent, denied := 0, 0, 0
	n, err := weir.Open(context.Background(), weir.Config{
		Rules: []byte(`rules: [{name: r, key: [rule], leases: auto, limits: [80/day]}]`),
		Observer: &limiter.Observer{
			Checked: func(n int, _ string, _ limiter.Source, _, _ bool) { checks += n },
			Lent: func(rule string, no bool) {
				if lent++; no {
					denied++
				}
				if rule != "r" {
					t.Errorf("a lease of rule %q", rule)
				}
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, id := range []string{"1", "2"} {
		r := limiter.Request{ID: id, Hold: 300 * time.Millisecond, Lent: true, Cost: limiter.Units(20)}
		if d, err := n.Check(t.Context(), r); err != nil || d.Allowed != (i == 0) {
			t.Fatal(d, err)
		}
		if _, err := n.Peek(t.Context(), r); !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), "a peek") {
			t.Error(err)
		}
	}
	if checks != 0 || lent != 2 || denied != 1 {
		t.Errorf("%d checks, %d leases, of which %d are denied", checks, lent, denied)
	}
}
