package rules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

// specs are the limits of a rule, which must exist.
func specs(tb testing.TB, s *rules.Set, rule string) (out []limiter.Spec) {
	tb.Helper()
	r := s.Rule(rule)
	if r == nil {
		tb.Fatalf("there is no rule %q", rule)
	}
	for _, l := range r.Limits {
		out = append(out, l.Spec())
	}
	return out
}

// same fails the test unless got is want, in depth. It shows both as JSON, so that what
// pointers point to can be read.
func same[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, gErr := json.MarshalIndent(got, "", " ")
	w, wErr := json.MarshalIndent(want, "", " ")
	if err := errors.Join(gErr, wErr); err != nil {
		tb.Fatal(err)
	}
	tb.Errorf("%s: got\n%s\nwant\n%s", what, g, w)
}

// names are the names of a rule's limits.
func names(tb testing.TB, s *rules.Set, rule string) (out []string) {
	tb.Helper()
	for _, spec := range specs(tb, s, rule) {
		out = append(out, spec.Name)
	}
	return out
}

const example = `
version: 1
defaults: {algorithm: sliding_counter, on_unreachable: local, replication: lag}
rules:
  - name: towns                       # unique
    match: {path: "^/towns", method: [GET, post], group: default, attributes: {plan: free}}
    key: [path, user]
    limits: [5/second, 100/minute, {name: hourly, limit: 1000, window: 1h, algorithm: sliding_log}]
    cost: {default: 1, POST: 2}
  - name: login
    match: {path: "^/login"}
    keys: [[ip], [user]]
    limits: [10/second, 120/minute, 240/hour]
    on_unreachable: closed
    replication: strict
    shadow: true
  - {name: admins, match: {group: admin}, unlimited: true}
`

const exampleJSON = `{
	"version": 1,
	"rules": [
		{"name": "towns",
		 "match": {"path": "^\/towns", "method": ["GET", "POST"], "group": ["default"], "attributes": {"plan": "free"}},
		 "limits": ["5\/second", "100/minute", {"name": "hourly", "limit": 1000, "window": "1h", "algorithm": "sliding_log"}],
		 "cost": {"POST": 2}},
		{"name": "login", "match": {"path": "^/login"}, "keys": [["ip"], ["user"]],
		 "limits": ["10/second", "120/minute", "240/hour"], "on_unreachable": "closed", "replication": "strict", "shadow": true},
		{"name": "admins", "match": {"group": "admin"}}
	]
}`

func TestParseExample(t *testing.T) {
	s := mustSet(t, example, rules.Options{})
	weight := 1000
	want := []limiter.Spec{
		{Name: "second", Limit: 5, Window: time.Second, Weight: &weight},
		{Name: "minute", Limit: 100, Window: time.Minute, Weight: &weight},
		{Name: "hourly", Limit: 1000, Window: time.Hour, Algorithm: limiter.SlidingLog},
	}
	same(t, "limits of towns", specs(t, s, "towns"), want)
	got := s.Rules()
	for i := range got {
		got[i].Rule = nil     // it has limits, looked at above and below
		got[i].Warnings = nil // groups that no rule lists
	}
	wantRules := []rules.RuleInfo{
		{Line: 5, Conditions: rules.Conditions{Path: "^/towns", Methods: []string{"GET", "POST"}, Groups: []string{"default"},
			Attributes: map[string][]string{"plan": {"free"}}}, Keys: [][]string{{"path", "user"}},
			Cost: 1, CostByMethod: map[string]uint64{"POST": 2}, IDTTL: time.Minute},
		{Line: 10, Conditions: rules.Conditions{Path: "^/login"}, Keys: [][]string{{"ip"}, {"user"}}, SkipMissing: true,
			Cost: 1, IDTTL: time.Minute},
		{Line: 17, Conditions: rules.Conditions{Groups: []string{"admin"}}, Cost: 1, IDTTL: time.Minute, Unlimited: true},
	}
	same(t, "rules", got, wantRules)
	login := s.Rule("login")
	if login.OnUnreachable != limiter.UnreachableClosed || login.Replication != limiter.ReplicationStrict ||
		!login.Shadow {
		t.Errorf("login is %+v", login)
	}
	if s.Len() != 3 || s.Rule("nobody") != nil {
		t.Errorf("%d rules, nobody is %v", s.Len(), s.Rule("nobody"))
	}
}

// JSON is YAML; indented with tabs, with escaped slashes, in one line.
func TestParseJSON(t *testing.T) {
	want := mustSet(t, example, rules.Options{}).Hash()
	oneLine := strings.NewReplacer("\n", "", "\t", "").Replace(exampleJSON)
	crlf := strings.ReplaceAll(example, "\n", "\r\n")
	for name, file := range map[string]string{"JSON": exampleJSON, "one line": oneLine, "CRLF": crlf,
		"BOM": "\ufeff" + example} {
		if got := mustSet(t, file, rules.Options{}).Hash(); got != want {
			t.Errorf("%s means something else: %x, want %x", name, got, want)
		}
	}
}

// A6: windows of every unit and of free durations, and what they are called.
// C1: the algorithm is chosen by name for each limit.
func TestWindows(t *testing.T) {
	s := mustSet(t, `
rules:
- name: a
  limits: [1/second, 1/minute, 1/hour, 1/day, 1/week, 1/month, 1/year, 1/15m, 1/250ms, 1/1h30m, 1/2d, 1/2w, 1/1.5s, 1/1d12h, 1/90us1ms]
- name: b
  limits:
  - 10 / 60s
  - {limit: 1_000, window: day, algorithm: gcra}
  - {limit: 5, window: 24h, name: other, algorithm: token_bucket}
`, rules.Options{})
	day := 24 * time.Hour
	want := []time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day, 15 * time.Minute,
		250 * time.Millisecond, 90 * time.Minute, 2 * day, 14 * day, 1500 * time.Millisecond, 36 * time.Hour,
		1090 * time.Microsecond}
	for i, spec := range specs(t, s, "a") {
		if spec.Window != want[i] {
			t.Errorf("window %d is %v, want %v", i, spec.Window, want[i])
		}
	}
	if got := fmt.Sprint(names(t, s,
		"a")); got != "[second minute hour day week month year 15m 250ms 90m 2d 14d 1500ms 36h 1090us]" {
		t.Errorf("the windows are called %s", got)
	}
	got := fmt.Sprint(names(t, s, "b"), specs(t, s, "b")[1].Limit, specs(t, s, "b")[1].Algorithm,
		specs(t, s, "b")[2].Algorithm)
	if got != "[minute day other] 1000 gcra token_bucket" {
		t.Errorf("rule b has %s", got)
	}
}

// The innermost wins, and what a limit's algorithm does not use is inherited in
// vain.
func TestDefaults(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: bare, limits: [1/second]}
- name: inner
  algorithm: sliding_window
  sub_windows: 4
  weight: 1.0
  on_unreachable: closed
  cost: 3
  limits:
  - 1/second
  - {limit: 1, window: minute, sub_windows: 6, coverage: strict}
  - {limit: 1, window: hour, algorithm: leaky_bucket, burst: 2, block: 0}
  - {limit: 1, window: day, algorithm: sliding_counter}
  - {limit: 1, window: week, algorithm: fixed_window}
defaults:
  algorithm: sliding_counter
  weight: .5
  rounding: ceil
  coverage: lenient
  burst: 7
  drip: interval
  align: first_hit
  count_rejected: all
  block: 30s
  on_unreachable: open
  replication: off
  shadow: true
  keys: [[ip], [user, "attr:device"]]
  cost: {PUT: 5}
`, rules.Options{})
	half, one := 500, 1000
	same(t, "bare", specs(t, s, "bare"), []limiter.Spec{{Name: "second", Limit: 1, Window: time.Second, Weight: &half,
		Rounding:      limiter.RoundCeil,
		CountRejected: limiter.CountAll, Block: 30 * time.Second}})
	all, block := limiter.CountAll, 30*time.Second
	same(t, "inner", specs(t, s, "inner"), []limiter.Spec{
		{Name: "second", Algorithm: limiter.SlidingWindow, Limit: 1, Window: time.Second, SubWindows: 4,
			Coverage: limiter.CoverageLenient, CountRejected: all, Block: block},
		{Name: "minute", Algorithm: limiter.SlidingWindow, Limit: 1, Window: time.Minute, SubWindows: 6, CountRejected: all,
			Block: block},
		{Name: "hour", Algorithm: limiter.LeakyBucket, Limit: 1, Window: time.Hour, Burst: 2, Drip: limiter.DripInterval,
			CountRejected: all},
		{Name: "day", Limit: 1, Window: 24 * time.Hour, Weight: &one, Rounding: limiter.RoundCeil, CountRejected: all,
			Block: block},
		{Name: "week", Algorithm: limiter.FixedWindow, Limit: 1, Window: 7 * 24 * time.Hour, Align: limiter.AlignFirstHit,
			CountRejected: all, Block: block},
	})
	in := s.Rules()
	if in[0].Rule.OnUnreachable != limiter.UnreachableOpen || in[1].Rule.OnUnreachable != limiter.UnreachableClosed ||
		in[0].Rule.Replication != limiter.ReplicationOff || !in[1].Rule.Shadow {
		t.Errorf("policies: %+v, %+v", in[0].Rule, in[1].Rule)
	}
	if fmt.Sprint(in[0].Keys, in[0].Cost, in[0].CostByMethod, in[1].Keys, in[1].Cost, in[1].CostByMethod) !=
		"[[ip] [user attr:device]] 1 map[PUT:5] [[ip] [user attr:device]] 3 map[]" {
		t.Errorf("keys and costs: %+v, %+v", in[0], in[1])
	}
}

// Rules inherit from the defaults, never from each other.
func TestDefaultsAreNotShared(t *testing.T) {
	var b strings.Builder
	b.WriteString("defaults: {block: 1s, rounding: floor, weight: 0.1}\nrules:\n")
	for i := range 20 {
		fmt.Fprintf(&b, "- {name: r%d, block: %ds, limits: [1/second]}\n- {name: d%d, limits: [1/second]}\n", i, 10+i, i)
	}
	s := mustSet(t, b.String(), rules.Options{})
	for i := range 20 {
		own, inherited := specs(t, s, fmt.Sprintf("r%d", i))[0], specs(t, s, fmt.Sprintf("d%d", i))[0]
		if own.Block != time.Duration(10+i)*time.Second || inherited.Block != time.Second {
			t.Fatalf("rule %d: block %v and %v", i, own.Block, inherited.Block)
		}
	}
}

func TestWeights(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "1": 1000, "0.5": 500, ".25": 250, "0.125": 125, "1.000": 1000,
		"0.001": 1, "1.": 1000} {
		s := mustSet(t, "rules: [{name: a, limits: [{limit: 1, window: 1s, weight: "+text+"}]}]", rules.Options{})
		if got := *specs(t, s, "a")[0].Weight; got != want {
			t.Errorf("weight %s is %d thousandths, want %d", text, got, want)
		}
	}
}

// A name or a value that looks like a number or a truth value is text where
// text is wanted.
func TestTextIsTakenAsSpelled(t *testing.T) {
	s := mustSet(t, `rules: [{name: 404, match: {group: 007, attributes: {version: 1.0, beta: true}}, limits: `+
		`[1/second]}]`, rules.Options{})
	in := s.Rules()[0]
	if in.Rule.Name != "404" || fmt.Sprint(in.Groups, in.Attributes) != "[007] map[beta:[true] version:[1.0]]" {
		t.Errorf("got %+v named %q", in, in.Rule.Name)
	}
}

func TestHash(t *testing.T) {
	hash := func(file string) uint64 { return mustSet(t, file, rules.Options{Secret: []byte("irrelevant")}).Hash() }
	base := hash(`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute]}]`)
	// Written down, so that a change that would set nodes of neighbouring
	// versions at odds does not go unnoticed.
	if want := uint64(0xde6ceee251b4a28c); base != want {
		t.Errorf("the hash is %#x, it was %#x", base, want)
	}
	for _, same := range []string{
		"# a comment\nversion: 1\nrules:\n- match:\n    method: [put, get]\n    path: '^/a'\n  name: a\n  limits:\n  - " +
			"1/1s\n  - {limit: 2, window: 60s}\n",
		`{"rules": [{"name": "a", "match": {"path": "^/a", "method": ["GET", "PUT"]}, "limits": ["1/second", "2/minute"], ` +
			`"cost": {"default": 1}, "key": ["path", "user"], "shadow": false}]}`,
		`{defaults: {burst: 5, replication: lag}, rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: ` +
			`[1/second, 2/minute], weight: 1}]}`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], leases: auto}]`,
	} {
		if got := hash(same); got != base {
			t.Errorf("means the same, but has another hash: %s", same)
		}
	}
	seen := map[uint64]string{base: "base"}
	for _, other := range []string{
		`rules: []`,
		`rules: [{name: b, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute]}]`,
		`rules: [{name: a, match: {path: ^/b, method: [GET, PUT]}, limits: [1/second, 2/minute]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET]}, limits: [1/second, 2/minute]}]`,
		`rules: [{name: a, match: {path: ^/a, group: [GET, PUT]}, limits: [1/second, 2/minute]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT], attributes: {x: }}, limits: [1/second, 2/minute]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT], attributes: {x: y}}, limits: [1/second, 2/minute]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 3/minute]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [2/minute, 1/second]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], algorithm: gcra}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], weight: 0.9}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], block: 1s}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], shadow: true}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], continue: true}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], cost: 2}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], cost: {GET: 2}}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], key: [path]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], keys: [[path, user]]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], keys: [[path], [user]]}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], on_unreachable: open}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], replication: off}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, limits: [1/second, 2/minute], leases: off}]`,
		`rules: [{name: a, match: {path: ^/a, method: [GET, PUT]}, unlimited: true}]`,
	} {
		h := hash(other)
		if twin, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", other, twin)
		}
		seen[h] = other
	}
}

// The results belong to the caller: changing them does not change the set.
func TestRulesAreCopies(t *testing.T) {
	s := mustSet(t, example, rules.Options{})
	in := s.Rules()
	in[0].Methods[0], in[0].Attributes["plan"][0], in[0].Keys[0][0], in[0].CostByMethod["POST"] = "X", "X", "X", 99
	if again := s.Rules()[0]; !slices.Equal(again.Methods, []string{"GET", "POST"}) ||
		again.Attributes["plan"][0] != "free" ||
		again.Keys[0][0] != "path" || again.CostByMethod["POST"] != 2 {
		t.Errorf("the set changed: %+v", again)
	}
}

func TestEmpty(t *testing.T) {
	s := rules.Empty(rules.Options{})
	var c arith.Charge
	if m, err := s.Resolve(&limiter.Request{Path: "/x"}, &c); err != nil || m != (rules.Match{}) || c.Len() != 0 ||
		s.Len() != 0 {
		t.Errorf("an empty set matched: %+v, %v", m, err)
	}
	if s.Hash() != mustSet(t, "rules: []", rules.Options{}).Hash() {
		t.Error("an empty set and an empty list of rules mean the same")
	}
}

func TestErrorWrapsInvalid(t *testing.T) {
	s, err := rules.Parse("", []byte("rules: 5"), rules.Options{})
	var e *rules.Error
	if s != nil || !errors.Is(err, limiter.ErrInvalid) || !errors.As(err, &e) || len(e.Problems) != 1 {
		t.Fatalf("got %v, %v", s, err)
	}
	if got := err.Error(); got != `1:8: "rules" is a list of rules, not a single value` {
		t.Errorf("without a file's name the error reads %q", got)
	}
}

// The file determines the replication, by rule or by default. The options determine it
// for rules without it, and for a request's own limits.
func TestReplicationOfTheOptions(t *testing.T) {
	const file = `
rules:
  - {name: silent, match: {path: ^/a}, limits: [1/second]}
  - {name: lag, match: {path: ^/b}, limits: [1/second], replication: lag}
`
	const off = "defaults: {replication: off}\n"
	strict := rules.Options{Replication: limiter.ReplicationStrict}
	s := mustSet(t, file, strict)
	for name, want := range map[string]limiter.Replication{"silent": limiter.ReplicationStrict,
		"lag": limiter.ReplicationLag} {
		if got := s.Rule(name).Replication; got != want {
			t.Errorf("rule %s: %s, want %s", name, got, want)
		}
	}
	if got := mustSet(t, off+file, strict).Rule("silent").Replication; got != limiter.ReplicationOff {
		t.Errorf("with defaults in the file: %s", got)
	}
	own := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: time.Second})
	var c arith.Charge
	if _, err := s.Resolve(&limiter.Request{Path: "/c", Limits: []*limiter.Limit{own}}, &c); err != nil ||
		c.Key(0).Rule.Replication != limiter.ReplicationStrict {
		t.Errorf("a request's own limits: %+v, %v", c.Key(0).Rule, err)
	}
	if s.Hash() == mustSet(t, file, rules.Options{}).Hash() {
		t.Error("members that copy differently have the same hash")
	}
}
