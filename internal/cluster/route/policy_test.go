package route

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// While the fallback table can take no further limits, local rules deny what has no
// counter there: a share that is not counted would have no bound. Open rules allow.
func TestAShareThatCannotBeCountedDenies(t *testing.T) {
	const most = 1<<16 - 1 // limits in a table
	fallback := table.New(table.Config{})
	for i := range most {
		l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: int64(i) + 1_000, Window: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var k limiter.Charge
		k.Add(limiter.Key{Hash: limiter.Hash{Hi: uint64(i) << 32, Lo: 1}, Rule: &limiter.Rule{Limits: []*limiter.Limit{l}}, Cost: 1})
		if err := fallback.Decide(1, &k, new(limiter.Decision)); err != nil {
			t.Fatal(i, err)
		}
	}
	r := New(Config{Fallback: fallback, View: func() *view.View { return &view.View{Known: 3, Recent: 3} }})
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 60, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[limiter.Unreachable]bool{limiter.UnreachableLocal: false, limiter.UnreachableOpen: true} {
		var k limiter.Charge
		k.Add(limiter.Key{Hash: limiter.Hash{Hi: 5, Lo: 5}, Rule: &limiter.Rule{Limits: []*limiter.Limit{l}, OnUnreachable: policy}, Cost: 1})
		turn, d := new(Turn), new(limiter.Decision)
		turn.At = 1
		r.byPolicy(turn, &k, d, nil)
		if d.Allowed != want || d.Source != limiter.SourceFallbackClosed {
			t.Errorf("%v: allowed %v by %v, want %v by fallback_closed", policy, d.Allowed, d.Source, want)
		}
	}
}
