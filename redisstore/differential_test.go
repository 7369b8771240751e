package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/redisstore"
)

// stepsPerSeed is the number of decisions of one seed.
const stepsPerSeed = 500

// latest is the last instant of traces, relative to the suite's start: even with debts
// of a century all instants stay below 2^53 ticks, which is in the year 2255.
const latest = 50 * 365 * limiter.Day

// seeds returns how many seeds a random test runs: WEIR_SEEDS, else a few.
func seeds(tb testing.TB, few int) int {
	tb.Helper()
	text := os.Getenv("WEIR_SEEDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("WEIR_SEEDS=%q is not valid: want a whole number above 0", text)
	}
	return n
}

// C3: the table and Redis decide every step of random traces alike, to the tick:
// all algorithms and options, several limits and keys, peeks, refunds, resets and
// limits that change. WEIR_SEED=N runs that one seed and prints its trace.
func TestTableAndRedisDecideAlike(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: time.Minute})
	if text := os.Getenv("WEIR_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := newDiff(store, seed).run(t.Logf); err != nil {
			t.Fatal(err)
		}
		return
	}
	n := seeds(t, 120)
	all, counted := make(chan uint64), sync.Mutex{}
	total := counts{}
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for seed := range all {
				d := newDiff(store, seed)
				if err := d.run(nil); err != nil {
					t.Errorf("seed %d (WEIR_SEED=%d prints the trace): %v", seed, seed, err)
				}
				counted.Lock()
				total.add(d.counts)
				counted.Unlock()
			}
		})
	}
	for seed := range uint64(n) {
		all <- seed
	}
	differed := []uint64{139, 346, 415, 615, 640, 855, 911, 1014, 1141, 1307, 1541, 1544, 1896, 1944, 1964} // once
	for _, seed := range differed {
		if seed >= uint64(n) {
			all <- seed
		}
	}
	close(all)
	workers.Wait()
	total.hold(t, n*stepsPerSeed)
}

// counts is how often each decision occurred, to verify the premises of the test.
type counts map[string]int

func (c counts) add(o counts) {
	for name, n := range o {
		c[name] += n
	}
}

// hold verifies that there were enough decisions with every option, neither nearly all
// allowed nor nearly all denied.
func (c counts) hold(tb testing.TB, steps int) {
	tb.Helper()
	tb.Logf("%d decisions, %d denied, %d repeated, %d denied by some keys only, %d refunds, %d resets, %d changes of "+
		"limits, %d back",
		c["decisions"], c["denied"], c["repeated"], c["denied by some"], c["refunds"], c["resets"], c["changes"], c["back"])
	if n := c["passes 2^32"]; n < steps/2000 {
		tb.Errorf("%d changes of limits were from below 2^32 to above, or back; %d were to be", n, steps/2000)
	}
	if n := c["denied by some"]; n == 0 {
		tb.Error("no charge was denied by the keys for which its id is not remembered")
	}
	if c["decisions"] < steps {
		tb.Errorf("%d decisions were made, %d were to be", c["decisions"], steps)
	}
	if n := c["decisions"]; 5*c["denied"] < n || 5*c["denied"] > 4*n {
		tb.Errorf("%d of %d decisions were denials; 20 to 80 %% were to be", c["denied"], n)
	}
	names := append(limiter.AlgorithmNames(), "align first_hit", "coverage lenient", "sub_windows", "weight",
		"rounding floor",
		"rounding nearest", "rounding ceil", "burst", "drip interval", "count room", "count all", "block", "shadow",
		"several limits", "several keys", "peek", "cost 0", "id", "repeated", "a tick before", "at the tick", "a tick after",
		"hold", "done", "over", "charged", "concurrency", "spent", "wide", "wide, held", "wide, nearly full", "wide, blocked",
		"wide concurrency")
	for _, name := range names {
		if c[name] < steps/100 {
			tb.Errorf("%d decisions with %s were made, at least %d were to be", c[name], name, steps/100)
		}
	}
}

// diff is one seed: a charge of one to three keys, decided again and again.
type diff struct {
	store    *redisstore.Store
	table    *table.Table
	choices  limitertest.Choices
	seed     uint64
	now      limiter.Tick
	rules    []*limiter.Rule
	former   map[[2]int]limiter.Spec // of a rule and a limit, the limit before
	last     limiter.Decision
	receipts []receipt
	ends     []limiter.Tick // of holds
	counts   counts
	log      func(string, ...any)
}

type receipt struct {
	charge arith.Charge
	of     limiter.Receipt
}

func newDiff(store *redisstore.Store, seed uint64) *diff {
	d := &diff{
		store: store, table: table.New(table.Config{}), choices: limitertest.SeededChoices(seed), seed: seed,
		now: limitertest.Start() + limiter.Tick(seed)*limiter.Second, counts: counts{}, former: map[[2]int]limiter.Spec{},
	}
	for i := range 1 + d.choices.Pick(3)*d.choices.Pick(2) {
		r := &limiter.Rule{Name: fmt.Sprintf("r%d", i), Shadow: d.choices.Pick(5) == 0}
		limits := 1
		if d.choices.Pick(2) == 0 {
			limits = 1 + d.choices.Pick(4)
		}
		for j := range limits {
			r.Limits = append(r.Limits, d.limit(fmt.Sprintf("l%d", j), i+j))
		}
		d.rules = append(d.rules, r)
	}
	return d
}

// limit makes one of the algorithms in turn, so that all come up.
func (d *diff) limit(name string, turn int) *limiter.Limit {
	a := limiter.Algorithm((int(d.seed) + turn) % len(limiter.AlgorithmNames()))
	if turn > 0 {
		a = limiter.Algorithm(d.choices.Pick(len(limiter.AlgorithmNames())))
	}
	spec := limitertest.RandomWideSpec(d.choices, a, name, limiter.MaxWindow)
	if d.slots() && d.choices.Pick(2) == 0 {
		spec = limiter.Spec{Name: name, Algorithm: limiter.Concurrency, Limit: spec.Limit,
			Block: spec.Block * time.Duration(d.choices.Pick(2))}
		if spec.Limit <= limiter.NarrowUnits {
			spec.Limit = min(spec.Limit, 1000)
		}
	}
	l, err := limiter.NewLimit(spec)
	if err != nil {
		panic(err) // RandomSpec makes valid ones
	}
	return l
}

// run makes all steps, and passes each to log, unless that is nil.
func (d *diff) run(log func(string, ...any)) error {
	if d.log = log; log == nil {
		d.log = func(string, ...any) {}
	}
	for i := range stepsPerSeed {
		d.change()
		if wait := d.wait(); wait > 0 && d.now+wait < limitertest.Start()+latest {
			d.now += wait
		}
		var c arith.Charge
		for n, r := range d.rules {
			h := arith.Hash{Hi: d.seed<<8 | uint64(n), Lo: ^d.seed << 20}
			if n > 0 && d.strangers() && d.choices.Pick(3) == 0 {
				h.Hi |= 1 << 7 // an id is remembered for some keys of a charge only
			}
			c.Add(arith.Key{Hash: h, Rule: r, Cost: d.cost(), Index: uint8(n)})
		}
		c.Peek, c.ID = d.choices.Pick(12) == 0, d.id()
		if err := d.takeBack(&c); err != nil {
			return err
		}
		if err := d.amend(&c); err != nil {
			return fmt.Errorf("step %d at %d: %w", i, d.now, err)
		}
		var want, got limiter.Decision
		spent := d.table.Decide(d.now, &c, &want)
		if spent != nil && !errors.Is(spent, limiter.ErrSettled) {
			return spent
		}
		if err := d.store.Decide(context.Background(), arith.At(d.now), []*arith.Charge{&c}, []*limiter.Decision{&got},
			nil); err != nil {
			return err
		}
		if log != nil {
			log("step %d at +%d: %s\n   table %s\n   redis %s", i, d.now-limitertest.Start(), spell(&c), show(&want), show(&got))
		}
		if spent != nil {
			id := c.ID // Redis has converted limits that changed
			if c.ID, c.Peek = nil, true; d.table.Decide(d.now, &c, &want) == nil {
				c.ID, c.Peek = id, false
			}
			d.counts["decisions"]++
			if d.counts["spent"]++; got.Allowed || !got.Never || arith.Fields(&got.Receipt).Charged != 0 {
				return fmt.Errorf("step %d at %d, %s: the id is spent, and redis decides\n    %s", i, d.now, spell(&c), show(&got))
			}
			continue
		}
		if a, b := show(&want), show(&got); a != b || got.Source != limiter.SourceRedis {
			return fmt.Errorf("step %d at %d, %s:\n  the table decides\n    %s\n  redis (%s) decides\n    %s", i, d.now,
				spell(&c), a, got.Source, b)
		}
		d.tally(&c, &want)
		d.last = want
		if arith.Fields(&want.Receipt).Charged != 0 {
			d.receipts = append(d.receipts, receipt{c, want.Receipt})
		}
	}
	return nil
}

// show returns all relevant parts of a decision.
func show(d *limiter.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v repeated %v never %v shadow %v retry %d receipt %v", d.Allowed, d.Repeated, d.Never,
		d.ShadowDenied, d.RetryAfter, d.Receipt)
	if l := d.BlockedBy(); l != nil {
		fmt.Fprintf(&b, " by %s", l.FullName())
	}
	for i := range d.Len() {
		l := d.Limit(i)
		fmt.Fprintf(&b, " | %s #%d.%d allowed %v never %v blocked %v cost %d left %d reset %d retry %d", l.FullName(), l.Key,
			l.KeyIndex,
			l.Allowed, l.Never, l.Blocked, l.Cost, l.Remaining, l.ResetAfter, l.RetryAfter)
	}
	return b.String()
}

func spell(c *arith.Charge) string {
	text := fmt.Sprintf("peek %v, id %+v", c.Peek, c.ID)
	for n := range c.Len() {
		k := c.Key(n)
		text += fmt.Sprintf("; %s shadow %v cost %d:", k.Rule.Name, k.Rule.Shadow, k.Cost)
		for _, l := range k.Rule.Limits {
			text += fmt.Sprintf(" {%s}", l)
		}
	}
	return text
}

// slots reports whether charges of this seed have limits on concurrency: then they are held.
func (d *diff) slots() bool { return d.seed%4 == 3 }

// strangers reports whether charges of this seed have keys that others of it do not have.
func (d *diff) strangers() bool { return d.seed%3 == 0 }

// change replaces a limit by another of the same name, or by the one before, now and then.
func (d *diff) change() {
	if d.choices.Pick(50) != 0 {
		return
	}
	i := d.choices.Pick(len(d.rules))
	r := *d.rules[i]
	r.Limits = append([]*limiter.Limit(nil), r.Limits...)
	j := d.choices.Pick(len(r.Limits))
	s := r.Limits[j].Spec()
	before, back := d.former[[2]int{i, j}]
	d.former[[2]int{i, j}] = s
	switch d.choices.Pick(5) {
	case 0: // the same algorithm, another number
		s.Limit, s.Burst = max(1, s.Limit/2), 0
	case 1:
		s.Limit = min(s.Limit*2, limiter.MaxLogLimit)
	case 2, 3:
		if back {
			s = before
			d.counts["back"]++
		}
	default:
		s = d.limit(s.Name, 1).Spec()
	}
	l, err := limiter.NewLimit(s)
	if err == nil && l.Algorithm() == limiter.Concurrency && arith.Wide(l) != arith.Wide(r.Limits[j]) {
		return // the table counts what is held for one check more
	}
	if err == nil {
		if arith.Wide(l) != arith.Wide(r.Limits[j]) {
			d.counts["passes 2^32"]++
		}
		r.Limits[j], d.rules[i] = l, &r
		d.counts["changes"]++
		if d.strangers() { // the table voids receipts of all keys that had the limit
			d.receipts = nil
		}
		d.now++ // as after a reset
		d.log("limit %d of %s becomes %s", j, r.Name, l)
	}
}

// takeBack refunds the charge of an earlier step, or resets all, now and then.
func (d *diff) takeBack(c *arith.Charge) error {
	switch {
	case d.choices.Pick(200) == 0:
		d.counts["resets"]++
		d.log("reset")
		d.table.Reset(d.now, c)
		_, err := d.store.Reset(context.Background(), arith.At(d.now), c, nil)
		// A reset also voids receipts of its own tick. But if nothing was counted yet,
		// the table does not record the reset.
		d.now++
		return err
	case d.choices.Pick(6) == 0 && len(d.receipts) > 0:
		i := len(d.receipts) - 1 - d.choices.Pick(min(4, len(d.receipts)))
		r := d.receipts[i]
		if !d.inForce(&r.charge) {
			return nil // it may be again
		}
		d.receipts = append(d.receipts[:i], d.receipts[i+1:]...)
		d.counts["refunds"]++
		d.log("refund of %v at +%d: %s", r.of, arith.Fields(&r.of).Time-limitertest.Start(), spell(&r.charge))
		d.table.Refund(d.now, &r.charge, r.of)
		return d.store.Refund(context.Background(), arith.At(d.now), &r.charge, r.of, nil)
	}
	return nil
}

// amend settles or extends the hold of a charge, now and then.
func (d *diff) amend(c *arith.Charge) error {
	if c.ID == nil || d.choices.Pick(3) != 0 {
		return nil
	}
	a := limiter.Amend{Extend: d.choices.Pick(3) == 0, IgnoreUnknown: d.choices.Pick(3) == 0}
	q := c.Clone()
	if a.Named = !a.Extend && d.choices.Pick(4) == 0; a.Named { // each key has a number of its own
		for i := range q.Len() {
			q.Key(i).Cost = uint64(d.choices.Pick(12))
		}
	}
	id := *c.ID
	q.ID, q.Peek = &id, false
	if id.Hold == 0 {
		id.Hold = id.Life
	}
	want, _ := d.table.Amend(d.now, q, a)
	got, err := d.store.Extras().Amend(context.Background(), arith.At(d.now), q, a, nil)
	d.log("%+v at +%d: %+v, redis %+v: %s", a, d.now-limitertest.Start(), want, got, spell(q))
	if want.Known = 0; err != nil || got != want { // Redis does not say it
		return fmt.Errorf("%+v, %s:\n  the table says %+v\n  redis says     %+v, %w", a, spell(q), want, got, err)
	}
	d.counts[want.State.String()]++
	if want.Over > 0 {
		d.counts["over"]++
	}
	if a.Extend {
		d.ends = append(d.ends, d.now+limiter.Span(id.Hold))
	}
	return nil
}

// inForce reports whether a charge has the limits of now. Without rules they do not change.
func (d *diff) inForce(c *arith.Charge) bool {
	for n := range min(c.Len(), len(d.rules)) {
		for j, l := range c.Key(n).Rule.Limits {
			if !l.Equal(d.rules[n].Limits[j]) {
				return false
			}
		}
	}
	return true
}

// wait returns the time until the next step: usually until an instant at which an
// answer changes, or one tick before or after it.
func (d *diff) wait() limiter.Tick {
	r := d.rules[d.choices.Pick(len(d.rules))]
	l := r.Limits[d.choices.Pick(len(r.Limits))]
	w := limiter.Span(l.Window())
	jitter := limiter.Tick(d.choices.Pick(3) - 1)
	d.counts[[]string{"a tick before", "at the tick", "a tick after"}[jitter+1]]++
	of := func(i int) *limiter.LimitDecision {
		if d.last.Len() == 0 {
			return &limiter.LimitDecision{}
		}
		return d.last.Limit(i % d.last.Len())
	}
	any := d.choices.Pick(16)
	d.ends = slices.DeleteFunc(d.ends, func(t limiter.Tick) bool { return t < d.now })
	if n := len(d.ends); n > 0 && d.choices.Pick(6) == 0 {
		return d.ends[d.choices.Pick(n)] - d.now + jitter
	}
	switch d.choices.Pick(16) {
	case 0:
		return w - d.now%w + jitter
	case 1, 2:
		return limiter.Span(d.last.RetryAfter) + jitter
	case 3, 4:
		return limiter.Span(of(any).RetryAfter) + jitter
	case 5:
		return limiter.Span(of(any).ResetAfter) + jitter
	case 6:
		return w/256*limiter.Tick(any*16) + jitter
	case 7:
		return w/limiter.Tick(l.Limit()) + jitter
	case 8:
		return w/10 - d.now%max(1, w/10) + jitter
	case 9:
		return max(1, jitter)
	case 10:
		return w/16 + jitter
	default:
		return 0
	}
}

// cost returns a cost, usually close to what remains.
func (d *diff) cost() uint64 {
	r := d.rules[d.choices.Pick(len(d.rules))]
	capacity := r.Limits[d.choices.Pick(len(r.Limits))].Capacity()
	left := capacity
	if n := d.last.Len(); n > 0 {
		left = d.last.Limit(d.choices.Pick(n)).Remaining
	}
	switch d.choices.Pick(16) {
	case 0:
		return 0
	case 1:
		return max(1, capacity/2)
	case 2, 3, 4:
		return max(1, left)
	case 5, 6:
		return min(left+1, limiter.MaxUnits)
	case 7:
		return capacity
	case 8:
		if d.choices.Pick(4) == 0 {
			return []uint64{limiter.NarrowUnits, limiter.MaxUnits,
				capacity - min(capacity, uint64(d.choices.Pick(3)))}[d.choices.Pick(3)]
		}
		return 2
	case 9:
		return max(1, left/2)
	case 10:
		return max(1, capacity/10)
	default:
		return 1
	}
}

// ids returns how many ids charges of this seed have.
func (d *diff) ids() int {
	if d.slots() {
		return 5
	}
	return 2
}

// id returns one of a few ids for most charges. It is remembered for an instant, or as
// long as a limit counts.
func (d *diff) id() *arith.Idempotency {
	if d.choices.Pick(3) == 0 && !d.slots() {
		return nil
	}
	r := d.rules[d.choices.Pick(len(d.rules))]
	life := []time.Duration{limiter.MinIDTTL, r.Limits[0].Window() / 3, r.Limits[0].Window()}[d.choices.Pick(3)]
	id := &arith.Idempotency{
		ID: uint64(1+d.choices.Pick(d.ids())) * 0x9e3779b97f4a7c15, Life: min(max(life, limiter.MinIDTTL), limiter.MaxIDTTL),
	}
	if d.choices.Pick(2) == 0 || d.slots() {
		id.Keep = d.choices.Pick(4) == 0
		id.Hold = min(max(r.Limits[0].Window()*time.Duration(1+d.choices.Pick(8))/4, limiter.MinHold), limiter.MaxHold)
		d.ends = append(d.ends, d.now+limiter.Span(id.Hold))
	}
	return id
}

func (d *diff) tally(c *arith.Charge, got *limiter.Decision) {
	n := d.counts
	n["decisions"]++
	note := func(name string, holds bool) {
		if holds {
			n[name]++
		}
	}
	note("denied", !got.Allowed)
	note("peek", c.Peek)
	note("id", c.ID != nil && !got.Repeated)
	note("repeated", got.Repeated)
	note("hold", c.ID != nil && c.ID.Hold > 0 && !c.Peek && got.Allowed && !got.Repeated)
	limits := 0
	for n := range c.Len() {
		limits += len(c.Key(n).Rule.Limits)
	}
	note("denied by some", got.Len() < limits)
	note("several keys", c.Len() > 1)
	note("several limits", got.Len() > c.Len())
	seen := map[string]bool{}
	for i := range got.Len() {
		out := got.Limit(i)
		s := out.Limit.Spec()
		seen[s.Algorithm.String()] = true
		seen["align first_hit"] = seen["align first_hit"] || s.Align == limiter.AlignFirstHit
		seen["coverage lenient"] = seen["coverage lenient"] || s.Coverage == limiter.CoverageLenient
		seen["sub_windows"] = seen["sub_windows"] || s.SubWindows > 0 && s.SubWindows != limiter.DefaultSubWindows
		seen["weight"] = seen["weight"] || s.Weight != nil && *s.Weight != 1000
		seen["rounding "+s.Rounding.String()] = true
		seen["burst"] = seen["burst"] || s.Burst > 0 && s.Burst != s.Limit
		seen["drip interval"] = seen["drip interval"] || s.Drip == limiter.DripInterval
		seen["count "+s.CountRejected.String()] = true
		seen["wide"] = seen["wide"] || arith.Wide(out.Limit)
		seen["wide, held"] = seen["wide, held"] || arith.Wide(out.Limit) && c.ID != nil && c.ID.Hold > 0
		seen["wide, nearly full"] = seen["wide, nearly full"] || arith.Wide(out.Limit) && out.Remaining < 10 &&
			out.Limit.Algorithm() != limiter.Concurrency
		seen["wide, blocked"] = seen["wide, blocked"] || arith.Wide(out.Limit) && out.Blocked
		seen["wide concurrency"] = seen["wide concurrency"] || arith.Wide(out.Limit) &&
			out.Limit.Algorithm() == limiter.Concurrency
		seen["block"] = seen["block"] || s.Block > 0
		seen["shadow"] = seen["shadow"] || out.Rule.Shadow
		seen["cost 0"] = seen["cost 0"] || out.Cost == 0
	}
	for name, holds := range seen {
		note(name, holds)
	}
}
