package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// request is a rule as limits that come with a request have it.
func request(tb testing.TB, n int64, w time.Duration) *limiter.Rule {
	tb.Helper()
	return &limiter.Rule{Name: limiter.RequestRule,
		Limits: []*limiter.Limit{limit(tb, limiter.Spec{Name: "l", Limit: n, Window: w})}}
}

// Limits that come with requests have a bound of their own, beyond which a check is
// refused without a look at any other partition, and which leaves the rules' own limits
// their room. They make room for others when no counter needs them any more.
func TestRequestLimitsAreBounded(t *testing.T) {
	table := New(Config{})
	ask := func(now limiter.Tick, i int) error {
		var d limiter.Decision
		return table.Decide(now, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: request(t, int64(i+1), time.Minute)}), &d)
	}
	for i := range maxRequestLimits {
		if err := ask(hourStart, i); err != nil {
			t.Fatal(i, err)
		}
	}
	// One recovers soon, so that there is something to look for in its partition.
	decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(10_002), Rule: window(t, 5, time.Millisecond)}))
	if err := ask(hourStart, 10_000); !errors.Is(err, ErrTooManyLimits) {
		t.Fatalf("one more: %v", err)
	}
	// Those that are there are decided as ever.
	if err := ask(hourStart, 5); err != nil {
		t.Error(err)
	}
	// Another key's partition is all that a further one takes.
	own := &table.parts[PartitionOf(&arith.Key{Hash: hash(10_001), Rule: new(limiter.Rule)})]
	for i := range table.parts {
		if p := &table.parts[i]; p != own {
			p.mu.Lock()
		}
	}
	refused := make(chan error, 1)
	go func() { refused <- ask(hourStart+limiter.Second/2, 10_001) }()
	select {
	case err := <-refused:
		if !errors.Is(err, ErrTooManyLimits) {
			t.Errorf("another one: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a check that is refused waits for other partitions")
	}
	for i := range table.parts {
		if p := &table.parts[i]; p != own {
			p.mu.Unlock()
		}
	}
	// Rules have numbers all the same, also more than are left of half of all.
	for i := range 40_000 {
		var d limiter.Decision
		rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
			limiter.Spec{Name: "m", Limit: int64(i + 1), Window: time.Hour})}}
		if err := table.Decide(hourStart, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: rule}), &d); err != nil {
			t.Fatal(i, err)
		}
	}
	table.checkAll(t)
	later := hourStart + 10*limiter.Minute
	for i := range maxRequestLimits {
		if err := ask(later, 20_000+i); err != nil {
			t.Fatalf("when the others have recovered, limit %d: %v", i, err)
		}
	}
	table.checkAll(t)
}

// Limits of requests whose counters live long leave half of the room to others, which
// come and go meanwhile.
func TestLongRequestLimitsAreBounded(t *testing.T) {
	table := New(Config{})
	key := 0
	ask := func(now limiter.Tick, s limiter.Spec) error {
		key++
		s.Name = "l"
		rule := &limiter.Rule{Name: limiter.RequestRule, Limits: []*limiter.Limit{limit(t, s)}}
		var d limiter.Decision
		return table.Decide(now, charge(1, arith.Key{Hash: hash(uint64(key)), Rule: rule}), &d)
	}
	for i := range int64(maxLongLimits) {
		if err := ask(hourStart, limiter.Spec{Limit: i + 1, Window: limiter.MaxWindow}); err != nil {
			t.Fatal(i, err)
		}
	}
	for what, s := range map[string]limiter.Spec{
		"window": {Limit: 10_000, Window: 2 * time.Hour},
		"burst":  {Limit: 1, Window: time.Minute, Burst: 61, Algorithm: limiter.TokenBucket},
		"block":  {Limit: 10_000, Window: time.Second, Block: 2 * time.Hour},
	} {
		if err := ask(hourStart, s); !errors.Is(err, ErrTooManyLimits) {
			t.Errorf("one more that is long by its %s: %v", what, err)
		}
	}
	for round := range 3 {
		now := hourStart + limiter.Tick(round)*4*limiter.Hour
		for i := range int64(maxRequestLimits - maxLongLimits) {
			if err := ask(now, limiter.Spec{Limit: int64(round)*10_000 + i + 1, Window: time.Hour}); err != nil {
				t.Fatalf("round %d, limit %d: %v", round, i, err)
			}
		}
	}
	table.checkAll(t)
}

// A limit that comes with requests leaves with its last counter: when that becomes one
// of another limit, is reset, recovers, or is dropped or replaced by an import.
func TestRequestLimitsLeave(t *testing.T) {
	table, source := New(Config{}), New(Config{})
	k := arith.Key{Hash: hash(1)}
	for i := range int64(70_000) {
		k.Rule = request(t, i%70_000+1, time.Hour)
		decide(t, table, hourStart, charge(1, k))
	}
	if n := len(table.registry.byKey); n != 1 {
		t.Errorf("%d limits are numbered for one counter", n)
	}
	part := PartitionOf(&k)
	for name, leave := range map[string]func(){
		"reset": func() { table.Reset(hourStart, charge(1, k)) },
		"sweep": func() {
			p := &table.parts[part]
			p.mu.Lock()
			p.sweep(hourStart + 5*limiter.Hour)
			p.mu.Unlock()
		},
		"drop":    func() { table.Drop(part) },
		"replace": func() { _ = table.ReplaceKey(part, k.Hash.Hi, hourStart, nil) },
		"import": func() {
			k.Rule = window(t, 9, time.Hour)
			decide(t, source, hourStart, charge(1, k))
			if err := table.Import(part, hourStart, exported(source, part, hourStart), Replace); err != nil {
				t.Error(err)
			}
			source.Drop(part)
			table.Reset(hourStart, charge(1, k))
		},
	} {
		table.Drop(part)
		k.Rule = request(t, 7, time.Hour)
		decide(t, table, hourStart, charge(1, k))
		if len(table.registry.byKey) != 1 {
			t.Fatal("premise: it is numbered")
		}
		if leave(); len(table.registry.byKey) != 0 {
			t.Errorf("%s: %d limits stay", name, len(table.registry.byKey))
		}
		table.checkAll(t)
	}
	// A check that is refused leaves none behind.
	full := New(Config{MaxKeys: 1})
	decide(t, full, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: window(t, 9, time.Hour)}))
	for range 3 {
		decide(t, full, hourStart, charge(1, arith.Key{Hash: hash(2), Rule: request(t, 7, time.Hour)}))
	}
	if n := len(full.registry.byKey); n != 1 {
		t.Errorf("%d limits are numbered for one counter, after refusals", n)
	}
	full.checkAll(t)
}

// A number stays where it got another slot, or became another limit's, after its last
// one had gone and before it could leave.
func TestNumbersThatAreTakenAgain(t *testing.T) {
	r := newRegistry(new(Tenants))
	one, two := request(t, 1, time.Hour), request(t, 2, time.Hour)
	id := r.id(one.Limits[0], one, 0)
	c := r.count(id)
	c.slots.Add(-1) // the last slot goes
	if got := r.id(one.Limits[0], one, 0); got != id {
		t.Fatalf("number %d, was %d", got, id)
	}
	if r.leave(id, c); r.count(id) != c {
		t.Fatal("a limit with a slot lost its number")
	}
	if r.release(id, 1); r.count(id) != nil || len(r.byKey) != 0 {
		t.Fatal("a limit without a slot keeps its number")
	}
	if got := r.id(two.Limits[0], two, 0); got != id {
		t.Fatalf("premise: the number is taken again, not %d", got)
	}
	if r.leave(id, c); r.count(id) == nil || r.limit(id) != two.Limits[0] {
		t.Fatal("another limit lost its number")
	}
}

// A limit may be numbered for a rule, a request and a peer, whichever is first.
func TestLimitsOfSeveralOrigins(t *testing.T) {
	l := limit(t, limiter.Spec{Name: "l", Limit: 5, Window: time.Hour})
	rules := map[string]*limiter.Rule{
		"rule":    {Name: "r", Limits: []*limiter.Limit{l}},
		"request": {Name: limiter.RequestRule, Limits: []*limiter.Limit{l}},
		"share":   {Name: "s", Limits: []*limiter.Limit{l}, MaxShare: 500},
	}
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"rule", "request", "share", "peer"}
	for range 50 {
		table := New(Config{})
		for i := range 60 {
			h := arith.Hash{Hi: r.Uint64N(6)}
			switch name := names[r.IntN(len(names))]; {
			case i%7 == 6:
				table.Reset(hourStart, charge(1, arith.Key{Hash: h, Rule: rules["rule"]}))
			case name == "peer":
				e := Entry{Hi: h.Hi, Lo: arith.NameID(l), Limit: l, State: arith.State{A: 2}}
				if err := table.Import(0, hourStart, []Entry{e, e}[:1+r.IntN(2)], ImportMode(r.IntN(2))); err != nil {
					t.Fatal(err)
				}
			default:
				decide(t, table, hourStart, charge(1, arith.Key{Hash: h, Rule: rules[name]}))
			}
		}
		table.checkAll(t)
	}
}

// Limits of all kinds come and go in many goroutines, and what is counted of them stays
// right.
func TestLimitsComeAndGoTogether(t *testing.T) {
	const workers, steps = 4, 4000
	table := New(Config{MaxKeys: 400, MaxBytes: 8 << 20})
	var wg sync.WaitGroup
	for worker := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 6))
			var d limiter.Decision
			for i := range limiter.Tick(steps) {
				now := hourStart + i*2000
				s := limiter.Spec{Name: fmt.Sprint("l", r.IntN(2)), Algorithm: limiter.Algorithm(r.IntN(4)),
					Limit: 1 + r.Int64N(40), Window: time.Second}
				rule := &limiter.Rule{Name: []string{"r", limiter.RequestRule, "s"}[r.IntN(3)],
					Limits: []*limiter.Limit{limit(t, s)}}
				if rule.Name == "s" {
					rule.MaxShare = 100
				}
				k := arith.Key{Hash: arith.Hash{Hi: r.Uint64N(200), Lo: r.Uint64N(3) << 60}, Rule: rule}
				part := PartitionOf(&k)
				switch r.IntN(20) {
				case 0:
					table.Drop(part)
				case 1:
					table.Reset(now, charge(1, k))
				case 2:
					table.SetCopy(part, r.IntN(2) == 0)
				case 3, 4:
					if err := table.Import(part, now, exported(table, part, now), ImportMode(r.IntN(2))); err != nil &&
						!errors.Is(err, ErrFull) {
						t.Error(err)
					}
				default:
					if err := table.Decide(now, charge(1, k), &d); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for i := range table.parts {
		table.SetCopy(i, false)
	}
	table.checkAll(t)
	for i := range table.parts {
		table.Drop(i)
	}
	table.checkAll(t)
	if n := len(table.registry.shares); n != 0 || table.registry.foreign != 0 {
		t.Errorf("%d shares and %d foreign limits are left of none", n, table.registry.foreign)
	}
}
