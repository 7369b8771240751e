package limitertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// ids: one of two callers gives each check an id and repeats what was allowed, at once and
// later, and both get the same answers to the others. A repetition has the receipt of the
// first check.
func ids(t *testing.T, f Factory) {
	trials, file := newTrials(40, 15000, several)
	ask := newAsker(t, f, file.String())
	_, canPeek := ask.s.(Peeker)
	for _, tr := range trials {
		trace := NewTrace(ask.now, tr.specs...)
		type made struct {
			request *limiter.Request
			until   Tick
			of      limiter.Receipt
		}
		var last made
		repeat := func() {
			t.Helper()
			d := new(limiter.Decision)
			if err := ask.s.CheckInto(context.Background(), last.request, d); err != nil {
				t.Fatal(err)
			}
			want := last.of
			got := d.Receipt
			for _, of := range []*arith.ReceiptFields{arith.Fields(&got), arith.Fields(&want)} {
				of.Once, of.Sealed = 0, "" // what a server draws
			}
			if !d.Allowed || !d.Repeated || last.of.Sealed() == "" && got != want {
				t.Fatalf("seed %d: a repetition has %v and %+v; the first check had %+v\n%s", tr.seed, describe(d), got, want,
					trace)
			}
			if !canPeek || d.RetryAfter != 0 {
				return
			}
			now := ask.ask(tr.rule, "does-not", 1, true)
			for i := range now.Len() {
				if got, want := d.Limit(i).Remaining, now.Limit(i).Remaining; got != want {
					t.Fatalf("seed %d: a repetition has %d left of limit %d, want %d\n%s", tr.seed, got, i, want, trace)
				}
			}
		}
		for i := range 25 {
			s, _ := trace.Next(tr.choices)
			ask.goTo(s.Now)
			if last.until > ask.now && tr.choices.Pick(2) == 0 {
				repeat()
			}
			r := question(tr.rule, "repeats", s.Cost)
			r.ID = fmt.Sprint(tr.seed, " ", i)
			a, b := new(limiter.Decision), ask.check(tr.rule, "does-not", s.Cost)
			if err := ask.s.CheckInto(context.Background(), r, a); err != nil {
				t.Fatal(err)
			}
			if x, y := strings.Join(describe(a), "\n"), strings.Join(describe(b), "\n"); x != y || a.Repeated {
				t.Fatalf("seed %d: with an id\n%s\nwithout\n%s\n%s", tr.seed, x, y, trace)
			}
			if a.Allowed && s.Cost > 0 {
				last = made{r, ask.now + limiter.Span(limiter.DefaultIDTTL), a.Receipt}
				for range tr.choices.Pick(3) {
					repeat()
				}
			}
		}
	}
}
