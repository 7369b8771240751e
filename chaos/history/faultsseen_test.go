package history

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// paused is a run in which node-2 is paused from 1 s to 3 s, and asked meanwhile.
func paused() *History {
	h := &History{Nodes: 3, Downs: []Down{{Node: 1, How: "paused", From: 1_000_000, Until: 3_000_000}}}
	for _, o := range []Op{
		{Node: 0, Call: 1_100_000, Return: 1_101_000, Outcome: Allowed, Source: SourceOwner},   // another node
		{Node: 1, Call: 999_000, Return: 1_001_000, Outcome: Allowed, Source: SourceOwner},     // its answer was under way
		{Node: 1, Call: 1_500_000, Return: 2_500_000, Outcome: Unknown},                        // no answer
		{Node: 1, Call: 1_600_000, Return: 1_600_500, Outcome: Refused},                        // nor here
		{Node: 1, Call: 2_999_000, Return: 3_001_000, Outcome: Denied, Source: SourceOwner},    // as it went on
		{Node: 1, Call: 3_100_000, Return: 3_101_000, Outcome: Allowed, Source: "closed-down"}, // and later
	} {
		o.Keys = []string{"k"}
		h.Ops = append(h.Ops, o)
	}
	return h
}

func TestFaultsSeen(t *testing.T) {
	if wrong := paused().judges().FaultsSeen(); wrong != nil {
		t.Errorf("a pause that happened: %v", wrong)
	}
	for what, of := range map[string]struct {
		with func(h *History)
		says string
	}{
		"an answer in the pause": {func(h *History) {
			h.Ops = append(h.Ops, Op{Node: 1, Call: 1_200_000, Return: 1_300_000, Outcome: Denied, Source: SourceHeir})
		}, "node-2 was paused at 1s and answered at 1.3s"},
		"nobody asks": {func(h *History) {
			h.Ops = slices.DeleteFunc(h.Ops, func(o Op) bool { return o.Node == 1 })
		}, "nobody asked node-2"},
		"no denial is given again": {func(h *History) {
			h.Wants = []string{SourceCached}
		}, `no answer is from the source "cached"`},
		"no policy answers": {func(h *History) {
			h.Wants = []string{SourcePolicy}
			h.Ops = h.Ops[:5]
		}, `no answer is from the source "policy"`},
		"a doubt": {func(h *History) { h.Doubts = []string{"all frames were carried"} }, "all frames were carried"},
	} {
		h := paused()
		of.with(h)
		wrong := h.judges().FaultsSeen()
		if len(wrong) != 1 || !errors.Is(wrong[0], ErrFaultUnseen) || !strings.Contains(wrong[0].Error(), of.says) {
			t.Errorf("%s: %v, want one that says %q", what, wrong, of.says)
		}
		if r := Judge(h); !slices.ContainsFunc(r.Violations, func(v error) bool { return errors.Is(v, ErrFaultUnseen) }) {
			t.Errorf("%s: the judge says only %v", what, r.Violations)
		}
	}
	h := paused()
	h.Wants = []string{SourcePolicy, SourceOwner}
	if wrong := h.judges().FaultsSeen(); wrong != nil {
		t.Errorf("what was to be seen was: %v", wrong)
	}
	h = &History{Nodes: 3, Downs: []Down{{Node: 1, How: "killed", From: 1_000_000, Until: 1_050_000}}}
	if wrong := h.judges().FaultsSeen(); wrong != nil {
		t.Errorf("a restart that is over before anybody asks: %v", wrong)
	}
}

// TestCameBack: a node that was to start again answers in a later run, and one that was
// to join decides.
func TestCameBack(t *testing.T) {
	restarted := func() *History {
		h := &History{Nodes: 3, Faults: []Fault{{At: 1_000_000}}, Again: []int{0, 1}, Joins: []int{3}}
		for _, o := range []Op{
			{Node: 0, Run: 1, Call: 500_000, Outcome: Allowed, Source: SourceOwner, Owners: []string{"node-1"}},
			{Node: 1, Run: 4, Call: 500_000, Outcome: Refused},
			{Node: 0, Run: 2, Call: 2_000_000, Outcome: Allowed, Source: SourceOwner, Owners: []string{"node-1"}},
			{Node: 1, Run: 5, Call: 2_000_000, Outcome: Denied, Source: SourceOwner, Owners: []string{"node-1", "node-4"}},
		} {
			o.Keys, o.Return = []string{"k"}, o.Call+1000
			h.Ops = append(h.Ops, o)
		}
		return h
	}
	if wrong := restarted().judges().FaultsSeen(); wrong != nil {
		t.Errorf("they came back: %v", wrong)
	}
	for what, of := range map[string]struct {
		with func(h *History)
		says string
	}{
		"no later run": {func(h *History) {
			h.Ops[2].Run = 1
		}, "node-1 was to start again, and answered nothing in a later run than 1"},
		"no answer in the later run": {func(h *History) {
			h.Ops[3].Outcome, h.Joins = Refused, nil
		}, "node-2 was to start again"},
		"it owns nothing": {func(h *History) { h.Ops[3].Owners = nil }, "node-4 was to join, and decided nothing"},
		"it owned before": {func(h *History) {
			h.Ops[0].Owners, h.Ops[3].Owners = h.Ops[3].Owners, nil
		}, "node-4 was to join, and decided nothing"},
	} {
		h := restarted()
		of.with(h)
		if wrong := h.judges().FaultsSeen(); len(wrong) != 1 || !errors.Is(wrong[0], ErrFaultUnseen) ||
			!strings.Contains(wrong[0].Error(), of.says) {
			t.Errorf("%s: %v, want one that says %q", what, wrong, of.says)
		}
	}
}

// TestVoid: nodes that do not settle are not to blame where something stood still for nearly
// all of the time that they had; a node that ended by itself is.
func TestVoid(t *testing.T) {
	of := func(waited, stood Micros) *Result {
		p := planted(once())
		p.Unsettled, p.Interrupted, p.Waited, p.End = "they did not settle", "they did not settle", waited, 100*second
		p.Stalls = []Span{{p.End - stood, p.End}}
		return Judge(&p.History)
	}
	for _, row := range []struct {
		waited, stood Micros
		void          bool
	}{
		{40 * second, 38 * second, true},
		{40 * second, 30 * second, false},
		{0, 90 * second, false},
	} {
		r := of(row.waited, row.stood)
		wrong := found(r.Violations)
		if (r.Void != "") != row.void || strings.Contains(wrong, ErrUnsettled.Error()) == row.void ||
			strings.Contains(wrong, ErrInterrupted.Error()) == row.void {
			t.Errorf("waited %v, stood still for %v: void %q, found %q", row.waited.Duration(), row.stood.Duration(), r.Void,
				wrong)
		}
	}
}

// TestUnsettledInTheMiddle: where the nodes kept a fault from being made, it is they who
// are wrong, and not who should have made it.
func TestUnsettledInTheMiddle(t *testing.T) {
	p := planted(once())
	p.Doubts = []string{"nobody was cut off"}
	if got := found(Judge(&p.History).Violations); !strings.Contains(got, ErrFaultUnseen.Error()) {
		t.Fatalf("found %q", got)
	}
	p.Unsettled, p.Interrupted = "the nodes did not settle", "the nodes did not settle"
	got := found(Judge(&p.History).Violations)
	if !strings.Contains(got, ErrUnsettled.Error()) || !strings.Contains(got, ErrInterrupted.Error()) ||
		strings.Contains(got, ErrFaultUnseen.Error()) {
		t.Errorf("found %q", got)
	}
	p.Interrupted = "" // the fault was made, and they did not settle after it
	if got := found(Judge(&p.History).Violations); !strings.Contains(got, ErrFaultUnseen.Error()) {
		t.Errorf("found %q", got)
	}
}
