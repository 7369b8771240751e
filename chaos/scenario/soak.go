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
)

// Sample is what a node needs when nothing is broken and nobody asks.
type Sample struct {
	At                     time.Duration
	Goroutines, FDs, Bytes float64
	// Parked checks and Withheld replies wait for something; nothing should.
	Parked, Withheld float64
}

// soakedNode is the node whose process a soak never ends, so that whatever it
// leaks adds up.
const soakedNode = 0

// Soak tries mixes, one after the other, for as long as it is told, and reports
// each; then it says whether the node that was never ended needs more than it did.
func Soak(ctx context.Context, f *fleet.Fleet, seed uint64, span time.Duration, each func(*history.Result)) ([]Sample, error) {
	s := Scenario{Name: "soak", make: (*stage).soak}
	var samples []Sample
	for began := time.Now(); time.Since(began) < span; seed++ {
		r, err := s.Try(ctx, f, seed)
		if err != nil {
			return samples, err
		}
		each(r)
		m, err := f.Nodes()[soakedNode].Metrics(ctx)
		if err != nil {
			return samples, fmt.Errorf("the node says nothing of itself: %w", err)
		}
		samples = append(samples, Sample{
			At: time.Since(began), Goroutines: m["go_goroutines"], FDs: m["process_open_fds"], Bytes: m["process_resident_memory_bytes"],
			Parked: m["weir_checks_parked"], Withheld: m["weir_replies_withheld"],
		})
	}
	return samples, Grown(samples)
}

// soak is a mix that leaves one process alone, but for pauses and its links.
func (s *stage) soak() fault {
	s.spared = soakedNode
	return s.mix()
}

// Grown compares the last third of the samples with the first.
func Grown(samples []Sample) error {
	third := len(samples) / 3
	if third < 2 {
		return errors.New("there are too few samples to tell whether anything grows: soak for longer")
	}
	var errs []error
	for _, of := range []struct {
		what  string
		value func(*Sample) float64
		more  float64 // absolutely
		times float64 // and relatively
	}{
		{"goroutines", func(s *Sample) float64 { return s.Goroutines }, 20, 1.2},
		{"file descriptors", func(s *Sample) float64 { return s.FDs }, 20, 1.2},
		{"bytes of memory", func(s *Sample) float64 { return s.Bytes }, 32 << 20, 1.5},
		{"parked checks", func(s *Sample) float64 { return s.Parked }, 0, 1},
		{"withheld replies", func(s *Sample) float64 { return s.Withheld }, 0, 1},
	} {
		first, last := middle(samples[:third], of.value), middle(samples[len(samples)-third:], of.value)
		if last > first+of.more && last > first*of.times {
			errs = append(errs, fmt.Errorf("from %.0f to %.0f %s within %v", first, last, of.what, samples[len(samples)-1].At.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

// middle is the median.
func middle(samples []Sample, value func(*Sample) float64) float64 {
	var all []float64
	for i := range samples {
		all = append(all, value(&samples[i]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
