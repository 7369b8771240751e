// Command compare measures contenders of package bench in turn: in each round
// every one of them once, in an order that differs from round to round, each in
// a process of its own. So what disturbs the machine for a while disturbs all
// alike, and no contender leaves its garbage to the next.
//
//	compare list
//	compare speed  [-who REGEXP] [-variants LIST] [-rounds N] [-keys N] [-passes N] [-workers N] [-join] [-under COMMAND]
//	compare memory [-who REGEXP] [-rounds N] [-keys N] [-under COMMAND]
//	compare pause  [-who REGEXP] [-rounds N] [-keys N] [-workers N] [-cycles N] [-provoke HOW] [-rest TIME] [-under COMMAND]
//
// Standard output holds lines in the form of Go benchmarks, for benchstat;
// least, median and most of each, and progress, go to standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/weirlimit/weir/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// run does what the arguments say.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("say what to do: list, speed, memory or pause")
	}
	switch kind := args[0]; kind {
	case "list":
		return list(stdout)
	case kindSpeed, kindMemory, kindPause:
		o, err := parse(kind, args[1:], stderr)
		if err != nil {
			return err
		}
		if o.one != "" {
			return measureOne(o, stdout)
		}
		return rounds(ctx, o, args, stdout, stderr)
	default:
		return fmt.Errorf("there is nothing called %q: it is list, speed, memory or pause", kind)
	}
}

func list(w io.Writer) error {
	for _, c := range bench.Contenders() {
		if _, err := fmt.Fprintf(w, "%-22s %s\n", c.Name, c.What); err != nil {
			return err
		}
	}
	return nil
}

// What is measured.
const (
	kindSpeed  = "speed"
	kindMemory = "memory"
	kindPause  = "pause"
)

// options are what the flags say.
type options struct {
	kind     string
	who      string
	variants string
	rounds   int
	keys     int
	passes   int
	workers  int
	cycles   int
	provoke  string
	rest     time.Duration
	join     bool
	under    string
	seed     uint64
	one      string // the contender to measure in this process
}

func parse(kind string, args []string, stderr io.Writer) (options, error) {
	o := options{kind: kind}
	f := flag.NewFlagSet("compare "+kind, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.who, "who", ".", "measure the contenders whose name matches this regular expression")
	f.IntVar(&o.rounds, "rounds", 10, "measure each contender so often")
	f.StringVar(&o.under, "under", "",
		"run each measurement under this command, such as \"chrt -f 50\", which on Linux, as root, keeps the cores for it")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the order in each round")
	f.IntVar(&o.workers, "workers", 0, "goroutines that ask; 0 for one a core")
	f.StringVar(&o.one, "one", "", "measure this contender, once, in this process")
	keys := 100_000
	switch kind {
	case kindSpeed:
		f.StringVar(&o.variants, "variants", string(bench.Admitted)+","+string(bench.Half),
			"which variants, separated by commas")
		f.IntVar(&o.passes, "passes", 10, "how often each goroutine goes through all keys")
		f.BoolVar(&o.join, "join", false, "rivals make the key of each check anew, with an allocation")
	case kindMemory:
		keys = 1_000_000
	case kindPause:
		keys = 10_000_000
		f.IntVar(&o.cycles, "cycles", 25, "how often the collector runs")
		f.StringVar(&o.provoke, "provoke", string(bench.ByCall),
			"why it runs: call (runtime.GC in a loop) or garbage (1 KiB dropped by each check)")
		f.DurationVar(&o.rest, "rest", 0,
			"how long each goroutine rests in every 10 ms; with -under \"chrt -f 50\" give 1.5ms, or the kernel's cap on "+
				"real-time threads shows as pauses")
	}
	f.IntVar(&o.keys, "keys", keys, "how many keys, a multiple of 100")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.rounds < 1:
		return o, fmt.Errorf("%d rounds are not possible: give at least 1", o.rounds)
	case o.provoke != "" && o.provoke != string(bench.ByCall) && o.provoke != string(bench.ByGarbage):
		return o, fmt.Errorf("collections cannot be provoked by %q: it is %s or %s", o.provoke, bench.ByCall, bench.ByGarbage)
	}
	return o, nil
}
