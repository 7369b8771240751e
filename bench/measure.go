package bench

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Speed is what checks cost.
type Speed struct {
	// Checks were made, on all cores together.
	Checks int
	// Spent is how long they took, from the first to the last.
	Spent time.Duration
	// Mallocs and Bytes were allocated meanwhile, by the whole process.
	Mallocs, Bytes uint64
}

// NanosPerCheck returns the time from the first check to the last, divided by
// the checks of all cores: what `go test` calls ns/op of a parallel benchmark.
// A core spends as many times more on one check as there are cores.
func (s Speed) NanosPerCheck() float64 { return float64(s.Spent) / float64(s.Checks) }

// MallocsPerCheck returns the allocations per check.
func (s Speed) MallocsPerCheck() float64 { return float64(s.Mallocs) / float64(s.Checks) }

// BytesPerCheck returns the bytes allocated per check.
func (s Speed) BytesPerCheck() float64 { return float64(s.Bytes) / float64(s.Checks) }

// warmUp is how many checks are made, at least, before any is measured. By then
// caches have seen all paths and lists of top keys are full.
const warmUp = 400_000

// MeasureSpeed has every worker go through all keys so many times, after some
// checks to warm up, and returns what it cost. It is an error if a premise does
// not hold: an answer is wrong, a key is missing or was charged otherwise than
// it was asked for, or something was allocated where nothing may be.
func MeasureSpeed(c Contender, s Setup, passes int) (out Speed, err error) {
	if passes < 1 || passes*max(s.Workers, runtime.GOMAXPROCS(0)) > Limit/4 {
		return Speed{}, fmt.Errorf("%d passes are not possible: give at least 1, and so few that no key is used up", passes)
	}
	t, err := NewTrial(c, s)
	if err != nil {
		return Speed{}, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if _, err := t.Run((warmUp/len(t.workers)/s.Keys.Len() + 1) * s.Keys.Len()); err != nil {
		return Speed{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	spent, err := t.Run(passes * s.Keys.Len())
	runtime.ReadMemStats(&after)
	if err != nil {
		return Speed{}, err
	}
	if err := t.Verify(); err != nil {
		return Speed{}, err
	}
	out = Speed{
		Checks: passes * s.Keys.Len() * len(t.workers), Spent: spent,
		Mallocs: after.Mallocs - before.Mallocs, Bytes: after.TotalAlloc - before.TotalAlloc,
	}
	if per := out.MallocsPerCheck(); c.Free && !s.Join && per > mostMallocs(out.Checks) {
		return out, fmt.Errorf("%s allocates %.4f times per check, which should be 0", c.Name, per)
	}
	return out, nil
}

// mostMallocs is what may be allocated per check where a check allocates
// nothing: by the runtime, and by what takes a key or path in only now and
// then, such as a cache. One that allocated by itself would do so once or more.
func mostMallocs(checks int) float64 { return 0.01 + 200/float64(checks) }
