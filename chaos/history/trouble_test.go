package history

import (
	"errors"
	"strings"
	"testing"
)

func exact() Allows { return Allows{Closed: 1, Local: 1, Open: 1, Exact: true} }

// told is what is found, as a text, without a promise of which comes first.
func told(p *plant) string { return strings.Join(p.wrong(), "\n") }

// TestAStallExcusesWhatIsNear: what stood still explains takeovers, answers by
// policies and what they cost, until a while after it, and nothing before or later.
func TestAStallExcusesWhatIsNear(t *testing.T) {
	stood := Span{10 * second, 10*second + 60*ms}
	long := Span{10 * second, 11 * second}
	for _, row := range []struct {
		name  string
		at    Micros
		stall Span
		want  bool // whether it is excused
	}{
		{"before", 8 * second, stood, false},
		{"as it begins", stood.From - 50*ms, stood, true},
		{"soon after", stood.Until + 800*ms, stood, true},
		{"later", stood.Until + 1300*ms, stood, false},
		{"later, where gossip may have noticed", long.Until + 1300*ms, long, true},
		{"much later", long.Until + 5300*ms, long, false},
	} {
		for what, p := range map[string]*plant{
			"a policy":               planted(exact()).wait(row.at).answers(1, "window", Denied, "fallback_local", "a"),
			"a takeover":             planted(exact()).wait(row.at-120*ms).allowed(15, "window", "a").allowed(6, "window", "b"),
			"a counter that forgets": planted(exact()).wait(row.at-200*ms).allowed(20, "once", "a").allowed(1, "once", "b"),
		} {
			byNode := *p
			p.Stalls = []Span{row.stall}
			byNode.Late = []Late{{Node: 1, Span: row.stall}}
			for who, p := range map[string]*plant{"the machine": p, "a node": &byNode} {
				if got := told(p); (got == "") != row.want {
					t.Errorf("%s, %s of %s: found %q", row.name, what, who, got)
				}
			}
		}
	}
}

// TestAFaultMakesItsNodeLate: that is no reason of its own.
func TestAFaultMakesItsNodeLate(t *testing.T) {
	for node, want := range map[int]string{1: "21 admitted", 2: ""} {
		p := later(second, planted(once()))
		p.Late = []Late{{Node: node, Span: Span{second, 2 * second}}}
		p.wait(4*second+100*ms).allowed(15, "window", "a").allowed(6, "window", "b")
		if got := told(p); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("node %d late: found %q, want %q", node, got, want)
		}
	}
}

// TestAFaultMakesItsNodeLateWhileItLasts: what comes later has another reason.
func TestAFaultMakesItsNodeLateWhileItLasts(t *testing.T) {
	p := later(second, planted(once()))
	p.Late = []Late{{Node: 1, Span: Span{4 * second, 5 * second}}}
	p.wait(5*second).allowed(15, "window", "a").allowed(6, "window", "b")
	if got := told(p); got != "" {
		t.Errorf("found %q, but the node was late again", got)
	}
}

// TestNoMoreLossesThanAllowed: however many faults may have been the one.
func TestNoMoreLossesThanAllowed(t *testing.T) {
	for losses, want := range map[int]int{1: 1, 2: 0} {
		p := planted(lossy(losses)).allowed(20, "once", "a").allowed(20, "once", "b").allowed(20, "once", "c")
		for range 2 {
			p.Faults = append(p.Faults, Fault{At: 0, Until: second, Settled: second, Nodes: []int{1}, Loses: true})
		}
		if _, got := p.judges().Linearizable(second.Duration()); len(got) != want {
			t.Errorf("%d losses allowed: found %v", losses, got)
		}
	}
}

// TestStallsThatOverlapAreOne: several nodes that stand still together explain no more
// than one of them.
func TestStallsThatOverlapAreOne(t *testing.T) {
	p := planted(exact()).turns(23, "window")
	p.Stalls = []Span{{0, 60 * ms}}
	p.Late = []Late{{Node: 1, Span: Span{20 * ms, 80 * ms}}, {Node: 2, Span: Span{70 * ms, 140 * ms}}}
	if got := told(p); !strings.Contains(got, "23 admitted") {
		t.Errorf("found %q", got)
	}
	p.Late[1].Span = Span{90 * ms, 140 * ms}
	if got := told(p); got != "" {
		t.Errorf("two stalls: found %q", got)
	}
}

// TestWithoutASettling: a fault that was never seen to settle has effects until the end; of
// those that overlap the last one was waited for.
func TestWithoutASettling(t *testing.T) {
	for settled, want := range map[Micros]string{0: "", 3 * second: "21 admitted"} {
		p := planted(once())
		p.Faults = []Fault{
			{Name: "f", At: 0, Until: second, Nodes: []int{1}, Takeovers: 1},
			{Name: "f", At: second, Until: 2 * second, Settled: settled, Nodes: []int{1}, Takeovers: 1},
		}
		p.wait(5*second).allowed(15, "window", "a").allowed(6, "window", "b")
		p.End = p.now
		if got := told(p); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("settled at %v: found %q, want %q", settled.Duration(), got, want)
		}
	}
}

// TestUnsettledIsKept: whoever judges a history again hears of it.
func TestUnsettledIsKept(t *testing.T) {
	p := planted(once()).allowed(60, "window", "a")
	p.Unsettled = "node-2 sees 2 of 3"
	for _, v := range Judge(&p.History).Violations {
		if errors.Is(v, ErrUnsettled) && strings.Contains(v.Error(), p.Unsettled) {
			return
		}
	}
	t.Error("nothing says that the nodes did not settle")
}

// TestFaultLatency: nodes that a fault does not touch answer again within a time, unless
// something stood still.
func TestFaultLatency(t *testing.T) {
	of := func(at Micros, node int) *plant {
		p := later(second, planted(Allows{Closed: 1, Local: 1, Open: 1, Within: 500 * ms}))
		p.wait(at).answers(1, "window", Denied, "fallback_local", "a")
		p.Ops[0].Node = node
		return p
	}
	for _, row := range []struct {
		name string
		h    *plant
		want int
	}{
		{"before", of(0, 0), 0},
		{"soon", of(1490*ms, 0), 0},
		{"late", of(1510*ms, 0), 1},
		{"late, at the node that was touched", of(1510*ms, 1), 0},
		{"soon after it was mended", of(2490*ms, 0), 0},
		{"late after it was mended", of(2510*ms, 0), 1},
	} {
		if got := row.h.judges().FaultLatency(); len(got) != row.want {
			t.Errorf("%s: found %v", row.name, got)
		}
		row.h.Stalls = []Span{{1200 * ms, 1300 * ms}}
		if got := row.h.judges().FaultLatency(); row.name == "late" && len(got) > 0 {
			t.Errorf("%s: found %v, but the machine stood still", row.name, got)
		}
		row.h.Allows.Within = 0
		if got := row.h.judges().FaultLatency(); len(got) > 0 {
			t.Errorf("%s: found %v, but it is not judged", row.name, got)
		}
	}
}

// TestExcused: how much of a run is excused is told.
func TestExcused(t *testing.T) {
	p := planted(once())
	p.End = 10 * second
	p.Stalls = []Span{{2 * second, 2*second + 100*ms}, {9500 * ms, 9600 * ms}}
	p.Late = []Late{{Node: 1, Span: Span{2500 * ms, 2600 * ms}}}
	if got := p.Figures().Excused; got != 23 { // 1.9 to 3.6 s, and 9.4 to 10 s
		t.Errorf("%d %%, want 23", got)
	}
}

// TestLinearizableInAMinority: who is left alone by two faults at once decides with its share
// of the limit, and once all is well again with the whole.
func TestLinearizableInAMinority(t *testing.T) {
	for _, row := range []struct {
		share, faults int
		wrong         bool
	}{
		{5, 2, false}, // of 20, of three nodes and one that may be joining
		{4, 2, true},
		{5, 1, true},
	} {
		p := planted(Allows{Closed: 1, Local: 1, Open: 1})
		p.Faults = nil
		for range row.faults {
			p.Faults = append(p.Faults, Fault{At: 0, Until: 5 * second, Settled: 5 * second, Nodes: []int{1}})
		}
		p.wait(2500*ms).allowed(row.share, "once", "a").denied(2, "a").wait(6*second).allowed(20-row.share, "once",
			"a").denied(1, "a")
		if _, got := p.judges().Linearizable(second.Duration()); (len(got) > 0) != row.wrong {
			t.Errorf("denied after %d of 20 in %d faults: found %v", row.share, row.faults, got)
		}
	}
}
