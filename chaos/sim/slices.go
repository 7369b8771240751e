package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// sliced is a key whose rate is divided among holders, in a world where that is on. Each uses all that it is assigned,
// as a bucket that is full at first. Checks come the usual way besides.
type sliced struct {
	on       bool
	rule     *limiter.Rule
	hash     arith.Hash
	holders  []*holding
	told     []toldUnits
	assigned int          // assignments
	slowest  limiter.Tick // the longest that a check which was admitted waited
}

// The bucket of the key, and what each holder may use at once.
const (
	bucketRate  = 200
	bucketBurst = 100
	sliceBurst  = 12
	sliceFor    = 3 * limiter.Second
)

// toldUnits are units that were admitted at an instant.
type toldUnits struct {
	at    limiter.Tick
	units uint64
}

// holding is one who holds a slice.
type holding struct {
	id    uint64
	given []givenRate
	level uint64 // in millionths of a unit
	at    limiter.Tick
}

type givenRate struct {
	rate  uint64
	until limiter.Tick
}

// newKey makes the key.
func (s *sliced) newKey(w *World, rules map[string]*limiter.Rule) {
	if !s.on {
		return
	}
	l, err := limiter.NewLimit(limiter.Spec{Name: "sliced", Algorithm: limiter.TokenBucket, Limit: bucketRate,
		Window: time.Second, Burst: bucketBurst})
	if err != nil {
		panic(err)
	}
	s.rule = &limiter.Rule{Name: "sliced", Limits: []*limiter.Limit{l}, OnUnreachable: limiter.UnreachableClosed,
		Replication: limiter.ReplicationLag}
	at := slices.IndexFunc(w.keys, closed) // of the same partition, of which there are few
	s.hash = arith.Hash{Hi: w.rng.Uint64(), Lo: w.keys[at].hash.Lo + 1000}
	rules["sliced"] = s.rule
}

// part is the partition of the key.
func (s *sliced) part() int {
	return table.PartitionOf(&arith.Key{Hash: s.hash, Rule: s.rule})
}

// demand has holders ask for slices, and use them, for a span.
func (s *sliced) demand(w *World, span limiter.Tick) {
	if !s.on {
		return
	}
	for i := len(s.holders); i < 4; i++ {
		s.holders = append(s.holders, &holding{id: w.rng.Uint64() | 1, level: sliceBurst * 1e6})
	}
	end := w.now + span
	again := func(least, most limiter.Tick, f func(n *Node)) {
		w.often(end, w.between(0, most), func() limiter.Tick {
			if live := w.serving(); len(live) > 0 {
				f(live[w.rng.IntN(len(live))])
			}
			return w.between(least, most)
		})
	}
	for _, h := range s.holders {
		again(200*ms, 1500*ms, func(n *Node) { s.ask(w, h, n, 1+w.rng.Uint64N(bucketRate)) })
		again(5*ms, 40*ms, func(*Node) { s.use(h, w.now) })
	}
	again(20*ms, 200*ms, func(n *Node) { s.check(w, n) })
}

// ask has a holder ask for a rate, for as long as if it had it at once. It is silent now and then.
func (s *sliced) ask(w *World, h *holding, n *Node, demand uint64) {
	if w.chance(5) {
		return
	}
	id := &arith.Idempotency{ID: h.id, Life: time.Second, Hold: sliceFor.Duration(), Keep: true, Lent: true, Rate: demand}
	charge, answer, until := &arith.Charge{ID: id}, new(limiter.Decision), w.now+sliceFor
	charge.Add(arith.Key{Hash: s.hash, Rule: s.rule, Cost: sliceBurst + 1})
	n.do(func() {
		n.core.Begin(charge, answer, 0, func() {
			if rate := answer.Remarks().Assigned; answer.Allowed && rate > 0 && until > w.now {
				s.use(h, w.now)
				h.given = append(h.given, givenRate{rate, until})
				s.assigned++
			}
		})
	})
}

// use has a holder use what it has up to an instant: at each, the highest rate that it was assigned.
func (s *sliced) use(h *holding, now limiter.Tick) {
	h.given = slices.DeleteFunc(h.given, func(g givenRate) bool { return g.until <= h.at })
	if len(h.given) == 0 {
		h.at = now
		return
	}
	for h.at < now {
		next, rate := now, uint64(0)
		for _, g := range h.given {
			if g.until > h.at {
				next, rate = min(next, g.until), max(rate, g.rate)
			}
		}
		h.level = min(h.level+rate*uint64(next-h.at), sliceBurst*1e6)
		if h.at = next; rate == 0 {
			h.at = now
			return
		}
		if units := h.level / 1e6; units > 0 {
			h.level -= units * 1e6
			s.told = append(s.told, toldUnits{next, units})
		}
	}
}

// check asks for some units the usual way.
func (s *sliced) check(w *World, n *Node) {
	charge, answer, begun := new(arith.Charge), new(limiter.Decision), w.now
	units := 1 + w.rng.Uint64N(20)
	charge.Add(arith.Key{Hash: s.hash, Rule: s.rule, Cost: units})
	n.do(func() {
		n.core.Begin(charge, answer, 0, func() {
			if answer.Allowed && !answer.Source.ByPolicy() {
				s.told = append(s.told, toldUnits{w.now, units})
				s.slowest = max(s.slowest, w.now-begun)
			}
		})
	})
}

// judge says whether more was admitted than the promises say: in any span of time, the burst, the rate times the span,
// and for each takeover D (5 % of the burst, by checks) and what the rate gives while the state is on its way. A check
// counts when it is answered; it may have been charged as much earlier as the slowest has waited. Clocks differ by a
// five-thousandth.
func (s *sliced) judge(w *World) error {
	slices.SortStableFunc(s.told, func(a, b toldUnits) int { return int(a.at - b.at) })
	changes := float64(w.changes(s.part()))
	extra := changes*(0.05*bucketBurst+bucketRate*0.1) + bucketRate*float64(s.slowest)/1e6 + 1
	level, at := 0.0, limiter.Tick(0)
	for _, u := range s.told {
		level = max(0, level-bucketRate*1.0002*float64(u.at-at)/1e6) + float64(u.units)
		if at = u.at; level > bucketBurst+extra {
			return fmt.Errorf("%v: %.0f units beyond the rate, and the burst is %d (%.0f more for %.0f takeovers, and checks "+
				"that waited for %v)", (u.at - epoch).Duration(), level, bucketBurst, extra, changes, s.slowest.Duration())
		}
	}
	return nil
}
