package history

import (
	"strings"
	"testing"
)

// found is what some checker returned, as one text.
func found(errs []error) string {
	var text []string
	for _, err := range errs {
		text = append(text, err.Error())
	}
	return strings.Join(text, "; ")
}

// TestRecovered: from a second after all has settled owners and heirs decide every check
// at nodes that run.
func TestRecovered(t *testing.T) {
	of := func(at Micros, o Outcome, source string) *plant {
		p := later(second, planted(once())) // settled at 3 s
		return p.wait(at).answers(1, "closed", o, source, "")
	}
	const late = "1.1s after all had settled"
	for _, row := range []struct {
		name string
		h    *plant
		want string
	}{
		{"an owner's answer", of(4100*ms, Denied, SourceOwner), ""},
		{"a policy's answer while its effects last", of(3900*ms, Denied, "fallback_closed"), ""},
		{"a policy's answer", of(4100*ms, Denied, "fallback_closed"), late},
		{"no answer", of(4100*ms, Unknown, ""), late},
	} {
		if got := found(row.h.judges().Recovered()); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: found %q, want %q", row.name, got, row.want)
		}
		if got := found(Judge(&row.h.History).Violations); row.want != "" && !strings.Contains(got, row.want) {
			t.Errorf("%s: the judge says %q", row.name, got)
		}
		row.h.Stalls = []Span{{3200 * ms, 3300 * ms}}
		if got := found(row.h.judges().Recovered()); got != "" {
			t.Errorf("%s: found %q, but something stood still", row.name, got)
		}
	}
	p := of(4100*ms, Unknown, "")
	p.Downs = []Down{{Node: 0, From: 4 * second, Until: 5 * second}}
	if got := found(p.judges().Recovered()); got != "" {
		t.Errorf("found %q, but the node was down", got)
	}
	p = of(4100*ms, Denied, "fallback_closed")
	p.Ops[0].Return = p.Ops[0].Call + deadline
	if p.Allows.Raised = true; found(p.judges().Recovered()) != "" {
		t.Errorf("found %q, but copies were late and it waited for its deadline", p.judges().Recovered())
	}
	if p.Allows.Raised = false; !strings.Contains(found(p.judges().Recovered()), late) {
		t.Errorf("found %q, and no copies were late", p.judges().Recovered())
	}
	busy := func(late Micros, nodes ...int) string {
		p := later(second, planted(once()))
		p.wait(4100 * ms)
		for _, n := range nodes {
			p.Ops = append(p.Ops, Op{Node: n, Call: p.now, Return: p.now + late, Rule: "closed", Outcome: Denied,
				Source: SourceOwner, Keys: []string{"j"}, Owners: []string{"a"}})
		}
		p.answers(1, "closed", Denied, "fallback_closed", "")
		p.Ops[len(p.Ops)-1].Return += deadline
		return found(p.judges().Recovered())
	}
	for _, row := range []struct {
		late  Micros
		nodes []int
		want  string
	}{
		{75 * ms, []int{0, 0, 1}, ""},
		{74 * ms, []int{0, 0, 1}, late},
		{75 * ms, []int{0, 1}, late},
		{75 * ms, []int{1, 1, 1}, late},
	} {
		if got := busy(row.late, row.nodes...); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("others took %v at nodes %v: found %q, want %q", row.late.Duration(), row.nodes, got, row.want)
		}
	}
	cut := func(ends ...Micros) string { // each moment loses two checks
		p := later(second, planted(once()))
		p.Allows.Cut = true
		for _, at := range ends {
			p.now = at
			p.answers(1, "closed", Denied, "fallback_closed", "").wait(90*ms).answers(1, "closed", Denied, "fallback_closed", "")
		}
		return found(p.judges().Recovered())
	}
	for _, row := range []struct {
		ends []Micros
		want string
	}{
		{[]Micros{4100 * ms, 5 * second, 8 * second}, ""}, // of three nodes each two have a connection
		{[]Micros{4100 * ms, 5 * second, 6 * second, 8 * second}, "5s after all had settled"},
		{[]Micros{8600 * ms}, "5.6s after all had settled"},
	} {
		if got := cut(row.ends...); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("links were cut, and checks lost at %v: found %q, want %q", row.ends, got, row.want)
		}
	}
	p = of(4100*ms, Denied, "fallback_closed")
	if p.Faults[0].Settled = 0; found(p.judges().Recovered()) != "" {
		t.Errorf("found %q, but they never settled", p.judges().Recovered())
	}
}

// TestConverged: the nodes settle within a time, unless something stood still.
func TestConverged(t *testing.T) {
	p := later(second, planted(Allows{Closed: 1, Local: 1, Open: 1, Converged: 5 * second})) // mended at 2 s
	if p.Faults[0].Settled = 7 * second; found(p.judges().Recovered()) != "" {
		t.Errorf("found %q, and it took as long as it may", p.judges().Recovered())
	}
	p.Faults[0].Settled++
	if got := found(p.judges().Recovered()); !strings.Contains(got, "to settle after all was mended") {
		t.Errorf("found %q, and it took longer than it may", got)
	}
	p.Late = []Late{{Node: 2, Span: Span{4 * second, 4100 * ms}}}
	if got := found(p.judges().Recovered()); got != "" {
		t.Errorf("found %q, but a node stood still", got)
	}
	p.Late, p.Allows.Converged = nil, 0
	if got := found(p.judges().Recovered()); got != "" {
		t.Errorf("found %q, but it is not judged", got)
	}
}

// TestUndisturbed: where no client is to notice a fault, owners and heirs decide all
// checks while it lasts.
func TestUndisturbed(t *testing.T) {
	for _, o := range []Op{{Outcome: Denied, Source: "fallback_local"}, {Outcome: Unknown}} {
		p := broken(Allows{Closed: 1, Local: 2, Open: 2, Unfelt: true}).wait(3*second).answers(1, "window", o.Outcome,
			o.Source, "")
		const want = "no client was to notice"
		if got := found(Judge(&p.History).Violations); !strings.Contains(got, want) {
			t.Errorf("%s %s: the judge says %q", o.Outcome, o.Source, got)
		}
		p.Stalls = []Span{{2500 * ms, 2600 * ms}}
		if got := found(p.judges().Undisturbed()); got != "" {
			t.Errorf("%s %s: found %q, but something stood still", o.Outcome, o.Source, got)
		}
		p.Stalls, p.Allows.Unfelt = nil, false
		if got := found(p.judges().Undisturbed()); got != "" {
			t.Errorf("%s %s: found %q, but clients may notice", o.Outcome, o.Source, got)
		}
	}
}
