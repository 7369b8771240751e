package bench

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/loadgen"
)

// Provoke says why the collector runs while pauses are measured.
type Provoke string

// The reasons.
const (
	// ByCall calls runtime.GC again and again.
	ByCall Provoke = "call"
	// ByGarbage has every check drop an object of 1 KiB, until the collector
	// has run often enough by its own pace.
	ByGarbage Provoke = "garbage"
)

// Pauses are the pauses of the collector while keys are asked for.
type Pauses struct {
	// Keys are held, and asked for by Workers goroutines meanwhile.
	Keys, Workers int
	// Cycles of the collector, and pauses in them.
	Cycles, Count uint64
	// Longest and Median pause, as upper bounds: the runtime counts pauses by
	// classes of time, and these are the ends of two of them.
	Longest, Median time.Duration
	// Cycle is the time from one end of a collection to the next, with
	// [ByCall] what a collection takes.
	Cycle time.Duration
	// Processor is the processor time of the collector per cycle.
	Processor time.Duration
	// Checks were made meanwhile.
	Checks uint64
	// Spent is how long it took.
	Spent time.Duration
}

// Load is how pauses are measured.
type Load struct {
	// Cycles of the collector, at least.
	Cycles int
	// Provoke says why they happen; default [ByCall].
	Provoke Provoke
	// Most is how long it may take, if positive; then the cycles so far count.
	Most time.Duration
	// Rest is how long each worker rests in every 10 ms; default not at all. A
	// process with real-time priority that never rests is stopped by the kernel
	// for 50 ms in each second, which then shows as a pause, whatever the heap.
	Rest time.Duration
}

// restPeriod is the time in which a worker rests once.
const restPeriod = 10 * time.Millisecond

// MeasurePauses fills a contender with keys and has all workers ask for them
// until the collector has run often enough.
func MeasurePauses(c Contender, s Setup, load Load) (p Pauses, err error) {
	t, err := NewTrial(c, s)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	runtime.GC()
	runtime.GC()
	if load.Rest < 0 || load.Rest >= restPeriod {
		return p, fmt.Errorf("a rest of %v in every %v is not possible", load.Rest, restPeriod)
	}
	run := pausing{trial: t, load: load}
	before := readCollector()
	start := time.Now()
	err = run.run()
	p = readCollector().since(before)
	p.Spent = time.Since(start)
	p.Keys, p.Workers, p.Checks = s.Keys.Len(), len(t.workers), run.checks.Load()
	if p.Cycles > 0 {
		p.Cycle = p.Spent / time.Duration(p.Cycles)
		p.Processor /= time.Duration(p.Cycles)
	}
	return p, errors.Join(err, t.verifyHeld())
}

// pausing is one measurement of pauses.
type pausing struct {
	trial  *Trial
	load   Load
	stop   atomic.Bool
	checks atomic.Uint64
}

// stride is how many checks a worker makes between two looks at the flag that
// ends it.
const stride = 1000

func (p *pausing) run() error {
	worked := make(chan error, 1)
	go func() {
		n := len(p.trial.workers)
		worked <- loadgen.Each(n, n, func(i int) error { return p.work(&p.trial.workers[i]) })
	}()
	start, first := time.Now(), readCollector().cycles
	for !p.stop.Load() {
		if p.load.Provoke == ByGarbage {
			time.Sleep(time.Millisecond)
		} else {
			runtime.GC()
		}
		enough := readCollector().cycles-first >= uint64(p.load.Cycles)
		if enough || p.load.Most > 0 && time.Since(start) > p.load.Most {
			p.stop.Store(true)
		}
	}
	return <-worked
}

func (p *pausing) work(w *worker) error {
	var garbage []byte
	rested := time.Now()
	for !p.stop.Load() {
		if p.load.Rest > 0 && time.Since(rested) > restPeriod-p.load.Rest {
			time.Sleep(p.load.Rest)
			rested = time.Now()
		}
		for range stride {
			if err := w.ask(1); err != nil {
				p.stop.Store(true)
				return err
			}
			if p.load.Provoke == ByGarbage {
				garbage = make([]byte, 1<<10)
			}
		}
		p.checks.Add(stride)
	}
	runtime.KeepAlive(garbage)
	return nil
}

// collector is what the runtime knows of its collector.
type collector struct {
	cycles    uint64
	processor float64
	pauses    *metrics.Float64Histogram
}

func readCollector() collector {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/sched/pauses/total/gc:seconds"},
	}
	metrics.Read(samples)
	return collector{samples[0].Value.Uint64(), samples[1].Value.Float64(), samples[2].Value.Float64Histogram()}
}

// since returns what happened after before.
func (c collector) since(before collector) Pauses {
	p := Pauses{Cycles: c.cycles - before.cycles, Processor: seconds(c.processor - before.processor)}
	for i, n := range c.pauses.Counts {
		p.Count += n - before.pauses.Counts[i]
	}
	seen := uint64(0)
	for i, n := range c.pauses.Counts {
		n -= before.pauses.Counts[i]
		if n == 0 {
			continue
		}
		end := c.pauses.Buckets[i+1]
		if math.IsInf(end, 1) {
			end = c.pauses.Buckets[i]
		}
		p.Longest = seconds(end)
		if seen < (p.Count+1)/2 {
			p.Median = p.Longest
		}
		seen += n
	}
	return p
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// String tells the pauses in a line.
func (p Pauses) String() string {
	return fmt.Sprintf("%d keys, %d cycles, %d pauses: longest %v, median %v; a cycle %v, processor time %v a cycle; %d "+
		"checks in %v",
		p.Keys, p.Cycles, p.Count, p.Longest, p.Median, p.Cycle.Round(time.Microsecond), p.Processor.Round(time.Microsecond),
		p.Checks, p.Spent.Round(time.Millisecond))
}
