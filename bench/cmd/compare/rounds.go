package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/weirlimit/weir/bench"
)

// cell is what one process measures.
type cell struct {
	who     string
	variant bench.Variant
}

// cells returns all that one round measures.
func cells(o *options) ([]cell, error) {
	all, err := bench.Select(o.who)
	if err != nil {
		return nil, err
	}
	variants := []bench.Variant{bench.Admitted}
	if o.kind == kindSpeed {
		variants = variants[:0]
		for v := range strings.SplitSeq(o.variants, ",") {
			variants = append(variants, bench.Variant(v))
		}
	}
	var out []cell
	for _, v := range variants {
		for _, c := range all {
			if v == bench.Half && c.Floor || o.kind != kindSpeed && c.Keyless {
				continue
			}
			out = append(out, cell{c.Name, v})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("that leaves nothing to measure: floors deny nothing, and some hold no keys")
	}
	return out, nil
}

// rounds measures every cell in each round, in another order each time.
func rounds(ctx context.Context, o options, args []string, stdout, stderr io.Writer) error {
	todo, err := cells(&o)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, to run it again: %w", err)
	}
	if err := head(stdout, args); err != nil {
		return err
	}
	var table summary
	order := rand.New(rand.NewPCG(o.seed, 1))
	for round := range o.rounds {
		order.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
		for i, c := range todo {
			if _, err := fmt.Fprintf(stderr, "\rround %d of %d, %d of %d: %-40s", round+1, o.rounds, i+1, len(todo),
				c.who); err != nil {
				return err
			}
			line, err := child(ctx, &o, self, args, c)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(stdout, line); err != nil {
				return err
			}
			if err := table.add(line); err != nil {
				return err
			}
		}
	}
	if _, err := fmt.Fprintf(stderr, "\r%79s\r", ""); err != nil {
		return err
	}
	return table.print(stderr)
}

// head writes what benchstat wants to know, and what a reader does.
func head(w io.Writer, args []string) error {
	_, err := fmt.Fprintf(w,
		"# compare %s\n# %s, %d cores used, %s\ngoos: %s\ngoarch: %s\npkg: github.com/weirlimit/weir/bench\n",
		strings.Join(args, " "), runtime.Version(), runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.RFC3339),
		runtime.GOOS, runtime.GOARCH)
	return err
}

// child measures one cell in a process of its own, and returns its line.
func child(ctx context.Context, o *options, self string, args []string, c cell) (string, error) {
	line := append([]string{self}, args...)
	line = append(line, "-one", c.who)
	if o.kind == kindSpeed {
		line = append(line, "-variants", string(c.variant))
	}
	line = append(strings.Fields(o.under), line...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", c.who, err, strings.TrimSpace(problem.String()))
	}
	return string(out), nil
}

// measureOne measures one contender in this process and writes its line.
func measureOne(o options, w io.Writer) error {
	c, err := bench.Find(o.one)
	if err != nil {
		return err
	}
	keys, err := bench.NewKeys(o.keys)
	if err != nil {
		return err
	}
	s := bench.Setup{Keys: keys, Workers: o.workers, Join: o.join}
	if o.kind == kindSpeed {
		s.Variant = bench.Variant(o.variants)
	}
	var name string
	var n int
	var figures []figure
	switch o.kind {
	case kindSpeed:
		r, err := bench.MeasureSpeed(c, s, o.passes)
		if err != nil {
			return err
		}
		name, n = speedNames()[s.Variant], r.Checks
		figures = []figure{{r.NanosPerCheck(), "ns/op"}, {r.BytesPerCheck(), "B/op"}, {r.MallocsPerCheck(), "allocs/op"}}
	case kindMemory:
		m, err := bench.MeasureMemory(c, s)
		if err != nil {
			return err
		}
		name, n = "Memory", m.Keys
		figures = []figure{{m.Filled, "filled-B/key"}, {m.Collected, "collected-B/key"}, {m.Returned, "returned-B/key"},
			{m.Peak, "peak-B/key"}}
	case kindPause:
		p, err := bench.MeasurePauses(c, s, bench.Load{Cycles: o.cycles, Provoke: bench.Provoke(o.provoke), Most: time.Minute,
			Rest: o.rest})
		if err != nil {
			return err
		}
		name, n = "Pause", int(p.Cycles)
		figures = []figure{
			{micros(p.Longest), "longest-us"}, {micros(p.Median), "median-us"},
			{micros(p.Cycle) / 1000, "cycle-ms"}, {micros(p.Processor) / 1000, "processor-ms/cycle"},
			{float64(p.Checks) / p.Spent.Seconds(), "checks/s"},
		}
	}
	return writeLine(w, name, c.Name, n, figures)
}

// speedNames are the names of the benchmarks of speed.
func speedNames() map[bench.Variant]string {
	return map[bench.Variant]string{bench.Admitted: "Admitted", bench.Half: "HalfDenied"}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
