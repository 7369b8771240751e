package weir_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/weirtest"
)

// A tenant that invents users at the rate of its budget does not have the new users of another one denied,
// and what it may have can be set while the node runs.
func TestATenantDoesNotFillTheTable(t *testing.T) {
	ctx := context.Background()
	n := weirtest.Open(t, weir.Config{MaxKeys: 20_000,
		Rules: []byte(`{version: 1, rules: [{name: r, match: {path: "^/"}, key: [user], limits: [5/day]}]}`)})
	admitted := func(tenant string, from, users int) (in int) {
		for u := range users {
			d, err := n.Check(ctx, weir.Request{Path: "/", Tenant: tenant, User: strconv.Itoa(from + u)})
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				in++
			}
		}
		return in
	}
	flood := 0
	for second := range 60 {
		flood += admitted("flood", second*500, 500)
		n.Advance(time.Second)
	}
	if flood != 15_000 {
		t.Errorf("one tenant has %d new users, want three quarters of the table", flood)
	}
	if in := admitted("victim", 0, 3000); in != 3000 {
		t.Errorf("of another tenant's new users %d of 3000 are admitted", in)
	}
	n.SetTenantShares(map[string]int{"flood": 800, "victim": 0})
	if in := admitted("flood", 50_000, 2000); in != 1000 {
		t.Errorf("with a share of 80%% it has %d more", in)
	}
	n.SetTenantShares(map[string]int{"flood": 100})
	if in := admitted("flood", 60_000, 10); in != 0 {
		t.Errorf("with a share of 10%% it has %d more", in)
	}
	if in := admitted("flood", 0, 100); in != 100 {
		t.Errorf("of its known users %d of 100 are admitted", in)
	}
}

// An id belongs to the caller who gives it: with another caller it is another id, and so is the reservation.
func TestReservationsBelongToTheirCaller(t *testing.T) {
	ctx := context.Background()
	n := weirtest.Open(t,
		weir.Config{Rules: []byte(`{version: 1, rules: [{name: r, match: {path: "^/"}, key: [user], limits: [{limit: 100, ` +
			`window: 1h, algorithm: token_bucket}]}]}`)})
	left := func() int64 {
		d, err := n.Check(ctx, weir.Request{Path: "/", User: "ada", Cost: weir.Units(0)})
		if err != nil {
			t.Fatal(err)
		}
		return int64(d.Limit(0).Remaining)
	}
	of := func(caller string) weir.Request {
		return weir.Request{Path: "/", User: "ada", Tenant: "", ID: "1", Caller: caller, Hold: time.Hour,
			Cost: weir.Units(60)}
	}
	if d, err := n.Check(ctx, of("a")); err != nil || !d.Allowed || left() != 40 {
		t.Fatal(d, err)
	}
	for _, other := range []string{"b", "", "a1"} {
		if out, err := n.Cancel(ctx, of(other)); err != nil || out.State != weir.AmendUnknown || left() != 40 {
			t.Errorf("cancelled by %q: %+v, %v; %d left", other, out, err, left())
		}
		if out, err := n.Extend(ctx, of(other)); err != nil || out.State != weir.AmendUnknown {
			t.Errorf("extended by %q: %+v, %v", other, out, err)
		}
		if d, err := n.Check(ctx, of(other)); err != nil || d.Repeated {
			t.Errorf("repeated by %q: %+v, %v", other, d, err)
		}
	}
	if out, err := n.Settle(ctx, of("a"), 10); err != nil || out.State != weir.AmendDone || left() != 90 {
		t.Errorf("settled by its own: %+v, %v; %d left", out, err, left())
	}
	if _, err := n.Check(ctx, of(string(make([]byte, 65)))); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("a caller that is too long: %v", err)
	}
}

// Limits that come with requests are shared by tenants, and by callers that have none.
func TestRequestLimitsAreShared(t *testing.T) {
	ctx := context.Background()
	n := weirtest.Open(t, weir.Config{})
	made := 0
	ask := func(tenant, caller string) error {
		made++
		l := limitertest.Limit(t, weir.Spec{Limit: int64(made), Window: time.Minute})
		_, err := n.Check(ctx, weir.Request{Path: "/", User: strconv.Itoa(made), Tenant: tenant, Caller: caller,
			Limits: []*weir.Limit{l}})
		return err
	}
	fill := func(tenant, caller string) (got int) {
		for ask(tenant, caller) == nil {
			got++
		}
		return got
	}
	if got := fill("flood", "x"); got != 3072 {
		t.Errorf("one tenant has %d limits, want three quarters of 4096", got)
	}
	if err := ask("flood", "y"); err == nil {
		t.Error("another identity of the tenant has one more")
	}
	if got := fill("", "a"); got != 768 {
		t.Errorf("a caller without a tenant has %d limits, want three quarters of the rest", got)
	}
	if got := fill("", "b"); got != 192 {
		t.Errorf("another one has %d limits", got)
	}
}

// The top keys of a tenant are its own: not those of others, nor of one without a tenant whose key begins like its
// name.
func TestTopKeysOfATenant(t *testing.T) {
	n := weirtest.Open(t, weir.Config{
		Rules: []byte(`{version: 1, rules: [{name: r, key: [path, user], limits: [1/day]}]}`)})
	for _, r := range []weir.Request{{Path: "/", User: "ada", Tenant: "bank:1"}, {Path: "/", User: "bob", Tenant: "bank"},
		{Path: "bank:1", User: "eve"}} {
		for range 64 { // one after the other: of two keys of one partition, asked in turns, a sample may have one alone
			if _, err := n.Check(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for tenant, want := range map[string]string{"bank:1": "bank%3A1:/:ada", "bank": "bank:/:bob", "": "bank%3A1:eve",
		"other": ""} {
		hottest, denied := weir.Administered(n.Node).TopOf(tenant, 10)
		if want == "" && len(hottest)+len(denied) == 0 {
			continue
		}
		if len(hottest) != 1 || hottest[0].Name != want || len(denied) != 1 || denied[0].Name != want+":day" {
			t.Errorf("of %q: %+v and %+v", tenant, hottest, denied)
		}
	}
	twin := 0 // another tenant may have the label of one
	for arith.TenantLabel(strconv.Itoa(twin)) != arith.TenantLabel("bank") {
		twin++
	}
	if hottest, denied := weir.Administered(n.Node).TopOf(strconv.Itoa(twin), 10); len(hottest)+len(denied) != 0 {
		t.Errorf("a tenant sees another one's: %+v and %+v", hottest, denied)
	}
	if hottest, _ := n.Top(10); len(hottest) != 3 {
		t.Errorf("of all: %+v", hottest)
	}
}
