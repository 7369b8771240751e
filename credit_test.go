package weir_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// A credit takes back what others were charged, never below nothing, for each algorithm that
// does not count every charge by its instant.
func TestCredit(t *testing.T) {
	for algorithm, takes := range map[string]bool{
		"fixed_window": true, "sliding_counter": true, "token_bucket": true, "leaky_bucket": true, "gcra": true,
		"sliding_log": false, "sliding_window": false,
	} {
		for _, count := range []string{"none", "all"} {
			t.Run(algorithm+" "+count, func(t *testing.T) {
				now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
				rules := fmt.Sprintf("version: 1\nrules: [{name: a, key: [user], limits: [{limit: 10, window: 1h, algorithm: %s, "+
					"count_rejected: %s}]}]", algorithm, count)
				n := open(t, weir.Config{Rules: []byte(rules), Now: func() time.Time { return now }})
				is := func(user string, cost int64, want uint64) {
					t.Helper()
					if err := n.Refund(t.Context(), weir.Request{User: user, Cost: weir.Units(cost)}, limiter.Credit()); err != nil {
						t.Fatal(err)
					}
					if got := left(t, n, weir.Request{User: user}); got != want {
						t.Errorf("%d left after a credit of %d to %s, want %d", got, cost, user, want)
					}
				}
				is("ada", 3, 10) // a key that was never seen
				for _, user := range []string{"ada", "bob"} {
					if _, err := n.Check(t.Context(), weir.Request{User: user, Cost: weir.Units(8)}); err != nil {
						t.Fatal(err)
					}
				}
				if !takes {
					is("ada", 3, 2)
					return
				}
				is("ada", 3, 5)
				is("ada", 3, 8)
				is("ada", 1<<32-1, 10)
				is("bob", 1, 3)
			})
		}
	}
}
