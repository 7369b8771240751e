package history

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is judged of one input at most, so that a fuzzer gets through many: of each list
// so many, and so long for an order of the checks of one key.
const (
	mostOps  = 120
	mostElse = 6 // rules, faults, stalls and the like, and the keys of one check
	mostEach = 20 * time.Millisecond
)

// shown are histories which, together, have all that is judged.
func shown() []*plant {
	heirs := broken(Allows{Closed: 1, Local: 1, Open: 1, Within: second, ByPolicy: 2})
	heirs.allowed(15, "window", "node-1").killed().answers(4, "window", Allowed, SourceHeir, "node-2").answers(6, "window",
		Denied, "fallback_local", "").
		answers(2, "closed", Unknown, "", "").wait(11*second).answers(40, "window", Refused, "", "").allowed(25, "bucket",
		"node-2")
	heirs.answers(1, "closed", Error, "", "").answers(1, "closed", Unknown, "", "")
	heirs.Again, heirs.Joins, heirs.Interrupted = []int{0, 1}, []int{2}, "somebody said so"
	heirs.Allows.Unfelt, heirs.Allows.Converged = true, 100*ms
	heirs.End = heirs.now + second
	heirs.Downs = []Down{{Node: 0, How: "killed", From: 100 * ms, Until: 400 * ms},
		{Node: 2, How: "paused", From: second, Until: 2 * second}}
	heirs.Wants, heirs.Doubts, heirs.Unsettled = []string{SourceHeir, SourcePolicy, SourceRedis},
		[]string{"no frame was lost"}, "node-2 is gone"

	still := broken(once()).turns(22, "once").denied(2, "b").wait(20*second).denied(1, "a")
	still.Stalls = []Span{{50 * ms, 110 * ms}, {100 * ms, 900 * ms}}
	still.Late = []Late{{Node: 1, Span: Span{200 * ms, 300 * ms}}, {Node: 2, Span: Span{20 * second, 21 * second}}}

	pairs := planted(Allows{Closed: 1, Local: 1, Open: 1, Exact: true})
	pairs.Rules = append(pairs.Rules, Rule{Name: "pairs", Limit: 20, Window: second, Policy: "closed", Strict: true,
		Several: true})
	pairs.allowed(21, "pairs", "a").answers(3, "pairs", Allowed, "fallback_closed", "").answers(2, "pairs", Denied,
		SourceCached, "a").
		answers(1, "window", Denied, SourceOwner, "a").answers(1, "bucket", Denied, SourceOwner, "a").allowed(40, "pairs",
		"a")
	for i := range pairs.Ops {
		if o := &pairs.Ops[i]; o.Rule == "pairs" {
			o.Keys, o.Owners = []string{"k", "l"}, append(o.Owners, "b")
		}
	}
	pairs.End = pairs.now

	split := broken(Allows{Closed: 1, Local: 2, Open: 2, Split: true}).turns(43, "window").turns(25, "once")
	split.Faults[0].Broken = 5 * ms
	split.wait(11*second).allowed(6, "once", "b")

	lost := broken(lossy(1)).allowed(20, "once", "a").denied(1, "a").allowed(20, "once", "b").denied(1, "b")
	late := broken(Allows{Closed: 1, Local: 1, Open: 1, Raised: true}).allowed(15, "window", "a").allowed(12, "window",
		"b")
	late.Left = 1
	late.Rules = append(late.Rules, Rule{Name: "shared", Limit: 20, Window: second, Policy: "local", Several: true})
	late.allowed(15, "shared", "a").answers(12, "shared", Allowed, "fallback_local", "")
	return []*plant{heirs, still, pairs, split, lost, late}
}

// FuzzRead: whatever a file says, it is refused or can be judged. What is kept again is
// judged alike.
func FuzzRead(f *testing.F) {
	for i, p := range shown() {
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			f.Fatal(err)
		}
		text := b.String()
		if _, err := Read(&b); err != nil {
			f.Fatalf("seed %d: %v", i, err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		h.cut()
		before, decided := verdict(h)
		var b bytes.Buffer
		if err := h.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&b)
		if err != nil {
			t.Fatalf("what was read is kept, and refused: %v", err)
		}
		// An order that was not found in time may be the next time.
		if after, too := verdict(again); decided && too {
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("(-first +second):\n%s", diff)
			}
		}
	})
}

// cut leaves of a history what is soon judged.
func (h *History) cut() {
	h.Ops = h.Ops[:min(len(h.Ops), mostOps)]
	for i := range h.Ops {
		o := &h.Ops[i]
		o.Keys = o.Keys[:min(len(o.Keys), mostElse)]
	}
	h.Rules = h.Rules[:min(len(h.Rules), mostElse)]
	h.Ops = slices.DeleteFunc(h.Ops, func(o Op) bool { // of no rule that is left
		return !slices.ContainsFunc(h.Rules, func(r Rule) bool { return r.Name == o.Rule })
	})
	h.Again = h.Again[:min(len(h.Again), mostElse)]
	h.Joins = h.Joins[:min(len(h.Joins), mostElse)]
	h.Faults = h.Faults[:min(len(h.Faults), mostElse)]
	h.Downs = h.Downs[:min(len(h.Downs), mostElse)]
	h.Wants = h.Wants[:min(len(h.Wants), mostElse)]
	h.Stalls = h.Stalls[:min(len(h.Stalls), mostElse)]
	h.Late = h.Late[:min(len(h.Late), mostElse)]
}

// verdict is what is found wrong in a history, in order, and whether all was decided.
func verdict(h *History) (wrong []string, decided bool) {
	r := judge(h, mostEach)
	_, _ = r.Over()
	_, _ = r.LeastUsed()
	_ = r.What()
	for _, v := range r.Violations {
		wrong = append(wrong, v.Error())
	}
	slices.Sort(wrong)
	return wrong, r.Linear.Undecided == 0
}
