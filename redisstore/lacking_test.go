package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// Who lacks something by which the check was counted, and gives one number where costs differ, is told first what it
// lacks: what the costs are is not known before.
func TestWhatIsLackingIsToldBeforeCosts(t *testing.T) {
	srv := startServer(t)
	const file = `version: 1
rules:
  - {name: requests, key: [user], continue: true, limits: [100/day]}
  - {name: tokens, key: [user], continue: true, limits: [9000/day], cost: {from: "attr:tokens"}}
  - {name: plans, match: {attributes: {plan: }}, key: ["attr:plan"], limits: [100/day]}
`
	memory, err := weir.Open(t.Context(), weir.Config{Rules: []byte(file)})
	if err != nil {
		t.Fatal(err)
	}
	for in, n := range map[string]*weir.Node{"memory": memory,
		"redis": newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), file)} {
		r := weir.Request{User: "ada", ID: "x", Hold: time.Hour, Attributes: map[string]string{"tokens": "2000", "plan": "a"}}
		if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", in, d, err)
		}
		if _, err := n.Settle(t.Context(), r, 5); !errors.Is(err, weir.ErrCosts) {
			t.Errorf("%s: with all that the check had: %v", in, err)
		}
		delete(r.Attributes, "plan")
		if _, err := n.Settle(t.Context(), r, 5); !errors.Is(err, weir.ErrInvalid) ||
			!strings.HasSuffix(err.Error(), `lacks: attribute "plan"`) {
			t.Errorf("%s: without the plan: %v", in, err)
		}
	}
}
