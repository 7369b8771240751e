package limitertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// leasedSpecs are limits whose units may be lent: of each algorithm, of several limits, and with large costs.
var leasedSpecs = map[string][]limiter.Spec{
	"fixed":    {{Algorithm: limiter.FixedWindow, Limit: 60, Window: time.Second}},
	"log":      {{Algorithm: limiter.SlidingLog, Limit: 40, Window: time.Second}},
	"window":   {{Algorithm: limiter.SlidingWindow, Limit: 60, Window: time.Second}},
	"lenient":  {{Algorithm: limiter.SlidingWindow, Limit: 60, Window: time.Second, Coverage: limiter.CoverageLenient}},
	"counter":  {{Algorithm: limiter.SlidingCounter, Limit: 60, Window: time.Second}},
	"token":    {{Algorithm: limiter.TokenBucket, Limit: 60, Window: time.Second, Burst: 40}},
	"leaky":    {{Algorithm: limiter.LeakyBucket, Limit: 60, Window: time.Second, Burst: 40}},
	"gcra":     {{Algorithm: limiter.GCRA, Limit: 60, Window: time.Second, Burst: 40}},
	"together": {{Limit: 50, Window: time.Second}, {Algorithm: limiter.TokenBucket, Limit: 90, Window: 2 * time.Second}},
	"calendar": {{Algorithm: limiter.FixedWindow, Limit: 60, Calendar: limiter.CalendarMinute, Zone: "UTC"}},
}

// leasing is a key of which units are lent to holders, and what clients were told of it.
type leasing struct {
	tables [2]*table.Table // the present one first
	rule   *limiter.Rule
	key    arith.Hash
	now    Tick
	rng    *rand.Rand
	scale  uint64 // of all costs
	leases []lent
	alone  int // steps for which only holders admit
	ids    uint64
	told   []toldOf
	heir   bool   // the other table is a copy, which takes over
	copied uint64 // of the ids that came, so many are copied
}

// lent is what a holder was lent.
type lent struct {
	id, left, used uint64
	until          Tick
}

// toldOf is an admission that a client heard of.
type toldOf struct {
	at   Tick
	cost uint64
}

func (w *leasing) charge(cost uint64) *arith.Charge {
	c := new(arith.Charge)
	c.Add(arith.Key{Hash: w.key, Rule: w.rule, Cost: cost})
	return c
}

func (w *leasing) cost(most uint64) uint64 { return w.scale * (1 + w.rng.Uint64N(most)) }

func (w *leasing) decide(c *arith.Charge) bool {
	var d limiter.Decision
	if err := w.tables[0].Decide(w.now, c, &d); err != nil {
		panic(err)
	}
	return d.Allowed
}

// step does one random thing: the owner or a holder admits, units are lent, given back or lost, the counters move to
// another table, or time passes.
func (w *leasing) step() {
	if w.heir {
		defer w.copy()
	}
	w.leases = slices.DeleteFunc(w.leases, func(l lent) bool { return l.until <= w.now }) // their owner has charged them
	n := w.rng.IntN(100)
	if w.rng.IntN(40) == 0 {
		w.alone = 12
	}
	if w.alone > 0 { // the owner hears nothing, and leases end
		w.alone--
		n = []int{n%35 + 40, 99}[n%2]
	}
	switch {
	case n < 30:
		if c := w.cost(3); w.decide(w.charge(c)) {
			w.told = append(w.told, toldOf{w.now, c})
		}
	case n < 40:
		w.ids++
		span := time.Duration(20+w.rng.IntN(300)) * time.Millisecond
		c := w.charge(w.cost(12))
		c.ID = &arith.Idempotency{ID: w.ids, Life: time.Second, Hold: span, Keep: true, Lent: true}
		if w.decide(c) {
			w.leases = append(w.leases, lent{id: w.ids, left: c.Key(0).Cost, until: w.now + limiter.Span(span)})
		}
	case n < 75 && len(w.leases) > 0:
		l := &w.leases[w.rng.IntN(len(w.leases))]
		if c := w.cost(3); c <= l.left {
			l.left, l.used = l.left-c, l.used+c
			w.told = append(w.told, toldOf{w.now, c})
		}
	case n < 82 && len(w.leases) > 0:
		i := w.rng.IntN(len(w.leases))
		c := w.charge(w.leases[i].used)
		c.ID = &arith.Idempotency{ID: w.leases[i].id, Life: time.Second}
		w.tables[0].Amend(w.now, c, limiter.Amend{IgnoreUnknown: true})
		w.leases = slices.Delete(w.leases, i, i+1)
	case n < 84:
		w.move()
	default:
		w.now += Tick(w.rng.Int64N(int64(60 * limiter.Millisecond)))
	}
}

// move brings the counters to another table, as a handoff does, or has the copy take over: then the owner of before
// gets the next copy.
func (w *leasing) move() {
	part, from, to := table.PartitionOf(w.charge(1).Key(0)), w.tables[0], w.tables[1]
	w.tables[0], w.tables[1] = to, from
	if w.heir {
		to.SetCopy(part, false)
		from, to = to, from
	}
	var entries []table.Entry
	from.Export(part, w.now, func(e table.Entry) {
		e.Words = slices.Clone(e.Words)
		entries = append(entries, e)
	})
	if w.tables[1].Drop(part); w.heir {
		to.SetCopy(part, true)
	}
	if err := to.Import(part, w.now, entries, table.Replace); err != nil {
		panic(err)
	}
	w.copied = w.tables[0].ExportIDs(part, 0, 0, nil)
}

// copy brings what has changed of the key to the copy, as an owner does.
func (w *leasing) copy() {
	part := table.PartitionOf(w.charge(1).Key(0))
	var ids []table.ID
	w.copied = w.tables[0].ExportIDs(part, w.copied, w.now, func(id table.ID) { ids = append(ids, id) })
	if err := w.tables[1].ImportIDs(part, w.now, 0, ids); err != nil {
		panic(err)
	}
	var entries []table.Entry
	w.tables[0].ExportKey(part, w.key.Hi, w.now, func(e table.Entry) {
		e.Words = slices.Clone(e.Words)
		entries = append(entries, e)
	})
	if err := w.tables[1].ReplaceKey(part, w.key.Hi, w.now, entries); err != nil {
		panic(err)
	}
}

// What clients are told by leases and by the owner is what the limits alone would admit, by their definitions: for each
// algorithm, for several limits and costs, whether leases are given back or end, and after takeovers. WEIR_SEEDS is
// the number of seeds of each.
func TestLeasesAdmitNothingTwice(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	if n, err := strconv.ParseUint(os.Getenv("WEIR_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	units := uint64(0)
	for name, specs := range leasedSpecs {
		t.Run(name, func(t *testing.T) {
			for _, scale := range []uint64{1, 1 << 30} {
				if scale > 1 && specs[0].Algorithm == limiter.SlidingLog { // has an entry for each unit
					continue
				}
				rule, scaled := &limiter.Rule{Name: name, Leases: true}, slices.Clone(specs)
				for i := range scaled {
					s := &scaled[i]
					s.Name, s.Limit, s.Burst = fmt.Sprint(name, i), s.Limit*int64(scale), s.Burst*int64(scale)
					l, err := limiter.NewLimit(*s)
					if err != nil {
						t.Fatal(err)
					}
					rule.Limits = append(rule.Limits, l)
				}
				var tables [2]*table.Table
				ids := uint64(0)
				for seed := range seeds {
					if seed%16 == 0 { // so many keys are together in a partition
						tables = [2]*table.Table{table.New(table.Config{}), table.New(table.Config{})}
					}
					rng := rand.New(rand.NewPCG(seed, 52))
					w := leasing{tables: tables, rule: rule, key: arith.Hash{Hi: seed, Lo: seed << 32}, scale: scale, rng: rng,
						now: Start() + limiter.Minute - Tick(rng.Int64N(int64(2*limiter.Second)))} // soon a minute ends
					if w.heir = seed%16 >= 8; seed%16 == 8 {
						w.move()
					}
					for range 300 {
						w.step()
					}
					ids += w.ids
					oracle := NewOracle(scaled...)
					for i, x := range w.told {
						units += x.cost / scale
						if !oracle.Check(x.at, x.cost, false).Allowed {
							t.Fatalf("costs times %d, seed %d: admission %d of %d units at %d is one that the limits deny", scale, seed, i,
								x.cost, x.at-Start())
						}
					}
				}
				if ids < seeds*5 {
					t.Errorf("%d leases in %d runs", ids, seeds)
				}
			}
		})
	}
	t.Logf("%d units were admitted", units)
}
