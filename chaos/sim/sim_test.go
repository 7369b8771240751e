package sim

import (
	"os"
	"strconv"
	"testing"
)

// seeds returns how many seeds of each kind to run: a tenth with -short, and hardly any
// under the race detector. It makes a run twenty times longer, and one goroutine runs
// all nodes of a world.
func seeds(t *testing.T, def int) int {
	s := os.Getenv("WEIR_SIM_SEEDS")
	switch {
	case s == "" && raceEnabled:
		return max(1, def/40)
	case s == "" && testing.Short():
		return max(1, def/10)
	}
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// firstSeed returns the seed that TestSim begins with, so that many runs can be made in parts.
func firstSeed(t *testing.T) int {
	t.Helper()
	s := os.Getenv("WEIR_SIM_FIRST")
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		t.Fatalf("WEIR_SIM_FIRST=%q is not a seed: want a number from 0 on", s)
	}
	return n
}

// worlds begins a test that runs worlds. It runs beside other such tests, and not at all
// where the race detector meets -short: one goroutine runs all nodes of a world, so the
// detector finds nothing that TestSim does not have.
func worlds(t *testing.T) {
	t.Helper()
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine runs each world, twenty times slower under the race detector; make wire runs it")
	}
	t.Parallel()
}

func TestSim(t *testing.T) {
	for kind := range Kinds {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			failed, apart, full, judged, repeated, settled, slots, raised, drawn, leased := 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
			var sum Outcome
			reserves := kind != Crowded && kind != Outages // what may be granted again is not judged of them
			first, runs := firstSeed(t), seeds(t, 30)
			for i := range runs {
				w, err := Run(kind, uint64(first+i), false)
				if err != nil {
					t.Error(err)
					if failed++; failed > 5 || os.Getenv("WEIR_SIM_FAILURES") != "" {
						break
					}
				}
				for e, n := range w.outcome.Events {
					sum.Events[e] += n
				}
				full += w.crowd.full
				leased += w.near.lending.units
				judged += w.stronger.judged
				repeated += w.stronger.repeated
				if w.holders != nil {
					settled += w.holders.settled
					slots += w.holders.slots
					raised += w.holders.raised
				}
				for _, k := range w.keys {
					if k.apart {
						apart++
					}
					if k.draws > 0 {
						drawn += k.admitted
					}
				}
			}
			if kind == Split && apart == 0 {
				t.Error("in no split did each side lose sight of the other")
			}
			if kind == Crowded && full == 0 {
				t.Error("no table was full")
			}
			if judged == 0 && runs >= 20 { // few runs may have none
				t.Error("no peek was compared with what clients know")
			}
			if repeated == 0 && runs >= 20 {
				t.Error("no check with an id was answered twice")
			}
			if settled == 0 && runs >= 20 && reserves {
				t.Error("no reservation was settled")
			}
			if slots == 0 && runs >= 20 && reserves {
				t.Error("no unit of a limit on concurrency was held")
			}
			if raised == 0 && runs >= 30 && reserves {
				t.Error("no estimate of a reservation was raised")
			}
			if drawn == 0 && runs >= quotaRuns {
				t.Error("no rule drew on a quota")
			}
			if leased == 0 && runs >= 20 {
				t.Error("no lease admitted anything")
			}
			t.Log(sum.Events, full, judged, repeated, settled, slots, raised, drawn, leased)
		})
	}
}

// TestOne replays one run and prints it. It fails if the run does.
func TestOne(t *testing.T) {
	s := os.Getenv("WEIR_SIM_SEED")
	if s == "" {
		t.Skip("WEIR_SIM_SEED=KIND/SEED replays one run")
	}
	var kind, seed int
	for i := range s {
		if s[i] == '/' {
			seed, _ = strconv.Atoi(s[i+1:])
			for k := range Kinds {
				if k.String() == s[:i] {
					kind = int(k)
				}
			}
		}
	}
	w, err := Run(Kind(kind), uint64(seed), true)
	for _, line := range w.trace {
		t.Log(line)
	}
	if err != nil {
		t.Error(err)
	}
}
