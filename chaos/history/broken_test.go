package history

import (
	"strings"
	"testing"
)

// falseDenials is what FalseDenials finds, as a text.
func (p *plant) falseDenials() string {
	var text []string
	for _, err := range p.judges().FalseDenials() {
		text = append(text, err.Error())
	}
	return strings.Join(text, "; ")
}

// failing has node-2 broken from 3 s on, until 9 s, and seen to have settled at 10 s.
func failing(holds Holds) *plant {
	p := planted(once())
	p.Faults = []Fault{{Name: "f", At: 3 * second, Until: 9 * second, Settled: 10 * second, Nodes: []int{1}, Takeovers: 1,
		Holds: holds}}
	return p
}

// heirs adds n denials of a rule by an heir.
func (p *plant) heirs(n int, rule string) *plant {
	return p.answers(n, rule, Denied, SourceHeir, "b")
}

// TestAnHeirThatDeniesEverything is found as soon as what was charged before the fault
// counts no more, and before where there was room then.
func TestAnHeirThatDeniesEverything(t *testing.T) {
	used := func(holds Holds) *plant { return failing(holds).wait(second).allowed(20, "window", "a") }
	for _, row := range []struct {
		name string
		h    *plant
		want string
	}{
		{"what was charged counts still", used(HoldsNothing).wait(1900*ms).heirs(5, "window"), ""},
		{"it counts no more", used(HoldsNothing).wait(2700*ms).heirs(5, "window"), "at most 1 of 20"},
		{"it counts no more, while a node is away", used(HoldsBack).wait(2700*ms).heirs(5, "window"), "at most 1 of 20"},
		{"it may count still, as it is held up", used(HoldsAlways).wait(2700*ms).heirs(5, "window"), ""},
		{"a closed rule", failing(HoldsNothing).wait(second).allowed(20, "closed", "a").wait(2700*ms).heirs(5, "closed"),
			"closed, key k: denied at node 0 by its heir"},
		{"a policy denies", used(HoldsNothing).wait(2700*ms).answers(5, "window", Denied, "fallback_closed", ""), ""},
		{"it is coming back, late", used(HoldsBack).wait(7*second).heirs(1, "window"), ""},
		{"it comes back, late", used(HoldsBack).wait(8*second).heirs(5, "window"), ""},
		{"it comes back, and nothing is late", used(HoldsNothing).wait(8*second).heirs(5, "window"), "at most 1 of 20"},
		{"what came back late counts no more", used(HoldsBack).wait(12500*ms).heirs(5, "window"), "at most 1 of 20"},
		{"nobody knows when it was charged", failing(HoldsNothing).wait(800*ms).answers(10, "window", Unknown, "",
			"").wait(3200*ms).heirs(1, "window"), ""},
		{"whenever it was charged it counts no more", failing(HoldsNothing).wait(800*ms).answers(10, "window", Unknown, "",
			"").wait(3700*ms).heirs(1, "window"), "at most 0 of 20"},
		{"a bucket", failing(HoldsNothing).wait(5*second).heirs(5, "bucket"), ""},
		{"there was room", failing(HoldsNothing).wait(2500*ms).allowed(12, "window", "a").wait(second).heirs(5, "window"),
			"at most 14 of 20"},
		{"there was room for D, and for what was asked last, twice",
			failing(HoldsNothing).wait(2500*ms).allowed(17, "window", "a").wait(second).heirs(1, "window"), "at most 19 of 20"},
		{"there was none, as it changed hands twice", failing(HoldsNothing).wait(2500*ms).allowed(17, "window",
			"a").allowed(1, "window", "b").wait(second).allowed(1, "window", "a").heirs(1, "window"), ""},
		{"there was none, as nobody knows", failing(HoldsNothing).wait(2500*ms).allowed(9, "window", "a").answers(5, "window",
			Unknown, "", "").wait(second).heirs(5, "window"), ""},
		{"there was none, as a policy may have been late",
			failing(HoldsNothing).wait(2500*ms).allowed(9, "window", "a").answers(5, "window", Denied, "fallback_local",
				"").wait(second).heirs(5, "window"), ""},
		{"there was none, as some was under way", failing(HoldsNothing).wait(3005*ms).allowed(10, "window",
			"a").wait(second).heirs(5, "window"), ""},
		{"some was under way as it was mended", failing(HoldsNothing).wait(8900*ms).allowed(15, "window",
			"a").wait(600*ms).heirs(5, "window"), ""},
		{"never used up", failing(HoldsNothing).wait(2*second).allowed(12, "once", "a").wait(5*second).heirs(5, "once"),
			"at most 14 of 20"},
		{"perhaps used up while all was late", failing(HoldsAlways).wait(4*second).allowed(12, "once",
			"a").wait(3*second).heirs(5, "once"), ""},
		{"used up long ago", failing(HoldsNothing).allowed(20, "once", "a").wait(5*second).heirs(5, "once"), ""},
		{"denied first, and then allowed", failing(HoldsNothing).wait(5*second).heirs(5, "once").allowed(20, "once", "b"),
			"at most 0 of 20"},
		{"after all has settled", failing(HoldsNothing).allowed(20, "window", "a").wait(20*second).allowed(5, "window",
			"b").heirs(1, "window"), "at most 7 of 20"},
	} {
		if got := row.h.falseDenials(); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: found %q, want %q", row.name, got, row.want)
		}
	}
}

// TestWhatMayBeChargedMeanwhile: of what overlaps nothing is assumed, and of what took
// long, or nobody knows yet, neither.
func TestWhatMayBeChargedMeanwhile(t *testing.T) {
	// 19 are charged, and one is denied at 4 s.
	of := func() *plant {
		return failing(HoldsNothing).wait(2300*ms).allowed(19, "window", "a").wait(1510*ms).answers(1, "window", Denied,
			SourceOwner, "a")
	}
	rows := []struct {
		name string
		make func(p *plant)
		want bool
	}{
		{"nothing more", func(*plant) {}, true},
		{"its check took long", func(p *plant) { p.Ops[19].Return += askedTwice }, false},
		{"another one took long", func(p *plant) { p.Ops[7].Return += askedTwice }, false},
		{"another one was denied before", func(p *plant) {
			p.answers(1, "window", Denied, SourceOwner, "a")
			p.Ops[20].Call, p.Ops[20].Return = 3900*ms, 3910*ms
		}, true},
		{"another one was denied before, and took long", func(p *plant) {
			p.answers(1, "window", Denied, SourceOwner, "a")
			p.Ops[20].Call, p.Ops[20].Return = 3700*ms, 3800*ms
		}, false},
		{"another one was denied before, and rightly", func(p *plant) {
			p.allowed(1, "window", "a").answers(1, "window", Denied, SourceOwner, "a")
			p.Ops[20].Call, p.Ops[20].Return = 1000*ms, 1001*ms
			p.Ops[21].Call, p.Ops[21].Return = 2900*ms, 2901*ms
		}, true},
		{"it had changed hands long before", func(p *plant) {
			p.now = 100 * ms
			p.turns(3, "window")
		}, true},
		{"it changed hands later", func(p *plant) {
			p.wait(second).turns(2, "window")
		}, true},
		{"another one was denied at once", func(p *plant) {
			p.answers(1, "window", Denied, SourceOwner, "a")
			p.Ops[20].Call, p.Ops[20].Return = p.Ops[19].Call, p.Ops[19].Return
		}, false},
		{"one was allowed at once", func(p *plant) {
			p.allowed(1, "window", "a")
			p.Ops[20].Call, p.Ops[20].Return = p.Ops[19].Call, p.Ops[19].Return
		}, false},
		{"one was allowed later", func(p *plant) { p.allowed(1, "window", "a") }, true},
		{"one was refused before", func(p *plant) {
			p.answers(1, "window", Refused, "", "")
			p.Ops[20].Call, p.Ops[20].Return = 3*second, 3*second
		}, true},
		{"something stood still", func(p *plant) { p.Stalls = []Span{{2500 * ms, 2560 * ms}} }, false},
		{"something stood still long before", func(p *plant) { p.Stalls = []Span{{100 * ms, 160 * ms}} }, true},
		{"it is no answer of the owner's", func(p *plant) { p.Ops[19].Source = SourceCached }, false},
		{"it has several keys", func(p *plant) { p.Rules[0].Several = true }, false},
	}
	for _, row := range rows {
		p := of()
		row.make(p)
		if got := p.falseDenials(); (got != "") != row.want {
			t.Errorf("%s: found %q", row.name, got)
		}
	}
}

// TestAMinorityOwesItsShare, under `local`, where there may be one.
func TestAMinorityOwesItsShare(t *testing.T) {
	for _, row := range []struct {
		name  string
		rule  string
		used  int
		make  func(p *plant)
		want  bool
		twice float64 // what is allowed
	}{
		{"one node is away", "window", 5, func(*plant) {}, true, 1},
		{"a side may be small", "window", 5, func(*plant) {}, false, 2},
		{"and is owed its share", "window", 4, func(*plant) {}, true, 2},
		{"closed", "closed", 5, func(*plant) {}, true, 2},
		{"two nodes are away", "window", 5, func(p *plant) { p.Faults[0].Nodes = []int{1, 2} }, false, 1},
		{"two nodes are away, closed", "closed", 5, func(p *plant) { p.Faults[0].Nodes = []int{1, 2} }, true, 1},
		{"two faults", "window", 5, func(p *plant) { p.Faults = append(p.Faults, p.Faults[0]) }, false, 1},
		{"all is over", "window", 5, func(p *plant) { p.Faults[0].Until, p.Faults[0].Settled = 3*second, 3*second }, true, 2},
	} {
		p := failing(HoldsNothing)
		p.Allows.Local = row.twice
		p.wait(4*second).allowed(row.used, row.rule, "a").wait(500 * ms)
		row.make(p)
		p.answers(1, row.rule, Denied, SourceOwner, "a")
		if got := p.falseDenials(); (got != "") != row.want {
			t.Errorf("%s: found %q", row.name, got)
		}
	}
	// Who stood still may take itself for one.
	for at, want := range map[Micros]int{0: 1, 150 * ms: 0} {
		p := planted(once()).allowed(10, "once", "a").wait(100*ms).denied(1, "a")
		if at > 0 {
			p.Stalls = []Span{{at, at + 50*ms}}
		}
		if got := p.judges().Conserved(); len(got) != want {
			t.Errorf("something stood still at %v: found %v", at.Duration(), got)
		}
	}
}
