package lease_test

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// hop is how long a message takes from one member to another. A lease is answered when the heir has it: two hops later.
const hop = limiter.Millisecond / 2

// load is what a key is asked for: at each member a share of a demand, which is in units of the limit.
type load struct {
	spec    limiter.Spec
	cost    uint64 // of a check
	members int
	demand  float64
	shares  string // "even", "90/9/1", or "moving": all ask at one member, each second at the next one
	span    limiter.Tick
}

// use is what became of a load.
type use struct {
	asked, admitted []int // by member
	local           int   // checks that the member that was asked has decided
	frames          int   // messages between members
}

func (u *use) total() (asked, admitted int) {
	for i := range u.asked {
		asked, admitted = asked+u.asked[i], admitted+u.admitted[i]
	}
	return asked, admitted
}

// unfairness is the greatest share of its checks that a member is admitted, divided by the least. Members that ask for
// too little to tell are one.
func (u *use) unfairness() float64 {
	low, high := math.Inf(1), 0.0
	look := func(asked, admitted int) {
		if asked >= 500 {
			share := float64(admitted) / float64(asked)
			low, high = min(low, share), max(high, share)
		}
	}
	asked, admitted := 0, 0 // by those that ask for little
	for i, n := range u.asked {
		if look(n, u.admitted[i]); n < 500 {
			asked, admitted = asked+n, admitted+u.admitted[i]
		}
	}
	if look(asked, admitted); high == 0 {
		return 1
	}
	return high / low
}

// cluster is members that ask the first of them, the owner of a key.
type cluster struct {
	load
	use
	leases  bool
	rng     *rand.Rand
	now     limiter.Tick
	from    limiter.Tick // from when on it is counted
	rule    *limiter.Rule
	table   *table.Table
	holders []*lease.Holder
	todo    events
	seq     int
	ids     uint64
	lent    []*lent
	waiting []func() bool // checks that wait for what is recalled
}

// lent is a lease as the owner knows it.
type lent struct {
	member   int
	lease    *lease.Lease
	until    limiter.Tick
	recalled limiter.Tick // when it was; 0: it was not
}

type event struct {
	at  limiter.Tick
	seq int
	run func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

func (c *cluster) after(span limiter.Tick, run func()) {
	c.seq++
	heap.Push(&c.todo, event{c.now + span, c.seq, run})
}

// run runs a load, with or without leases.
func (l load) run(t *testing.T, leases bool) *use {
	t.Helper()
	limit := limitertest.Limit(t, l.spec)
	c := &cluster{load: l, leases: leases, rng: rand.New(rand.NewPCG(1, 52)), now: 1e15, table: table.New(table.Config{}),
		rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit}, Leases: true}}
	c.asked, c.admitted = make([]int, l.members), make([]int, l.members)
	for range l.members {
		c.holders = append(c.holders, new(lease.Holder))
	}
	end := c.now + l.span
	c.from = c.now + l.span/2
	if l.demand > 1 {
		c.before()
	}
	every := float64(limiter.Span(l.spec.Window)) * float64(l.cost) / (float64(l.spec.Limit) * l.demand)
	next := float64(c.now)
	tick := c.now
	for {
		next += c.rng.ExpFloat64() * every
		at := limiter.Tick(next)
		for len(c.todo) > 0 && c.todo[0].at <= min(at, end) || tick <= min(at, end) {
			if len(c.todo) > 0 && c.todo[0].at <= tick {
				e := heap.Pop(&c.todo).(event)
				c.now = max(c.now, e.at)
				e.run()
				continue
			}
			c.now = max(c.now, tick)
			c.tick()
			tick += 5 * limiter.Millisecond
		}
		if at >= end {
			return &c.use
		}
		c.now = max(c.now, at)
		c.check(c.member())
	}
}

// before charges what an earlier demand of as much as the limit would have.
func (c *cluster) before() {
	const steps = 100
	window := limiter.Span(c.spec.Window)
	for i := range uint64(steps) {
		cost := uint64(c.spec.Limit)*(i+1)/steps - uint64(c.spec.Limit)*i/steps
		if i == steps-1 && c.spec.Algorithm == limiter.TokenBucket {
			cost = uint64(c.spec.Limit)
		}
		at := c.now - window + window/steps*limiter.Tick(i+1)
		if cost > 0 && c.table.Decide(at, c.charge(cost), new(limiter.Decision)) != nil {
			panic("the table is full")
		}
	}
}

// member draws the one that is asked next.
func (c *cluster) member() int {
	switch c.shares {
	case "90/9/1":
		n := c.rng.IntN(100)
		switch {
		case n < 90:
			return c.members - 1
		case n < 99:
			return c.members - 2
		}
		return c.rng.IntN(c.members - 2)
	case "moving":
		return int((c.now / limiter.Second) % limiter.Tick(c.members))
	}
	return c.rng.IntN(c.members)
}

func (c *cluster) instant() lease.Instant { return lease.Instant{Now: c.now, At: c.now} }

func (c *cluster) charge(cost uint64) *arith.Charge {
	out := new(arith.Charge)
	out.Add(arith.Key{Hash: arith.Hash{Hi: 7, Lo: 9}, Rule: c.rule, Cost: cost})
	return out
}

// check has a member asked.
func (c *cluster) check(m int) {
	counts := c.now >= c.from
	if counts {
		c.asked[m]++
	}
	charge, d := c.charge(c.cost), new(limiter.Decision)
	if m == 0 {
		if counts {
			c.local++
		}
		c.decide(m, charge, d, func() {})
		return
	}
	h, k := c.holders[m], charge.Key(0)
	if span := lease.Span(charge); c.leases && span > 0 && h.Warm(c.now, k.Hash) {
		done, w := h.Decide(c.instant(), k, uint64(c.members-1), d)
		if w.Over != nil {
			c.giveBack(m, w.Over)
		}
		if w.Units > 0 {
			c.borrow(m, k, w.Units, span)
		}
		if done {
			if counts {
				c.local++
				c.admitted[m]++
			}
			return
		}
	}
	c.frames += 2 // with the answer
	c.after(hop, func() {
		c.decide(m, charge, d, func() {
			c.after(hop, func() { h.Heard(k, d) })
		})
	})
}

// decide has the owner decide a check, and calls f then. It waits where lent units stand in its way.
func (c *cluster) decide(m int, charge *arith.Charge, d *limiter.Decision, f func()) {
	began, until := c.now, limiter.Tick(0)
	try := func() bool {
		if err := c.table.Decide(c.now, charge, d); err != nil {
			panic(err)
		}
		if !d.Allowed && c.recall() {
			if until == 0 {
				until = c.now + 20*limiter.Millisecond
			}
			if c.now < until {
				return false
			}
		}
		if d.Allowed && began >= c.from {
			c.admitted[m]++
		}
		f()
		return true
	}
	if !try() {
		c.waiting = append(c.waiting, try)
		c.after(20*limiter.Millisecond, c.wake)
	}
}

// recall asks for what is lent, and reports whether some may come.
func (c *cluster) recall() (some bool) {
	c.expire()
	for _, x := range c.lent {
		if x.recalled == 0 {
			x.recalled = c.now
			c.frames++
			c.after(hop, func() {
				if l := c.holders[x.member].Recall(c.instant(), x.lease.ID); l != nil {
					c.giveBack(x.member, l)
				}
			})
		}
		some = some || c.now-x.recalled < 20*limiter.Millisecond
	}
	return some
}

// expire forgets the leases that are over.
func (c *cluster) expire() {
	c.lent = slices.DeleteFunc(c.lent, func(x *lent) bool { return c.now >= x.until })
}

// wake decides the checks that wait.
func (c *cluster) wake() {
	waiting := c.waiting
	c.waiting = nil
	for _, try := range waiting {
		if !try() {
			c.waiting = append(c.waiting, try)
		}
	}
}

// borrow has a member ask for a lease.
func (c *cluster) borrow(m int, k *arith.Key, units uint64, span limiter.Tick) {
	c.ids++
	h, id := c.holders[m], c.ids
	l := h.Ask(c.instant(), k, units, id, span)
	c.frames += 2
	c.after(hop, func() {
		charge, d := c.charge(units), new(limiter.Decision)
		charge.ID = &arith.Idempotency{ID: id, Life: time.Second, Hold: (arith.LeaseWait * span).Duration(), Keep: true,
			Lent: true}
		if charge.Peek = len(c.waiting) > 0; c.table.Decide(c.now, charge, d) != nil {
			panic("the table is full")
		}
		if d.Allowed = d.Allowed && !charge.Peek; d.Allowed {
			c.lent = append(c.lent, &lent{member: m, lease: l, until: c.now + arith.LeaseWait*span})
		}
		c.after(3*hop, func() {
			switch used := h.Answered(c.instant(), l, span, d); {
			case used:
			case d.Allowed:
				c.giveBack(m, l)
			default:
				h.Returned(l, true, limiter.Receipt{})
			}
		})
	})
}

// giveBack has a member give a lease back.
func (c *cluster) giveBack(m int, l *lease.Lease) {
	c.frames += 2
	c.after(hop, func() {
		charge := c.charge(c.holders[m].Used(l))
		charge.ID = &arith.Idempotency{ID: l.ID, Life: time.Second}
		c.table.Amend(c.now, charge, limiter.Amend{IgnoreUnknown: true})
		c.lent = slices.DeleteFunc(c.lent, func(x *lent) bool { return x.lease == l })
		c.wake()
		c.after(hop, func() { c.holders[m].Returned(l, true, limiter.Receipt{}) })
	})
}

// tick is what members do each 5 ms.
func (c *cluster) tick() {
	for m, h := range c.holders {
		over, _ := h.Ended(c.instant())
		for _, l := range over {
			c.giveBack(m, l)
		}
	}
}

// useful reports what leases make of a load.
type useful struct{ used, local, localOff, unfair, frames float64 }

func (l load) compare(t *testing.T) useful {
	t.Helper()
	off, on := l.run(t, false), l.run(t, true)
	asked, had := off.total()
	_, has := on.total()
	return useful{float64(has) / float64(had), float64(on.local) / float64(asked), float64(off.local) / float64(asked),
		on.unfairness() / off.unfairness(), float64(off.frames) / float64(max(1, on.frames))}
}

// limits are those of the table, each with the cost of a check and the time of a run.
var limits = []struct {
	name   string
	limit  int64
	window time.Duration
	cost   uint64
	span   limiter.Tick
}{
	{"10/minute", 10, time.Minute, 1, 40 * limiter.Minute},
	{"1,000/s", 1e3, time.Second, 1, 30 * limiter.Second},
	{"10,000/s", 1e4, time.Second, 1, 12 * limiter.Second},
	{"100,000/s", 1e5, time.Second, 1, 4 * limiter.Second},
	{"1,000,000/s", 1e6, time.Second, 10, 4 * limiter.Second},
}

var demands = []float64{0.5, 0.95, 1, 1.5, 5}

// The limits are used as well with leases as without, and the members get as equal shares of them, in virtual time.
// With WEIR_LEASE_TABLE, the name of a file, all loads are run, and what comes of them is written there. Of these
// WEIR_LEASE_CELLS, a regular expression, chooses some, by names such as "sliding_window/16/1,000/s/even/1.5".
func TestUseOfTheLimit(t *testing.T) {
	out := os.Getenv("WEIR_LEASE_TABLE")
	cells := regexp.MustCompile(os.Getenv("WEIR_LEASE_CELLS"))
	table := "| algorithm | members | limit | shares | used, local (without) %, fewer messages at 0.5 | 0.95 | 1 | " +
		"1.5 | 5 | unfair |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n"
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingWindow} {
		for _, members := range []int{3, 5, 16} {
			for _, limit := range limits {
				if out == "" && limit.limit != 1e4 {
					continue
				}
				for _, shares := range []string{"even", "90/9/1", "moving"} {
					line, unfair := "", 1.0
					for _, demand := range demands {
						if out == "" && demand != 0.95 && demand != 1.5 || out == "" && members > 3 &&
							(algorithm == limiter.TokenBucket || shares != "90/9/1" || demand < 1) {
							continue
						}
						name := fmt.Sprintf("%v/%d/%s/%s/%v", algorithm, members, limit.name, shares, demand)
						if !cells.MatchString(name) {
							continue
						}
						l := load{spec: limiter.Spec{Algorithm: algorithm, Limit: limit.limit, Window: limit.window}, cost: limit.cost,
							members: members, demand: demand, shares: shares, span: limit.span}
						x := l.compare(t)
						unfair = max(unfair, x.unfair)
						local := fmt.Sprintf(" %.1f, %.0f (%.0f), %.0f |", 100*x.used, 100*x.local, 100*x.localOff, x.frames)
						line += local
						if out == "" && x.local < x.localOff+0.1 && (demand < 1 || algorithm != limiter.TokenBucket) {
							t.Errorf("%v, %s, demand %v: leases decide nothing: %+v", algorithm, shares, demand, x)
						}
						if out == "" && demand < 1 && algorithm == limiter.TokenBucket && x.frames < 10 {
							t.Errorf("%s, demand %v: leases save few messages: %+v", shares, demand, x)
						}
						if x.used < 0.99 || x.unfair > 1.1 {
							t.Errorf("%s: %+v", name, x)
						}
					}
					if line == "" {
						continue
					}
					line = fmt.Sprintf("| %v | %d | %s | %s |%s %.2f |", algorithm, members, limit.name, shares, line, unfair)
					t.Log(line)
					table += line + "\n"
				}
			}
		}
	}
	if out == "" {
		return
	}
	if err := os.WriteFile(out, []byte(table), 0o644); err != nil {
		t.Fatal(err)
	}
}
