// Command chaos starts real nodes, as processes in network namespaces or as the
// containers of docker-compose.yaml, breaks them and the network between them, and
// holds what clients saw against what is promised.
// Processes use TLS with each other and with clients, unless -plain is given.
// It prints what it does, keeps the history of each trial that went wrong, and
// exits with 1 if there was one.
//
//	go run ./chaos
//	go run ./chaos -only split -trials 5 -seed 7
//	go run ./chaos -judge chaos-out/split-7.history
//	go run ./chaos -on docker
//
// It needs root and iproute2; without, it runs what loopback allows. With a Docker
// engine it runs on containers what they allow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
	"github.com/weirlimit/weir/chaos/report"
	"github.com/weirlimit/weir/chaos/scenario"
	"github.com/weirlimit/weir/chaos/tool"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "names of the scenarios to run, with commas; empty: all")
	flag.IntVar(&o.trials, "trials", 2, "trials of each scenario")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first trial; the others follow")
	flag.StringVar(&o.out, "out", "chaos-out", "directory for histories, logs and the report")
	flag.StringVar(&o.binary, "node", "", "the node program; empty: it is built")
	flag.StringVar(&o.on, "on", "",
		"where nodes run: namespaces, loopback or docker; empty: namespaces, or loopback where there are none")
	flag.StringVar(&o.image, "image", "", "with -on docker, an image that is there; empty: it is built by the Dockerfile")
	flag.BoolVar(&o.standIn, "stand-in", false,
		"with -on docker, build with this machine's own Go where golang:1.26 cannot be pulled")
	flag.StringVar(&o.judge, "judge", "", "judge this history again, and run nothing")
	flag.BoolVar(&o.keep, "keep", false, "keep the history of every trial, not only of those that went wrong")
	flag.DurationVar(&o.attack, "attack", 0,
		"attack a cluster on loopback for so long instead, while clients ask, and see whether they notice")
	flag.StringVar(&o.keys, "keys", "",
		"with -attack, only a cluster with keys or only one without; empty: each for half of the time")
	attacker := flag.Bool(strings.TrimPrefix(attack.Flag, "-"), false,
		"be the attacker of -attack, who is told on standard input whom to attack")
	flag.BoolVar(&o.plain, "plain", false,
		"processes without TLS, neither with each other nor with clients; attacks are always made so")
	flag.DurationVar(&o.soak, "soak", 0, "mix faults for so long instead, and see whether anything grows")
	flag.Parse()
	if err := o.check(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := tool.Context()
	var err error
	if *attacker {
		err = attack.Serve(ctx, os.Stdin, os.Stdout)
	} else {
		netlab.BeEager()
		err = o.run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	only, out, binary, judge string
	on, image, keys          string
	standIn, plain           bool
	ground                   fleet.Ground
	trials                   int
	seed                     uint64
	keep                     bool
	soak, attack             time.Duration
	report                   report.Report
}

// check returns what is wrong with the flags, so that no run does nothing or less than
// was asked for.
func (o *options) check(args []string) error {
	var known, unknown []string
	for _, s := range scenario.All() {
		known = append(known, s.Name)
	}
	for _, name := range o.names() {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	switch {
	case len(args) > 0:
		return fmt.Errorf("unknown argument %q: name scenarios by -only", args[0])
	case o.only != "" && len(o.names()) == 0:
		return fmt.Errorf("-only %q names no scenario: leave it out to run all", o.only)
	case len(unknown) > 0:
		return fmt.Errorf("there is no scenario %s: there are %s", strings.Join(unknown, ", "), strings.Join(known, ", "))
	case o.trials < 1:
		return fmt.Errorf("-trials %d is too few: want at least 1", o.trials)
	case o.soak < 0:
		return fmt.Errorf("-soak %v is negative: want a duration such as 30m", o.soak)
	case o.attack < 0:
		return fmt.Errorf("-attack %v is negative: want a duration such as 1m", o.attack)
	case o.attack > 0 && (o.soak > 0 || o.only != "" || o.on == "docker" || o.on == "namespaces"):
		return errors.New("attacks run on loopback and alone: give -attack without -soak, -only and -on")
	case o.plain && o.on == "docker":
		return errors.New("-plain works only with processes: containers have the TLS of docker-compose.yaml")
	case o.keys != "" && o.attack == 0:
		return errors.New("-keys works only with attacks: give -attack too")
	case o.keys != "" && o.keys != "with" && o.keys != "without":
		return fmt.Errorf("-keys %q is not valid: want with or without; leave it out for both", o.keys)
	case o.soak > 0 && o.only != "":
		return errors.New("a soak runs mixes: give -soak without -only")
	case o.judge != "" && others("judge"):
		return errors.New("-judge runs nothing: give it without other flags")
	}
	return nil
}

// others tells whether any flag but this one was given.
func others(than string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name != than })
	return given
}

// names are the scenarios to run, none for all.
func (o *options) names() (names []string) {
	for _, name := range strings.Split(o.only, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// writable returns why nothing can be written where the results are to go.
func (o *options) writable() error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(o.out, ".writable")
	if err != nil {
		return fmt.Errorf("nothing can be written there, choose another -out: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// summary writes the report of what was tried.
func (o *options) summary() error {
	o.report.Title = "Chaos: the promises on real processes"
	o.report.About = fmt.Sprintf("Made by `%s` with %s on %s/%s, %d processors, %s.",
		strings.Join(append([]string{"go run ./chaos"}, os.Args[1:]...), " "),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
	page := filepath.Join(o.out, "report.md")
	if err := o.report.Write(page); err != nil {
		return fmt.Errorf("there is no report: %w", err)
	}
	fmt.Println("\nThe report is", page)
	return nil
}

func (o *options) run(ctx context.Context) (err error) {
	if o.judge != "" {
		return judge(o.judge)
	}
	if err := o.writable(); err != nil {
		return err
	}
	scratch, err := tool.NewDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	release, err := o.find(ctx, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	defer func() {
		if err == nil || !o.report.Empty() { // else what a run before it reported stays
			err = errors.Join(err, o.summary())
		}
	}()
	switch {
	case o.soak > 0:
		return o.soaks(ctx, scratch.Path)
	case o.attack > 0:
		return o.attacks(ctx, scratch.Path)
	}
	var bad []string
	tried := false
	all := slices.DeleteFunc(scenario.All(), func(s scenario.Scenario) bool { return !o.wants(s.Name) })
	for i, s := range all {
		if why := o.ground.Lacks(s.Needs); why != "" {
			o.report.LeaveOut(s.Name, why)
			continue
		}
		tried = true
		wrong, err := o.scenario(ctx, &s, scratch.Path)
		bad = append(bad, wrong...)
		if err != nil {
			o.report.Ended = err.Error()
			for _, s := range all[i:] {
				o.report.Missed = append(o.report.Missed, s.Name)
			}
			return errors.Join(err, o.wentWrong(bad))
		}
	}
	o.leftOut()
	if !tried {
		return errors.New("nothing was tried: all that -only names was left out")
	}
	return o.wentWrong(bad)
}

// wentWrong is the error of trials that went wrong, nil for none.
func (o *options) wentWrong(bad []string) error {
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%d trials went wrong; their histories are in %s: %s", len(bad), o.out, strings.Join(bad, ", "))
}

// soaks has one fleet go through mixes for long.
func (o *options) soaks(ctx context.Context, dir string) (err error) {
	if why := o.ground.Lacks(fleet.Cuts); why != "" {
		return fmt.Errorf("a soak mixes faults of processes and links, but %s", why)
	}
	fmt.Printf("\nsoak: mixes for %v\n", o.soak)
	s := scenario.Scenario{Name: "soak"}
	logs := filepath.Join(dir, s.Name)
	f, err := o.start(ctx, &s, logs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	bad := 0
	samples, err := scenario.Soak(ctx, f, o.seed, o.soak, func(r *history.Result) {
		printResult(r)
		o.report.Add(s.Name, "mixes of faults, one after the other, on one cluster", r)
		name, wrong := fmt.Sprintf("%s-%d", s.Name, r.Seed), len(r.Violations) > 0
		if wrong {
			bad++
			if err := o.keepLogs(f, name, logs); err != nil {
				fmt.Println(" ", err)
			}
		}
		if wrong || o.keep {
			if err := o.write(name, r); err != nil {
				fmt.Println("  the history cannot be kept:", err)
			}
		}
	})
	if err != nil {
		o.report.Ended = err.Error()
		err = errors.Join(err, o.keepLogs(f, s.Name, logs))
	}
	o.report.Soak = samples
	for _, s := range samples {
		fmt.Printf("  after %v: %.0f goroutines, %.0f file descriptors, %.0f MB, %.0f parked, %.0f withheld, %.0f waiting, "+
			"%.0f queued, %.0f unacknowledged, %.0f sealed, %.0f counters, %.0f of policies\n",
			s.At.Round(time.Second), s.Goroutines, s.FDs, s.Bytes/1e6, s.Parked, s.Withheld, s.Waiting, s.Queued,
			s.Unacknowledged, s.Sealed, s.Keys, s.Fallback)
	}
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d mixes went wrong; their histories are in %s", bad, o.out))
	}
	return err
}

func (o *options) wants(name string) bool {
	return len(o.names()) == 0 || slices.Contains(o.names(), name)
}

// start starts the nodes of a scenario, whose logs are kept if they do not become one
// cluster.
func (o *options) start(ctx context.Context, s *scenario.Scenario, logs string) (*fleet.Fleet, error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	f, err := s.Fleet(ctx, fleet.Config{Seed: o.seed, Ground: o.ground, Dir: logs, Plain: o.plain})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s cannot begin: %w", s.Name, err), o.keepLogs(nil, s.Name+"-start", logs))
	}
	return f, nil
}

// scenario runs the trials of one scenario on one fleet, and returns those that
// went wrong.
func (o *options) scenario(ctx context.Context, s *scenario.Scenario, dir string) (wrong []string, err error) {
	fmt.Printf("\n%s: %s\n", s.Name, s.About)
	logs := filepath.Join(dir, s.Name)
	f, err := o.start(ctx, s, logs)
	if err != nil {
		return nil, err
	}
	defer func() {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range o.trials {
		seed := o.seed + uint64(i)
		name := fmt.Sprintf("%s-%d", s.Name, seed)
		r, err := s.Try(ctx, f, seed)
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", name, err), o.keepLogs(f, name, logs))
			if r != nil {
				err = errors.Join(err, o.write(name, r)) // as far as it came
			}
			return wrong, err
		}
		printResult(r)
		o.report.Add(s.Name, s.About, r)
		if o.keep || r.Void != "" || len(r.Violations) > 0 {
			if err := o.write(name, r); err != nil {
				return wrong, err
			}
		}
		if len(r.Violations) > 0 {
			wrong = append(wrong, name)
			if err := o.keepLogs(f, name, logs); err != nil {
				fmt.Println(" ", err)
			}
		}
		if i+1 < o.trials && scenario.Spent(r) {
			// What follows begins with a whole cluster again.
			old := f
			if f = nil; old.Close() != nil {
				return wrong, fmt.Errorf("%s: the nodes that are left cannot be ended: start again with -seed %d", name, seed+1)
			}
			if f, err = o.start(ctx, s, logs); err != nil {
				return wrong, err
			}
		}
	}
	return wrong, nil
}

// keepLogs copies the logs of a trial to where its history is. There is no fleet where
// it did not start.
func (o *options) keepLogs(f *fleet.Fleet, name, logs string) error {
	kept := filepath.Join(o.out, name+"-logs")
	var err error
	if f != nil {
		err = f.Keep(context.Background())
	}
	if err := errors.Join(err, os.RemoveAll(kept), os.CopyFS(kept, os.DirFS(logs))); err != nil {
		return fmt.Errorf("the logs of %s cannot be kept: %w", name, err)
	}
	return nil
}

// leftOut tells what the ground did not allow.
func (o *options) leftOut() {
	for _, l := range o.report.Left {
		fmt.Printf("\nLeft out, since %s: %s\n", l.Why, strings.Join(l.Names, ", "))
	}
}

func (o *options) write(name string, r *history.Result) error {
	file, err := os.Create(filepath.Join(o.out, name+".history"))
	if err != nil {
		return err
	}
	return errors.Join(r.Write(file), file.Close())
}

// printResult prints what came of a trial.
func printResult(r *history.Result) {
	f := r.Figures
	over, may := r.Over()
	fmt.Printf("  seed %d, %s: asked %d, allowed %d, denied %d, by policy %d, refused %d, unknown %d; over by %d of %d; "+
		"fault latency %v, recovered %v, converged %v; %d keys linearizable",
		r.Seed, r.What(), f.Asked, f.Allowed, f.Denied, f.ByPolicy, f.Refused, f.Unknown, over, may,
		short(f.FaultLatency), short(f.Recovered), short(f.Converged), r.Linear.Keys)
	if r.Linear.Undecided > 0 {
		fmt.Printf(" (%d undecided)", r.Linear.Undecided)
	}
	if used, judged := r.LeastUsed(); judged {
		fmt.Printf("; used %d %%", used)
	}
	if f.Excused > 0 {
		fmt.Printf("; %d %% of the time excused", f.Excused)
	}
	fmt.Println()
	if r.Void != "" {
		fmt.Println("  VOID:", r.Void)
	}
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
	printResult(r)
	if len(r.Violations) > 0 {
		return fmt.Errorf("%s breaks %d promises", path, len(r.Violations))
	}
	return nil
}
