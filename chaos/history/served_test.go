package history

import (
	"strings"
	"testing"
)

// TestServed: an error is wrong at any time, and a refusal is where nobody had ended the
// node that was asked, unless something stood still.
func TestServed(t *testing.T) {
	// node-2 is broken from 1 s on, and felt until 1 s after it had settled at 3 s.
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
		{"refused while it was broken", of(1500*ms, 1, Refused), ""},
		{"refused as it comes back", of(3900*ms, 1, Refused), ""},
		{"refused before", of(500*ms, 1, Refused), refused},
		{"refused long after", of(4100*ms, 1, Refused), refused},
		{"refused by another one", of(1500*ms, 0, Refused), refused},
		{"an error while it was broken", of(1500*ms, 1, Error), wrong},
		{"an error before", of(500*ms, 0, Error), wrong},
		{"not answered", of(500*ms, 0, Unknown), ""},
	} {
		check := func(name, want string) {
			t.Helper()
			var text []string
			for _, err := range row.h.Served() {
				text = append(text, err.Error())
			}
			if got := strings.Join(text, "; "); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s: found %q, want %q", name, got, want)
			}
		}
		check(row.name, row.want)
		o := &row.h.Ops[0]
		row.h.Downs = []Down{{Node: o.Node, From: o.Call - ms, Until: o.Return + ms}}
		if row.want == refused {
			check(row.name+", but it was down", "")
		}
		row.h.Downs[0].Node++
		check(row.name+", and another one was down", row.want)
		row.h.Stalls = []Span{{o.Call - 100*ms, o.Call - 50*ms}}
		if row.want == refused {
			check(row.name+", but something stood still", "")
		}
		if row.want == wrong {
			check(row.name+", and something stood still", wrong)
		}
	}
	p := of(4100*ms, 1, Refused)
	p.Faults[0].Until, p.Faults[0].Settled, p.End = 0, 0, 5*second
	if got := p.Served(); len(got) > 0 {
		t.Errorf("found %v, but the trial ended before the fault was mended", got)
	}
	p = of(500*ms, 0, Error)
	p.Ops[0].Says = "500 no"
	text := ""
	for _, err := range Judge(&p.History).Violations {
		text += err.Error()
	}
	if !strings.Contains(text, "500 no") {
		t.Errorf("the judge says %q", text)
	}
}

// What a node answered with an error may have been counted: two counters of a key are
// not found where it explains what is seen.
func TestAnErrorMayHaveBeenCounted(t *testing.T) {
	p := planted(Allows{Closed: 1, Local: 1, Open: 1, Exact: true}).allowed(19, "once", "a").answers(1, "once", Error, "", "").denied(1, "a")
	if got := p.wrong(); len(got) > 0 {
		t.Errorf("found %q", got)
	}
	if f := p.Figures(); f.Unknown != 1 {
		t.Errorf("%d unknown, want 1", f.Unknown)
	}
}
