package history

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	ms     = Micros(1000)
	second = 1000 * ms
)

// rulesOfTests are a window that recovers, a counter that does not, and a bucket.
func rulesOfTests() []Rule {
	return []Rule{
		{Name: "window", Limit: 20, Window: 2 * second, Policy: "local"},
		{Name: "once", Limit: 20, Window: 3600 * second, Policy: "local", Once: true},
		{Name: "bucket", Limit: 10, Burst: 20, Window: second, Policy: "local"},
		{Name: "closed", Limit: 20, Window: 2 * second, Policy: "closed"},
	}
}

// plant is a history that is built check by check, 10 ms apart.
type plant struct {
	History
	now Micros
	run int // of the node that is asked, which is node-1
	// counters are those that asks was given, by rule and key.
	counters map[string]*tally
}

func planted(a Allows) *plant {
	return &plant{History: History{Nodes: 3, Allows: a, Rules: rulesOfTests(),
		Faults: []Fault{{Name: "f", At: -10 * second, Until: -9 * second, Settled: -8 * second}}}}
}

func once() Allows { return Allows{Closed: 1, Local: 1, Open: 1} }

// broken has something broken at the beginning, and for 10 s.
func broken(a Allows) *plant {
	p := planted(a)
	p.Faults = []Fault{{Name: "f", At: 0, Until: 9 * second, Settled: 10 * second, Nodes: []int{1}, Takeovers: 2,
		Loses: a.Losses > 0}}
	return p
}

// answers adds n checks of a rule that were answered alike.
func (p *plant) answers(n int, rule string, o Outcome, source, owner string) *plant {
	for range n {
		p.Ops = append(p.Ops, Op{
			Run: p.run, Call: p.now, Return: p.now + ms, Rule: rule, Outcome: o, Source: source, Keys: []string{"k"},
			Owners: []string{owner},
		})
		p.now += 10 * ms
	}
	return p
}

func (p *plant) allowed(n int, rule, owner string) *plant {
	return p.answers(n, rule, Allowed, SourceOwner, owner)
}

// turns adds n checks that two owners allowed in turn.
func (p *plant) turns(n int, rule string) *plant {
	for i := range n {
		p.allowed(1, rule, []string{"a", "b"}[i%2])
	}
	return p
}

// later has a fault begin at an instant, after what was planted.
func later(at Micros, p *plant) *plant {
	p.Faults = []Fault{{Name: "f", At: at, Until: at + second, Settled: at + 2*second, Nodes: []int{1}, Takeovers: 2,
		Loses: p.Allows.Losses > 0}}
	return p
}

// lossy allows that a counter is lost so many times.
func lossy(times int) Allows {
	n := float64(1 + times)
	return Allows{Closed: n, Local: n, Open: n, Losses: times}
}

// kept is lossy once, with counters on disk that lack what was granted in the 100 ms before all ends, at an
// instant.
func kept(at Micros, p *plant) *plant {
	p.Allows = lossy(1)
	p.Allows.Lasts = 100 * ms
	p = later(at, p)
	p.Faults[0].Broken, p.Faults[0].Takeovers = at, 0
	return p
}

// denied adds n denials of the rule that never recovers.
func (p *plant) denied(n int, owner string) *plant {
	return p.answers(n, "once", Denied, SourceOwner, owner)
}

// killed has node-1 killed, and started again.
func (p *plant) killed() *plant { p.run++; return p }

func (p *plant) wait(m Micros) *plant { p.now += m; return p }

// wrong returns all that is found.
func (p *plant) wrong() []string {
	by := p.judges()
	_, _, out := by.Bounds()
	_, bad := by.Linearizable(10 * time.Second)
	var text []string
	for _, err := range slices.Concat(out, bad, by.Conserved(), by.Merged(), by.Answered(), by.FalseDenials()) {
		text = append(text, err.Error())
	}
	return text
}

// TestCheckersFindWhatIsPlanted: what is right passes, and each violation is
// found.
func TestCheckersFindWhatIsPlanted(t *testing.T) {
	for _, row := range []struct {
		name string
		h    *plant
		want string // part of what is found; empty: nothing is
	}{
		{"a window that recovers", planted(once()).allowed(20, "window", "a").wait(2*second).allowed(20, "window", "a"), ""},
		{"one more in a window", planted(once()).allowed(21, "window", "a"), "21 admitted"},
		{"one more, a takeover seen", broken(once()).allowed(15, "window", "a").allowed(6, "window", "b"), ""},
		{"two more, a takeover seen", broken(once()).allowed(15, "window", "a").allowed(7, "window", "b"), "22 admitted"},
		{"one more, the owner killed and owning again", broken(once()).allowed(15, "window", "node-1").killed().allowed(6,
			"window", "node-1"), ""},
		{"two more, the owner killed and owning again", broken(once()).allowed(15, "window", "node-1").killed().allowed(7,
			"window", "node-1"), "22 admitted"},
		{"one more, another node killed", broken(once()).allowed(15, "window", "node-2").killed().allowed(6, "window",
			"node-2"), "21 admitted"},
		{"forgotten by an owner killed", broken(once()).allowed(20, "once", "node-1").denied(1, "node-1").killed().allowed(1,
			"once", "node-1").denied(1, "node-1"), ""},
		{"forgotten, another node killed", broken(once()).allowed(20, "once", "node-2").denied(1,
			"node-2").killed().allowed(1, "once", "node-2").denied(1, "node-2"), "no order of its 23 checks"},
		{"across two windows", planted(once()).allowed(10, "window", "a").wait(second).allowed(20, "window", "a"),
			"30 admitted"},
		{"a bucket's burst and rate", planted(once()).allowed(20, "bucket", "a").wait(second).allowed(10, "bucket", "a"), ""},
		{"a bucket over its rate", planted(once()).allowed(20, "bucket", "a").wait(second).allowed(20, "bucket", "a"),
			"admitted"},
		{"a raised cap", broken(Allows{Closed: 1, Local: 1, Open: 1, Raised: true}).allowed(15, "window", "a").allowed(11,
			"window", "b"), ""},
		{"beyond a raised cap", broken(Allows{Closed: 1, Local: 1, Open: 1, Raised: true}).allowed(15, "window",
			"a").allowed(12, "window", "b"), "27 admitted"},
		{"a raised cap, closed", broken(Allows{Closed: 1, Local: 1, Open: 1, Raised: true}).allowed(15, "closed",
			"a").allowed(7, "closed", "b"), "22 admitted"},
		{"a split, both sides", broken(Allows{Closed: 1, Local: 2, Open: 2}).allowed(20, "window", "a").allowed(20, "window",
			"b"), ""},
		{"a split, closed", broken(Allows{Closed: 1, Local: 2, Open: 2}).allowed(20, "closed", "a").allowed(2, "closed", "b"),
			"closed, key k: 22 admitted"},
		{"a share by policy", planted(once()).answers(6, "window", Allowed, "fallback_local", "a"), ""},
		{"more than a share by policy", planted(once()).answers(7, "window", Allowed, "fallback_local", "a"),
			"the policy of node 0 admitted 7"},
		{"closed by policy", planted(once()).answers(1, "closed", Allowed, "fallback_closed", "a"),
			"the policy of node 0 admitted 1"},
		{"a counter", planted(once()).allowed(20, "once", "a").denied(3, "a"), ""},
		{"a counter that forgets", planted(once()).allowed(20, "once", "a").denied(3, "a").allowed(1, "once", "a"),
			"no order of its 24 checks"},
		{"denied and then allowed", planted(once()).allowed(10, "once", "a").denied(1, "a").allowed(10, "once", "a"),
			"no order of its 21 checks"},
		{"forgotten in a takeover", broken(once()).allowed(20, "once", "a").denied(1, "a").allowed(1, "once", "b").denied(1,
			"b"), ""},
		{"denied too early", planted(once()).allowed(19, "once", "a").denied(1, "a"), "denied although only 19 of 20"},
		{"perhaps counted", planted(once()).answers(1, "once", Unknown, "", "").allowed(19, "once", "a").denied(1, "a"), ""},
		{"a takeover after graceful changes", planted(Allows{Closed: 1, Local: 1, Open: 1, Exact: true}).allowed(15, "window",
			"a").allowed(6, "window", "b"), "21 admitted"},
		{"two owners in turn, and nothing is broken", planted(once()).allowed(15, "window", "a").allowed(6, "window", "b"),
			"21 admitted"},
		{"two owners in turn, near a fault", broken(once()).turns(22, "window"), ""},
		{"two owners in turn, and more than a fault explains", broken(once()).turns(23, "window"), "23 admitted"},
		{"forgotten as two owners answer in turn", broken(once()).turns(22, "once").denied(1, "b"), ""},
		{"forgotten as they do, and more than a fault explains", broken(once()).turns(23, "once").denied(1, "b"),
			"no order of its 24 checks"},
		{"forgotten, and nothing is broken", planted(once()).allowed(20, "once", "a").denied(1, "a").allowed(1, "once", "b"),
			"no order of its 22 checks"},
		{"a takeover before the fault", later(11*second, planted(once()).allowed(15, "window", "a").allowed(6, "window",
			"b")), "21 admitted"},
		{"a takeover long after the fault", broken(once()).wait(12*second).allowed(15, "window", "a").allowed(6, "window",
			"b"), "21 admitted"},
		{"a takeover before the fault, in one window with it",
			later(second, planted(once()).allowed(15, "window", "a").allowed(5, "window", "b").wait(second).allowed(1, "window",
				"b")), "21 admitted"},
		{"takeovers before the window", broken(once()).turns(4, "window").wait(3*second).allowed(21, "window", "b"),
			"21 admitted"},
		{"graceful changes explain nothing", later(0, planted(exact()).allowed(15, "window", "a").allowed(6, "window", "b")),
			"21 admitted"},
		{"forgotten before the fault, which explains another",
			later(3*second, planted(once()).allowed(19, "once", "a").allowed(1, "once", "c").denied(1, "c").allowed(1, "once",
				"b").denied(1, "b").wait(3*second).denied(1, "d")),
			"no order of its 24 checks"},
		{"a split, and a window before it", later(3*second,
			planted(Allows{Closed: 1, Local: 2, Open: 2}).turns(40, "window")), "40 admitted"},
		{"a split, and a window after it", broken(Allows{Closed: 1, Local: 2, Open: 2}).wait(12*second).turns(40, "window"),
			"40 admitted"},
		{"lost, once", broken(lossy(1)).allowed(20, "once", "a").denied(1, "a").allowed(20, "once", "b").denied(1, "b"), ""},
		{"lost, once, and half of it again", broken(lossy(1)).allowed(20, "once", "a").denied(1, "a").allowed(20, "once",
			"b").denied(1, "b").allowed(3, "once", "b"), "no order of its 45 checks"},
		{"on disk, and what was not saved again",
			kept(200*ms, planted(once()).allowed(20, "once", "a").wait(second).allowed(10, "once", "a")), ""},
		{"on disk, and more again",
			kept(200*ms, planted(once()).allowed(20, "once", "a").wait(second).allowed(12, "once", "a")), "32 admitted"},
		{"on disk, all of it saved, and again",
			kept(second, planted(once()).allowed(20, "once", "a").wait(second).allowed(1, "once", "a")), "21 admitted"},
		{"lost before the fault", later(3*second, planted(lossy(1)).allowed(20, "once", "a").denied(1, "a").allowed(20,
			"once", "b")), "no order of its 41 checks"},
		{"withheld, and taken back", planted(once()).allowed(17, "once", "a").answers(3, "once", Denied, "fallback_closed",
			"").denied(1, "a").allowed(3, "once", "a").denied(1, "a"), ""},
		{"a policy after graceful changes", planted(Allows{Closed: 1, Local: 1, Open: 1, Exact: true}).answers(1, "window",
			Denied, "fallback_local", "a"),
			"although every change was graceful"},
		{"no answer after graceful changes", planted(Allows{Closed: 1, Local: 1, Open: 1, Exact: true}).answers(1, "window",
			Unknown, "", "a"),
			"although every change was graceful"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := strings.Join(row.h.wrong(), "\n")
			if row.want == "" && got != "" || !strings.Contains(got, row.want) {
				t.Errorf("found %q, want %q", got, row.want)
			}
		})
	}
}

// TestOverlappingChecksMayBeInAnyOrder: nothing is assumed of checks that were
// under way together.
func TestOverlappingChecksMayBeInAnyOrder(t *testing.T) {
	p := planted(once()).allowed(19, "once", "a")
	at := p.now
	p.denied(1, "a").allowed(1, "once", "a")
	if got := p.wrong(); len(got) == 0 {
		t.Fatal("a denial before the last admission is not found")
	}
	p.Ops[19].Return = at + second // the denial was answered long after
	if got := p.wrong(); len(got) > 0 {
		t.Errorf("found %q, but the denial may have come last", got)
	}
	// Nor is a window that cannot be told: the checks may have been decided a
	// window apart.
	q := planted(once()).allowed(21, "window", "a")
	q.Ops[20].Return += 3 * second
	if got := q.wrong(); len(got) > 0 {
		t.Errorf("found %q, but the last check may have been decided in the next window", got)
	}
}

// TestMerge: what a side of a split counted still counts afterwards.
func TestMerge(t *testing.T) {
	for after, want := range map[int]int{5: 0, 6: 0, 7: 1} { // one takeover may cost one unit
		p := planted(Allows{Closed: 1, Local: 2, Open: 2}).allowed(15, "once", "a").allowed(6, "once", "b")
		p.Faults = []Fault{{At: 1, Until: p.now, Settled: p.now + second, Nodes: []int{1}, Takeovers: 1}}
		p.wait(2*second).allowed(after, "once", "b")
		if got := p.judges().Merged(); len(got) != want {
			t.Errorf("%d after the merge: found %v", after, got)
		}
	}
}

// TestSidesOfASplitAreNoTakeovers: that two sides answer in turn allows nothing.
func TestSidesOfASplitAreNoTakeovers(t *testing.T) {
	for n, want := range map[int]string{42: "", 43: "43 admitted"} { // two takeovers may cost one unit each
		p := broken(Allows{Closed: 1, Local: 2, Open: 2}).turns(n, "window")
		if got := strings.Join(p.wrong(), "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%d by two sides in turn: found %q, want %q", n, got, want)
		}
	}
}

// TestASplitIntoTwoSides: both sides may answer in full in the window of the cut, and
// much less after it.
func TestASplitIntoTwoSides(t *testing.T) {
	for _, row := range []struct {
		name          string
		before, after int
		want          string
	}{
		{"twice in the window of the cut", 20, 21, ""},
		{"more than that", 20, 22, "42 admitted"},
		{"one and a half times after it", 0, 30, ""},
		{"more than that", 0, 31, "31 admitted"},
	} {
		p := planted(Allows{Closed: 1, Local: 2, Open: 2, Split: true}).wait(second).turns(row.before, "window")
		p.Faults = []Fault{{Name: "f", At: p.now - 5*ms, Broken: p.now - ms, Until: p.now + 5*second,
			Settled: p.now + 6*second, Nodes: []int{1}, Takeovers: 1}}
		p.wait(ms).turns(row.after, "window")
		if got := strings.Join(p.wrong(), "\n"); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: found %q, want %q", row.name, got, row.want)
		}
	}
}

func TestFigures(t *testing.T) {
	p := planted(once())
	p.Faults = []Fault{{At: second, Until: 2 * second, Settled: 3 * second, Nodes: []int{2}}}
	add := func(node int, call, back Micros, o Outcome, source string) {
		p.Ops = append(p.Ops, Op{Node: node, Call: call, Return: back, Rule: "window", Outcome: o, Source: source,
			Keys: []string{"k"}})
	}
	add(0, 500*ms, 501*ms, Allowed, SourceOwner)
	add(2, 1500*ms, 1900*ms, Refused, "") // at the node that was touched
	add(1, 1100*ms, 1400*ms, Denied, "fallback_closed")
	add(1, 2100*ms, 2300*ms, Unknown, "")
	add(1, 2400*ms, 2500*ms, Denied, SourceHeir)
	want := Figures{Asked: 5, Allowed: 1, Denied: 1, ByPolicy: 1, Refused: 1, Unknown: 1, FaultLatency: 400 * ms,
		Recovered: 300 * ms, Converged: second}
	if diff := cmp.Diff(want, p.Figures()); diff != "" {
		t.Error(diff)
	}
}

func TestHistoriesAreKept(t *testing.T) {
	p := planted(once()).allowed(3, "window", "a").answers(1, "once", Unknown, "", "")
	p.Scenario, p.Seed, p.Stalls, p.Late, p.Unsettled = "kill", 7, []Span{{1, 2}}, []Late{{Node: 2, Span: Span{3, 4}}},
		"nobody knows"
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&p.History, got, cmpopts.IgnoreUnexported(History{})); diff != "" {
		t.Error(diff)
	}
	if _, err := Read(strings.NewReader(text + "{")); err == nil || !strings.Contains(err.Error(), "check 4") {
		t.Errorf("a history that was cut off is read: %v", err)
	}
}

// Where clocks may be slower, units may come back later by as much, and no later.
func TestSlowClocks(t *testing.T) {
	for after, want := range map[Micros]bool{2*second + 10*ms: false, 2*second + 230*ms: true} {
		p := planted(once()).allowed(20, "window", "a").wait(after-200*ms).answers(1, "window", Denied, SourceOwner, "a")
		p.Allows.Slow = 10
		if bad := len(p.Allows.slowed(&p.History).judges().FalseDenials()) > 0; bad != want {
			t.Errorf("denied %v after the first: found %v, want %v", after.Duration(), bad, want)
		}
		if len(p.judges().FalseDenials()) == 0 {
			t.Errorf("denied %v after the first by a right clock: nothing is found", after.Duration())
		}
	}
}

// lending adds rules whose units owners lend.
func (p *plant) lending() *plant {
	p.Rules = append(p.Rules, Rule{Name: "lent", Limit: 20, Window: 2 * second, Policy: "closed", Lent: true},
		Rule{Name: "lent-once", Limit: 20, Window: 3600 * second, Policy: "local", Once: true, Lent: true})
	return p
}

// What a node admits by a lease counts as what its owner admits. What is lent may deny a check, a tenth of the limit at
// most in the end, or what a node has that ends.
func TestLent(t *testing.T) {
	leased := func(p *plant, n int, rule string) *plant { return p.answers(n, rule, Allowed, SourceLeased, "a") }
	for _, row := range []struct {
		name string
		h    *plant
		want string // part of what is found; empty: nothing is
	}{
		{"the limit", leased(planted(once()).lending().allowed(10, "lent", "a"), 10, "lent"), ""},
		{"one more by a lease", leased(planted(once()).lending().allowed(10, "lent", "a"), 11, "lent"), "21 admitted"},
		{"one more, of a rule that does not lend", leased(planted(once()).allowed(10, "once", "a"), 11, "once"),
			"21 admitted"},
		{"a lease of an owner that was",
			leased(broken(once()).lending().allowed(19, "lent", "b"), 1, "lent").allowed(1, "lent", "b"), "21 admitted"},
		{"a denial while units are lent", planted(once()).lending().allowed(5, "lent", "a").answers(1, "lent", Denied,
			SourceOwner, "a"), ""},
		{"most units are used", planted(once()).lending().allowed(18, "lent-once", "a").answers(1, "lent-once", Denied,
			SourceOwner, "a"), ""},
		{"units that nobody can use", planted(once()).lending().allowed(17, "lent-once", "a").answers(1, "lent-once", Denied,
			SourceOwner, "a"), "only 17 of 20 were admitted"},
		{"units that a node had that ended", later(900*ms, planted(once()).lending().allowed(17, "lent-once", "a").answers(1,
			"lent-once", Denied, SourceOwner, "a")), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, _, found := row.h.judges().Bounds()
			found = append(found, row.h.judges().Conserved()...)
			found = append(found, row.h.judges().FalseDenials()...)
			_, bad := row.h.judges().Linearizable(time.Second)
			var text []string
			for _, err := range append(found, bad...) {
				text = append(text, err.Error())
			}
			if got := strings.Join(text, "; "); row.want == "" && got != "" || !strings.Contains(got, row.want) {
				t.Errorf("found %q, want %q", got, row.want)
			}
		})
	}
}
