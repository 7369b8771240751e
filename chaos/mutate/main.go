// Command mutate takes the protections of the protocol out, one at a time, and
// looks for the test and the seed that notice. It prints protection, test and
// seed, and exits with 1 if a protection survives: then no trace needs it, or no
// test looks.
//
// It must run in the module's root:
//
//	go run ./chaos/mutate
//	go run ./chaos/mutate -only fence -seeds 2000
//
// With -real it does so with the node program, in the scenarios of chaos, and only
// what clients saw counts. What those cannot show is listed, with the reason.
//
//	go run ./chaos/mutate -real
//	go run ./chaos/mutate -real -only relay -trials 5
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/weirlimit/weir/chaos/tool"
)

func main() {
	only := flag.String("only", "",
		"a part of the names of the protections to take out, with -real a regular expression; empty: all")
	seeds := flag.Int("seeds", 400, "seeds of each kind of run")
	var r reality
	onReal := flag.Bool("real", false, "on real processes instead, judged by what their clients saw; as root")
	flag.IntVar(&r.trials, "trials", 0,
		"with -real: try so many seeds of each, and count those that notice; 0: until one does")
	flag.StringVar(&r.scenarios, "scenarios", "",
		"with -real: names of the scenarios to try, with commas; empty: that which is known to notice")
	flag.Uint64Var(&r.seed, "seed", 0, "with -real: the first seed; 0: that which is known to notice")
	flag.StringVar(&r.out, "out", "", "with -real: a directory for the histories that show something; empty: none is kept")
	flag.Parse()
	r.only = *only
	given := make(map[string]bool)
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if err := check(flag.Args(), given, *seeds, &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	try := func(ctx context.Context) error { return run(ctx, *only, *seeds) }
	if *onReal {
		try = r.run
	}
	ctx, stop := tool.Context()
	err := try(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check returns what is wrong with the flags, so that each run does exactly what was asked for.
func check(args []string, given map[string]bool, seeds int, r *reality) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q: name protections by -only", args[0])
	}
	for _, name := range []string{"trials", "scenarios", "seed", "out"} {
		if given[name] && !given["real"] {
			return fmt.Errorf("-%s works only with real processes: give -real too", name)
		}
	}
	switch {
	case given["seeds"] && given["real"]:
		return errors.New("-seeds works only with simulated runs: with -real give -seed and -trials")
	case seeds < 1:
		return fmt.Errorf("-seeds %d is too few: want at least 1", seeds)
	case r.trials < 0:
		return fmt.Errorf("-trials %d is negative: want at least 1, or 0 for as many as a protection needs", r.trials)
	}
	return nil
}

func run(ctx context.Context, only string, seeds int) (err error) {
	dir, err := tool.NewDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	var survived []string
	var wrong error
	tried := 0
	sound := make(map[test]bool) // tests that the program as it is passes
	for _, m := range mutations() {
		if !strings.Contains(m.name, only) {
			continue
		}
		tried++
		err := passes(ctx, dir, m, seeds, sound)
		caught := ""
		if err == nil {
			caught, err = try(ctx, dir, m, seeds)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // the others are tried all the same
			caught = "NOT TRIED"
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", m.name, err))
		case caught == "":
			caught = "SURVIVED"
			survived = append(survived, m.name)
		}
		fmt.Printf("%-46s %s\n", m.name, caught)
	}
	if len(survived) > 0 {
		wrong = errors.Join(wrong, fmt.Errorf("not noticed: %s", strings.Join(survived, "; ")))
	}
	if wrong != nil {
		return wrong
	}
	if tried == 0 {
		return fmt.Errorf("no protection has %q in its name", only)
	}
	return nil
}

// passes returns an error where the program as it is does not pass the test of a
// mutation: whatever fails then says nothing of the protection.
func passes(ctx context.Context, dir *tool.Dir, m mutation, seeds int, sound map[test]bool) error {
	of := test{m.pkg, m.test}
	if sound[of] {
		return nil
	}
	wrong, err := try(ctx, dir, mutation{pkg: m.pkg, test: m.test}, seeds)
	if err == nil && wrong != "" {
		err = fmt.Errorf("the program as it is does not pass: %s", wrong)
	}
	sound[of] = err == nil
	return err
}

// test is what a mutation is tried with.
type test struct{ pkg, name string }

// try builds and runs the test with the protection taken out; it returns what
// noticed, or "".
func try(ctx context.Context, dir *tool.Dir, m mutation, seeds int) (string, error) {
	overlay, err := m.overlay(dir.Path)
	if err != nil {
		return "", err
	}
	pkg, test := m.pkg, m.test
	if pkg == "" {
		pkg, test = "./chaos/sim", "^TestSim$"
	}
	bin := filepath.Join(dir.Path, "test")
	if out, err := dir.Go(ctx, "test", "-c", "-overlay", overlay, "-o", bin, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, bin, "-test.run", test, "-test.failfast", "-test.timeout", "20m")
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), fmt.Sprintf("WEIR_SIM_SEEDS=%d", seeds), "WEIR_SIM_FAILURES=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return "", nil
	case !errors.As(err, &exit):
		return "", err
	case strings.Contains(string(out), "panic: test timed out"): // that says nothing of the protection
		return "", fmt.Errorf("%s did not end within its time", test)
	}
	return pkg + " " + firstFailure(string(out)), nil
}

// firstFailure returns the line that says what was violated first.
func firstFailure(out string) string {
	lines := regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: (.*)$`).FindStringSubmatch(out)
	if lines == nil {
		return strings.SplitN(strings.TrimSpace(out), "\n", 2)[0]
	}
	return lines[1][:min(len(lines[1]), 150)]
}

// overlay writes the changed files, and the list of them that the compiler
// reads instead of the originals.
func (m mutation) overlay(dir string) (string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		path, err := filepath.Abs(e.file)
		if err != nil {
			return "", err
		}
		from := path
		if to, ok := files[path]; ok {
			from = to
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		start, end, err := e.place(string(text))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(to, []byte(string(text[:start])+e.now+string(text[end:])), 0o600); err != nil {
			return "", err
		}
		files[path] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}
