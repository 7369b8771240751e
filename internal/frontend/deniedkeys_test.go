package frontend

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// A denied check that is charged makes counters as one that is allowed does: who has used up one
// key of a rule that counts rejected checks could else fill the table with the other one.
func TestDeniedChecksMakeKeys(t *testing.T) {
	for _, c := range []struct {
		mode   string
		shadow bool
		want   int // of a denied check with a new user
	}{{"none", false, 0}, {"room", false, 1}, {"all", false, 1}, {"none", true, 0}, {"room", true, 1}, {"all", true, 1}} {
		t.Run(fmt.Sprint(c.mode, c.shadow), func(t *testing.T) {
			n, err := weir.Open(t.Context(), weir.Config{Rules: fmt.Appendf(nil, `version: 1
rules:
  - name: r
    shadow: %v
    keys: [[ip], [user]]
    limits: [{limit: 2, window: 1d, count_rejected: %s}, {limit: 90, window: 1d, name: more}]
`, c.shadow, c.mode)})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			made := func(user string, cost int64) int {
				before := n.Stats().Keys
				d, err := n.Check(t.Context(), weir.Request{IP: "192.0.2.1", User: user, Cost: limiter.Units(cost)})
				if err != nil {
					t.Fatal(err)
				}
				keys := newKeys(&d)
				if grown := n.Stats().Keys > before; grown != (keys > 0) {
					t.Errorf("%s, %d units: %d new keys, and the table has %d counters after %d", user, cost, keys, n.Stats().Keys,
						before)
				}
				return keys
			}
			for i, step := range []struct {
				user string
				cost int64
				want int
			}{
				{"ada", 1, 2}, {"ada", 1, 0}, {"eve", 1, c.want},
				{"ada", 1, 0}, // denied, by a key that is not new
				{"bob", 1, c.want}, {"bob", 1, 0}, {"ada", 1, 0},
				{"cid", 3, 0}, // more than the limit is never charged
			} {
				if got := made(step.user, step.cost); got != step.want {
					t.Errorf("step %d: %s made %d keys, want %d", i, step.user, got, step.want)
				}
			}
		})
	}
}
