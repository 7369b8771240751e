package history

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// A run in which nothing is decided shows nothing, whatever else it does not break.
func TestARunMustBeAlive(t *testing.T) {
	settled := func() *plant {
		p := planted(once())
		p.Faults[0].Settled = 600 * ms
		return p
	}
	for _, row := range []struct {
		name string
		h    *plant
		want string // part of what is found; empty: nothing is
	}{
		{"as it should be", settled().allowed(60, "window", "a").allowed(20, "window", "a").answers(40, "window", Denied,
			SourceOwner, "a"), ""},
		{"no checks", settled(), "only 0 checks were made"},
		{"few checks", settled().allowed(49, "window", "a"), "only 49 checks were made"},
		{"refused from then on", settled().allowed(60, "window", "a").answers(40, "window", Refused, "", ""),
			"of 40 checks after all had settled owners and heirs decided only 0"},
		{"by policy from then on", settled().allowed(60, "window", "a").answers(40, "window", Allowed, "fallback_local", ""),
			"decided only 0"},
		{"denied from then on", settled().allowed(60, "window", "a").answers(40, "window", Denied, SourceOwner, "a"),
			"none was allowed"},
		{"one rule denied from then on", settled().allowed(60, "window", "a").allowed(20, "window",
			"a").wait(2*second).answers(40, "closed", Denied, SourceOwner, "a"),
			"of 40 checks of closed after all had settled none was allowed"},
		{"one rule by policy from then on", settled().allowed(60, "window", "a").allowed(60, "window",
			"a").wait(2*second).answers(40, "bucket", Allowed, "fallback_local", ""),
			"of 40 checks of bucket after all had settled owners and heirs decided only 0"},
		{"a window that may have been full", settled().allowed(60, "window", "a").allowed(20, "window", "a").answers(40,
			"closed", Denied, SourceOwner, "a"), ""},
		{"nobody asks any more", settled().allowed(60, "window", "a").wait(2 * second),
			"only 0 checks were made after all had settled"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.h.End = row.h.now
			var text []string
			for _, err := range row.h.judges().Alive() {
				text = append(text, err.Error())
			}
			if got := strings.Join(text, "; "); row.want == "" && got != "" || !strings.Contains(got, row.want) {
				t.Errorf("found %q, want %q", got, row.want)
			}
		})
	}
}

// What is over by most is told of, not what is nearest to its bound.
func TestOverIsTheMost(t *testing.T) {
	p := broken(once())
	for _, owner := range []string{"a", "b", "a"} {
		p.allowed(7, "window", owner)
	}
	p.wait(10*second).allowed(20, "closed", "a")
	r := Judge(&p.History)
	if over, may := r.Over(); over != 1 || may != 2 {
		t.Errorf("over by %d of %d, want 1 of 2", over, may)
	}
}

// A history that lost its end is not judged as if it were whole.
func TestAHistoryCutOff(t *testing.T) {
	var b bytes.Buffer
	if err := planted(once()).allowed(60, "window", "a").Write(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	if _, err := Read(strings.NewReader(strings.Join(lines[:30], ""))); err == nil ||
		!strings.Contains(err.Error(), "it has 29 of its 60 checks") {
		t.Errorf("%v", err)
	}
}

// A rule that no client asks about breaks no promise, and shows nothing.
func TestEveryRuleIsAsked(t *testing.T) {
	p := planted(once())
	for i := range p.Rules {
		p.answers(leastEach, p.Rules[i].Name, Unknown, "", "")
	}
	if got := p.judges().Alive(); got != nil {
		t.Errorf("found %v, and every rule was asked about", got)
	}
	for i := range p.Ops {
		if p.Ops[i].Rule == "bucket" {
			p.Ops[i].Rule = "once"
		}
	}
	if got := found(p.judges().Alive()); !strings.Contains(got, "none of 200 checks was of bucket") {
		t.Errorf("found %q, and nobody asked about the bucket", got)
	}
	if p.Ops = p.Ops[1:]; found(p.judges().Alive()) != "" {
		t.Errorf("found %v of so few checks that it may be chance", p.judges().Alive())
	}
}

// What no checker would look at is not judged as if it were right.
func TestAHistoryOfNothing(t *testing.T) {
	read := func(with func(p *plant)) error {
		p := planted(once()).allowed(60, "window", "a")
		with(p)
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		_, err := Read(&b)
		return err
	}
	for want, with := range map[string]func(p *plant){
		"it has no rules":                            func(p *plant) { p.Rules = nil },
		`unknown rule "other"`:                       func(p *plant) { p.Ops[7].Rule = "other" },
		`check 8 of the history: unknown outcome ""`: func(p *plant) { p.Ops[8].Outcome = "" },
		`unknown outcome "maybe"`:                    func(p *plant) { p.Ops[9].Outcome = "maybe" },
	} {
		if err := read(with); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, o := range []Outcome{Allowed, Denied, Refused, Unknown, Error} {
		if err := read(func(p *plant) { p.Ops[0].Outcome = o }); err != nil {
			t.Errorf("%s: %v", o, err)
		}
	}
}

// A trial that was interrupted is not judged as right, also when it is judged again.
func TestInterrupted(t *testing.T) {
	p := planted(once()).allowed(60, "window", "a")
	p.Interrupted = "somebody said so"
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	h, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := Judge(h).Violations; !slices.ContainsFunc(got, func(err error) bool {
		return errors.Is(err, ErrInterrupted) && strings.Contains(err.Error(), "somebody said so")
	}) {
		t.Errorf("the judge says %v", got)
	}
}
