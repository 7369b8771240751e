package model

import (
	"strings"
	"testing"
)

// TestNoUnitIsAnsweredTwice explores all states within bounds. In none of them more than
// the limit, one unit, is answered.
func TestNoUnitIsAnsweredTwice(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine, many times slower under the race detector; make wire runs it")
	}
	for name, c := range map[string]Config{
		"two epochs":                   {Counters: 2},
		"two epochs, two broken links": {Counters: 2, Faults: 2},
	} {
		t.Run(name, func(t *testing.T) { holds(t, c) })
	}
}

// TestNoUnitIsAnsweredTwiceAtLength is the same within wider bounds: minutes, and
// gigabytes of memory.
func TestNoUnitIsAnsweredTwiceAtLength(t *testing.T) {
	long(t)
	for name, c := range map[string]Config{
		"two epochs, the ring wants another heir or owner": {Counters: 2, Changes: 1},
		"two epochs, a restart":                            {Counters: 2, Asks: 1, Faults: 1, Restarts: 1},
		"three epochs":                                     {Counters: 3},
		"three epochs, a handoff, a broken link":           {Counters: 3, Changes: 1, Handoffs: true, Faults: 1},
	} {
		t.Run(name, func(t *testing.T) { holds(t, c) })
	}
}

func long(t *testing.T) {
	t.Helper()
	if raceEnabled || testing.Short() {
		t.Skip("long, and longer under the race detector, which finds nothing in one goroutine; make test-long runs it")
	}
}

func holds(t *testing.T, c Config) {
	t.Helper()
	r := Explore(c)
	t.Logf("%d states, the unit is answered in %d", r.States, r.Answered)
	switch {
	case r.Violation != nil:
		t.Errorf("a second unit is answered:\n%s", strings.Join(r.Violation, "\n"))
	case r.Answered == 0:
		t.Error("no unit is ever answered, so nothing is shown")
	}
}

// TestProtectionsAreNeeded: without one of these protections a second unit is answered. Of
// the others none is needed by three members with two epochs, or three with a handoff: another one does its work, or
// it matters with more members or epochs only.
func TestProtectionsAreNeeded(t *testing.T) {
	long(t)
	for name, c := range map[string]Config{
		"a member grants no counter below one that it granted": {Counters: 2, Without: GrantsBind},
		"a member that has just started grants nothing": {Counters: 2, Faults: 1, Restarts: 1,
			Without: FreshMembersDoNotVote},
		"another heir is appointed when the last one has confirmed it": {Counters: 2, Changes: 1, Without: HeirsAreRevoked},
		"who gives a claim up keeps its grant to a recorded one": {Counters: 3, Changes: 1, Handoffs: true,
			Without: RecordedClaimsBind},
	} {
		t.Run(name, func(t *testing.T) {
			r := Explore(c)
			if r.Violation == nil {
				t.Fatalf("nothing is violated in %d states", r.States)
			}
			t.Logf("%d states; the shortest way:\n%s", r.States, strings.Join(r.Violation, "\n"))
		})
	}
}
