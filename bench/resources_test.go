package bench

import (
	"errors"
	"math"
	"os"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

func TestMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here")
	}
	keys := testKeys(t, 200_000)
	c, err := Find("table/gcra")
	if err != nil {
		t.Fatal(err)
	}
	m, err := MeasureMemory(c, Setup{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	// A slot has 48 bytes; what other tests left behind blurs the rest.
	if m.Keys != keys.Len() || m.Filled < 24 || m.Filled > 500 || m.Returned < 24 {
		t.Errorf("%+v", m)
	}
	clock, err := Find("floor/clock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MeasureMemory(clock, Setup{Keys: keys}); err == nil {
		t.Error("a clock takes memory for keys")
	}
	forgetful := Contender{Name: "fake", New: func(*Keys) (Limiter, error) {
		f := newFake()
		f.forgets = func(n int) bool { return n == 5 }
		return f, nil
	}}
	if _, err := MeasureMemory(forgetful, Setup{Keys: testKeys(t, 100)}); err == nil ||
		!strings.Contains(err.Error(), "key 5") {
		t.Errorf("a key is missing, and the error is %v", err)
	}
}

func TestStatusField(t *testing.T) {
	const text = "Name:\tbench\nVmHWM:\t     200 kB\nVmRSS:\t     100 kB\nThreads:\tmany\n"
	if n, err := statusField(text, "VmRSS:"); n != 102400 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, name := range []string{"VmSwap:", "Threads:"} {
		if _, err := statusField(text, name); err == nil {
			t.Errorf("%s has a size", name)
		}
	}
}

func TestPauses(t *testing.T) {
	c, err := Find("weir/gcra")
	if err != nil {
		t.Fatal(err)
	}
	for _, rest := range []time.Duration{-1, restPeriod} {
		if _, err := MeasurePauses(c, Setup{Keys: testKeys(t, 100)}, Load{Cycles: 1, Rest: rest}); err == nil {
			t.Errorf("a rest of %v was possible", rest)
		}
	}
	for _, load := range []Load{{Cycles: 3, Provoke: ByCall}, {Cycles: 3, Provoke: ByGarbage},
		{Cycles: 30, Rest: restPeriod / 2}} {
		p, err := MeasurePauses(c, Setup{Keys: testKeys(t, 1000)}, load)
		if err != nil {
			t.Fatal(err)
		}
		if p.Cycles < 3 || p.Count < p.Cycles || p.Median <= 0 || p.Longest < p.Median || p.Checks == 0 || p.Keys != 1000 ||
			p.Workers == 0 {
			t.Errorf("%+v: %v", load, p)
		}
	}
}

// TestPausesEnd: what takes too long ends, and so does what goes wrong.
func TestPausesEnd(t *testing.T) {
	broken := errors.New("it is broken")
	of := func(f *fake) Contender {
		return Contender{Name: "fake", New: func(*Keys) (Limiter, error) { return f, nil }}
	}
	keys := testKeys(t, 100)
	p, err := MeasurePauses(of(newFake()), Setup{Keys: keys}, Load{Cycles: math.MaxInt, Most: time.Millisecond})
	if err != nil || p.Spent < time.Millisecond {
		t.Errorf("%v, %v", p, err)
	}
	f := newFake()
	f.failure = func(asked int) error { return failAfter(asked, 1000, broken) }
	if _, err := MeasurePauses(of(f), Setup{Keys: keys}, Load{Cycles: math.MaxInt}); !errors.Is(err, broken) {
		t.Errorf("a check failed, and the error is %v", err)
	}
	f = newFake()
	f.forgets = func(n int) bool { return n == 50 }
	if _, err := MeasurePauses(of(f), Setup{Keys: keys}, Load{Cycles: 1}); err == nil ||
		!strings.Contains(err.Error(), "key 50") {
		t.Errorf("a key is missing, and the error is %v", err)
	}
}

// TestPausesSince: only what happened since counts, a pause is as long as the
// end of its class, and the last class has none.
func TestPausesSince(t *testing.T) {
	buckets := []float64{math.Inf(-1), 0, 0.001, 0.002, 0.004, math.Inf(1)}
	at := func(cycles uint64, counts ...uint64) collector {
		return collector{cycles, float64(cycles) / 100, &metrics.Float64Histogram{Counts: counts, Buckets: buckets}}
	}
	before := at(7, 0, 5, 5, 9, 2)
	for _, c := range []struct {
		after           collector
		cycles, count   uint64
		median, longest time.Duration
	}{
		{at(7, 0, 5, 5, 9, 2), 0, 0, 0, 0},
		{at(8, 0, 6, 5, 9, 2), 1, 1, time.Millisecond, time.Millisecond},
		{at(9, 0, 8, 7, 10, 2), 2, 6, time.Millisecond, 4 * time.Millisecond},
		{at(9, 0, 6, 8, 9, 2), 2, 4, 2 * time.Millisecond, 2 * time.Millisecond},
		{at(9, 0, 5, 5, 9, 3), 2, 1, 4 * time.Millisecond, 4 * time.Millisecond},
	} {
		p := c.after.since(before)
		if p.Cycles != c.cycles || p.Count != c.count || p.Median != c.median || p.Longest != c.longest {
			t.Errorf("%v; want %+v", p, c)
		}
		if want := time.Duration(c.cycles) * 10 * time.Millisecond; (p.Processor - want).Abs() > time.Microsecond {
			t.Errorf("processor time %v, want %v", p.Processor, want)
		}
	}
}
