package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"runtime"
	"strconv"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// ErrNotClosed is wrapped by the error of [Run] if something it opened could not be
// closed, so keys may remain in Redis until they expire.
var ErrNotClosed = errors.New("the target could not be closed")

// Run measures. All modes of a shape are open at the same time and have their turns one
// after the other, in an order that rotates from round to round. Run returns an error
// if a premise does not hold, or the context ends. It closes everything it opened in
// any case.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	r := &Report{
		Machine: machine(), Keys: c.Keys, Callers: c.Callers, Rounds: c.Rounds,
		RoundMs: float64(c.Duration) / float64(time.Millisecond),
	}
	base := heapInUse()
	for _, s := range c.Shapes {
		clean, err := heapBack(ctx, base)
		if err != nil {
			return nil, err
		}
		results, err := runShape(ctx, &c, s, clean)
		if err != nil {
			return nil, err
		}
		r.Results = append(r.Results, results...)
	}
	return r, nil
}

// heapBack waits until the memory of an earlier shape has been freed, and reports
// whether it has. A closed cluster is referenced by its timers until they have fired.
func heapBack(ctx context.Context, base uint64) (bool, error) {
	deadline, tick := time.NewTimer(backWithin), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for heapInUse() > base+backBytes {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

// runShape measures all modes with one shape. Unless the heap is clean, it reports no
// memory of this process.
func runShape(ctx context.Context, c *Config, s Shape, clean bool) (_ []Result, err error) {
	w, err := newWork(c, s)
	if err != nil {
		return nil, err
	}
	var trials []*trial
	defer func() {
		for _, t := range trials {
			if closing := t.target.close(); closing != nil {
				err = errors.Join(err, fmt.Errorf("%s, %s: %w: %w", s, t.target.mode, ErrNotClosed, closing))
			}
		}
	}()
	for _, m := range c.Modes {
		c.Progress(fmt.Sprintf("%s, %s: filling in %d keys", s, m, c.Keys))
		target, err := openTarget(ctx, c, m)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", s, m, err)
		}
		t := &trial{work: w, target: target, clean: clean, result: Result{Shape: s, Mode: m}}
		trials = append(trials, t)
		if err := t.fill(ctx); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", s, m, err)
		}
		t.prepare()
	}
	for round := range c.Rounds {
		for i := range trials {
			t := trials[(round+i)%len(trials)]
			c.Progress(fmt.Sprintf("%s, %s: round %d of %d", s, t.target.mode, round+1, c.Rounds))
			if err := t.round(ctx, c.Duration); err != nil {
				return nil, fmt.Errorf("%s, %s, round %d: %w", s, t.target.mode, round+1, err)
			}
		}
	}
	results := make([]Result, len(trials))
	for i, t := range trials {
		if results[i], err = t.conclude(); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", s, t.target.mode, err)
		}
	}
	return results, nil
}

// work is the checks that all modes of a shape get: keys in an order.
type work struct {
	shape   Shape
	callers int
	users   []string
	order   []uint32
	rules   [2]string // the names of the rules for open and for spent keys
	paths   [2]string
}

// newWork returns keys that no other run uses, so that a long-running node has not
// counted them yet.
func newWork(c *Config, s Shape) (*work, error) {
	var run [6]byte
	if _, err := rand.Read(run[:]); err != nil {
		return nil, fmt.Errorf("cannot draw a random name for the keys: %w", err)
	}
	w := &work{
		shape: s, callers: c.Callers, users: make([]string, c.Keys), order: make([]uint32, c.Keys),
		rules: [2]string{ruleName(s, open), ruleName(s, spent)}, paths: [2]string{path(s, open), path(s, spent)},
	}
	for i := range w.users {
		w.users[i] = hex.EncodeToString(run[:]) + "-" + strconv.Itoa(i)
		w.order[i] = uint32(i)
	}
	shuffle := mrand.New(mrand.NewPCG(1, 2)) // the same order in every run
	shuffle.Shuffle(len(w.order), func(i, j int) { w.order[i], w.order[j] = w.order[j], w.order[i] })
	return w, nil
}

// request sets r to the check of key n, and returns the rule that should decide.
func (w *work) request(r *limiter.Request, n uint32) (rule string) {
	r.Path, r.User = w.paths[n&1], w.users[n]
	return w.rules[n&1]
}

// warm makes every caller send one check that counts nothing, so that connections and
// scripts exist before memory is measured.
func (t *trial) warm(ctx context.Context) error {
	return t.each(func(caller int) error {
		ask := t.target.asker(caller)
		r := limiter.Request{Cost: limiter.Units(0)}
		rule := t.work.request(&r, 1)
		v, err := ask(ctx, &r)
		if err != nil {
			return err
		}
		return t.target.check(v, rule, true)
	})
}

// fill checks every key once, the spent ones first. The memory per key is that of spent
// keys, since they remain. That each is allowed, under a limit of 1, shows that no two
// share a counter.
func (t *trial) fill(ctx context.Context) error {
	if err := t.warm(ctx); err != nil {
		return err
	}
	before, err := t.memory()
	if err != nil {
		return err
	}
	if err := t.fillKind(ctx, true); err != nil {
		return err
	}
	if t.target.settle != nil {
		if err := t.target.settle(ctx); err != nil {
			return err
		}
	}
	after, err := t.memory()
	if err != nil {
		return err
	}
	keys := len(t.work.users) / 2
	per := (after - before) / float64(keys)
	switch {
	case per <= 0: // other memory was freed meanwhile, so the figure has no meaning
	case t.target.redis != nil:
		t.result.RedisMemory = &per
	case t.target.inHeap && t.clean:
		t.result.Memory = &per
	}
	if err := t.verifyHeld(keys * t.work.shape.limits()); err != nil {
		return err
	}
	t.result.Premises.Filled = len(t.work.users)
	return t.fillKind(ctx, false)
}

func (t *trial) fillKind(ctx context.Context, isSpentKind bool) error {
	return t.each(func(caller int) error {
		ask := t.target.asker(caller)
		var r limiter.Request
		for i := caller; i < len(t.work.order); i += t.work.callers {
			n := t.work.order[i]
			if isSpent(n) != isSpentKind {
				continue
			}
			rule := t.work.request(&r, n)
			v, err := ask(ctx, &r)
			if err == nil {
				err = t.target.check(v, rule, true)
			}
			if err != nil {
				return fmt.Errorf("filling in key %d: %w", n, err)
			}
		}
		return nil
	})
}

// verifyHeld compares the number of counters with the expected one.
func (t *trial) verifyHeld(want int) error {
	if t.target.held == nil {
		return nil
	}
	held, err := t.target.held()
	if err != nil {
		return err
	}
	most := want
	if t.target.copies {
		most = want * members
	}
	if held < want || held > most {
		return fmt.Errorf("there are %d counters after filling, and should be %d to %d", held, want, most)
	}
	t.result.Premises.Held = &held
	return nil
}

// A heap is steady if a collection changes it by less than steadyBytes. Closed deciders
// and pools take several collections to disappear. After steadyTries the heap is used
// as it is.
const (
	steadyBytes = 16 << 10
	steadyTries = 20
	// backBytes of an earlier shape may remain after backWithin.
	backBytes  = 1 << 20
	backWithin = 15 * time.Second
)

// memory returns the bytes in use where the counters are: in Redis, or in this
// process's heap after a collection.
func (t *trial) memory() (float64, error) {
	if t.target.redis != nil {
		u, err := t.target.redis.usage()
		return u.memory, err
	}
	return float64(heapInUse()), nil
}

// heapInUse runs a garbage collection and returns the bytes still in use.
func heapInUse() uint64 {
	var m runtime.MemStats
	for range steadyTries {
		runtime.GC()
		was := m.HeapAlloc
		runtime.ReadMemStats(&m)
		if max(m.HeapAlloc, was)-min(m.HeapAlloc, was) < steadyBytes {
			break
		}
	}
	return m.HeapAlloc
}
