package replica

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A partition recalls a bounded number of leases at a time. One that was given back, or is over, leaves room for
// another.
func TestRecalledLeasesAreForgotten(t *testing.T) {
	o := &Ownership{}
	at := &Step{Now: 1e9}
	lasts := 300 * limiter.Millisecond
	for id := range uint64(maxRecalled) {
		if !o.Waits.Recall(at, id+1, lasts) {
			t.Fatalf("lease %d is not recalled", id)
		}
	}
	if o.Waits.Recall(at, maxRecalled+1, lasts) || o.Waits.MayRecall(at, maxRecalled+1) || o.Waits.Recall(at, 7, lasts) {
		t.Error("more are recalled, or one twice")
	}
	if !o.Waits.MayRecall(at, 7) {
		t.Error("one that was recalled is not waited for")
	}
	GivenBack(at, o, &arith.Key{}, 7)
	if !o.Waits.Recall(at, maxRecalled+1, lasts) || o.Waits.MayRecall(at, maxRecalled+2) {
		t.Error("one was given back: that leaves room for one")
	}
	at.Now += RecallFor
	if o.Waits.MayRecall(at, 8) || o.Waits.MayRecall(at, maxRecalled+2) {
		t.Error("nobody waits for a silent holder twice")
	}
	at.Now += lasts - RecallFor
	if !o.Waits.Recall(at, maxRecalled+2, lasts) || len(o.Waits.recalled) != 1 {
		t.Errorf("all others are over, and %d are known", len(o.Waits.recalled))
	}
}
