//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/report"
)

const (
	// attackedHold is how long clients ask in one trial under attack, calmTrials how many
	// trials without attacks there are before and after.
	attackedHold = 20 * time.Second
	calmTrials   = 6
	// stepPause is how long two nodes follow different rules while rules are rolled out.
	stepPause = 2 * time.Second
	// mostSlower is how many times the p99 of an honest client's wait may be of what it
	// is without attacks.
	mostSlower = 2
	// mostResident is how many bytes each node may take under attack. Without, it takes
	// some 60 MB with the keys of an hour.
	mostResident = 400 << 20
)

// Attacked is what came of attacks.
type Attacked struct {
	// Done is what the attackers did, by the name of the attack.
	Done map[string]attack.Tally
	// Calm and Under are the waits of honest clients at the median and at p99, before and
	// after the attacks and while they last.
	Calm, Under [2]history.Micros
	// Resident is the most memory that each node took.
	Resident []float64
	// Samples are of one node, over time.
	Samples []report.Sample
}

// Attack has a cluster on loopback attacked in every way for so long, while clients ask
// as ever, and judges each span of 20 s as a trial in which nothing may be broken.
func Attack(ctx context.Context, c fleet.Config, seed uint64, span time.Duration, each func(*history.Result)) (a Attacked, err error) {
	c.Nodes, c.Spare = size, 0
	c.Keyless = true // whoever attacks nodes that have keys is stopped by these alone
	c.Rules = attackedRules(1_000_000)
	c.Args = []string{"--allow-request-limits"}
	f, err := fleet.New(ctx, c)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Settled(ctx, settleWithin); err != nil {
		return a, err
	}
	s := Scenario{Name: "attacked", make: (*stage).attacked}
	var waits []history.Micros
	var wrong []uint64
	trial := func() error {
		r, err := s.Try(ctx, f, seed)
		seed++
		if r == nil || ctx.Err() != nil {
			return err
		}
		each(r)
		if len(r.Violations) > 0 {
			wrong = append(wrong, r.Seed)
		}
		for i := range r.Ops {
			if o := &r.Ops[i]; o.Counted() {
				waits = append(waits, o.Return-o.Call)
			}
		}
		sample, looked := a.look(ctx, f)
		if looked == nil && Spent(r) {
			looked = errors.New("the nodes are no cluster any more")
		}
		a.Samples = append(a.Samples, sample)
		return errors.Join(err, looked)
	}
	calm := func() error {
		for range calmTrials {
			if err := trial(); err != nil {
				return err
			}
		}
		return nil
	}
	began := time.Now()
	stamp := func() { a.Samples[len(a.Samples)-1].At = time.Since(began) }
	if err := calm(); err != nil {
		return a, err
	}
	quiet := waits
	waits = nil
	a.Samples = a.Samples[:0] // what follows is compared with itself
	err = a.under(ctx, f, func() error {
		for attacked := time.Now(); time.Since(attacked) < span; {
			if err := trial(); err != nil {
				return err
			}
			stamp()
		}
		return nil
	})
	if err != nil {
		return a, err
	}
	a.Under = [2]history.Micros{quantile(waits, 0.5), quantile(waits, 0.99)}
	waits = quiet
	if err := calm(); err != nil {
		return a, err
	}
	stamp()
	a.Calm = [2]history.Micros{quantile(waits, 0.5), quantile(waits, 0.99)}
	return a, a.judge(wrong)
}

// attacked is a span in which nothing is broken and nothing may be felt.
func (s *stage) attacked() fault {
	f := s.nothing()
	f.what, f.hold = "attacked", attackedHold
	return f
}

// under runs while the cluster is attacked and rules are rolled out node by node.
func (a *Attacked) under(ctx context.Context, f *fleet.Fleet, run func() error) error {
	c := attack.Cluster{Rules: attackedRules(1_000_000), ClusterName: "weir"}
	for _, n := range f.Nodes() {
		t, err := n.Target()
		if err != nil {
			return err
		}
		c.Targets = append(c.Targets, t)
	}
	attacker, err := attack.Start(ctx, &c)
	if err != nil {
		return err
	}
	rolling, stop := context.WithCancel(ctx)
	rolled := make(chan error, 1)
	go func() { rolled <- rollOut(rolling, f) }()
	err = run()
	stop()
	done, ended := attacker.End()
	a.Done = done
	for _, name := range attack.Names() {
		if done[name].Sent == 0 && ended == nil {
			ended = errors.Join(ended, fmt.Errorf("the attack %q was not made", name))
		}
	}
	return errors.Join(err, <-rolled, ended)
}

// rollOut gives the nodes another version of one rule, one node after the other, again
// and again until the context ends, and then all the first version.
func rollOut(ctx context.Context, f *fleet.Fleet) error {
	for n := 0; ; n++ {
		limit := 1_000_000 + (n/size)%2
		if fleet.Wait(ctx, stepPause) != nil {
			return f.SetRules(attackedRules(1_000_000))
		}
		if err := f.SetRulesOf(n%size, attackedRules(limit)); err != nil {
			return err
		}
	}
}

// look samples all nodes, and returns the sample of the first.
func (a *Attacked) look(ctx context.Context, f *fleet.Fleet) (first report.Sample, err error) {
	if a.Resident == nil {
		a.Resident = make([]float64, len(f.Nodes()))
	}
	for i, n := range f.Nodes() {
		m, err := n.Metrics(ctx)
		if err != nil {
			return first, fmt.Errorf("%s says nothing of itself: %w", n.Name, err)
		}
		s, err := sampleOf(m)
		if err != nil {
			return first, err
		}
		if a.Resident[i] = max(a.Resident[i], s.Bytes); i == 0 {
			first = s
		}
	}
	return first, nil
}

// judge returns what was broken.
func (a *Attacked) judge(wrong []uint64) error {
	var errs []error
	if len(wrong) > 0 {
		errs = append(errs, fmt.Errorf("%d trials broke a promise, those of seeds %d", len(wrong), wrong))
	}
	if a.Under[1] > mostSlower*a.Calm[1] {
		errs = append(errs, fmt.Errorf("p99 of honest clients is %v under attack and %v without: more than %d times", a.Under[1].Duration(), a.Calm[1].Duration(), mostSlower))
	}
	for i, bytes := range a.Resident {
		if bytes > mostResident {
			errs = append(errs, fmt.Errorf("node %d took %.0f MB, more than %d MB", i+1, bytes/1e6, mostResident>>20))
		}
	}
	return errors.Join(errs...)
}

// quantile is the q-quantile of the waits, which it sorts.
func quantile(waits []history.Micros, q float64) history.Micros {
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return waits[min(len(waits)-1, int(q*float64(len(waits))))]
}
