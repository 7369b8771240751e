package walk

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// TestDeniedByOneOwner: a check of two keys that one owner admits and another denies leaves no trace, and says what one
// owner of both says. Neither is later given back less for its instant, nor does a number that it chose stay, and a
// limit that counts it is told as it is afterwards.
func TestDeniedByOneOwner(t *testing.T) {
	const rules = `version: 1
rules:
- {name: bucket%[1]d, keys: [[ip], [user]], limits: [{limit: 10, window: 1m, algorithm: gcra, burst: 10}]}
- name: chosen%[1]d
  keys: [[ip], [user]]
  limits: [{limit: {by: 'attr:plan', of: {pro: 20}, else: 10}, window: 1m, algorithm: token_bucket, burst: 10}]
- name: counting%[1]d
  keys: [[ip], [user]]
  limits: [{limit: {by: 'attr:plan', of: {pro: 20}, else: 10}, window: 1m, algorithm: gcra, burst: 10, count_rejected: all}]
`
	alone := newAsked()
	alone.nodes = []*weir.Node{alone.open(t, weir.Config{})}
	three := members(t)
	apart := 0
	// play asks both for the same, and returns what they said.
	play := func(a *asked, n int) (said []string) {
		if err := a.set(fmt.Appendf(nil, rules, n)); err != nil {
			t.Fatal(err)
		}
		var last weir.Decision
		var of weir.Request
		check := func(rule, ip, user, plan string, cost int64, hold time.Duration) (weir.Request, weir.Receipt) {
			of = weir.Request{Rule: fmt.Sprint(rule, n), IP: ip, User: user, Cost: weir.Units(cost),
				Attributes: map[string]string{"plan": plan}, Hold: hold}
			if hold > 0 {
				of.ID = fmt.Sprint("id of ", user)
			}
			var err error
			if last, err = a.nodes[0].Check(t.Context(), of); err != nil {
				t.Fatal(err)
			}
			for _, l := range last.Limits() {
				said = append(said, fmt.Sprintf("%s of %s and %s by %q: %v, %d left, retry %v, reset %v", rule, ip, user, plan,
					l.Allowed, l.Remaining, l.RetryAfter, l.ResetAfter))
			}
			return of, last.Receipt
		}
		for _, rule := range []string{"bucket", "chosen", "counting"} {
			for _, hold := range []time.Duration{0, time.Minute} {
				x, a1, b := fmt.Sprint("10.0.0.", 1+int(hold/time.Minute)), fmt.Sprint("a", hold), fmt.Sprint("b", hold)
				back, receipt := check(rule, x, a1, "free", 5, 0)
				check(rule, x, fmt.Sprint("c", hold), "free", 4, 0)
				check(rule, fmt.Sprint("10.0.1.", 1+int(hold/time.Minute)), b, "free", 10, 0)
				owes := of
				owes.ID = fmt.Sprint("debt of ", b)
				if _, err := a.nodes[0].Settle(t.Context(), owes, 60); err != nil {
					t.Fatal(err)
				}
				a.now.Add(10e6)
				check(rule, x, b, "pro", 2, hold) // the address has room, and b has not
				if l := last.Limits(); len(l) == 2 && l[0].Owner != l[1].Owner && l[0].Allowed && !l[1].Allowed {
					apart++
				}
				if err := a.nodes[0].Refund(t.Context(), back, receipt); err != nil {
					t.Fatal(err)
				}
				check(rule, x, a1, "free", 1, 0)
			}
		}
		return said
	}
	for n := range 12 {
		alone.now.Store(three.now.Load())
		want, have := play(alone, n), play(three, n)
		for i := range want {
			if have[i] != want[i] {
				t.Errorf("%d: %s; alone it is %s", n, have[i], want[i])
			}
		}
	}
	if apart < 12 {
		t.Errorf("%d checks were denied by one owner and admitted by another, want more", apart)
	}
}
