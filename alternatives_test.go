package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/weirtest"
)

const alternatives = `
version: 1
quotas:
  - {name: own, key: [user], limits: [{name: units, limit: 2, window: 1m, algorithm: fixed_window}]}
  - {name: pool, key: [rule], limits: [{name: units, limit: 2, window: 1h, algorithm: fixed_window}]}
rules:
  - {name: any, match: {path: ^/any}, quotas: [{any: [own, pool]}]}
  - {name: own_only, match: {path: ^/own}, quotas: [own]}
  - {name: pool_only, quotas: [pool]}
`

// A check that several quotas are tried for is one check to the observer, and one decision of a batch, after others. A
// receipt takes back what the alternative was charged that admitted, though both have limits of one name and cost.
func TestFirstQuotaThatAdmits(t *testing.T) {
	var allowed, denied int
	n := weirtest.Open(t, weir.Config{Rules: []byte(alternatives), Observer: &weir.Observer{
		Checked: func(n int, _ string, _ limiter.Source, ok, _ bool) {
			if ok {
				allowed += n
			} else {
				denied += n
			}
		}}})
	any, pool := weir.Request{Path: "/any", User: "ada"}, weir.Request{Path: "/pool"}
	ds, err := n.CheckBatch(t.Context(), []weir.Request{any, any, any, any, any, pool})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, true, false, false, true} {
		if ds[i].Allowed != want {
			t.Errorf("request %d: allowed %v", i, ds[i].Allowed)
		}
	}
	if ds[2].Limit(0).Rule.Name != "pool" || ds[4].RetryAfter > time.Minute {
		t.Errorf("charged %s, then a wait of %v", ds[2].Limit(0).Rule.Name, ds[4].RetryAfter)
	}
	if allowed != 4 || denied != 2 {
		t.Errorf("%d allowed and %d denied were observed", allowed, denied)
	}
	remain := func(own, common uint64) {
		t.Helper()
		d, err := n.Peek(t.Context(), weir.Request{Path: "/any", User: "ada"})
		p, perr := n.Peek(t.Context(), pool)
		if err != nil || perr != nil || p.Limit(0).Remaining != common ||
			(own > 0) != (d.Limit(0).Rule.Name == "own" && d.Limit(0).Remaining > 0) {
			t.Errorf("%v, %v: %d of the pool are left, and %d of %s", err, perr, p.Limit(0).Remaining, d.Limit(0).Remaining,
				d.Limit(0).Rule.Name)
		}
	}
	remain(0, 0)
	if err := n.Refund(t.Context(), any, n.SealReceipt(&any, &ds[2])); err != nil {
		t.Fatal(err)
	}
	remain(0, 1)
	if err := n.Refund(t.Context(), any, ds[0].Receipt); err != nil {
		t.Fatal(err)
	}
	remain(1, 1)
	if err := n.Refund(t.Context(), any, limiter.Credit()); err == nil {
		t.Error("a credit was taken, for whichever alternative")
	}
	if e, err := n.Explain(t.Context(), any); err != nil || !e.Decision.Allowed || e.Limits[0].Name == "" {
		t.Errorf("%+v, %v", e, err)
	}
	any.ID, any.Hold = "a check could not have it", time.Minute
	if got, err := n.Reset(t.Context(), any); got != 2 || err != nil {
		t.Errorf("%d counters were reset: %v", got, err)
	}
}

// A batch costs one question, and one more for each alternative that some of its requests go on to.
func TestBatchWithAlternativesIsAskedTogether(t *testing.T) {
	n := weirtest.Open(t, weir.Config{Rules: []byte(alternatives)})
	calls := weir.CountCalls(n.Node)
	any, pool := weir.Request{Path: "/any", User: "ada"}, weir.Request{Path: "/pool"}
	ask := func(questions int, rs ...weir.Request) []weir.Decision {
		t.Helper()
		calls.Checks, calls.Batches = 0, 0
		ds, err := n.CheckBatch(t.Context(), rs)
		if err != nil || calls.Checks != 0 || calls.Batches != questions {
			t.Errorf("%v: %d checks and %d batches were asked, want %d batches", err, calls.Checks, calls.Batches, questions)
		}
		return ds
	}
	ask(1, any, pool, any)
	if ds := ask(2, any, any, any); !ds[0].Allowed || ds[1].Allowed || ds[2].Allowed {
		t.Errorf("%+v", ds)
	}
	ds := make([]weir.Decision, 3)
	calls.Err = context.Canceled // of the second alternative
	err := n.CheckBatchInto(t.Context(), []weir.Request{any, {Rule: "none"}, any}, ds)
	bad, _ := errors.AsType[*weir.BatchError](err)
	if bad == nil || len(bad.Index) != 3 || bad.Index[1] != 1 || !errors.Is(bad.Errs[0], context.Canceled) ||
		errors.Is(bad.Errs[1], context.Canceled) || ds[2].Len() != 0 {
		t.Errorf("%v, %+v", err, ds)
	}
}

// What no rule can resolve any more does not hinder the refund of what another alternative was charged, nor a reset.
func TestAlternativeThatCannotBeResolved(t *testing.T) {
	file := `
version: 1
quotas:
  - {name: own, key: [user], limits: [{limit: 1, window: 1h, algorithm: fixed_window}]}
  - {name: pool, KEYS, limits: [{limit: 1, window: 1h, algorithm: fixed_window}]}
  - {name: rest, key: [rule], limits: [{limit: 1, window: 1h, algorithm: fixed_window}]}
rules:
`
	for _, name := range []string{"a", "b", "c"} { // 15 of the 16 keys that a request may have
		file += "  - {name: " + name + ", continue: true, " +
			"keys: [[user], [ip], [group], [path], [method]], limits: [50/hour]}\n"
	}
	file += "  - {name: any, quotas: [{any: [own, pool, rest]}]}\n"
	n := weirtest.Open(t, weir.Config{Rules: []byte(strings.Replace(file, "KEYS", "key: [user]", 1))})
	r := weir.Request{Path: "/", User: "ada", IP: "192.0.2.1", Group: "g", Method: "GET"}
	var d weir.Decision
	for range 3 {
		var err error
		if d, err = n.Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("%v, %+v", err, d)
		}
	}
	if err := n.SetRules([]byte(strings.Replace(file, "KEYS", "keys: [[user], [ip]]", 1))); err != nil {
		t.Fatal(err)
	}
	sealed := n.SealReceipt(&r, &d)
	if sealed.Sealed() == "" {
		t.Error("the receipt was not sealed")
	}
	if err := n.Refund(t.Context(), r, sealed); err != nil {
		t.Error(err)
	}
	if _, err := n.Peek(t.Context(), r); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("%v: the second alternative can be resolved", err)
	}
	if got, err := n.Reset(t.Context(), r); got != 16 || err != nil { // what rest was charged has come back
		t.Errorf("%d counters were reset: %v", got, err)
	}
}

// A quota of whose keys the request has no part is no alternative: it neither denies, nor does it make an error of the
// denial by another one. If no quota can count the request, it is not valid.
func TestAlternativesThatCannotCount(t *testing.T) {
	n := weirtest.Open(t, weir.Config{Rules: []byte(`
quotas:
  - {name: own, keys: [[attr:account]], limits: [2/day]}
  - {name: pool, keys: [[ip]], limits: [1/day]}
rules:
  - {name: any, quotas: [{any: [own, pool]}]}
`)})
	account := func(name string) map[string]string { return map[string]string{"account": name} }
	listed := func() (sum uint64) {
		_, denied := n.Top(10)
		for _, k := range denied {
			sum += k.Count
		}
		return sum
	}
	for name, row := range map[string]struct {
		ask  weir.Request
		want []bool
	}{
		"the second lacks": {weir.Request{Attributes: account("ada")}, []bool{true, true, false}},
		"the first lacks":  {weir.Request{IP: "192.0.2.1"}, []bool{true, false, false}},
		"both count":       {weir.Request{Attributes: account("bo"), IP: "192.0.2.2"}, []bool{true, true, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			before, denials := listed(), uint64(2)
			for i, want := range row.want {
				if !want {
					denials++
				}
				e, err := n.Explain(t.Context(), row.ask)
				if err != nil || e.Decision.Allowed != want {
					t.Errorf("explanation %d: %v", i, err)
				}
				d, err := n.Check(t.Context(), row.ask)
				if err != nil || d.Allowed != want || !want && (d.RetryAfter <= 0 || d.Len() == 0) {
					t.Errorf("check %d: %+v, %v", i, d, err)
				}
			}
			ds, err := n.CheckBatch(t.Context(), []weir.Request{row.ask, row.ask})
			if err != nil || ds[0].Allowed || ds[1].RetryAfter <= 0 {
				t.Errorf("a batch: %+v, %v", ds, err)
			}
			if got := listed() - before; got != denials {
				t.Errorf("%d denials are listed, want %d", got, denials)
			}
			if reset, err := n.Reset(t.Context(), row.ask); err != nil || reset == 0 {
				t.Errorf("%d were reset: %v", reset, err)
			}
		})
	}
	_, err := n.Check(t.Context(), weir.Request{})
	if !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), "own") {
		t.Errorf("%v", err)
	}
}

// A rule with alternatives lends nothing: neither is an optional id left out of what asks for units, which would then
// be a check that nobody sees, nor out of what gives them back.
func TestAlternativesLendNothing(t *testing.T) {
	n := weirtest.Open(t, weir.Config{Rules: []byte(alternatives)})
	r := weir.Request{Path: "/any", User: "ada", ID: "a", IDOptional: true, Lent: true}
	if _, err := n.Check(t.Context(), r); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("units were lent for no time: %v", err)
	}
	if _, err := n.Settle(t.Context(), r, 1); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("units were given back: %v", err)
	}
	r.Lent = false
	if a, err := n.Settle(t.Context(), r, 1, weir.IgnoreUnknown()); err != nil || a.State != weir.AmendUnknown {
		t.Errorf("a check without an id was settled: %+v, %v", a, err)
	}
	if d, err := n.Peek(t.Context(), weir.Request{Path: "/any", User: "ada"}); err != nil || d.Limit(0).Remaining != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

// Shadow rules are observed once for a check that goes on to another quota.
func TestShadowsOfAlternativesAreObservedOnce(t *testing.T) {
	shadowed := 0
	n := weirtest.Open(t, weir.Config{Rules: []byte(strings.Replace(alternatives, "rules:\n",
		"rules:\n  - {name: dark, match: {path: ^/any}, deny: true, shadow: true, continue: true}\n", 1)),
		Observer: &weir.Observer{
			Shadowed: func(string, bool) { shadowed++ },
		}})
	any := weir.Request{Path: "/any", User: "ada"}
	for range 5 {
		if _, err := n.Check(t.Context(), any); err != nil {
			t.Fatal(err)
		}
	}
	if shadowed != 5 {
		t.Errorf("%d of 5 checks were observed", shadowed)
	}
}

// A check by an override is observed once, by what is decided in the end.
func TestOverriddenAlternativesAreObservedOnce(t *testing.T) {
	var seen []bool
	file := strings.Replace(alternatives, "match: {path: ^/any}, ", "match: {path: ^/any}, limits: [50/second], ", 1)
	n := weirtest.Open(t, weir.Config{Rules: []byte(file), Observer: &weir.Observer{
		Overridden: func(rule string, denied bool) {
			if seen = append(seen, denied); rule != "any" {
				t.Errorf("it is of %s", rule)
			}
		}}})
	limit, err := rules.OverrideLimit("4/hour")
	if err != nil {
		t.Fatal(err)
	}
	n.SetOverrides([]rules.Override{{Rule: "any", User: "ada", Limit: limit}})
	for range 5 {
		d, err := n.Check(t.Context(), weir.Request{Path: "/any", User: "ada"})
		if err != nil || !d.Overridden {
			t.Fatalf("%v: %+v", err, d)
		}
	}
	if want := []bool{false, false, false, false, true}; !slices.Equal(seen, want) {
		t.Errorf("observed as denied: %v, want %v", seen, want)
	}
}

// A request of a batch that all its quotas deny waits for what the batch charged to the other keys, although its first
// quota was asked before that.
func TestDenialsOfABatchWaitForTheOtherKeys(t *testing.T) {
	file := strings.Replace(alternatives, "match: {path: ^/any}, ",
		"match: {path: ^/any}, key: [rule], limits: [{limit: 2, window: 1h, algorithm: fixed_window}], ", 1)
	n := weirtest.Open(t, weir.Config{Rules: []byte(file)})
	big := weir.Request{Path: "/any", User: "ada", Cost: weir.Units(2)}
	if _, err := n.Check(t.Context(), weir.Request{Rule: "own_only", User: "ada"}); err != nil { // one unit is left
		t.Fatal(err)
	}
	ds, err := n.CheckBatch(t.Context(), []weir.Request{big, {Path: "/any", User: "bob", Cost: weir.Units(2)}})
	if err != nil || ds[0].Allowed || !ds[1].Allowed {
		t.Fatalf("%v: %+v", err, ds)
	}
	if again, err := n.Peek(t.Context(), big); err != nil || again.RetryAfter != ds[0].RetryAfter {
		t.Errorf("%v: in the batch the wait is %v, and after it %v", err, ds[0].RetryAfter, again.RetryAfter)
	}
}

// The list of the keys that are denied most has what was denied in the end, not what another alternative admitted.
func TestDenialsThatLeadOnAreNotListed(t *testing.T) {
	n := weirtest.Open(t, weir.Config{Rules: []byte(alternatives)})
	listed := func() (out string) {
		for range 3 {
			if _, err := n.Check(t.Context(), weir.Request{Path: "/any", User: "ada"}); err != nil {
				t.Fatal(err)
			}
		}
		_, denied := n.Top(10)
		for _, k := range denied {
			out += fmt.Sprintf("%s %d ", k.Name, k.Count)
		}
		return out
	}
	if got := listed(); got != "" {
		t.Errorf("all are admitted, and %s are listed", got)
	}
	if got := listed(); got != "pool:units 2 " {
		t.Errorf("two are denied, and %s are listed", got)
	}
}

// A receipt takes a charge back from the alternative that made it also while an operator denies, frees or limits the
// user.
func TestAnAlternativeIsRefundedWhileItsUserIsDenied(t *testing.T) {
	limit, err := rules.OverrideLimit("9/hour")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []rules.Override{{Deny: true}, {}, {Limit: limit}} {
		for _, sealed := range []bool{false, true} {
			n := weirtest.New(t, strings.Replace(alternatives, "match: {path: ^/any}, ",
				"match: {path: ^/any}, key: [user], limits: [50/hour], ", 1))
			any, pool := weir.Request{Path: "/any", User: "ada"}, weir.Request{Path: "/pool"}
			ds, err := n.CheckBatch(t.Context(), []weir.Request{any, any, any})
			if err != nil || !ds[2].Allowed {
				t.Fatalf("%v: %+v", err, ds)
			}
			receipt := ds[2].Receipt
			if sealed {
				receipt = n.SealReceipt(&any, &ds[2])
			}
			o.Rule, o.User = "any", "ada"
			n.SetOverrides([]rules.Override{o})
			err = n.Refund(t.Context(), any, receipt)
			if d, failed := n.Peek(t.Context(), pool); err != nil || failed != nil || d.Limit(0).Remaining != 2 {
				t.Errorf("%+v, sealed %t: %d of 2 left, %v, %v", o, sealed, d.Limit(0).Remaining, err, failed)
			}
		}
	}
}
