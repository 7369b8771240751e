package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

const idRules = `
defaults: {id_ttl: 2m}
quotas: [{name: q, key: [user], limits: [9/hour]}]
rules:
  - {name: own, match: {path: ^/own}, key: [user], limits: [5/hour], id_ttl: 1h}
  - {name: draws, match: {path: ^/draws}, quotas: [q], id_ttl: 10s}
  - {name: shadow, match: {path: ^/some}, key: [user], limits: [5/hour], id_ttl: 1h, shadow: true, continue: true}
  - {name: first, match: {path: ^/some}, key: [user], limits: [5/hour], id_ttl: 3m, continue: true}
  - {name: rest, match: {path: ^/(some|rest)}, key: [user], limits: [5/hour]}
  - {name: free, unlimited: true}
`

// The first rule in force that counts a request says how long its id is remembered, and the
// request may say less.
func TestIDTTL(t *testing.T) {
	set := mustSet(t, idRules, rules.Options{})
	hour := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: time.Hour})
	for _, test := range []struct {
		name string
		r    limiter.Request
		want time.Duration // 0: no id, since nothing is counted
	}{
		{"of the rule", limiter.Request{Path: "/own"}, time.Hour},
		{"of a rule that is named", limiter.Request{Rule: "own"}, time.Hour},
		{"of a rule without limits", limiter.Request{Path: "/draws"}, 10 * time.Second},
		{"of the defaults", limiter.Request{Path: "/rest"}, 2 * time.Minute},
		{"of the first in force", limiter.Request{Path: "/some"}, 3 * time.Minute},
		{"of a request's limits", limiter.Request{Path: "/own", Limits: []*limiter.Limit{hour}}, time.Minute},
		{"of a rule beside them", limiter.Request{Rule: "own", Limits: []*limiter.Limit{hour}}, time.Hour},
		{"less", limiter.Request{Path: "/own", IDTTL: time.Second}, time.Second},
		{"more", limiter.Request{Path: "/own", IDTTL: 3 * time.Hour}, time.Hour},
		{"more for a request's limits", limiter.Request{Limits: []*limiter.Limit{hour}, IDTTL: 24 * time.Hour},
			24 * time.Hour},
		{"unlimited", limiter.Request{Path: "/free"}, 0},
	} {
		test.r.User, test.r.ID = "ada", "7"
		var c arith.Charge
		if _, err := set.Resolve(&test.r, &c); err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if c.ID == nil && test.want != 0 || c.ID != nil && c.ID.Life != test.want {
			t.Errorf("%s: %+v, want %v", test.name, c.ID, test.want)
		}
	}
	r := limiter.Request{Path: "/own", User: "ada"}
	var c arith.Charge
	if _, err := set.Resolve(&r, &c); err != nil || c.ID != nil {
		t.Errorf("a request without an id has %+v, %v", c.ID, err)
	}
}

// An id has one number in all processes with one secret, another with another one, and two
// ids have two.
func TestIDHash(t *testing.T) {
	number := func(secret, id string) uint64 {
		var c arith.Charge
		r := limiter.Request{Path: "/own", User: "ada", ID: id}
		if _, err := mustSet(t, idRules, rules.Options{Secret: []byte(secret)}).Resolve(&r, &c); err != nil || c.ID == nil {
			t.Fatal(c.ID, err)
		}
		return c.ID.ID
	}
	long := strings.Repeat("x", limiter.MaxIDBytes)
	one := number("a", "7")
	if one == 0 || number("a", "7") != one || number("a", "8") == one || number("b", "7") == one ||
		number("a", long) == number("a", long[1:]) {
		t.Error("the numbers of ids are not those of secret and id")
	}
}

// Requests whose ids are out of range are refused with what to give instead.
func TestBadIDs(t *testing.T) {
	set := mustSet(t, idRules, rules.Options{})
	for want, r := range map[string]limiter.Request{
		"the id has 65 bytes; at most 64 are allowed":                            {ID: strings.Repeat("x", 65)},
		"and has no id: give it one, or leave the time out":                      {IDTTL: time.Second},
		"remembered for 24h0m0.000000001s, which is out of range: give 1ms to 2": {ID: "7", IDTTL: limiter.MaxIDTTL + 1},
		"remembered for -1s, which is out of range":                              {ID: "7", IDTTL: -time.Second},
		"is to be held and has no id: give it one, by which it is settled":       {Hold: time.Second},
		"is to be held for -1s, which is out of range: give 1ms to 24h0m0s":      {ID: "7", Hold: -time.Second},
		"is to be held for 1µs, which is out of range: give 1ms to 24h0m0s":      {ID: "7", Hold: time.Microsecond},
	} {
		var c arith.Charge
		r.Path, r.User = "/own", "ada"
		if _, err := set.Resolve(&r, &c); err == nil || !strings.Contains(err.Error(), want) || c.ID != nil || c.Len() != 0 {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A file whose id_ttl is the default means what it meant without it.
func TestIDTTLHash(t *testing.T) {
	hash := func(more string) uint64 {
		return mustSet(t, "rules: [{name: a, key: [user], limits: [1/second]"+more+"}]", rules.Options{}).Hash()
	}
	if none := hash(""); hash(", id_ttl: 1m") != none || hash(", id_ttl: 2m") == none ||
		hash(", id_ttl: 2m") == hash(", id_ttl: 3m") {
		t.Error("the hash of a file does not follow its id_ttl")
	}
	none := hash("")
	if hash(", hold: 24h") != none || hash(", on_expiry: release") != none || hash(", hold: 1m") == none ||
		hash(", on_expiry: keep") == none {
		t.Error("the hash of a file does not follow its holds")
	}
}

// The first rule in force says how long a request is held at most, and what becomes of it then.
func TestHolds(t *testing.T) {
	set := mustSet(t, `
defaults: {hold: 5m, on_expiry: keep}
rules:
  - {name: own, match: {path: ^/own}, key: [user], limits: [5/hour], hold: 30s, on_expiry: release}
  - {name: rest, key: [user], limits: [5/hour]}
`, rules.Options{})
	hour := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: time.Hour})
	for _, test := range []struct {
		r    limiter.Request
		hold time.Duration
		keep bool
	}{
		{limiter.Request{Path: "/own", Hold: time.Hour}, 30 * time.Second, false},
		{limiter.Request{Path: "/own", Hold: time.Second}, time.Second, false},
		{limiter.Request{Path: "/own"}, 0, false},
		{limiter.Request{Path: "/other", Hold: time.Hour}, 5 * time.Minute, true},
		{limiter.Request{Limits: []*limiter.Limit{hour}, Hold: 24 * time.Hour}, 24 * time.Hour, false},
	} {
		test.r.User, test.r.ID = "ada", "7"
		var c arith.Charge
		if _, err := set.Resolve(&test.r, &c); err != nil || c.ID == nil || c.ID.Hold != test.hold || c.ID.Keep != test.keep {
			t.Errorf("%+v: %+v, %v", test, c.ID, err)
		}
	}
}

// Concurrency has no window, counts no rejected checks, and is not of a quota. Its limit is named
// by itself, and the rule's hold is that of a check that says none.
func TestConcurrency(t *testing.T) {
	for file, want := range map[string]string{
		"rules: [{name: r, limits: [{limit: 3, " +
			"algorithm: concurrency, window: 1m}]}]": "concurrency has no window: leave it out",
		"rules: [{name: r, algorithm: " +
			"concurrency, limits: [3/minute]}]": "concurrency has no window: leave it out",
		"rules: [{name: r, limits: [{limit: 3, algorithm: " +
			"concurrency, count_rejected: all}]}]": `concurrency does not use "count_rejected"`,
		"rules: [{name: r, limits: [{limit: 3, " +
			"algorithm: concurrency, burst: 4}]}]": `concurrency does not use "burst"`,
		"rules: [{name: r, limits: [{limit: 3, " +
			"algorithm: concurrency, calendar: day}]}]": "concurrency has no calendar windows",
		"rules: [{name: r, limits: " +
			"[{algorithm: concurrency}]}]": `this limit has no "limit"`,
		"quotas: [{name: q, limits: [{limit: 3, algorithm: " +
			"concurrency}]}]\nrules: [{name: r, quotas: [q]}]": "a quota does not limit concurrency",
	} {
		if _, err := rules.Parse("f", []byte("version: 1\n"+file+"\n"), rules.Options{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
	s, err := rules.Parse("f",
		[]byte("version: 1\nrules:\n  - {name: r, match: {path: ^/r}, hold: 30s, limits: [{limit: 3, algorithm: "+
			"concurrency}]}\n"+
			"  - {name: s, shadow: true, match: {path: ^/s}, limits: [{limit: 3, algorithm: concurrency}]}\n  - {name: t, "+
			"hold: 1m, limits: [3/minute]}\n"), rules.Options{})
	if err != nil || s.Concurrent() != "r" {
		t.Fatal(s, err)
	}
	for _, row := range []struct {
		r      limiter.Request
		hold   time.Duration
		unheld bool
	}{
		{limiter.Request{Path: "/r"}, 0, true},
		{limiter.Request{Path: "/r", ID: "1"}, 30 * time.Second, false},
		{limiter.Request{Path: "/r", ID: "1", Hold: time.Second}, time.Second, false},
		{limiter.Request{Path: "/r", ID: "1", Hold: time.Hour}, 30 * time.Second, false},
		{limiter.Request{Rule: "r"}, 0, true},
		{limiter.Request{Rule: "r", ID: "1"}, 30 * time.Second, false},
		{limiter.Request{Path: "/s"}, 0, false},
		{limiter.Request{Path: "/t", ID: "1"}, 0, false},
	} {
		var c arith.Charge
		m, err := s.Resolve(&row.r, &c)
		if err != nil || m.Unheld != row.unheld || c.ID != nil && c.ID.Hold != row.hold || c.ID == nil && row.hold != 0 {
			t.Errorf("%+v: %+v, id %+v, %v", row.r, m, c.ID, err)
		}
	}
	var c arith.Charge
	if _, err := s.Resolve(&limiter.Request{Path: "/r"}, &c); err != nil ||
		c.Key(0).Rule.Limits[0].Name() != "concurrency" || c.Key(0).Rule.Limits[0].String() != "concurrency 3" {
		t.Errorf("%v, %v", c.Key(0).Rule.Limits, err)
	}
}
