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

// TestUncountLeavesOtherDenials: a denial that leads on to another rule is in no list, so nothing is taken out for it.
func TestUncountLeavesOtherDenials(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 1, Window: 3600e9})}}
	table, now := New(Config{MaxKeys: 10}), limiter.Tick(1e15)
	for i, want := range []uint64{0, 1, 1, 1} { // denials in the list, after an Uncount from the third check on
		c, d := charge(1, arith.Key{Hash: hash(1), Rule: rule}), limiter.Decision{}
		if i == 2 {
			c.Key(0).Rule = rule.Onward()
		}
		if err := table.Decide(now, c, &d); err != nil || d.Allowed != (i == 0) {
			t.Fatal(err, d)
		}
		if i >= 2 {
			table.Uncount(c, &d)
		}
		n := uint64(0)
		if of := table.parts[PartitionOf(c.Key(0))].denied; of != nil {
			for _, count := range of.count {
				n += count
			}
		}
		if n != want {
			t.Errorf("%d denials are listed after check %d, want %d", n, i, want)
		}
	}
}

// TestPeeksAreNotRefused: only checks are among the refused, not who looks what a check would get. An owner of one of
// several keys looks before it decides, and would count each denial twice.
func TestPeeksAreNotRefused(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 1, Window: 3600e9})}}
	for _, found := range []bool{true, false} {
		table, now := New(Config{MaxKeys: 10}), limiter.Tick(1e15)
		c, d := charge(2, arith.Key{Hash: hash(1), Rule: rule}), limiter.Decision{}
		if found {
			c.Key(0).Cost = 1
			if err := table.Decide(now, c, &d); err != nil || !d.Allowed {
				t.Fatal(err, d)
			}
		}
		for i, peek := range []bool{true, false, true, true} {
			c.Peek = peek
			if err := table.Decide(now, c, &d); err != nil || d.Allowed {
				t.Fatal(err, d)
			}
			if i == 2 {
				table.Uncount(c, &d)
			}
			n := uint64(0)
			if of := table.parts[PartitionOf(c.Key(0))].denied; of != nil {
				n = of.count[0]
			}
			if want := uint64(min(i, 1)); n != want {
				t.Errorf("counter found: %v: %d denials are listed after step %d, want %d", found, n, i, want)
			}
		}
	}
}
