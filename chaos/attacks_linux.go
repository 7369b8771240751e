package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/scenario"
)

// attacks has clusters attacked while clients ask: one without keys for half of the time,
// and then one with keys, or only one of them.
func (o *options) attacks(ctx context.Context, dir string) error {
	var errs []error
	span := o.attack
	if o.keys == "" {
		span /= 2
	}
	for _, keyed := range []bool{false, true} {
		if ctx.Err() == nil && (o.keys == "" || keyed == (o.keys == "with")) {
			errs = append(errs, o.attacksOn(ctx, dir, keyed, span))
		}
	}
	return errors.Join(errs...)
}

// attacksOn has one cluster attacked.
func (o *options) attacksOn(ctx context.Context, dir string, keyed bool, span time.Duration) error {
	name := (&scenario.Attacked{Keyed: keyed}).Name()
	about := "every attack at once on a cluster without keys, and calm before and after"
	if keyed {
		about = "every attack at once on a cluster with a secret and a key for gossip, and calm before and after"
	}
	fmt.Printf("\n%s: %s; %v\n", name, about, span)
	logs := filepath.Join(dir, name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	config := fleet.Config{Seed: o.seed, Ground: fleet.Loopback{Binary: o.binary}, Dir: logs}
	a, err := scenario.Attack(ctx, config, keyed, o.seed, span, func(r *history.Result) {
		printResult(r)
		o.report.Add(name, about, r)
		if len(r.Violations) > 0 || o.keep {
			if err := o.write(fmt.Sprintf("%s-%d", name, r.Seed), r); err != nil {
				fmt.Println("  the history cannot be kept:", err)
			}
		}
	})
	o.report.Soak = append(o.report.Soak, a.Samples...)
	fmt.Print(attack.Text(a.Done))
	fmt.Printf("  waits of honest clients: median %v calm, %v under attack; p99 %v calm, %v under attack\n",
		a.Calm[0].Duration(), a.Under[0].Duration(), a.Calm[1].Duration(), a.Under[1].Duration())
	fmt.Printf("  the median of the p99 of the trials: %v before, %v under attack, %v after\n",
		a.TrialsP99(0).Duration(), a.TrialsP99(1).Duration(), a.TrialsP99(2).Duration())
	fmt.Print(a.Text())
	for _, s := range a.Samples {
		fmt.Printf("  after %v: %.0f goroutines, %.0f file descriptors, %.0f MB, %.0f parked, %.0f waiting, %.0f queued, "+
			"%.0f counters\n",
			s.At.Round(time.Second), s.Goroutines, s.FDs, s.Bytes/1e6, s.Parked, s.Waiting, s.Queued, s.Keys)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
		o.report.Ended = err.Error()
	}
	if err != nil || o.keep {
		if kept := o.keepLogs(nil, name, logs); kept != nil {
			fmt.Println(" ", kept)
		}
	}
	return err
}
