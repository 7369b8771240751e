package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/bench"
)

// TestMain lets the test binary be the program that measures one contender.
func TestMain(m *testing.M) {
	if os.Getenv("COMPARE_CHILD") == "" {
		os.Exit(m.Run())
	}
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}

func compare(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("COMPARE_CHILD", "1")
	var out, problems bytes.Buffer
	err = run(t.Context(), args, &out, &problems)
	return out.String(), problems.String(), err
}

// TestRounds: each round measures every contender once, in a process of its
// own.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		args  []string
		names []string
		units string
	}{
		{
			[]string{"speed", "-who", "^(floor/clock|go-limiter|weir/gcra)$", "-keys", "1000", "-passes", "3"},
			[]string{"Admitted/floor/clock", "Admitted/go-limiter", "Admitted/weir/gcra", "HalfDenied/go-limiter",
				"HalfDenied/weir/gcra"},
			"ns/op B/op allocs/op",
		},
		{
			[]string{"memory", "-who", "^(floor/clock|weir/gcra)$", "-keys", "100000"},
			[]string{"Memory/weir/gcra"},
			"filled-B/key collected-B/key returned-B/key peak-B/key",
		},
		{
			[]string{"pause", "-who", "^table/gcra$", "-keys", "1000", "-cycles", "2"},
			[]string{"Pause/table/gcra"},
			"longest-us median-us cycle-ms processor-ms/cycle checks/s",
		},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			stdout, stderr, err := compare(t, append(c.args, "-rounds", "2")...)
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]int)
			for line := range strings.Lines(stdout) {
				fields := strings.Fields(line)
				name, ok := strings.CutPrefix(fields[0], "Benchmark")
				if !ok {
					continue
				}
				seen[name[:strings.LastIndexByte(name, '-')]]++
				var units []string
				for i := 3; i < len(fields); i += 2 {
					units = append(units, fields[i])
				}
				if got := strings.Join(units, " "); got != c.units {
					t.Errorf("units %s in %q", got, line)
				}
			}
			if len(seen) != len(c.names) {
				t.Errorf("measured %v", seen)
			}
			for _, name := range c.names {
				if seen[name] != 2 || !strings.Contains(stderr, name) {
					t.Errorf("%s was measured %d times in 2 rounds; summary:\n%s", name, seen[name], stderr)
				}
			}
			if !strings.HasPrefix(stdout, "# compare "+c.args[0]) || !strings.Contains(stdout, "\ngoos: ") {
				t.Errorf("the head is missing:\n%s", stdout)
			}
		})
	}
}

// TestUnder: the command stands before each measurement.
func TestUnder(t *testing.T) {
	_, _, err := compare(t, "speed", "-who", "^floor/clock$", "-keys", "100", "-rounds", "1", "-under",
		"no-such-program -x")
	if err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("the error is %v", err)
	}
}

// TestChildFails: what a measurement finds wrong ends the run, and is told.
func TestChildFails(t *testing.T) {
	_, _, err := compare(t, "speed", "-who", "^floor/clock$", "-keys", "150", "-rounds", "1")
	if err == nil || !strings.Contains(err.Error(), "150 keys are not possible") ||
		!strings.Contains(err.Error(), "floor/clock") {
		t.Errorf("the error is %v", err)
	}
}

func TestBadArguments(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"", "say what to do"},
		{"everything", "there is nothing called"},
		{"speed -who (", "pattern"},
		{"speed -who nobody", "no contender matches"},
		{"speed -rounds 0", "0 rounds"},
		{"speed now", "unknown argument"},
		{"speed -cycles 3", "cycles"},
		{"speed -who ^floor -variants half_denied", "nothing to measure"},
		{"memory -who floor/loop", "nothing to measure"},
		{"pause -provoke anger", "anger"},
		{"speed -one nobody", "no contender"},
		{"speed -one floor/clock -variants most", "no variant"},
	} {
		_, _, err := compare(t, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("compare %s: error %v, which should say %q", c.args, err, c.says)
		}
	}
	if _, _, err := compare(t, "speed", "-h"); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help is the error %v", err)
	}
}

func TestList(t *testing.T) {
	stdout, _, err := compare(t, "list")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range bench.Contenders() {
		if !strings.Contains(stdout, c.Name) || !strings.Contains(stdout, c.What) {
			t.Errorf("%s is not listed", c.Name)
		}
	}
}

func TestSummary(t *testing.T) {
	var s summary
	var b bytes.Buffer
	for _, v := range []float64{30, 10, 20, 1000.4} {
		if err := writeLine(&b, "Speed", "who/else", 7, []figure{{v, "ns/op"}, {0, "allocs/op"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeLine(&b, "Memory", "who", 7, []figure{{1.234, "B/key"}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if err := s.add(line); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := s.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0 / 25.0 / 1000", "0 / 0 / 0", "1.23 / 1.23 / 1.23", "Speed/who/else"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing from\n%s", want, out.String())
		}
	}
	for _, bad := range []string{"", "BenchmarkX 1", "BenchmarkX 1 2 ns/op 3", "BenchmarkX 1 two ns/op"} {
		if err := s.add(bad); err == nil {
			t.Errorf("%q is a line", bad)
		}
	}
	if m := median([]float64{1, 2, 9}); m != 2 {
		t.Errorf("the median of three is %v", m)
	}
}
