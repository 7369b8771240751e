package history

import (
	"strings"
	"testing"
)

// TestServed: an error is wrong at any time, and a refusal is where nobody had ended the
// node that was asked, unless something stood still. What is done to links explains none.
func TestServed(t *testing.T) {
	// node-2 is broken from 1 s on, and its effects last until 1 s after it had settled at 3 s.
	of := func(at Micros, node int, o Outcome) *plant {
		p := later(second, planted(once())).wait(at).answers(1, "window", o, "", "")
		p.Ops[0].Node = node
		return p
	}
	const refused, wrong = "refused at node", "answered with an error"
	for _, row := range []struct {
		name string
		h    *plant
		want string
	}{
		{"refused while something was broken that did not end it", of(1500*ms, 1, Refused), refused},
		{"refused before", of(500*ms, 1, Refused), refused},
		{"refused long after", of(4100*ms, 1, Refused), refused},
		{"refused by another one", of(1500*ms, 0, Refused), refused},
		{"an error while it was broken", of(1500*ms, 1, Error), wrong},
		{"an error before", of(500*ms, 0, Error), wrong},
		{"not answered", of(500*ms, 0, Unknown), ""},
	} {
		check := func(name, want string) {
			t.Helper()
			if got := row.h.served(); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s: found %q, want %q", name, got, want)
			}
		}
		check(row.name, row.want)
		o := &row.h.Ops[0]
		row.h.Downs = []Down{{Node: o.Node, Told: o.Call - ms, From: o.Return + 2*ms, Until: o.Return + 9*ms}}
		if row.want == refused {
			check(row.name+", but it had been told to end", "")
		}
		row.h.Downs[0].Told = o.Return + ms
		check(row.name+", and it was told to end later", row.want)
		row.h.Downs[0].Told, row.h.Downs[0].From, row.h.Downs[0].Until = o.Call-9*ms, o.Call-8*ms, o.Call-ms
		check(row.name+", and it was to be back before", row.want)
		row.h.Downs = []Down{{Node: o.Node + 1, Told: o.Call - ms, From: o.Call - ms, Until: o.Return + ms}}
		check(row.name+", and another one was down", row.want)
		row.h.Stalls = []Span{{o.Call - 100*ms, o.Call - 50*ms}}
		if row.want == refused {
			check(row.name+", but something stood still", "")
		}
		if row.want == wrong {
			check(row.name+", and something stood still", wrong)
		}
	}
	p := of(500*ms, 0, Error)
	p.Ops[0].Says = "500 no"
	text := ""
	for _, err := range Judge(&p.History).Violations {
		text += err.Error()
	}
	if !strings.Contains(text, "500 no") {
		t.Errorf("the judge says %q", text)
	}
}

// served is what Served finds, as a text.
func (p *plant) served() string {
	var text []string
	for _, err := range p.judges().Served() {
		text = append(text, err.Error())
	}
	return strings.Join(text, "; ")
}

// TestServedOnceStarted: a node that was started refuses until it has answered, in that run,
// and not for long.
func TestServedOnceStarted(t *testing.T) {
	for _, row := range []struct {
		name     string
		at       Micros // when it refuses, started at 2 s
		answered Micros // when it answers, in its run
		run      int
		stall    Micros // when something stood still, 0 for never
		want     bool   // whether that is wrong
	}{
		{"before it was started", 1900 * ms, 3 * second, 2, 0, true},
		{"before it answers", 2900 * ms, 3 * second, 2, 0, false},
		{"after it answered", 3100 * ms, 3 * second, 2, 0, true},
		{"after it answered in the run before", 3100 * ms, 3 * second, 1, 0, false},
		{"for 20 s", 21900 * ms, 25 * second, 2, 0, false},
		{"for longer", 22100 * ms, 25 * second, 2, 0, true},
		{"for longer, but something stood still", 22100 * ms, 25 * second, 2, 5 * second, false},
	} {
		p := planted(once()).wait(row.at).answers(1, "window", Refused, "", "")
		p.now, p.run = row.answered-ms, row.run
		p.allowed(1, "window", "a")
		p.Starts = []Start{{Node: 0, Run: 2, At: 2 * second}}
		if row.stall > 0 {
			p.Stalls = []Span{{row.stall, row.stall + 50*ms}}
		}
		if got := p.served(); (got != "") != row.want {
			t.Errorf("%s: found %q", row.name, got)
		}
		p.Starts[0].Node = 1
		if got := p.served(); got == "" {
			t.Errorf("%s: another node was started, and nothing is found", row.name)
		}
	}
}

// TestServedWithoutRoom: only where nodes are filled, and while the effects of that last;
// that one was told to end is no reason.
func TestServedWithoutRoom(t *testing.T) {
	for _, row := range []struct {
		at   Micros
		full bool
		want bool // whether that is wrong
	}{
		{500 * ms, true, true},
		{1500 * ms, true, false},
		{1500 * ms, false, true},
		{3900 * ms, true, false},
		{4100 * ms, true, true},
	} {
		a := once()
		a.Full = row.full
		p := later(second, planted(a)).wait(row.at).answers(1, "window", Refused, "", "")
		p.Ops[0].Node, p.Ops[0].Says = 1, NoRoom
		p.Downs = []Down{{Node: 1, Until: p.now}}
		if got := p.served(); (got != "") != row.want {
			t.Errorf("%+v: found %q", row, got)
		}
	}
}

// What a node answered with an error may have been counted: two counters of a key are
// not found where it explains what is seen.
func TestAnErrorMayHaveBeenCounted(t *testing.T) {
	p := planted(Allows{Closed: 1, Local: 1, Open: 1, Exact: true}).allowed(19, "once", "a").answers(1, "once", Error, "",
		"").denied(1, "a")
	if got := p.wrong(); len(got) > 0 {
		t.Errorf("found %q", got)
	}
	if f := p.Figures(); f.Unknown != 1 {
		t.Errorf("%d unknown, want 1", f.Unknown)
	}
}
