package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// timed is a counter that recovers within a run, and what clients were given of it.
type timed struct {
	*key
	limit *limiter.Limit
	given []admission
}

// admission is one that a client got: decided between its call and its return.
type admission struct {
	call, back limiter.Tick
	units      int
}

// newTimed makes a key of a rule with one limit that recovers within seconds.
func (w *World) newTimed(name string, spec limiter.Spec) *timed {
	l, err := limiter.NewLimit(spec)
	if err != nil {
		panic(err)
	}
	r := &limiter.Rule{Name: name, Limits: []*limiter.Limit{l}, OnUnreachable: limiter.Unreachable(w.rng.IntN(3))}
	k := &key{rule: r, hash: arith.Hash{Hi: w.rng.Uint64(), Lo: w.rng.Uint64()}, byPolicy: make(map[string]int)}
	lk := k.key(nil, 1)
	k.part = table.PartitionOf(&lk)
	w.keys = append(w.keys, k)
	if !slices.Contains(w.parts, k.part) {
		w.parts = append(w.parts, k.part)
	}
	return &timed{key: k, limit: l}
}

// ask has a client ask a node for some units.
func (k *timed) ask(n *Node, units int) {
	var c arith.Charge
	c.Add(k.key.key(n, uint64(units)))
	w, d, call := n.w, new(limiter.Decision), n.w.now
	n.asked++
	n.do(func() {
		n.core.Begin(&c, d, 0, func() {
			n.asked--
			w.logf("%s answers %s: %v by %v", n.name, k.rule.Name, d.Allowed, d.Source)
			switch {
			case d.Source.ByPolicy():
				k.fallbacks++
			case d.Allowed:
				k.given = append(k.given, admission{call, w.now, units})
			default:
				k.denied++
			}
		})
	})
}

// most returns the most units that the limit promises to admit within a span.
func (k *timed) most(span limiter.Tick) int {
	spec := k.limit.Spec()
	window, limit := limiter.Tick(spec.Window/limiter.TickDuration), limiter.Tick(spec.Limit)
	switch spec.Algorithm {
	case limiter.SlidingLog, limiter.SlidingWindow:
		return int(limit * ((span + window - 1) / window))
	case limiter.FixedWindow, limiter.SlidingCounter:
		return int(limit * (2 + (span+window-1)/window)) // one window may be shortened by the skew
	default:
		more := (span*limit + window - 1) / window
		if spec.Drip == limiter.DripInterval {
			more += limiter.Tick(max(1, spec.DripUnits))
		}
		return int(limiter.Tick(k.limit.Capacity()) + more)
	}
}

// judge returns an error if more was given within any span than the limit promises. An
// admission counts for a span if it was asked for and given within it. A clock that runs
// fast makes spans shorter.
func (k *timed) judge(drift limiter.Tick) error {
	window := limiter.Tick(k.limit.Spec().Window / limiter.TickDuration)
	for i := range k.given {
		from, units, last := k.given[i].call, 0, limiter.Tick(0)
		for _, g := range k.given[i:] {
			if g.call < from || g.call >= from+2*window {
				continue
			}
			units += g.units
			last = max(last, g.back)
			span := last - from
			span += span*drift/limiter.Second + 1
			if most := k.most(span); units > most {
				return fmt.Errorf("%s: %d within %v from %v on, at most %d", k.rule.Name, units, span.Duration(),
					(from - epoch).Duration(), most)
			}
		}
	}
	return nil
}

// timedSpecs are limits of each algorithm.
func timedSpecs() map[string]limiter.Spec {
	all := map[string]limiter.Spec{}
	for name, spec := range map[string]limiter.Spec{
		"fixed":    {Algorithm: limiter.FixedWindow},
		"counter":  {Algorithm: limiter.SlidingCounter},
		"log":      {Algorithm: limiter.SlidingLog},
		"sliding":  {Algorithm: limiter.SlidingWindow},
		"token":    {Algorithm: limiter.TokenBucket},
		"leaky":    {Algorithm: limiter.LeakyBucket},
		"dripping": {Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval},
		"gcra":     {Algorithm: limiter.GCRA},
	} {
		for _, size := range []struct {
			limit  int64
			window time.Duration
		}{{5, time.Second}, {40, 2 * time.Second}, {10, 5 * time.Second}} {
			spec.Limit, spec.Window = size.limit, size.window
			all[fmt.Sprintf("%s %d per %v", name, size.limit, size.window)] = spec
		}
	}
	return all
}

// TestClocksThatDiffer: the clocks of members differ by up to five seconds, and counters
// move between them in order. No limit admits more than it promises.
func TestClocksThatDiffer(t *testing.T) {
	worlds(t)
	specs := timedSpecs()
	names := make([]string, 0, len(specs))
	for name := range specs {
		names = append(names, name)
	}
	slices.Sort(names)
	eachSeed(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		w.tracing = testing.Verbose()
		w.size, w.skew, w.drift = 3+w.rng.IntN(3), 5*limiter.Second, 100
		rules := map[string]*limiter.Rule{}
		var keys []*timed
		for _, name := range names {
			k := w.newTimed(name, specs[name])
			rules[name] = k.rule
			keys = append(keys, k)
		}
		for i := range w.size {
			w.start(string(rune('a'+i)), i == 0, rules, w.size)
		}
		if err := w.run(6*limiter.Second, w.invariants); err != nil {
			t.Fatal(err)
		}
		end := w.now + 16*limiter.Second
		for _, k := range keys {
			spec := k.limit.Spec()
			pause := limiter.Tick(spec.Window/limiter.TickDuration) / limiter.Tick(3*spec.Limit)
			var next func()
			next = func() {
				if live := w.serving(); len(live) > 0 && w.now < end {
					k.ask(live[w.rng.IntN(len(live))], 1+w.rng.IntN(2))
					w.after(w.between(pause/2, 3*pause/2), next)
				}
			}
			w.after(w.between(0, pause), next)
		}
		w.rolling(rules)
		if err := w.run(20*limiter.Second, w.invariants); err != nil {
			t.Error(err)
		}
		for _, k := range keys {
			if err := k.judge(2 * w.drift); err != nil {
				t.Error(err)
			}
			if k.denied == 0 || k.fallbacks > 0 {
				t.Errorf("%s: %d denied, %d answered by policy", k.rule.Name, k.denied, k.fallbacks)
			}
		}
		if t.Failed() {
			for _, line := range w.trace {
				t.Log(line)
			}
		}
	})
}
