//go:build linux

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/report"
)

const (
	// mostSlower is how many times the p99 of an honest client's wait may be of what it
	// is without attacks.
	mostSlower = 2
	// mostPeak is how many bytes each node may take under attack. Without, it takes some
	// 60 MB with the keys of an hour. Large messages may take 256 MiB of it.
	mostPeak = 400 << 20
	// mostLogged is how many bytes a node may log under attack, and mostLoggedEach how
	// many more for each minute.
	mostLogged, mostLoggedEach = 64 << 10, 64 << 10
	// probePause is the time between two probes of a node, and mostFailed how many of
	// them may fail in succession: a supervisor restarts a node after three.
	probePause, mostFailed = 500 * time.Millisecond, 2
)

// Needs is what a node takes, as it says itself and as the kernel says.
type Needs struct {
	report.Sample
	fleet.Usage
}

// Attacked is what came of attacks.
type Attacked struct {
	// Keyed: the cluster had a secret and a key for gossip.
	Keyed bool
	// Done is what the attackers did, by the name of the attack.
	Done map[string]attack.Tally
	// Calm and Under are the waits of honest clients at the median and at p99, before and
	// after the attacks and while they last.
	Calm, Under [2]history.Micros
	// Trials are the p99 of each trial: before, under attack, and after. If those before and
	// after differ, the machine did too.
	Trials [3][]history.Micros
	// Before and After are what the nodes took after each calm trial, one node after the
	// other.
	Before, After []Needs
	// Peak is the most memory that each node took under attack, Logged how many bytes it
	// logged from the beginning until the attacks ended.
	Peak, Logged []int64
	// Samples are of the first node, over time.
	Samples []report.Sample

	wrong, void []uint64 // seeds of trials
	members     []string // what nodes said of members that attackers invented

	mu     sync.Mutex
	failed []int // probes of each node that failed in succession, at most
	probes int
}

// Name is the name of such trials.
func (a *Attacked) Name() string {
	if a.Keyed {
		return "attacked-keyed"
	}
	return "attacked"
}

// probe asks every node whether it is healthy, again and again until stop is called, as
// its supervisor would.
func (a *Attacked) probe(ctx context.Context, f *fleet.Fleet) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	a.failed = make([]int, len(f.Nodes()))
	var probing sync.WaitGroup
	for i, n := range f.Nodes() {
		probing.Go(func() {
			for failed := 0; fleet.Wait(ctx, probePause) == nil; {
				err := n.Healthy(ctx)
				if ctx.Err() != nil {
					return
				}
				if failed++; err == nil {
					failed = 0
				}
				a.mu.Lock()
				a.probes++
				a.failed[i] = max(a.failed[i], failed)
				a.mu.Unlock()
			}
		})
	}
	return func() {
		cancel()
		probing.Wait()
	}
}

// look notes what all nodes need, and whether they count members that nobody started.
func (r *raid) look(ctx context.Context) error {
	r.now = nil
	for i, n := range r.fleet.Nodes() {
		m, err := metricsOf(ctx, n)
		if err != nil {
			return fmt.Errorf("%s says nothing of itself: %w", n.Name, err)
		}
		s, err := sampleOf(m)
		if err != nil {
			return err
		}
		u, err := n.Usage()
		if err != nil {
			return err
		}
		s.At = time.Since(r.began)
		r.now = append(r.now, Needs{s, u})
		if i == 0 {
			r.Samples = append(r.Samples, s)
		}
		for state, want := range map[string]float64{"active": size, "joining": 0, "leaving": 0, "dead": 0} {
			if got := m[fmt.Sprintf("weir_members{state=%q}", state)]; got != want {
				r.members = append(r.members, fmt.Sprintf("%s has %.0f %s members, not %.0f", n.Name, got, state, want))
			}
		}
	}
	return nil
}

// metricsOf returns a node's metrics. Whoever asks for them has the bounds of all who
// ask there, so it asks again.
func metricsOf(ctx context.Context, n *fleet.Node) (m map[string]float64, err error) {
	for range 5 {
		if m, err = n.Metrics(ctx); err == nil {
			return m, nil
		}
		if fleet.Wait(ctx, 200*time.Millisecond) != nil {
			break
		}
	}
	return nil, err
}

// need is one thing that a node needs.
type need struct {
	what  string
	value func(*Needs) float64
	more  float64 // of it may be left
}

// mayBeLeft returns what may be left of attacks: a node must come back to the most that
// it took in calm before, and so much more. What it takes goes up and down, so the least
// of what it takes in calm afterwards counts.
func mayBeLeft() []need {
	return []need{
		{"goroutines", func(n *Needs) float64 { return n.Goroutines }, 16},
		{"file descriptors", func(n *Needs) float64 { return float64(n.FDs()) }, 8},
		{"sockets", func(n *Needs) float64 { return float64(n.Sockets) }, 8},
		{"bytes of memory", func(n *Needs) float64 { return float64(n.Resident) }, 64 << 20},
		{"parked checks", func(n *Needs) float64 { return n.Parked }, 0},
		{"withheld replies", func(n *Needs) float64 { return n.Withheld }, 0},
		{"waiting operations", func(n *Needs) float64 { return n.Waiting }, 0},
		{"queued frames", func(n *Needs) float64 { return n.Queued }, 0},
		{"units without a copy", func(n *Needs) float64 { return n.Unacknowledged }, 0},
		{"sealed partitions", func(n *Needs) float64 { return n.Sealed }, 0},
	}
}

// FDs are the node's open files, as the kernel says.
func (n *Needs) FDs() int { return n.Usage.FDs }

// leaks returns what the attacks left behind.
func (a *Attacked) leaks() error {
	var errs []error
	for node := range size {
		for _, of := range mayBeLeft() {
			before, after := valuesOf(a.Before, node, of.value), valuesOf(a.After, node, of.value)
			if len(before) == 0 || len(after) == 0 {
				return errors.New("nothing is known of the nodes without attacks")
			}
			if was, is := slices.Max(before), slices.Min(after); is > was+of.more {
				errs = append(errs, fmt.Errorf("node %d has %.0f %s after the attacks and had %.0f before: more than %.0f are left",
					node+1, is, of.what, was, of.more))
			}
		}
	}
	return errors.Join(errs...)
}

// valuesOf returns what one node needed after each trial.
func valuesOf(of []Needs, node int, value func(*Needs) float64) []float64 {
	var out []float64
	for i := node; i < len(of); i += size {
		out = append(out, value(&of[i]))
	}
	return out
}

// judge returns what was broken, and why the trial is void.
func (a *Attacked) judge(span time.Duration) error {
	errs := []error{attack.Judge(a.Done, a.Keyed), a.leaks()}
	if len(a.wrong) > 0 {
		errs = append(errs, fmt.Errorf("%d trials broke a promise, those of seeds %d", len(a.wrong), a.wrong))
	}
	if len(a.void) > 0 {
		errs = append(errs, fmt.Errorf("%w: %d spans of it are, those of seeds %d", attack.ErrVoid, len(a.void), a.void))
	}
	if a.Under[1] > mostSlower*a.Calm[1] {
		errs = append(errs, fmt.Errorf("p99 of honest clients is %v under attack and %v without: more than %d times",
			a.Under[1].Duration(), a.Calm[1].Duration(), mostSlower))
	}
	for i, bytes := range a.Peak {
		if bytes > mostPeak {
			errs = append(errs, fmt.Errorf("node %d took %d MB under attack, more than %d", i+1, bytes>>20, mostPeak>>20))
		}
	}
	for i, bytes := range a.Logged {
		if most := mostLogged + int64(mostLoggedEach*max(1, span.Minutes())); bytes > most {
			errs = append(errs, fmt.Errorf("node %d logged %d bytes, more than %d", i+1, bytes, most))
		}
	}
	for i, n := range a.failed {
		if n > mostFailed {
			errs = append(errs, fmt.Errorf("%d probes of node %d failed in succession: its supervisor would have restarted it",
				n, i+1))
		}
	}
	if len(a.members) > 0 {
		errs = append(errs, fmt.Errorf("members came or went %d times: first %s", len(a.members), a.members[0]))
	}
	return errors.Join(errs...)
}

// Text shows what the nodes took, one node a line.
func (a *Attacked) Text() string {
	text := ""
	for i := range min(size, len(a.Peak)) {
		text += fmt.Sprintf("  node %d: at most %d MB under attack, %d KB logged, %d probes failed in succession\n", i+1,
			a.Peak[i]>>20, a.Logged[i]>>10, a.failed[i])
		for _, of := range mayBeLeft() {
			before, after := valuesOf(a.Before, i, of.value), valuesOf(a.After, i, of.value)
			if len(before) > 0 && len(after) > 0 && cmp.Or(slices.Max(before), slices.Max(after)) > 0 {
				text += fmt.Sprintf("    %-22s %.0f to %.0f before, %.0f to %.0f after\n", of.what, slices.Min(before),
					slices.Max(before), slices.Min(after), slices.Max(after))
			}
		}
	}
	return text
}
