// Command chaos starts real node processes in network namespaces, breaks them and
// the network between them, and holds what clients saw against what is promised.
// It prints what it does, keeps the history of each trial that went wrong, and
// exits with 1 if there was one.
//
//	go run ./chaos
//	go run ./chaos -only split -trials 5 -seed 7
//	go run ./chaos -judge chaos-out/split-7.history
//
// It needs root and iproute2; without, it runs what loopback allows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
	"github.com/weirlimit/weir/chaos/report"
	"github.com/weirlimit/weir/chaos/scenario"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "names of the scenarios to run, with commas; empty: all")
	flag.IntVar(&o.trials, "trials", 2, "trials of each scenario")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first trial; the others follow")
	flag.StringVar(&o.out, "out", "chaos-out", "directory for histories, logs and the report")
	flag.StringVar(&o.binary, "node", "", "the node program; empty: it is built")
	flag.StringVar(&o.judge, "judge", "", "judge this history again, and run nothing")
	flag.BoolVar(&o.keep, "keep", false, "keep the history of every trial, not only of those that went wrong")
	flag.DurationVar(&o.soak, "soak", 0, "mix faults for so long instead, and see whether anything grows")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	beEager()
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	only, out, binary, judge string
	trials                   int
	seed                     uint64
	keep                     bool
	loopback                 bool
	soak                     time.Duration
	report                   report.Report
}

// summary writes the report of what was tried.
func (o *options) summary() {
	o.report.Title = "Chaos: the promises on real processes"
	o.report.About = fmt.Sprintf("Made by `%s` with %s on %s/%s, %d processors, %s.", strings.Join(append([]string{"go run ./chaos"}, os.Args[1:]...), " "),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
	page := filepath.Join(o.out, "report.md")
	if err := o.report.Write(page); err != nil {
		fmt.Println("There is no report:", err)
		return
	}
	fmt.Println("\nThe report is", page)
}

func (o *options) run(ctx context.Context) error {
	if o.judge != "" {
		return judge(o.judge)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if o.binary == "" {
		o.binary = filepath.Join(dir, "node")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.binary, "./cmd/node")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("the node program cannot be built, is this the module's root? %w", err)
		}
	}
	if err := netlab.Usable(); err != nil {
		fmt.Printf("No namespaces, since %v: on loopback, and only what that allows.\n", err)
		o.loopback = true
	}
	defer o.summary()
	if o.soak > 0 {
		return o.soaks(ctx, dir)
	}
	var bad, left []string
	for _, s := range scenario.All() {
		if !o.wants(s.Name) {
			continue
		}
		if o.loopback && !s.Loopback {
			left = append(left, s.Name)
			continue
		}
		wrong, err := o.scenario(ctx, &s, dir)
		if err != nil {
			return err
		}
		bad = append(bad, wrong...)
	}
	if len(left) > 0 {
		fmt.Println("Left out, since they need namespaces:", strings.Join(left, ", "))
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d trials went wrong; their histories are in %s: %s", len(bad), o.out, strings.Join(bad, ", "))
	}
	return nil
}

// soaks has one fleet go through mixes for long.
func (o *options) soaks(ctx context.Context, dir string) (err error) {
	if o.loopback {
		return errors.New("a soak needs namespaces")
	}
	fmt.Printf("\nsoak: mixes for %v\n", o.soak)
	s := scenario.Scenario{Name: "soak"}
	f, err := s.Fleet(ctx, fleet.Config{Seed: o.seed, Binary: o.binary, Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	bad := 0
	samples, err := scenario.Soak(ctx, f, o.seed, o.soak, func(r *history.Result) {
		tell(r)
		o.report.Add("soak", "mixes of faults, one after the other, on one cluster", r)
		if len(r.Violations) > 0 {
			bad++
			if err := o.write(fmt.Sprintf("soak-%d", r.Seed), r); err != nil {
				fmt.Println("  the history cannot be kept:", err)
			}
		}
	})
	for _, s := range samples {
		fmt.Printf("  after %v: %.0f goroutines, %.0f file descriptors, %.0f MB, %.0f parked, %.0f withheld\n",
			s.At.Round(time.Second), s.Goroutines, s.FDs, s.Bytes/1e6, s.Parked, s.Withheld)
	}
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d mixes went wrong; their histories are in %s", bad, o.out))
	}
	return err
}

func (o *options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	for _, w := range strings.Split(o.only, ",") {
		if w == name {
			return true
		}
	}
	return false
}

// scenario runs the trials of one scenario on one fleet, and returns those that
// went wrong.
func (o *options) scenario(ctx context.Context, s *scenario.Scenario, dir string) (wrong []string, err error) {
	fmt.Printf("\n%s: %s\n", s.Name, s.About)
	logs := filepath.Join(dir, s.Name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	f, err := s.Fleet(ctx, fleet.Config{Seed: o.seed, Binary: o.binary, Dir: logs, Loopback: o.loopback})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for i := range o.trials {
		seed := o.seed + uint64(i)
		name := fmt.Sprintf("%s-%d", s.Name, seed)
		r, err := s.Try(ctx, f, seed)
		if err != nil {
			return wrong, errors.Join(fmt.Errorf("%s: %w", name, err), o.keepLogs(name, logs))
		}
		tell(r)
		o.report.Add(s.Name, s.About, r)
		if o.keep || len(r.Violations) > 0 {
			if err := o.write(name, r); err != nil {
				return wrong, err
			}
		}
		if len(r.Violations) > 0 {
			wrong = append(wrong, name)
			if err := o.keepLogs(name, logs); err != nil {
				fmt.Println(" ", err)
			}
		}
	}
	return wrong, nil
}

// keepLogs copies the logs of a trial to where its history is.
func (o *options) keepLogs(name, logs string) error {
	kept := filepath.Join(o.out, name+"-logs")
	if err := errors.Join(os.RemoveAll(kept), os.CopyFS(kept, os.DirFS(logs))); err != nil {
		return fmt.Errorf("the logs of %s cannot be kept: %w", name, err)
	}
	return nil
}

func (o *options) write(name string, r *history.Result) error {
	file, err := os.Create(filepath.Join(o.out, name+".history"))
	if err != nil {
		return err
	}
	return errors.Join(r.Write(file), file.Close())
}

// tell prints what came of a trial.
func tell(r *history.Result) {
	f := r.Figures
	over, may := r.Over()
	fmt.Printf("  seed %d, %s: asked %d, allowed %d, denied %d, by policy %d, refused %d, unknown %d; over by %d of %d; felt %v, recovered %v, converged %v; %d keys linearizable",
		r.Seed, r.What(), f.Asked, f.Allowed, f.Denied, f.ByPolicy, f.Refused, f.Unknown, over, may,
		short(f.Felt), short(f.Recovered), short(f.Converged), r.Linear.Keys)
	if r.Linear.Undecided > 0 {
		fmt.Printf(" (%d undecided)", r.Linear.Undecided)
	}
	fmt.Println()
	for _, v := range r.Violations {
		fmt.Println("  WRONG:", v)
	}
}

func short(m history.Micros) time.Duration { return m.Duration().Round(time.Millisecond) }

// judge judges a history that was kept.
func judge(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	h, err := history.Read(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	r := history.Judge(h)
	tell(r)
	if len(r.Violations) > 0 {
		return fmt.Errorf("%s breaks %d promises", path, len(r.Violations))
	}
	return nil
}
