package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A tenant that floods a list with keys leaves others their places in it.
func TestNoTenantPushesOthersOutOfLists(t *testing.T) {
	l := limit(t, limiter.Spec{Limit: 1, Window: 1e9})
	for _, limit := range []*limiter.Limit{nil, l} {
		var top topKeys
		seen := func(tenant string, n int) {
			h := hash(uint64(n)).OfTenant(tenant)
			lo := h.Lo
			if limit != nil {
				lo ^= arith.NameID(limit)
			}
			if top.add(h.Hi, lo, limit, 1) {
				top.setName(h.Hi, h.Lo, fmt.Appendf(nil, "%s:%d", tenant, n))
			}
		}
		for i := range 10_000 {
			seen("flood", i%1000)
			switch {
			case i%100 == 0:
				seen("shop", 1+i/100%3)
			case i%1000 == 1:
				seen("bank", 1)
			}
		}
		counts := map[string]TopKey{}
		for _, k := range top.list(nil, 0, nil) {
			counts[k.Name] = k
		}
		for name, want := range map[string]uint64{"shop:1": 34, "shop:2": 33, "shop:3": 33, "bank:1": 10} {
			if limit != nil {
				name += ":" + limit.Name()
			}
			if k, ok := counts[name]; !ok || k.Count < want || k.Count-k.Error > want {
				t.Errorf("%s was seen %d times, and is listed with %+v (%v) in %v", name, want, k, ok, counts)
			}
		}
	}
}

// Whatever tenants ask for, a listed count is too high by at most its error.
func TestListedCountsOfTenants(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var top topKeys
		tenants, keys := 1+rng.IntN(14), 1+rng.IntN(20)
		type key struct{ tenant, n int }
		seen := map[[2]uint64]uint64{}
		for range 2000 {
			k := key{rng.IntN(1 + rng.IntN(tenants)), rng.IntN(1 + rng.IntN(keys))}
			h := hash(uint64(k.n)).OfTenant(fmt.Sprint(k.tenant))
			top.add(h.Hi, h.Lo, nil, 1)
			seen[[2]uint64{h.Hi, h.Lo}]++
			for i := range top.hi {
				e := [2]uint64{top.hi[i], top.rest[i].lo}
				if n := seen[e]; top.count[i] > 0 && (top.count[i] < n || top.count[i]-top.rest[i].err > n) {
					t.Fatalf("seed %d: a key was seen %d times, and is listed with %d, too high by at most %d", seed, n, top.count[i],
						top.rest[i].err)
				}
			}
		}
	}
}
