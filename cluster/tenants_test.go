package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// TestTenantsShareNoCounter: in memory, with three nodes that are asked in turn and with
// Redis, the counters of tenants are apart, whoever of them checks, peeks, resets or asks why.
func TestTenantsShareNoCounter(t *testing.T) {
	const text = `version: 1
rules:
  - {name: three, key: [path, user], limits: [{limit: 3, window: 1d, algorithm: fixed_window, align: first_hit}]}
`
	for mode, nodes := range seedModes(text) {
		t.Run(mode, func(t *testing.T) {
			w := &seedWorld{at: new(seedClock)}
			w.at.set(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
			w.nodes = nodes(t, w.at)
			of := func(tenant, user string) weir.Request {
				return weir.Request{Path: "/pay", User: user, Tenant: tenant}
			}
			// The last two have the same letters as one another.
			all := []weir.Request{of("", "bc"), of("shop", "bc"), of("bank", "bc"), of("a", "bc"), of("ab", "c")}
			for i := range 15 {
				r := all[i%len(all)]
				if d := check(t, w.node(), r); !d.Allowed || d.Limit(0).Remaining != uint64(2-i/len(all)) {
					t.Fatalf("check %d of %q: allowed %v, %d remain", i/len(all), r.Tenant, d.Allowed, d.Limit(0).Remaining)
				}
			}
			if n, err := w.node().Reset(t.Context(), of("bank", "bc")); n != 1 || err != nil {
				t.Errorf("a reset by one tenant: %d counters, %v", n, err)
			}
			for _, r := range all {
				d, err := w.node().Peek(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed != (r.Tenant == "bank") {
					t.Errorf("%q after the reset by the bank: allowed %v", r.Tenant, d.Allowed)
				}
			}
			e, err := w.node().Explain(t.Context(), of("shop", "bc"))
			if err != nil || len(e.Limits) != 1 || !strings.HasPrefix(e.Limits[0].Key, "shop") {
				t.Errorf("an explanation: %+v, %v", e, err)
			}
			if e, err := w.node().Explain(t.Context(), of("other", "bc")); err != nil || e.Limits[0].Known {
				t.Errorf("of a tenant without counters: %+v, %v", e, err)
			}
		})
	}
}
