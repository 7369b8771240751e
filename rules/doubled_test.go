package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

const doubledRules = `
quotas: [{name: all, key: [user], limits: [{limit: 4, window: 60s, algorithm: fixed_window}]}]
rules: [{name: r, match: {path: ^/}, key: [rule, user], limits: [{limit: 3, window: 60s, algorithm: fixed_window}], quotas: [all]}]
`

func doubledSet(t *testing.T, first, second string) *Set {
	t.Helper()
	s, err := Parse("r.yaml", []byte(doubledRules), Options{Secret: []byte(first), Second: []byte(second)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A secret is replaced in three steps. As long as each step waits for what the page says, the
// limits hold throughout, whichever of two neighbouring steps a node is at.
func TestASecretIsReplaced(t *testing.T) {
	const before, after = "the one", "the other"
	steps := []*Set{doubledSet(t, before, ""), doubledSet(t, before, after), doubledSet(t, after, before),
		doubledSet(t, after, "")}
	tab := table.New(table.Config{})
	now := limiter.TickOf(time.Unix(1_800_000_000, 0)) // a full minute
	r := limiter.Request{Path: "/x", User: "ada"}
	ask := func(s *Set) bool {
		t.Helper()
		var c arith.Charge
		var d limiter.Decision
		if _, err := s.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		if err := tab.Decide(now, &c, &d); err != nil {
			t.Fatal(err)
		}
		if s.Doubled() {
			if c.Len() != 4 {
				t.Fatalf("%d keys, want two under each secret", c.Len())
			}
			arith.Fold(&d)
		}
		if d.Len() != 2 {
			t.Fatalf("the answer has %d limits, want 2", d.Len())
		}
		return d.Allowed
	}
	admitted := func(want int, sets ...*Set) {
		t.Helper()
		n := 0
		for i := range 12 {
			if ask(sets[i%len(sets)]) {
				n++
			}
		}
		if n != want {
			t.Errorf("%d were admitted, want %d", n, want)
		}
	}
	admitted(3, steps[0])
	admitted(0, steps[0], steps[1]) // within the same minute nobody forgets
	admitted(0, steps[1], steps[2])
	now += limiter.Minute
	admitted(3, steps[1], steps[2])
	admitted(0, steps[2], steps[3]) // all have counted under both since the minute began
	now += limiter.Minute
	admitted(3, steps[3], steps[2])
	admitted(0, steps[3])
}

func TestSecretsThatCannotBeTogether(t *testing.T) {
	for _, x := range []struct{ first, second, want string }{
		{"a", "a", "equals the first"}, {"", "b", "the first one is not"}, {"a", "", ""}, {"", "", ""}, {"a", "b", ""},
	} {
		err := CheckSecrets([]byte(x.first), []byte(x.second))
		if x.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q and %q: %v, want %q", x.first, x.second, err, x.want)
		}
	}
	s := doubledSet(t, "a", "b")
	var c arith.Charge
	r := limiter.Request{Path: "/x", User: "ada"}
	for i := range limiter.MaxKeys/2 + 1 {
		l := limitertest.Limit(t, limiter.Spec{Limit: 5, Window: time.Duration(i+1) * time.Second})
		r.Limits = append(r.Limits, l)
		r.LimitKeys = append(r.LimitKeys, []string{"attr:a" + string(rune('a'+i))})
	}
	if _, err := s.Resolve(&r, &c); err == nil || !strings.Contains(err.Error(), "at most 8") || c.Len() != 0 {
		t.Errorf("9 keys: %v, %d keys", err, c.Len())
	}
	r.Limits, r.LimitKeys = r.Limits[:8], r.LimitKeys[:8]
	if _, err := s.Resolve(&r, &c); err != nil || c.Len() != 16 {
		t.Errorf("8 keys: %v, %d keys", err, c.Len())
	}
}

// The stricter of two limits says what holds, and the receipt stays that of all.
func TestFold(t *testing.T) {
	rule := &limiter.Rule{Name: "r"}
	for _, name := range []string{"a", "b", "c"} {
		l := limitertest.Limit(t, limiter.Spec{Name: name, Limit: 5, Window: time.Minute, Algorithm: limiter.FixedWindow})
		rule.Limits = append(rule.Limits, l)
	}
	tab := table.New(table.Config{})
	now := limiter.TickOf(time.Unix(1_800_000_000, 0))
	charge := func(cost uint64, keys ...uint64) *arith.Charge {
		c := new(arith.Charge)
		for _, k := range keys {
			c.Add(arith.Key{Hash: arith.Hash{Hi: k, Lo: k}, Rule: rule, Cost: cost})
		}
		return c
	}
	var d limiter.Decision
	if err := tab.Decide(now, charge(4, 2), &d); err != nil {
		t.Fatal(err)
	}
	if err := tab.Decide(now, charge(1, 1, 2), &d); err != nil || !d.Allowed {
		t.Fatal(err, d.Allowed)
	}
	receipt := d.Receipt
	if second := arith.Fold(&d); second != 7 || d.Len() != 3 || d.Limit(2).Remaining != 0 || d.Limit(2).Key != 0 ||
		d.Receipt != receipt || d.BlockedBy() != nil {
		t.Errorf("%b, %d limits, %d left", second, d.Len(), d.Limit(2).Remaining)
	}
	if err := tab.Decide(now, charge(1, 1, 2), &d); err != nil || d.Allowed {
		t.Fatal(err, d.Allowed)
	}
	arith.Fold(&d)
	if b := d.BlockedBy(); b == nil || b.Allowed || b.Limit != rule.Limits[0] || d.RetryAfter != time.Minute {
		t.Errorf("denied by %+v, after %v", b, d.RetryAfter)
	}
}
