// Command mutate takes the protections of the protocol out, one at a time, and
// looks for the test and the seed that notice. It prints protection, test and
// seed, and exits with 1 if a protection survives: then no trace needs it, or no
// test looks.
//
// It must run in the module's root:
//
//	go run ./chaos/mutate
//	go run ./chaos/mutate -only fence -seeds 2000
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
)

func main() {
	only := flag.String("only", "", "a part of the names of the protections to take out; empty: all")
	seeds := flag.Int("seeds", 400, "seeds of each kind of run")
	flag.Parse()
	if err := run(context.Background(), *only, *seeds); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, seeds int) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var survived []string
	for _, m := range mutations() {
		if !strings.Contains(m.name, only) {
			continue
		}
		caught, err := try(ctx, dir, m, seeds)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if caught == "" {
			caught = "SURVIVED"
			survived = append(survived, m.name)
		}
		fmt.Printf("%-46s %s\n", m.name, caught)
	}
	if len(survived) > 0 {
		return fmt.Errorf("not noticed: %s", strings.Join(survived, "; "))
	}
	return nil
}

// try builds and runs the test with the protection taken out; it returns what
// noticed, or "".
func try(ctx context.Context, dir string, m mutation, seeds int) (string, error) {
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	pkg, test := m.pkg, m.test
	if pkg == "" {
		pkg, test = "./chaos/sim", "^TestSim$"
	}
	bin := filepath.Join(dir, "test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", bin, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, bin, "-test.run", test, "-test.failfast", "-test.timeout", "20m")
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), fmt.Sprintf("WEIR_SIM_SEEDS=%d", seeds), "WEIR_SIM_FAILURES=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, &exit):
		return "", err
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
		if strings.Count(string(text), e.old) != 1 {
			return "", fmt.Errorf("%s has not exactly one %q", e.file, e.old)
		}
		to := filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(to, []byte(strings.Replace(string(text), e.old, e.now, 1)), 0o600); err != nil {
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
