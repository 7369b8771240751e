// Command remote measures what decides in Redis and a Weir node side by side: in each
// round every contender once, in an order that differs from round to round.
//
//	remote -print-rules
//	remote -redis ADDRESS -server HOST:PORT [-who REGEXP] [-rounds N] [-long TIME]
//
// Standard output holds lines in the form of Go benchmarks, for benchstat.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"time"

	"github.com/weirlimit/weir/bench/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "remote:", err)
		os.Exit(1)
	}
}

// run does what the arguments say.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("remote", flag.ContinueOnError)
	f.SetOutput(stderr)
	var at remote.Config
	f.StringVar(&at.Redis, "redis", "", "address of a Redis that nobody else uses, host:port or the path of a socket")
	f.StringVar(&at.Server, "server", "", "gRPC address of a node that runs with the rules of -print-rules")
	who := f.String("who", ".", "measure the contenders whose name matches this regular expression")
	rounds := f.Int("rounds", 5, "measure each so often")
	long := f.Duration("long", 2*time.Second, "how long, each time")
	print := f.Bool("print-rules", false, "print the rules that the node needs")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *print {
		_, err := io.WriteString(stdout, remote.Rules())
		return err
	}
	match, err := regexp.Compile(*who)
	if err != nil {
		return fmt.Errorf("the pattern of contenders: %w", err)
	}
	order := rand.New(rand.NewPCG(1, 1))
	if _, err := fmt.Fprintf(stdout, "goos: %s\ngoarch: %s\npkg: github.com/weirlimit/weir/bench/remote\n", runtime.GOOS,
		runtime.GOARCH); err != nil {
		return err
	}
	all := remote.Contenders()
	for r := range *rounds {
		order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, c := range all {
			if !match.MatchString(c.Name) {
				continue
			}
			if _, err := fmt.Fprintf(stderr, "round %d of %d: %s\n", r+1, *rounds, c.What); err != nil {
				return err
			}
			s, err := remote.Measure(ctx, c, at, *long)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			if _, err := fmt.Fprintf(stdout, "BenchmarkRemote/%s-%d\t%d\t%.1f ns/op\t%.0f checks/s\n", c.Name,
				runtime.GOMAXPROCS(0),
				s.Checks, float64(s.Spent)/float64(s.Checks), s.PerSecond()); err != nil {
				return err
			}
		}
	}
	return nil
}
