package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// threeWindows are the windows of the contenders that have three. None of them
// ends while it is measured, or only once in many months.
func threeWindows() []time.Duration {
	return []time.Duration{Window, Window - 100*24*time.Hour, Window - 200*24*time.Hour}
}

// tables are Weir's table alone: the key is hashed already, and the caller
// reads the clock.
func tables() []Contender {
	var out []Contender
	add := func(name, what string, a limiter.Algorithm, windows ...time.Duration) {
		out = append(out, Contender{
			Name: "table/" + name, What: "Weir's limiter/table with hashes ready made, and time.Since: " + what,
			Free: a != limiter.SlidingLog,
			New:  func(k *Keys) (Limiter, error) { return newTable(k, a, windows) },
		})
	}
	for i, name := range limiter.AlgorithmNames() {
		add(name, name, limiter.Algorithm(i), Window)
	}
	add("three_windows", "three windows of sliding_counter", limiter.SlidingCounter, threeWindows()...)
	return out
}

// nodes are Weir as a program embeds it: path and user in, ten rules with a
// regular expression each, of which the last matches, and its own clock.
func nodes() []Contender {
	var out []Contender
	add := func(name, what string, free bool, limits string) {
		out = append(out, Contender{
			Name: "weir/" + name, What: "package weir, the last of 10 rules with a regexp: " + what, Free: free,
			New: func(k *Keys) (Limiter, error) { return newNode(k, limits) },
		})
	}
	limit := func(algorithm string, w time.Duration) string {
		return fmt.Sprintf("{limit: %d, window: %dh, algorithm: %s}", Limit, w/time.Hour, algorithm)
	}
	for _, name := range limiter.AlgorithmNames() {
		add(name, name, name != limiter.SlidingLog.String(), limit(name, Window))
	}
	var three []string
	for _, w := range threeWindows() {
		three = append(three, limit(limiter.SlidingCounter.String(), w))
	}
	add("three_windows", "three windows of sliding_counter", true, strings.Join(three, ", "))
	return out
}

var errDenied = errors.New("weir denies the whole limit")

type tableLimiter struct {
	table  *table.Table
	rule   limiter.Rule
	opened time.Time
	start  limiter.Tick
}

func newTable(k *Keys, a limiter.Algorithm, windows []time.Duration) (Limiter, error) {
	t := &tableLimiter{
		table: table.New(table.Config{MaxKeys: k.Len() * len(windows), MaxBytes: -1}), rule: limiter.Rule{Name: "bench"},
		opened: time.Now(),
	}
	t.start = limiter.TickOf(t.opened)
	for _, w := range windows {
		l, err := limiter.NewLimit(limiter.Spec{Algorithm: a, Limit: Limit, Window: w})
		if err != nil {
			return nil, err
		}
		t.rule.Limits = append(t.rule.Limits, l)
	}
	return t, nil
}

// hashOf returns the hash of key n: two outputs of SplitMix64, which takes
// hardly any time and no memory.
func hashOf(n int) arith.Hash {
	return arith.Hash{Hi: splitMix(2 * uint64(n)), Lo: splitMix(2*uint64(n) + 1)}
}

func splitMix(x uint64) uint64 {
	x = (x + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (t *tableLimiter) decide(c *arith.Charge, d *limiter.Decision, n int, cost uint64, peek bool) error {
	c.Clear()
	c.Peek = peek
	c.Add(arith.Key{Hash: hashOf(n), Rule: &t.rule, Cost: cost})
	return t.table.Decide(t.start+limiter.Tick(time.Since(t.opened)/limiter.TickDuration), c, d)
}

func (t *tableLimiter) Worker(*Joiner) Check {
	var c arith.Charge
	var d limiter.Decision
	return func(n int) (bool, error) {
		err := t.decide(&c, &d, n, 1, false)
		return d.Allowed, err
	}
}

func (t *tableLimiter) Exhaust(n int) error {
	var c arith.Charge
	var d limiter.Decision
	err := t.decide(&c, &d, n, Limit, false)
	if err == nil && !d.Allowed {
		err = errDenied
	}
	return err
}

func (t *tableLimiter) Left(n int) (int, bool, error) {
	var c arith.Charge
	var d limiter.Decision
	err := t.decide(&c, &d, n, 1, true)
	left, held := leftIn(&d, len(t.rule.Limits))
	return left, held, err
}

// Held returns how many counters there are, and how many a key should have.
func (t *tableLimiter) Held() (counters, perKey int) {
	return t.table.Stats().Keys, len(t.rule.Limits)
}

func (t *tableLimiter) Close() error { return nil }

// leftIn returns what the tightest of a decision's limits has left, provided
// that it is a decision of so many limits. A counter that is not there has all
// of its limit left.
func leftIn(d *limiter.Decision, limits int) (units int, held bool) {
	left := uint64(Limit)
	for i := range d.Len() {
		left = min(left, d.Limit(i).Remaining)
	}
	return int(left), left < Limit && d.Len() == limits
}

type nodeLimiter struct {
	keys   *Keys
	node   *weir.Node
	limits int
}

func newNode(k *Keys, limits string) (Limiter, error) {
	n := &nodeLimiter{keys: k, limits: strings.Count(limits, "{")}
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for i := range 9 {
		fmt.Fprintf(&b, "  - {name: r%d, match: {path: \"^/v%d/(items|orders)/[0-9]+\"}, limits: [5/second]}\n", i, i)
	}
	fmt.Fprintf(&b, "  - {name: last, match: {path: \"^/api/.*[0-9]$\"}, limits: [%s]}\n", limits)
	node, err := weir.Open(context.Background(), weir.Config{Rules: []byte(b.String()), MaxKeys: k.Len() * n.limits,
		MaxBytes: -1})
	if err != nil {
		return nil, err
	}
	n.node = node
	return n, nil
}

// Worker makes each request anew, as a front door does.
func (l *nodeLimiter) Worker(*Joiner) Check {
	ctx := context.Background()
	var d weir.Decision
	var r weir.Request
	return func(n int) (bool, error) {
		r.Path, r.User = l.keys.Path(n), l.keys.User(n)
		err := l.node.CheckInto(ctx, &r, &d)
		return d.Allowed, err
	}
}

func (l *nodeLimiter) Exhaust(n int) error {
	d, err := l.node.Check(context.Background(), weir.Request{Path: l.keys.Path(n), User: l.keys.User(n),
		Cost: weir.Units(Limit)})
	if err == nil && !d.Allowed {
		err = errDenied
	}
	return err
}

func (l *nodeLimiter) Left(n int) (int, bool, error) {
	var d weir.Decision
	err := l.node.PeekInto(context.Background(), &weir.Request{Path: l.keys.Path(n), User: l.keys.User(n)}, &d)
	left, held := leftIn(&d, l.limits)
	return left, held, err
}

// Held returns how many counters there are, and how many a key should have.
func (l *nodeLimiter) Held() (counters, perKey int) { return l.node.Stats().Keys, l.limits }

func (l *nodeLimiter) Close() error { return l.node.Close() }
