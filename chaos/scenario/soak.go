//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/report"
)

// soakedNode is the node whose process a soak never ends, so that whatever it
// leaks adds up.
const soakedNode = 0

// Soak tries mixes, one after the other, for as long as it is told, and reports
// each; then it says whether the node that was never ended needs more than it did.
func Soak(ctx context.Context, f *fleet.Fleet, seed uint64, span time.Duration,
	each func(*history.Result)) ([]report.Sample, error) {
	s := Scenario{Name: "soak", make: (*stage).soak}
	try := func(seed uint64) (*history.Result, error) { return s.Try(ctx, f, seed) }
	return mixes(ctx, seed, span, try, each, func() (report.Sample, error) {
		m, err := f.Nodes()[soakedNode].Metrics(ctx)
		if err != nil {
			return report.Sample{}, fmt.Errorf("the node says nothing of itself: %w", err)
		}
		return sampleOf(m)
	})
}

// mixes tries one mix after the other, and looks at a node after each.
func mixes(ctx context.Context, seed uint64, span time.Duration, try func(seed uint64) (*history.Result, error),
	each func(*history.Result), look func() (report.Sample, error)) ([]report.Sample, error) {
	var samples []report.Sample
	for began := time.Now(); time.Since(began) < span; seed++ {
		r, err := try(seed)
		if r != nil && ctx.Err() == nil { // else the end of the run ended it, which breaks nothing
			each(r) // as far as it came
		}
		if err != nil {
			return samples, err
		}
		if Spent(r) {
			return samples, errors.New("the nodes are no cluster any more: the soak cannot go on")
		}
		sample, err := look()
		if err != nil {
			return samples, err
		}
		sample.At = time.Since(began)
		samples = append(samples, sample)
	}
	return samples, Grown(samples)
}

// sampleOf reads what a node says of itself. A number that it does not say is an
// error: it would be taken for one that never grows.
func sampleOf(metrics map[string]float64) (s report.Sample, err error) {
	var copies float64
	for _, of := range []struct {
		name string
		to   *float64
	}{
		{"go_goroutines", &s.Goroutines},
		{"process_open_fds", &s.FDs},
		{"process_resident_memory_bytes", &s.Bytes},
		{"weir_checks_parked", &s.Parked},
		{"weir_replies_withheld", &s.Withheld},
		{"weir_operations_waiting", &s.Waiting},
		{"weir_frames_queued", &s.Queued},
		{"weir_replication_unacknowledged_cost", &s.Unacknowledged},
		{`weir_partitions{state="sealed"}`, &s.Sealed},
		{"weir_table_keys", &s.Keys},
		{"weir_table_copied_keys", &copies},
		{"weir_fallback_keys", &s.Fallback},
	} {
		value, said := metrics[of.name]
		if !said {
			err = errors.Join(err, fmt.Errorf("the node says no %s", of.name))
		}
		*of.to = value
	}
	s.Keys += copies
	return s, err
}

// soak is a mix that leaves one process alone, but for pauses and its links.
func (s *stage) soak() fault {
	s.spared = soakedNode
	return s.mix()
}

// mostGrown is how many bytes of memory more a node may need at the end of a soak: what
// was measured differed by 6 MB between the first mix and the last of 142, and by 11 MB
// between any two; and each mix leaves some 20 counters behind that last for a day.
const mostGrown = 10 << 20

// Grown compares the last third of the samples with the first.
func Grown(samples []report.Sample) error {
	third := len(samples) / 3
	if third < 2 {
		return errors.New("there are too few samples to tell whether anything grows: soak for longer")
	}
	var errs []error
	for _, of := range []struct {
		what  string
		value func(*report.Sample) float64
		more  float64 // absolutely
		times float64 // and relatively
	}{
		{"goroutines", func(s *report.Sample) float64 { return s.Goroutines }, 8, 1.15},
		{"file descriptors", func(s *report.Sample) float64 { return s.FDs }, 5, 1.2},
		{"bytes of memory", func(s *report.Sample) float64 { return s.Bytes }, mostGrown, 1.2},
		{"parked checks", func(s *report.Sample) float64 { return s.Parked }, 0, 1},
		{"withheld replies", func(s *report.Sample) float64 { return s.Withheld }, 0, 1},
		{"waiting operations", func(s *report.Sample) float64 { return s.Waiting }, 0, 1},
		{"queued frames", func(s *report.Sample) float64 { return s.Queued }, 0, 1},
		{"units without a copy", func(s *report.Sample) float64 { return s.Unacknowledged }, 0, 1},
		{"sealed partitions", func(s *report.Sample) float64 { return s.Sealed }, 0, 1},
	} {
		first, last := middle(samples[:third], of.value), middle(samples[len(samples)-third:], of.value)
		if last > first+of.more && last > first*of.times {
			errs = append(errs, fmt.Errorf("from %.0f to %.0f %s within %v", first, last, of.what,
				samples[len(samples)-1].At.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

// middle is the median.
func middle(samples []report.Sample, value func(*report.Sample) float64) float64 {
	var all []float64
	for i := range samples {
		all = append(all, value(&samples[i]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
