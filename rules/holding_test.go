package rules_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// Of several rules that match, the first in force that limits concurrency says how long a check is held by default and
// what becomes of it, wherever it stands, and the least bound of those in force holds. A shadow rule says nothing then.
// Of shadow rules alone the first says all.
func TestSeveralRulesHold(t *testing.T) {
	set, err := rules.Parse("f", []byte(`
version: 1
rules:
  - {name: trial, match: {path: "^/(c|b)$"}, key: [user], continue: true, shadow: true, hold: 1s, limits: [{limit: 2, algorithm: concurrency}]}
  - {name: rate, match: {path: "^/c$"}, key: [user], continue: true, limits: [100/minute]}
  - {name: slow, match: {path: "^/b$"}, key: [user], continue: true, hold: 2s, limits: [100/minute]}
  - {name: slots, match: {path: "^/(c|b)$"}, key: [user], hold: 3s, on_expiry: keep, limits: [{limit: 2, algorithm: concurrency}]}
  - {name: alone, match: {path: "^/s$"}, key: [user], shadow: true, hold: 4s, limits: [{limit: 2, algorithm: concurrency}]}
  - {name: tried, match: {path: "^/t$"}, key: [user], continue: true, shadow: true, hold: 6s, on_expiry: keep, limits: [100/minute]}
  - {name: too, match: {path: "^/t$"}, key: [user], shadow: true, hold: 5s, limits: [{limit: 2, algorithm: concurrency}]}
`), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path       string
		hold, want time.Duration
		keep       bool
	}{
		{"/c", 0, 3 * time.Second, true},
		{"/c", time.Hour, 3 * time.Second, true},
		{"/c", time.Second, time.Second, true},
		{"/b", 0, 2 * time.Second, true},
		{"/b", time.Hour, 2 * time.Second, true},
		{"/s", 0, 4 * time.Second, false},
		{"/s", time.Hour, 4 * time.Second, false},
		{"/t", 0, 0, true},
		{"/t", time.Hour, 6 * time.Second, true},
	} {
		for range 2 { // the path is in the cache then
			var c arith.Charge
			m, err := set.Resolve(&limiter.Request{Path: row.path, User: "u", ID: "1", Hold: row.hold}, &c)
			if err != nil || m.Unheld || c.ID == nil || c.ID.Hold != row.want || c.ID.Keep != row.keep {
				t.Errorf("%s held for %v: %+v, %v, %v; want %v, keep %v", row.path, row.hold, c.ID, m, err, row.want, row.keep)
			}
		}
	}
}
