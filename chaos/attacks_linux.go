package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/scenario"
)

// attacks has a cluster attacked while clients ask.
func (o *options) attacks(ctx context.Context, dir string) error {
	const name = "attacked"
	fmt.Printf("\n%s: every attack at once for %v, and calm before and after\n", name, o.attack)
	logs := filepath.Join(dir, name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	config := fleet.Config{Seed: o.seed, Ground: fleet.Loopback{Binary: o.binary}, Dir: logs}
	a, err := scenario.Attack(ctx, config, o.seed, o.attack, func(r *history.Result) {
		tell(r)
		o.report.Add(name, "every attack at once, and calm before and after", r)
		if len(r.Violations) > 0 || o.keep {
			if err := o.write(fmt.Sprintf("%s-%d", name, r.Seed), r); err != nil {
				fmt.Println("  the history cannot be kept:", err)
			}
		}
	})
	o.report.Soak = a.Samples
	fmt.Print(attack.Text(a.Done))
	fmt.Printf("  waits of honest clients: median %v calm, %v under attack; p99 %v calm, %v under attack\n",
		a.Calm[0].Duration(), a.Under[0].Duration(), a.Calm[1].Duration(), a.Under[1].Duration())
	for i, bytes := range a.Resident {
		fmt.Printf("  node %d took %.0f MB at most\n", i+1, bytes/1e6)
	}
	for _, s := range a.Samples {
		fmt.Printf("  after %v: %.0f goroutines, %.0f file descriptors, %.0f MB, %.0f parked, %.0f waiting, %.0f queued, %.0f counters\n",
			s.At.Round(time.Second), s.Goroutines, s.FDs, s.Bytes/1e6, s.Parked, s.Waiting, s.Queued, s.Keys)
	}
	if err != nil {
		o.report.Ended = err.Error()
		if kept := o.keepLogs(nil, name, logs); kept != nil {
			fmt.Println(" ", kept)
		}
	}
	return err
}
