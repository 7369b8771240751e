package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// checkTenants verifies that what is counted for tenants is what the table has of them.
func (t *Table) checkTenants(tb testing.TB) {
	tb.Helper()
	want := New(Config{Order: rand.NewPCG(1, 1)})
	for i := range t.parts {
		p := &t.parts[i]
		if t.copies[i].on {
			continue
		}
		for j := range p.slots.size {
			if s := p.slots.at(j); s.limit != 0 {
				l := t.registry.limit(s.limit)
				want.parts[i].belongs(keyLo(s.lo, l), 1, l)
				want.parts[i].belongsBytes(keyLo(s.lo, l), int64(len(t.words(s)))*wordBytes)
			}
		}
		for _, pos := range t.ring(p).byPlace() {
			want.parts[i].belongsID(t.ring(p).ring[pos].lo, 1)
		}
	}
	has := func(u *usage) [3]int64 { return [3]int64{u.keys.Load(), u.ids.Load(), u.bytes.Load()} }
	for label := range 1 << 16 {
		if t.room.usages.pages[label>>8].Load() == nil && want.room.usages.pages[label>>8].Load() == nil {
			continue
		}
		if have, is := has(t.room.usages.of(uint16(label))), has(want.room.usages.of(uint16(label))); have != is {
			tb.Fatalf("tenant %d has %v counters, ids and bytes, and %v are counted", label, is, have)
		}
	}
	if have, is := has(&t.room.usages.total), has(&want.room.usages.total); have != is {
		tb.Fatalf("tenants have %v counters, ids and bytes, and %v are counted", is, have)
	}
}

// ofTenant returns a key of a tenant.
func ofTenant(tenant string, n int, r *limiter.Rule) arith.Key {
	h := hash(uint64(n))
	if tenant != "" {
		h = h.OfTenant(tenant)
	}
	return arith.Key{Hash: h, Rule: r}
}

// fill asks for new keys of a tenant until one is denied, and returns how many were not.
func fill(t *testing.T, table *Table, now limiter.Tick, tenant string, from int, r *limiter.Rule) int {
	t.Helper()
	for n := range 1 << 20 {
		if d := decide(t, table, now, charge(1, ofTenant(tenant, from+n, r))); !d.Allowed {
			if !d.Limit(0).Overflow {
				t.Fatalf("key %d of %q: %+v", n, tenant, d.Limit(0))
			}
			return n
		}
	}
	return -1
}

// One tenant that fills a table leaves a quarter of it; what fills that leaves a quarter of the rest of what
// others may have, and so on. All of it comes back with time.
func TestNoTenantFillsTheTable(t *testing.T) {
	table, rule := New(Config{MaxKeys: 20_000}), window(t, 5, 24*time.Hour)
	if n := fill(t, table, hourStart, "flood", 0, rule); n != 15_000 {
		t.Errorf("one tenant has %d keys of 20,000, want three quarters", n)
	}
	if full := table.Full(BoundTenant); full == nil || !full.Denied || full.Rule != "r" || table.Full(BoundTable) != nil {
		t.Errorf("the bound that it met: %+v, of the table %+v", full, table.Full(BoundTable))
	}
	if n := fill(t, table, hourStart, "victim", 100_000, rule); n != 3_750 {
		t.Errorf("another one has %d keys, want three quarters of the 5,000 that are left", n)
	}
	// The flood gets nothing more, whoever else comes, until its own is over.
	if n := fill(t, table, hourStart, "flood", 50_000, rule); n != 0 {
		t.Errorf("the flood has %d more", n)
	}
	for i := range 100 { // who comes late finds room, too
		if n := fill(t, table, hourStart, "late"+strconv.Itoa(i), 200_000+i*1000, rule); n < 1 && i < 5 {
			t.Errorf("tenant %d that comes late has %d keys", i, n)
		}
	}
	table.checkAll(t)
	if n := fill(t, table, hourStart+72*limiter.Hour, "flood", 300_000, rule); n != 15_000 {
		t.Errorf("after the window one tenant has %d keys", n)
	}
	table.checkAll(t)
}

// However many tenants fill a table together, each has its part of it, and one more finds room.
func TestManyTenantsFillTheTable(t *testing.T) {
	for _, many := range []int{2, 9, 99} {
		table, rule := New(Config{MaxKeys: 30_000}), window(t, 5, 24*time.Hour)
		have := make([]int, many)
		for round, denied := 0, 0; denied < many; round++ {
			denied = 0
			for i := range many {
				if d := decide(t, table, hourStart, charge(1, ofTenant("t"+strconv.Itoa(i), round*many+i, rule))); d.Allowed {
					have[i]++
				} else {
					denied++
				}
			}
		}
		want := 30_000 * tenantTimes / (1 + tenantTimes*many)
		for i, n := range have {
			if n < want-2 || n > want+2 {
				t.Errorf("tenant %d of %d has %d keys, want %d", i, many, n, want)
			}
		}
		if n := fill(t, table, hourStart, "another", 1<<22, rule); n < 30_000/(1+tenantTimes*many)/2 {
			t.Errorf("one more beside %d has %d keys", many, n)
		}
		table.checkAll(t)
	}
}

// Shares of tenants can be set, and with them what has no tenant is one, too. Without, it has no bound.
func TestSharesOfTenants(t *testing.T) {
	tenants := new(Tenants)
	table, rule := New(Config{MaxKeys: 10_000, Tenants: tenants}), window(t, 5, 24*time.Hour)
	if n := fill(t, table, hourStart, "", 0, rule); n != 10_000 {
		t.Errorf("without tenants %d keys fit", n)
	}
	now := hourStart + 72*limiter.Hour
	tenants.Set(map[string]int{"big": 900, "small": 10, "other": 0})
	for _, c := range []struct {
		tenant string
		want   int
	}{{"small", 100}, {"", 7_425}, {"other", 1_856}, {"big", 619}} {
		if n := fill(t, table, now, c.tenant, 20_000, rule); n != c.want {
			t.Errorf("tenant %q has %d keys, want %d", c.tenant, n, c.want)
		}
	}
	now += 72 * limiter.Hour
	if n := fill(t, table, now, "big", 40_000, rule); n != 9_000 || table.Full(BoundTenant).Tenant != "big" {
		t.Errorf("a tenant with a share of 90%% has %d keys; the last one that met its share: %+v", n,
			table.Full(BoundTenant))
	}
	tenants.Set(nil)
	if n := fill(t, table, now, "", 60_000, rule); n != 1_000 {
		t.Errorf("without tenants %d more keys fit", n)
	}
	table.checkAll(t)
}

// A tenant's logs do not take the memory of all, and neither do its ids and reservations.
func TestTenantsShareMemoryAndIDs(t *testing.T) {
	log := &limiter.Rule{Name: "log", Limits: []*limiter.Limit{limit(t,
		limiter.Spec{Name: "l", Algorithm: limiter.SlidingLog, Limit: 10_000, Window: 24 * time.Hour})}}
	table := New(Config{MaxKeys: 1000, MaxBytes: 8 << 20})
	now, denied := hourStart, false
	for n := 0; !denied; n++ {
		now += limiter.Millisecond
		k := ofTenant("flood", n/9000, log)
		denied = !decide(t, table, now, charge(1, k)).Allowed
	}
	if table.Full(BoundTenant) == nil || table.room.left() < 1<<20 {
		t.Errorf("logs of one tenant leave %d bytes; the bound that it met: %+v", table.room.left(), table.Full(BoundTenant))
	}
	for n := range 1000 {
		if d := decide(t, table, now+limiter.Tick(n), charge(1, ofTenant("victim", 0, log))); !d.Allowed {
			t.Fatalf("charge %d of another tenant's log: %+v", n, d.Limit(0))
		}
	}
	table.checkAll(t)

	const most = 3_000 // three quarters of half a table
	table = New(Config{MaxKeys: 8_000})
	few := window(t, 1<<30, time.Hour)
	ask := func(tenant string, n int, hold time.Duration) (*limiter.Decision, bool) {
		c := charge(1, ofTenant(tenant, n%400, few))
		c.ID = &arith.Idempotency{ID: uint64(n) + 1, Life: time.Hour, Hold: hold}
		d := decide(t, table, hourStart, c)
		return d, table.Remembers(hourStart, c)
	}
	for n := range 2 * most {
		if _, known := ask("flood", n, 0); known != (n < most) {
			t.Fatalf("id %d of one tenant is remembered: %v", n, known)
		}
	}
	if _, known := ask("victim", 1<<20, 0); !known {
		t.Error("another tenant's id is not remembered")
	}
	if d, _ := ask("flood", 1<<21, time.Hour); d.Allowed || table.Full(BoundTenant) == nil {
		t.Errorf("a reservation of the one with too many ids: %+v, %+v", d, table.Full(BoundTenant))
	}
	if d, known := ask("victim", 1<<21, time.Hour); !d.Allowed || !known {
		t.Errorf("another tenant's reservation: %+v", d)
	}
	table.checkAll(t)
}

// Limits that come with requests have shares of their own, by tenant, or by identity.
func TestTenantsShareRequestLimits(t *testing.T) {
	table := New(Config{})
	key := 0
	ask := func(tenant string, by uint16, w time.Duration) error {
		key++
		k := ofTenant(tenant, key, request(t, int64(key), w))
		k.By = by
		return table.Decide(hourStart, charge(1, k), new(limiter.Decision))
	}
	for _, long := range []bool{true, false} {
		w, most := time.Minute, maxRequestLimits
		if long {
			w, most = 24*time.Hour, maxLongLimits
		}
		table = New(Config{})
		for n := range most {
			if err := ask("flood", 0, w); (err == nil) != (n < most/4*3) || err != nil && !errors.Is(err, ErrTooManyLimits) {
				t.Fatalf("limit %d of one tenant: %v", n, err)
			}
		}
		for n := range most / 8 {
			if err := errors.Join(ask("victim", 0, w)); err != nil {
				t.Fatalf("limit %d of another: %v", n, err)
			}
		}
		if err := ask("", 7, w); err != nil {
			t.Errorf("an identity without a tenant: %v", err)
		}
		for ask("", 7, w) == nil {
			continue
		}
		if err := ask("", 8, w); err != nil {
			t.Errorf("another one: %v", err)
		}
		// A limit that changes is a new one, of whom it was.
		k := ofTenant("flood", 1, nil)
		k.Rule = request(t, 1<<40, w)
		if err := table.Decide(hourStart, charge(1, k), new(limiter.Decision)); !errors.Is(err, ErrTooManyLimits) {
			t.Errorf("a limit that changes: %v", err)
		}
		table.checkAll(t)
	}
}

// Limits of rules in time zones that requests name have shares, too, and leave numbers for rules. Beyond them the
// default zone counts, so that no request stays undecided by what it names.
func TestTenantsShareZones(t *testing.T) {
	var zones []string
	for n := range 14 {
		zones = append(zones, fmt.Sprintf("Etc/GMT-%d", 1+n))
	}
	var rules []*limiter.Rule
	for n := range maxZoneLimits/len(zones) + 2 {
		l, err := limiter.NewLimit(limiter.Spec{Limit: int64(1 + n), Calendar: limiter.CalendarDay})
		if err != nil {
			t.Fatal(err)
		}
		r := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
		if n%5 == 0 {
			r.Name, r.MaxShare = fmt.Sprint("r", n), 900
		}
		rules = append(rules, r.Zoned([]int{0}))
	}
	table, key, next := New(Config{}), 0, 0
	ask := func(tenant string, by uint16) (chosen bool) {
		t.Helper()
		key++
		for {
			next++
			r, ok := rules[next/len(zones)%len(rules)].In(zones[next%len(zones)])
			if !ok || r.Zone() == "" {
				continue
			}
			k := ofTenant(tenant, key, r)
			k.By = by
			c := charge(1, k)
			decide(t, table, hourStart, c)
			return c.Key(0).Rule == r
		}
	}
	for n := range maxZoneLimits * 7 / 8 {
		if chosen := ask("flood", 0); chosen != (n < maxZoneLimits/4*3) {
			t.Fatalf("zone %d of one tenant counts: %v", n, chosen)
		}
	}
	for n := range maxZoneLimits / 10 {
		if !ask("victim", 0) {
			t.Fatalf("zone %d of another does not count", n)
		}
	}
	for ask("", 7) {
		continue
	}
	if !ask("", 8) {
		t.Error("no zone of an identity without a tenant counts")
	}
	table.checkAll(t)
	for i := range table.parts {
		table.Drop(i)
	}
	table.checkAll(t)
	if table.registry.zoned != 0 {
		t.Errorf("%d zones are left of none", table.registry.zoned)
	}
}

// Numbers that requests state share those bounds. Beyond them the number of "else" counts, with the part of a draw.
func TestStatedNumbersBeyondTheBound(t *testing.T) {
	spec := limiter.Spec{Name: "n", Limit: 10, Window: time.Hour}
	base := (&limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, spec)}}).Varied(limiter.ChosenByNumber,
		func(base *limiter.Rule, text string) *limiter.Rule {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil
			}
			stated := spec
			stated.Limit = int64(n)
			return base.Variant(text, []*limiter.Limit{limit(t, stated)})
		})
	table := New(Config{})
	ask := func(key, n int, part uint8) (*limiter.Rule, limiter.LimitDecision) {
		t.Helper()
		r, _ := base.In(strconv.Itoa(n))
		if part > 0 {
			r = r.UpTo(part)
		}
		c := charge(1, ofTenant("", key, r))
		c.Key(0).By = 1
		d := decide(t, table, hourStart, c)
		return c.Key(0).Rule, *d.Limit(0)
	}
	n := 1000
	for ; ; n++ {
		if r, d := ask(n, n, 0); r.Choice() == "" {
			if d.Remaining != 9 || d.Limit.Limit() != 10 {
				t.Errorf("beyond the bound it is %+v", d)
			}
			break
		}
	}
	if n != 1000+maxZoneLimits/4*3 {
		t.Errorf("%d numbers of one who asks count", n-1000)
	}
	if _, d := ask(n+1, n, 50); d.Remaining != 4 {
		t.Errorf("a part of it is %+v", d)
	}
	if r, d := ask(1000, 1000, 0); r.Choice() != "1000" || d.Remaining != 998 {
		t.Errorf("one that is there is %+v", d)
	}
	if r, d := ask(1000, n, 0); r.Choice() != "" || d.Remaining != 7 {
		t.Errorf("one that changes to another is %+v", d)
	}
	table.checkAll(t)
}

// What tenants have is known through all that happens to counters: copies that become a node's own,
// handoffs, merges, resets and panics.
func TestTenantsAreCounted(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	a, b := New(Config{Order: rand.NewPCG(1, 2)}), New(Config{Order: rand.NewPCG(3, 4)})
	limits := []*limiter.Limit{
		limit(t, limiter.Spec{Name: "a", Algorithm: limiter.SlidingLog, Limit: 100, Window: time.Minute}),
		limit(t, limiter.Spec{Name: "b", Algorithm: limiter.SlidingWindow, Limit: 100, Window: time.Second}),
		limit(t, limiter.Spec{Name: "c", Limit: 100, Window: time.Hour}),
	}
	rules := []*limiter.Rule{{Name: "x", Limits: limits}, {Name: "y", Limits: limits[:1]},
		{Name: limiter.RequestRule, Limits: limits[1:]}}
	now := hourStart
	for step := range 30_000 {
		now += limiter.Tick(rng.IntN(3)) * limiter.Millisecond
		k := ofTenant([]string{"", "s", "t"}[rng.IntN(3)], rng.IntN(60), rules[rng.IntN(3)])
		table, other := a, b
		if rng.IntN(4) == 0 {
			table, other = b, a
		}
		part := PartitionOf(&k)
		c := charge(1, k)
		if rng.IntN(2) == 0 {
			c.ID = &arith.Idempotency{ID: uint64(rng.IntN(30) + 1), Life: time.Duration(1+rng.IntN(2000)) * time.Millisecond}
			if rng.IntN(2) == 0 {
				c.ID.Hold = c.ID.Life
			}
		}
		switch rng.IntN(20) {
		case 0:
			table.Reset(now, c)
		case 1:
			if c.ID != nil {
				c.Key(0).Cost = uint64(rng.IntN(3))
				table.Amend(now, c, limiter.Amend{Extend: rng.IntN(2) == 0})
			}
		case 2:
			if err := other.Import(part, now, exported(table, part, now), ImportMode(rng.IntN(2))); err != nil {
				t.Fatal(err)
			}
		case 3:
			other.SetCopy(part, rng.IntN(2) == 0)
		case 4:
			table.Drop(part)
		case 5:
			p := &table.parts[part]
			p.mu.Lock()
			p.sweep(now)
			p.mu.Unlock()
		case 6:
			var of []Entry
			table.ExportKey(part, k.Hash.Hi, now, func(e Entry) {
				e.Words = append([]uint64(nil), e.Words...)
				of = append(of, e)
			})
			if err := other.ReplaceKey(part, k.Hash.Hi, now, of); err != nil {
				t.Fatal(err)
			}
		default:
			var d limiter.Decision
			if err := table.Decide(now, c, &d); err != nil {
				t.Fatal(err)
			}
			if d.Allowed && rng.IntN(5) == 0 {
				table.Refund(now, c, d.Receipt)
			}
		}
		if step%1000 == 0 {
			a.checkAll(t)
			b.checkAll(t)
		}
	}
	for i := range a.parts {
		a.SetCopy(i, false)
		a.Drop(i)
	}
	a.checkAll(t)
	if u := &a.room.usages.total; u.keys.Load() != 0 || u.ids.Load() != 0 || u.bytes.Load() != 0 {
		t.Error(fmt.Sprint("an empty table has something of tenants: ", u.keys.Load(), u.ids.Load(), u.bytes.Load()))
	}
}
