package history

import (
	"strings"
	"testing"
)

// TestPoliciesAnswerSeldom: how many checks of a key policies may answer, where
// the run says so, unless the machine stood still.
func TestPoliciesAnswerSeldom(t *testing.T) {
	found := Allows{Closed: 1, Local: 1, Open: 1, ByPolicy: 4}
	for _, row := range []struct {
		name string
		h    *plant
		want string
	}{
		{"as many as may be", planted(found).answers(4, "closed", Denied, "fallback_closed", ""), ""},
		{"one more", planted(found).answers(5, "closed", Denied, "fallback_closed", ""),
			"policies answered 5 of its checks, at most 4"},
		{"any number", planted(once()).answers(5, "closed", Denied, "fallback_closed", ""), ""},
	} {
		if got := strings.Join(row.h.wrong(), "\n"); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: found %q, want %q", row.name, got, row.want)
		}
	}
	batches := planted(found).lending().answers(5, "lent", Denied, "fallback_closed", "")
	if got := strings.Join(batches.wrong(), "\n"); !strings.Contains(got, "policies answered 5 of its checks") {
		t.Errorf("five batches of a key that is lent: found %q", got)
	}
	for i := range batches.Ops[:2] {
		batches.Ops[i].Call, batches.Ops[i].Return = 0, ms
	}
	if got := batches.wrong(); len(got) > 0 {
		t.Errorf("found %q, but two of the checks came in one batch", got)
	}
	p := planted(found).answers(5, "closed", Denied, "fallback_closed", "")
	p.Stalls = []Span{{20 * ms, 90 * ms}}
	if got := p.wrong(); len(got) > 0 {
		t.Errorf("found %q, but the machine stood still", got)
	}
}

// TestDeniedThoughThereIsRoom: a denial takes a window that may be full.
func TestDeniedThoughThereIsRoom(t *testing.T) {
	full := func() *plant { return planted(once()).allowed(20, "window", "a") }
	denial := func(p *plant) *plant { return p.answers(1, "window", Denied, SourceOwner, "a") }
	for _, row := range []struct {
		name string
		h    *plant
		want string
	}{
		{"a full window", denial(full()), ""},
		{"one that was full", denial(full().wait(2 * second)), "at most 0 of 20"},
		{"one that may have been, as nobody knows",
			denial(planted(once()).allowed(18, "window", "a").answers(1, "window", Unknown, "", "")), ""},
		{"one that is not", denial(planted(once()).allowed(19, "window", "a")), "at most 19 of 20"},
		{"one whose owner changed", denial(planted(once()).allowed(18, "window", "a").allowed(1, "window", "b")), ""},
	} {
		if got := strings.Join(row.h.wrong(), "\n"); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: found %q, want %q", row.name, got, row.want)
		}
	}
	slow := denial(planted(once()).allowed(19, "window", "a"))
	slow.Ops[7].Return += askedTwice
	if got := slow.wrong(); len(got) > 0 {
		t.Errorf("found %q, but a check was so slow that it may have been asked of two", got)
	}
	stood := denial(planted(once()).allowed(19, "window", "a"))
	stood.Late = []Late{{Node: 2, Span: Span{20 * ms, 90 * ms}}}
	if got := stood.wrong(); len(got) > 0 {
		t.Errorf("found %q, but a node stood still", got)
	}
	p := denial(planted(once()).allowed(19, "window", "a"))
	p.Faults = []Fault{{At: 10 * ms, Until: second, Nodes: []int{1}}}
	if got := p.wrong(); len(got) > 0 {
		t.Errorf("found %q, but something was broken", got)
	}
}

// TestReservationsAreConsumption: of a check with several keys one that is full is
// enough, and reservations of others may fill it for a while.
func TestReservationsAreConsumption(t *testing.T) {
	several := func(n int, o Outcome, p *plant) *plant {
		for range n {
			p.Ops = append(p.Ops, Op{Call: p.now, Return: p.now + ms, Rule: "several", Outcome: o, Source: SourceOwner,
				Keys: []string{"ip x", "user y"}})
			p.now += 10 * ms
		}
		return p
	}
	with := func() *plant {
		p := planted(once())
		p.Rules = []Rule{{Name: "several", Limit: 20, Window: 2 * second, Policy: "closed", Several: true}}
		return p
	}
	if got := several(5, Denied, several(20, Allowed, with())).wrong(); len(got) > 0 {
		t.Errorf("found %q in a full window", got)
	}
	if got := several(1, Denied, several(10, Allowed, with())).wrong(); len(got) != 1 {
		t.Errorf("found %q, want a denial although 10 of 20 are free", got)
	}
	stood := several(1, Denied, several(10, Allowed, with()))
	stood.Stalls = []Span{{10 * ms, 100 * ms}}
	if got := stood.wrong(); len(got) > 0 {
		t.Errorf("found %q, but the machine stood still, and a cancel may be late", got)
	}
	// Those of the last 300 ms may be open still.
	if got := several(12, Denied, several(8, Allowed, with())).wrong(); len(got) != 1 {
		t.Errorf("found %q, want that the first of the denials had room", got)
	}
}

// TestSharesOfThoseThatStay: while a member has left, the others' shares are larger.
func TestSharesOfThoseThatStay(t *testing.T) {
	for left, want := range []string{"at most 6", ""} {
		p := planted(once()).answers(10, "window", Allowed, "fallback_local", "a")
		p.Left = left
		if got := strings.Join(p.wrong(), "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%d have left: found %q, want %q", left, got, want)
		}
	}
}

// TestASlowCheckMayCountTwice: an heir is asked where an owner is silent.
func TestASlowCheckMayCountTwice(t *testing.T) {
	for took, want := range map[Micros]int{askedTwice - 1: 1, askedTwice: 0} {
		p := planted(once()).allowed(19, "once", "a")
		p.Ops[5].Return = p.Ops[5].Call + took
		if got := p.denied(1, "a").judges().Conserved(); len(got) != want {
			t.Errorf("after a check that took %v: found %v, want %d", took.Duration(), got, want)
		}
	}
}
