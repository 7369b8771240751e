package history

import (
	"strings"
	"testing"
	"time"
)

// TestDeniedChecksLeaveNothing: a check of two keys that one of them denied charges
// neither, once its reservation must be over.
func TestDeniedChecksLeaveNothing(t *testing.T) {
	ask := func(p *plant, n int, o Outcome, source, ip, user string, took Micros) *plant {
		for range n {
			p.Ops = append(p.Ops, Op{Call: p.now, Return: p.now + took, Rule: "pairs", Outcome: o, Source: source,
				Keys: []string{"ip " + ip, "user " + user}})
			p.now += 10 * ms
		}
		return p
	}
	// spent is used up, and then asked about with idle; took is how long that takes.
	pairs := func(took Micros) *plant {
		p := planted(once())
		p.Rules = []Rule{{Name: "pairs", Limit: 20, Window: 86_400 * second, Policy: "closed", Several: true, Once: true}}
		return ask(ask(p, 20, Allowed, SourceOwner, "spent", "first", ms), 20, Denied, SourceOwner, "spent", "idle", took)
	}
	for _, row := range []struct {
		name string
		h    *plant
		want int
	}{
		{"a key that is used up", pairs(ms), 0},
		{"one that is not, with one that is not", ask(pairs(ms).wait(second), 1, Denied, SourceOwner, "new", "idle", ms), 1},
		{"one that is not, with one that is", ask(pairs(ms).wait(second), 1, Denied, SourceOwner, "new", "first", ms), 0},
		{"reservations that may be open still", ask(pairs(250*ms), 1, Denied, SourceOwner, "new", "idle", ms), 0},
		{"a slow check that may have been charged twice",
			ask(ask(pairs(ms).wait(second), 10, Allowed, SourceOwner, "new", "idle", askedTwice), 1, Denied, SourceOwner, "new",
				"idle", ms), 0},
		{"checks that were charged once", ask(ask(pairs(ms).wait(second), 10, Allowed, SourceOwner, "new", "idle", ms), 1,
			Denied, SourceOwner, "new", "idle", ms), 1},
		{"answers that nobody knows", ask(ask(pairs(ms).wait(second), 10, Unknown, "", "new", "idle", ms), 1, Denied,
			SourceOwner, "new", "idle", ms), 0},
		{"a policy's denial", ask(pairs(ms).wait(second), 1, Denied, "fallback_closed", "new", "idle", ms), 0},
	} {
		if got := row.h.judges().FalseDenialsOfSeveral(); len(got) != row.want {
			t.Errorf("%s: found %v, want %d", row.name, got, row.want)
		}
	}
	for wait, want := range map[Micros]int{second: 0, openInStall: 1} {
		p := pairs(ms)
		p.Stalls = []Span{{p.now, p.now + 100*ms}}
		p = ask(p.wait(wait), 1, Denied, SourceOwner, "new", "idle", ms)
		if got := p.judges().FalseDenialsOfSeveral(); len(got) != want {
			t.Errorf("%v after the machine stood still: found %v, want %d", wait.Duration(), got, want)
		}
	}
	p := ask(pairs(ms).wait(second), 1, Denied, SourceOwner, "new", "idle", ms)
	if got := judge(&p.History, time.Second).Violations; !strings.Contains(found(got), "can have been charged to either") {
		t.Errorf("found %v: nobody judges this", got)
	}
	// A key that has room is denied rightly where the other one has none.
	if got := pairs(ms).judges().Conserved(); len(got) > 0 {
		t.Errorf("found %v, but another key had denied", got)
	}
	whole := pairs(ms)
	if _, got := whole.judges().Linearizable(time.Second); len(got) > 0 {
		t.Errorf("found %v, but another key had denied", got)
	}
}
