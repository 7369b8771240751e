package weir_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// An explanation has the wait of a peek, also of a bucket that was charged under the number of another plan, and of
// which a part is reserved.
func TestAnExplanationKnowsWhatIsReservedUnderAnotherPlan(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	n := open(t, weir.Config{Now: func() time.Time { return now }, Rules: []byte(`version: 1
rules:
  - name: r
    key: [user]
    limits: [{limit: {by: "attr:plan", of: {free: 5, pro: 13}, else: 3}, window: 1h, algorithm: gcra, burst: 1}]
`)})
	r := weir.Request{User: "ada", ID: "x", Hold: 2 * time.Second, Attributes: map[string]string{"plan": "pro"}}
	if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, plan := range []string{"pro", "free", "none"} {
		asked := weir.Request{User: "ada", Attributes: map[string]string{"plan": plan}}
		d, err := n.Peek(t.Context(), asked)
		if err != nil || d.Allowed || d.RetryAfter != 2*time.Second {
			t.Errorf("%s: a peek has to wait for %v, %v; want 2s", plan, d.RetryAfter, err)
		}
		if e, err := n.Explain(t.Context(), asked); err != nil || e.Decision.RetryAfter != d.RetryAfter {
			t.Errorf("%s: %v is explained, %v is told; %v", plan, e.Decision.RetryAfter, d.RetryAfter, err)
		}
	}
}
