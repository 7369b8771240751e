package bench

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/weirlimit/weir/internal/loadgen"
	"github.com/weirlimit/weir/internal/procstat"
	"github.com/weirlimit/weir/limiter"
)

// trial is the measurement of one mode with one shape.
type trial struct {
	work    *work
	target  *target
	callers []*caller
	clean   bool // the heap contains nothing of an earlier shape
	result  Result

	spent, cpu, redisCPU time.Duration // of all rounds
	toldCPU              bool
}

// caller sends a check as soon as the previous one is answered. In a round, one
// goroutine uses it.
type caller struct {
	ask             func(context.Context, *limiter.Request) (verdict, error)
	request         limiter.Request
	at              int // index in work.order
	asked           int
	hit             []uint64 // one bit for each key
	allowed, denied uint64
	took            loadgen.Waits
	_               [64]byte // keeps other callers' counts out of this cache line
}

// prepare makes the callers, which start at different keys.
func (t *trial) prepare() {
	keys := len(t.work.order)
	for i := range t.work.callers {
		t.callers = append(t.callers, &caller{
			ask: t.target.asker(i), at: i * keys / t.work.callers,
			hit: make([]uint64, (keys+63)/64),
		})
	}
}

// each calls a function for every caller concurrently, and returns the first error.
func (t *trial) each(f func(caller int) error) error {
	return loadgen.Each(t.work.callers, t.work.callers, f)
}

// round makes all callers send checks for the given time.
func (t *trial) round(ctx context.Context, long time.Duration) error {
	var before, after redisUsage
	var err error
	if t.target.redis != nil {
		if before, err = t.target.redis.usage(); err != nil {
			return err
		}
	}
	asked := t.asked()
	cpu, _ := procstat.Self()
	calls := make([]loadgen.Call, len(t.callers))
	for i, c := range t.callers {
		calls[i] = func(ctx context.Context, clock loadgen.Clock, last time.Duration) (time.Duration, error) {
			return c.once(ctx, t, clock, last)
		}
	}
	done, err := loadgen.Plan{Long: long}.Run(ctx, calls)
	if err != nil {
		return err
	}
	spent := done.Spent
	now, told := procstat.Self()
	if t.target.redis != nil {
		if after, err = t.target.redis.usage(); err != nil {
			return err
		}
	}
	t.spent += spent
	t.cpu, t.toldCPU = t.cpu+now-cpu, told
	t.redisCPU += after.cpu - before.cpu
	rate := float64(t.asked()-asked) / spent.Seconds()
	if t.result.Slowest == 0 || rate < t.result.Slowest {
		t.result.Slowest = rate
	}
	t.result.Fastest = max(t.result.Fastest, rate)
	return nil
}

// once sends a check. It reads the clock once: the end of one is the beginning of the next.
func (c *caller) once(ctx context.Context, t *trial, clock loadgen.Clock, last time.Duration) (time.Duration, error) {
	w := t.work
	n := w.order[c.at]
	if c.at++; c.at == len(w.order) {
		c.at = 0
	}
	rule := w.request(&c.request, n)
	v, err := c.ask(ctx, &c.request)
	if err == nil {
		err = t.target.check(v, rule, !isSpent(n))
	}
	if err != nil {
		return 0, fmt.Errorf("key %d: %w", n, err)
	}
	c.asked++
	c.hit[n/64] |= 1 << (n % 64)
	if v.allowed {
		c.allowed++
	} else {
		c.denied++
	}
	now := clock.Now()
	c.took.Add(now-last, 1)
	return now, nil
}

func (t *trial) asked() (sum int) {
	for _, c := range t.callers {
		sum += c.asked
	}
	return sum
}

// conclude sums the results of the callers, and verifies the premises that concern all
// of them.
func (t *trial) conclude() (Result, error) {
	r, keys := &t.result, len(t.work.order)
	var took loadgen.Waits
	hit, least := make([]uint64, (keys+63)/64), 0
	for _, c := range t.callers {
		took.Merge(&c.took)
		for i, word := range c.hit {
			hit[i] |= word
		}
		least = max(least, min(c.asked, keys))
		r.Premises.Allowed += c.allowed
		r.Premises.Denied += c.denied
	}
	for _, word := range hit {
		r.Premises.Hit += bits.OnesCount64(word)
	}
	r.Checks, r.Seconds = uint64(t.asked()), t.spent.Seconds()
	switch p := &r.Premises; {
	case p.Hit < least:
		return *r, fmt.Errorf("%d different keys were asked for, and should be %d at least", p.Hit, least)
	case p.Allowed+p.Denied != r.Checks || took.Count() != r.Checks:
		return *r, fmt.Errorf("%d checks were allowed, %d denied and %d timed, of %d", p.Allowed, p.Denied, took.Count(),
			r.Checks)
	case p.Allowed == 0 || p.Denied == 0:
		return *r, errors.New("not both kinds of answers were seen: give a longer --duration, or more rounds")
	}
	r.ChecksPerSecond = float64(r.Checks) / r.Seconds
	r.P50, r.P99 = microseconds(took.At(0.5)), microseconds(took.At(0.99))
	if t.toldCPU {
		r.CPU = perCheck(t.cpu, r.Checks)
	}
	if t.target.redis != nil {
		r.RedisCPU = perCheck(t.redisCPU, r.Checks)
	}
	return *r, nil
}

func microseconds(d time.Duration) float64 { return float64(d) / 1000 }

func perCheck(d time.Duration, checks uint64) *float64 {
	return new(float64(d) / float64(time.Microsecond) / float64(checks))
}
