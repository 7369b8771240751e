package denials

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// clock is a clock that a test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func at() *clock { return &clock{time.Date(2026, 3, 1, 10, 30, 0, 0, time.UTC)} }

// record returns a record whose counters are named by tenant and user.
func record(c Config, at *clock) *Record {
	c.Now = at.now
	c.KeyName = func(dst []byte, r *limiter.Request, _ *limiter.LimitDecision) []byte {
		return append(dst, r.Tenant+":"+r.User...)
	}
	return New(c)
}

// denial returns the decision of a rule that denies everything, or of a counter if rule has a limit.
func denial(rule string) *limiter.Decision {
	d := new(limiter.Decision)
	arith.DenyByRule(d, &limiter.Rule{Name: rule})
	return d
}

// counted returns a real denial by a counter of rule login.
func counted(t testing.TB) *limiter.Decision {
	t.Helper()
	l := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: time.Minute, Algorithm: limiter.FixedWindow})
	c := arith.NewCounter(l)
	d := new(limiter.Decision)
	for range 2 {
		c.Check(limiter.Minute, 1, d)
	}
	if d.Allowed {
		t.Fatal("it is allowed")
	}
	d.Rule = "login"
	return d
}

func TestWhatWasRefusedIsFound(t *testing.T) {
	at := at()
	r := record(Config{}, at)
	d := counted(t)
	r.Denied("http", &limiter.Request{User: "ada", IP: "192.0.2.1", Path: "/login", Method: "POST", Tenant: "bank"}, d)
	at.Time = at.Add(2 * time.Minute)
	for range 1000 {
		r.Denied("grpc", &limiter.Request{User: "ada", IP: "192.0.2.2", Path: "/login", Tenant: "bank"}, d)
	}
	r.Denied("grpc", &limiter.Request{User: "bob", Tenant: "shop"}, d)
	f := r.Find(Query{User: "ada"})
	if len(f.Keys) != 1 || f.Keys[0].Count != 1001 || len(f.Keys[0].Minutes) != 2 || f.Keys[0].Minutes[1].Count != 1000 {
		t.Fatalf("ada was refused: %+v", f.Keys)
	}
	k := f.Keys[0]
	if k.Tenant != "bank" || k.Rule != "login" || k.Key != "bank:ada" || k.LastMinute != 1000 || len(k.Samples) != 2 {
		t.Errorf("the key is %+v", k)
	}
	if s := k.Samples[0]; s.Over != "http" || s.IP != "192.0.2.1" || s.Cost != 1 || s.RetryAfterMs == 0 {
		t.Errorf("the first sample is %+v", s)
	}
	for name, q := range map[string]Query{
		"its rule": {Rule: "login"}, "its tenant": {Tenant: "bank"}, "its address": {User: "192.0.2.2"},
		"its key":  {Key: "bank:ada"},
		"its time": {Since: at.Add(-time.Minute), User: "ada"}, "until": {Until: at.Add(-time.Minute)},
	} {
		if f := r.Find(q); len(f.Keys) == 0 || f.Keys[0].Key != "bank:ada" {
			t.Errorf("by %s: %+v", name, f.Keys)
		}
	}
	if f := r.Find(Query{Until: at.Add(-time.Minute)}); f.Keys[0].Count != 1 {
		t.Errorf("before there were %d", f.Keys[0].Count)
	}
	for name, q := range map[string]Query{
		"another rule": {Rule: "x"}, "another tenant": {Tenant: "x"}, "another user": {User: "x"}, "another key": {Key: "x"},
		"an earlier time": {Until: at.Add(-time.Hour)}, "a later one": {Since: at.Add(time.Hour)},
	} {
		if f := r.Find(q); len(f.Keys) != 0 {
			t.Errorf("by %s: %+v", name, f.Keys)
		}
	}
	if f := r.Find(Query{Most: 1}); len(f.Keys) != 1 || f.Left != 1 || f.Keys[0].Key != "bank:ada" {
		t.Errorf("of two keys the first: %+v, %d left", f.Keys, f.Left)
	}
}

// TestFloodsHideNothing: an attacker makes keys, names and tenants without end, and what happened to others stays.
func TestFloodsHideNothing(t *testing.T) {
	at := at()
	r := record(Config{Bytes: MinBytes}, at)
	d := denial("login")
	for i := range 3 {
		r.Denied("http", &limiter.Request{User: fmt.Sprint("quiet-", i), Tenant: "bank"}, denial("export"))
		r.Denied("http", &limiter.Request{User: "twice", Tenant: "shop"}, d)
	}
	for i := range 50_000 {
		at.Time = at.Add(time.Millisecond)
		r.Denied("http", &limiter.Request{User: fmt.Sprint(i), Path: strings.Repeat("x", i%9000), Tenant: "shop"}, d)
		r.Denied("http", &limiter.Request{User: "hot", Tenant: "shop"}, d)
	}
	var sum int64
	for i := range r.shards {
		sum += r.shards[i].bytes
	}
	if sum > MinBytes {
		t.Errorf("the record takes %d bytes, more than %d", sum, MinBytes)
	}
	if f := r.Find(Query{Tenant: "bank"}); len(f.Keys) != 3 || f.Evicted == 0 {
		t.Errorf("the flood of one tenant has hidden denials of another: %d are left", len(f.Keys))
	}
	if f := r.Find(Query{User: "twice"}); len(f.Keys) != 1 || f.Keys[0].Count != 3 {
		t.Errorf("a flood of keys that are denied once has hidden one that was denied more often: %+v", f.Keys)
	}
	if f := r.Find(Query{User: "hot"}); len(f.Keys) != 1 || f.Keys[0].Count != 50_000 ||
		len(f.Keys[0].Samples) > maxSamples+2 {
		t.Errorf("a key that is denied all the time: %+v", f.Keys)
	}
}

// TestMemoryIsAsCounted: the bytes that the record counts are those that its parts take, also when keys have gone.
func TestMemoryIsAsCounted(t *testing.T) {
	at := at()
	r := record(Config{Bytes: MinBytes}, at)
	for i := range 20_000 {
		at.Time = at.Add(time.Second)
		r.Denied("http", &limiter.Request{User: fmt.Sprint(i % 3000), Tenant: fmt.Sprint(i % 7)}, denial(fmt.Sprint("r",
			i%5)))
	}
	for i := range r.shards {
		s := &r.shards[i]
		var keys, groups int64
		for _, e := range s.keys {
			n := entryBytes + room(e.rule, e.tenant, e.key, e.limit) +
				minuteBytes*int64(cap(e.minutes)) + sampleBytes*int64(cap(e.samples))
			for j := range e.minutes {
				n += e.minutes[j].first.bytes()
			}
			for j := range e.samples {
				n += e.samples[j].bytes()
			}
			if n != e.bytes {
				t.Fatalf("an entry takes %d bytes and counts %d", n, e.bytes)
			}
			keys += n
		}
		for _, x := range s.tenants {
			for _, g := range x.rules {
				groups += g.bytes
			}
		}
		if keys != s.bytes || groups != s.bytes {
			t.Errorf("shard %d has %d bytes in keys, %d in groups, and counts %d", i, keys, groups, s.bytes)
		}
	}
}

func TestNamesAreKeptAsConfigured(t *testing.T) {
	const name = "ada@example.com"
	ask := limiter.Request{User: name, IP: "192.0.2.1", Path: "/of/" + name, Method: "GET"}
	for mode, names := range map[string]Names{"hash": Hashed, "off": Off} {
		r := record(Config{Names: names, HashKey: []byte("k")}, at())
		r.Denied("http", &ask, counted(t))
		f := r.Find(Query{})
		b, err := json.Marshal(f)
		if err != nil || len(f.Keys) != 1 {
			t.Fatal(err, f)
		}
		for _, secret := range []string{"ada", "192.0", "/of/"} {
			if strings.Contains(string(b), secret) {
				t.Errorf("%s: %q is in %s", mode, secret, b)
			}
		}
		if found := len(r.Find(Query{User: name}).Keys) == 1; found != (names == Hashed) {
			t.Errorf("%s: it is found by the name: %v", mode, found)
		}
		if names == Hashed {
			if hash := f.Keys[0].Samples[0].User; len(r.Find(Query{User: hash}).Keys) != 1 {
				t.Errorf("it is not found by its hash %q", hash)
			} else { // a client that takes it for a name is another
				r.Denied("http", &limiter.Request{User: hash, Path: "/"}, counted(t))
				if keys := r.Find(Query{User: hash}).Keys; len(keys) != 1 || keys[0].Count != 1 {
					t.Errorf("a client of that name is taken for it: %+v", keys)
				}
			}
		}
	}
}

func TestTextsAreBoundedAndValid(t *testing.T) {
	for _, s := range []string{strings.Repeat("ü", 5000), "\xff\xfe", strings.Repeat("\xff", 9000), strings.Repeat("x",
		256)} {
		if got := clip(s); len(got) > 3*maxText || !utf8.ValidString(got) {
			t.Errorf("%.20q becomes %d bytes, valid: %v", s, len(got), utf8.ValidString(got))
		}
	}
}

// TestReadersDelayNoCheck: while a reader has the lock, a denial is counted as missed and nobody waits.
func TestReadersDelayNoCheck(t *testing.T) {
	r := record(Config{}, at())
	for i := range r.shards {
		r.shards[i].mu.Lock()
	}
	r.Denied("http", &limiter.Request{User: "ada"}, denial("login")) // would hang
	for i := range r.shards {
		r.shards[i].mu.Unlock()
	}
	if f := r.Find(Query{}); f.Missed != 1 || len(f.Keys) != 0 {
		t.Errorf("missed are %d, and there are %+v", f.Missed, f.Keys)
	}
}

func TestLinesAreSampled(t *testing.T) {
	var lines []Denial
	at := at()
	r := record(Config{Each: func(d *Denial) { lines = append(lines, *d) }}, at)
	for range 100 {
		r.Denied("http", &limiter.Request{User: "ada"}, denial("login"))
	}
	at.Time = at.Add(time.Second)
	r.Denied("http", &limiter.Request{User: "ada"}, denial("login"))
	if len(lines) != 2 || lines[0].Count != 1 || lines[1].Count != 100 {
		t.Errorf("the lines are %+v", lines)
	}
}

func TestConcurrentUse(t *testing.T) {
	r := record(Config{Bytes: MinBytes}, at())
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			r.Find(Query{User: "3"})
		}
	})
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for j := range 2000 {
				r.Denied("http", &limiter.Request{User: fmt.Sprint((i + j) % 10)}, denial("login"))
			}
		})
	}
	writers.Wait()
	cancel()
	all.Wait()
	var sum uint64
	f := r.Find(Query{})
	for _, k := range f.Keys {
		sum += k.Count
	}
	if sum+f.Missed != 8000 {
		t.Errorf("%d are counted and %d missed of 8000", sum, f.Missed)
	}
}

func TestMembersAreMerged(t *testing.T) {
	at := at()
	var all []Key
	for _, name := range []string{"n1", "n2"} {
		r := record(Config{}, at)
		r.Denied("http", &limiter.Request{User: "ada"}, counted(t))
		all = Merge(all, name, r.Find(Query{}).Keys)
		at.Time = at.Add(time.Minute)
	}
	if len(all) != 1 || all[0].Count != 2 || len(all[0].Members) != 2 || len(all[0].Minutes) != 2 ||
		len(all[0].Samples) != 2 ||
		!all[0].First.Before(all[0].Last) {
		t.Errorf("together they are %+v", all)
	}
}

func BenchmarkDeniedOneKey(b *testing.B) {
	r := New(Config{Now: time.Now, KeyName: func(dst []byte, r *limiter.Request, _ *limiter.LimitDecision) []byte {
		return append(dst, r.User...)
	}})
	q, d := &limiter.Request{User: "ada", Path: "/login", IP: "192.0.2.1"}, counted(b)
	b.ReportAllocs()
	for b.Loop() {
		r.Denied("http", q, d)
	}
}

// TestFindCopiesWhatIsWanted: of many keys only those that are wanted are copied, and they are those that were denied
// most.
func TestFindCopiesWhatIsWanted(t *testing.T) {
	at := at()
	r := record(Config{}, at)
	for i := range 2000 {
		for range 1 + i%50 {
			r.Denied("http", &limiter.Request{User: fmt.Sprint(i), Path: "/x"}, denial("login"))
		}
	}
	for name, q := range map[string]Query{"all times": {Most: 10}, "since": {Most: 10, Since: at.Add(-time.Hour)}} {
		f := r.Find(q)
		if len(f.Keys) != 10 || f.Left != 1990 || f.Keys[0].Count != 50 || f.Keys[9].Count != 50 {
			t.Errorf("%s: %d keys, %d left, counts from %d", name, len(f.Keys), f.Left, f.Keys[0].Count)
		}
		few := testing.AllocsPerRun(3, func() { r.Find(q) })
		if few > 200 {
			t.Errorf("%s: ten keys take %v allocations", name, few)
		}
	}
	if f := r.Find(Query{Until: at.Add(-time.Hour)}); len(f.Keys) != 0 || f.Left != 0 {
		t.Errorf("before all denials: %+v", f)
	}
}

// TestMemoryIsBounded: what a full record takes of the heap is near its bound, whatever the names are.
func TestMemoryIsBounded(t *testing.T) {
	const most = 16 << 20
	for name, long := range map[string]int{"short names": 1, "long names": 300} {
		at := at()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := record(Config{Bytes: most}, at)
		for i := range 150_000 {
			if i%100 == 0 {
				at.Time = at.Add(time.Second)
			}
			text := strings.Repeat("x", i%long)
			r.Denied("http", &limiter.Request{User: fmt.Sprint(i%30_000, text), Path: "/" + text}, denial("login"))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > most*5/4 {
			t.Errorf("%s: a record of %d MiB takes %d MiB", name, most>>20, got>>20)
		} else {
			t.Logf("%s: a record of %d MiB takes %.1f MiB", name, most>>20, float64(got)/(1<<20))
		}
		runtime.KeepAlive(r)
	}
}

// TestMergeIsBounded: a member that names a key again and again, or says more of it than it can know, adds no more
// than another.
func TestMergeIsBounded(t *testing.T) {
	one := Key{Key: "ada", Rule: "login", Count: 1}
	for i := range 1000 {
		when := at().Add(time.Duration(i) * time.Minute)
		one.Minutes = append(one.Minutes, Minute{when, 1})
		one.Samples = append(one.Samples, Taken{Time: when})
	}
	all := Merge(nil, "n1", []Key{{Key: "ada", Rule: "login", Count: 1}})
	all = Merge(all, "n2", slices.Repeat([]Key{one}, 2*MaxFound))
	if len(all) != 1 || all[0].Count != 2 || len(all[0].Minutes) > maxMinutes ||
		len(all[0].Samples) > maxMinutes+maxSamples || len(all[0].Members) != 2 {
		t.Errorf("%d keys, of the first %d minutes, %d samples, members %v", len(all), len(all[0].Minutes),
			len(all[0].Samples), all[0].Members)
	}
	if all := Merge(nil, "n2", make([]Key, 5*MaxFound)); len(all) != MaxFound {
		t.Errorf("%d keys of one member", len(all))
	}
}
