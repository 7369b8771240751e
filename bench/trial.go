package bench

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/loadgen"
)

// Variant says how the checks of a trial are answered.
type Variant string

// The variants.
const (
	// Admitted: every check is admitted.
	Admitted Variant = "admitted"
	// Half: half of the keys are exhausted, so half of the checks are denied,
	// in no order.
	Half Variant = "half_denied"
)

// Setup is how a contender is measured.
type Setup struct {
	// Keys are what is asked for.
	Keys *Keys
	// Workers is how many goroutines ask; 0 means one for each core.
	Workers int
	// Variant; default [Admitted].
	Variant Variant
	// Join has each check make its key anew, with an allocation, as a front
	// door that must join path and user for its limiter. Weir's contenders
	// need no such key, and are the same with and without.
	Join bool
}

// Trial is one contender, filled with keys and ready to be asked. It is for one
// goroutine.
type Trial struct {
	contender Contender
	limiter   Limiter
	setup     Setup
	workers   []worker
	asked     int // checks of each worker so far
}

type worker struct {
	check Check
	walk  walk
	half  bool
	_     [64]byte
}

// NewTrial makes a contender's limiter and has it see every key once; of
// [Half], every second key is exhausted. The caller closes it.
func NewTrial(c Contender, s Setup) (*Trial, error) {
	if s.Workers == 0 {
		s.Workers = runtime.GOMAXPROCS(0)
	}
	if s.Variant == "" {
		s.Variant = Admitted
	}
	if s.Variant != Admitted && s.Variant != Half {
		return nil, fmt.Errorf("there is no variant %q: it is %s or %s", s.Variant, Admitted, Half)
	}
	if s.Variant == Half && c.Floor {
		return nil, fmt.Errorf("%s: %w", c.Name, errFloor)
	}
	l, err := c.New(s.Keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	t := &Trial{contender: c, limiter: l, setup: s}
	if err := t.fill(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Name, err), l.Close())
	}
	for w := range s.Workers {
		j := s.Keys.Scratch()
		if s.Join {
			j = s.Keys.Owned()
		}
		t.workers = append(t.workers, worker{check: l.Worker(j), walk: s.Keys.walkFrom(w, s.Workers),
			half: s.Variant == Half})
	}
	return t, nil
}

// Close closes the limiter.
func (t *Trial) Close() error { return t.limiter.Close() }

// exhausted tells whether key n of a half-denied trial is exhausted. The keys
// are asked for in random order, so this is a coin's toss to the processor.
func exhausted(n int) bool { return n&1 == 1 }

// fill has the limiter see every key, on all cores.
func (t *Trial) fill() error {
	return loadgen.Each(t.setup.Workers, t.setup.Workers, func(w int) error {
		check := t.limiter.Worker(t.setup.Keys.Owned())
		for n := w; n < t.setup.Keys.Len(); n += t.setup.Workers {
			if t.setup.Variant == Half && exhausted(n) {
				if err := t.limiter.Exhaust(n); err != nil {
					return fmt.Errorf("exhausting key %d: %w", n, err)
				}
				continue
			}
			if ok, err := check(n); err != nil || !ok {
				return fmt.Errorf("filling in key %d: allowed %v, error %w", n, ok, err)
			}
		}
		return nil
	})
}

// Run has every worker make so many checks, and returns how long they took
// together. It is an error if one is answered other than it should be.
func (t *Trial) Run(checks int) (time.Duration, error) {
	// A worker is ready when its goroutine runs, so that none asks before the clock does.
	var ready sync.WaitGroup
	ready.Add(len(t.workers))
	begin := sync.OnceValue(time.Now)
	err := loadgen.Each(len(t.workers), len(t.workers), func(i int) error {
		ready.Done()
		ready.Wait()
		begin()
		return t.workers[i].ask(checks)
	})
	spent := time.Since(begin())
	t.asked += checks
	if err != nil {
		return 0, fmt.Errorf("%s, %s: %w", t.contender.Name, t.setup.Variant, err)
	}
	return spent, nil
}

func (w *worker) ask(checks int) error {
	for range checks {
		n := w.walk.next()
		due := !w.half || !exhausted(n)
		if ok, err := w.check(n); err != nil || ok != due {
			return fmt.Errorf("key %d: allowed %v, which should be %v, error %w", n, ok, due, err)
		}
	}
	return nil
}

// Verify looks at every key: it must be there, and have been charged as often
// as it was asked for, or be exhausted still.
func (t *Trial) Verify() error {
	if t.contender.Keyless {
		return nil
	}
	keys := t.setup.Keys.Len()
	each, rest := t.asked/keys, t.asked%keys
	least := 1 + each*t.setup.Workers
	most := least
	if rest > 0 {
		most += t.setup.Workers
	}
	for n := range keys {
		left, err := t.left(n)
		if err != nil {
			return err
		}
		lo, hi := least, most
		if t.setup.Variant == Half && exhausted(n) {
			lo, hi = Limit, Limit
		}
		if used := Limit - left; used < lo-recovered || used > hi {
			return fmt.Errorf("%s: key %d was charged %d units, which should be %d to %d", t.contender.Name, n, used, lo, hi)
		}
	}
	return t.verifyCount(keys)
}

// left returns what key n, which must be there, has left.
func (t *Trial) left(n int) (int, error) {
	left, held, err := t.limiter.Left(n)
	if err == nil && !held {
		err = errors.New("it is not there after it was asked for")
	}
	if err != nil {
		return 0, fmt.Errorf("%s, key %d: %w", t.contender.Name, n, err)
	}
	return left, nil
}

// verifyHeld looks whether the keys are there: all, where the limiter tells how
// many there are, and a sample of them in any case.
func (t *Trial) verifyHeld() error {
	if t.contender.Keyless {
		return nil
	}
	keys := t.setup.Keys.Len()
	for n := 0; n < keys; n += keys/1000 + 1 {
		if _, err := t.left(n); err != nil {
			return err
		}
	}
	return t.verifyCount(keys)
}

// recovered is how many units of a bucket may have come back since it was
// charged, which at 1 in 31 s are few.
const recovered = 5

// verifyCount compares how many counters there are with how many there should
// be, where the limiter tells.
func (t *Trial) verifyCount(keys int) error {
	l, ok := t.limiter.(interface{ Held() (counters, perKey int) })
	if !ok {
		return nil
	}
	if held, perKey := l.Held(); held != keys*perKey {
		return fmt.Errorf("%s holds %d counters, which should be %d for each of %d keys", t.contender.Name, held, perKey,
			keys)
	}
	return nil
}
