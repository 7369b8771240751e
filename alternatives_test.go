package weir_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/weirtest"
)

const alternatives = `
version: 1
quotas:
  - {name: own, key: [user], limits: [{name: units, limit: 2, window: 1m, algorithm: fixed_window}]}
  - {name: pool, key: [rule], limits: [{name: units, limit: 2, window: 1h, algorithm: fixed_window}]}
rules:
  - {name: any, match: {path: ^/any}, quotas: [{any: [own, pool]}]}
  - {name: pool_only, quotas: [pool]}
`

// A check that several quotas are tried for is one check to the observer, and one decision of a batch, in its order. A
// receipt takes back what the alternative was charged that admitted, though both have limits of one name and cost.
func TestFirstQuotaThatAdmits(t *testing.T) {
	var allowed, denied int
	n := weirtest.Open(t, weir.Config{Rules: []byte(alternatives), Observer: &weir.Observer{
		Checked: func(n int, _ string, _ limiter.Source, ok, _ bool) {
			if ok {
				allowed += n
			} else {
				denied += n
			}
		}}})
	any, pool := weir.Request{Path: "/any", User: "ada"}, weir.Request{Path: "/pool"}
	ds, err := n.CheckBatch(t.Context(), []weir.Request{any, any, any, pool, any, pool})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, true, true, false, false} {
		if ds[i].Allowed != want {
			t.Errorf("request %d: allowed %v", i, ds[i].Allowed)
		}
	}
	if ds[2].Limit(0).Rule.Name != "pool" || ds[4].RetryAfter > time.Minute || ds[5].RetryAfter <= time.Minute {
		t.Errorf("charged %s, then waits of %v and %v", ds[2].Limit(0).Rule.Name, ds[4].RetryAfter, ds[5].RetryAfter)
	}
	if allowed != 4 || denied != 2 {
		t.Errorf("%d allowed and %d denied were observed", allowed, denied)
	}
	remain := func(own, common uint64) {
		t.Helper()
		d, err := n.Peek(t.Context(), weir.Request{Path: "/any", User: "ada"})
		p, perr := n.Peek(t.Context(), pool)
		if err != nil || perr != nil || p.Limit(0).Remaining != common ||
			(own > 0) != (d.Limit(0).Rule.Name == "own" && d.Limit(0).Remaining > 0) {
			t.Errorf("%v, %v: %d of the pool are left, and %d of %s", err, perr, p.Limit(0).Remaining, d.Limit(0).Remaining,
				d.Limit(0).Rule.Name)
		}
	}
	remain(0, 0)
	if err := n.Refund(t.Context(), any, n.SealReceipt(&any, &ds[2])); err != nil {
		t.Fatal(err)
	}
	remain(0, 1)
	if err := n.Refund(t.Context(), any, ds[0].Receipt); err != nil {
		t.Fatal(err)
	}
	remain(1, 1)
	if err := n.Refund(t.Context(), any, limiter.Credit()); err == nil {
		t.Error("a credit was taken, for whichever alternative")
	}
	if e, err := n.Explain(t.Context(), any); err != nil || !e.Decision.Allowed || e.Limits[0].Name == "" {
		t.Errorf("%+v, %v", e, err)
	}
	if got, err := n.Reset(t.Context(), any); got != 2 || err != nil {
		t.Errorf("%d counters were reset: %v", got, err)
	}
}
