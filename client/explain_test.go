package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/transport"
)

const explainedRules = `
version: 1
quotas:
  - {name: units, key: [user], limits: [{limit: 1, calendar: day}]}
rules:
  - {name: free, match: {path: "^/free$"}, unlimited: true}
  - {name: log, match: {path: "^/log$"}, key: [user], limits: [{limit: 2, window: 1h, algorithm: sliding_log}]}
  - {name: pair, match: {path: "^/pair$"}, keys: [[ip], [user]], limits: [3/day, {name: burst, limit: 5, window: 1m, algorithm: token_bucket, burst: 2}]}
  - {name: search, match: {path: "^/search$"}, quotas: [units]}
  - {name: partners, match: {path: "^/partners$"}, key: [user], limits: [{limit: 2, calendar: day, zone: "attr:tz"}]}
`

// A client is told what the node would tell in process, to the letter, and nothing is
// charged by it.
func TestExplain(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(explainedRules), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	c := open(t, client.Config{Addrs: []string{serve(t, n, "", nil).addr}, Timeout: long})
	minute := limitertest.Limit(t, limiter.Spec{Limit: 3, Window: time.Minute})
	for _, r := range []limiter.Request{
		{Path: "/free"}, {Path: "/none"}, {Path: "/log", User: "ada"}, {Path: "/log", User: "ada", Cost: limiter.Units(3)},
		{Path: "/pair", User: "ada", IP: "192.0.2.1"}, {Path: "/x", User: "ada", Limits: []*limiter.Limit{minute}},
		{Path: "/search", User: "ada"}, {Path: "/partners", User: "ada"},
	} {
		for range 3 { // not counted yet, some left, denied
			want, err := n.Explain(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Explain(t.Context(), r)
			if err != nil {
				t.Fatalf("%s: %v", r.Path, err)
			}
			a, _ := json.Marshal(want)
			b, _ := json.Marshal(got)
			if diff := cmp.Diff(string(a), string(b)); diff != "" {
				t.Errorf("%s: %s", r.Path, diff)
			}
			if got.Decision == nil || got.Decision.Allowed != want.Decision.Allowed ||
				got.Decision.Len() != want.Decision.Len() {
				t.Errorf("%s: the decision is %+v", r.Path, got.Decision)
			}
			if _, err := n.Check(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.Explain(t.Context(), limiter.Request{Path: "/pair"}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a request without its keys: %v", err)
	}
}

// mute is a decider that does not explain.
type mute struct{ transport.Decider }

// Nodes that do not explain are no reason to guess.
func TestExplainBySomethingThatDoesNot(t *testing.T) {
	c := open(t, client.Config{Addrs: []string{serve(t, mute{newNode(t, hour)}, "", nil).addr}, Timeout: long})
	if e, err := c.Explain(context.Background(), limiter.Request{}); !errors.Is(err, client.ErrUnanswered) {
		t.Errorf("%+v, %v", e, err)
	}
}
