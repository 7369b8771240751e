package access

import (
	"maps"
	"testing"

	"google.golang.org/grpc/codes"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// The file says which tenants there are, and what each may take. One that is alone has all.
func TestTenantShares(t *testing.T) {
	const one = "anonymous: {tenant: a, may: {check: true}}\n"
	const another = "identities: [{name: b, certificate: {cn: b}, tenant: b, may: {check: true}}]\n"
	for text, want := range map[string]map[string]int{
		one: {"a": 1000},
		one + "identities: [{name: b, certificate: {cn: b}, may: {admin: true}}]\n": {"a": 1000},
		one + "identities: [{name: b, certificate: {cn: b}, may: {check: true}}]\n": {"a": 0},
		one + "tenants: [{name: a, max_share: 5.5%}]\n":                             {"a": 55},
		one + another: {"a": 0, "b": 0},
		one + another + "tenants: [{name: b, max_share: 80%}]\n": {"a": 0, "b": 800},
		"anonymous: {may: {check: true}}\n":                      {},
	} {
		if got := newWorld(t, text).access.TenantShares(); !maps.Equal(got, want) {
			t.Errorf("%s\n%v, want %v", text, got, want)
		}
	}
}

// Over the wire too a tenant that sends ever more limits does not have those of another one refused, nor does an
// identity without a tenant those of another identity.
func TestRequestLimitsHaveShares(t *testing.T) {
	w := newWorld(t, `
tokens:
  - {issuer: "https://id.example.com", audience: weir, algorithms: [ES256], keys: keys.pem}
identities:
  - {name: shop, token: {subject: shop}, tenant: shop, may: {check: true, limits: true}}
  - {name: bank, token: {subject: bank}, tenant: bank, may: {check: true, limits: true}}
  - {name: one, token: {subject: one}, may: {check: true, limits: true}}
  - {name: two, token: {subject: two}, may: {check: true, limits: true}}
`)
	sent := int64(0)
	send := func(who string, n int) (refused int) {
		m := &weirv1.CheckBatchRequest{}
		for range n {
			sent++
			m.Checks = append(m.Checks, &weirv1.CheckRequest{Path: "/x", User: w.user(),
				Limits: []*weirv1.Limit{{Limit: sent, WindowUs: 60_000_000}}})
		}
		out, err := w.grpc.CheckBatch(w.bearer(w.token(who)), m)
		if err != nil {
			t.Fatal(who, err)
		}
		for _, r := range out.GetResults() {
			if e := r.GetError(); e != nil {
				if refused++; codes.Code(e.GetCode()) != codes.Unavailable {
					t.Fatal(who, e)
				}
			}
		}
		return refused
	}
	flood := 0
	for range 5 {
		flood += 1000 - send("shop", 1000)
	}
	if flood != 3072 {
		t.Errorf("one tenant has %d limits", flood)
	}
	if n := send("bank", 100); n != 0 {
		t.Errorf("%d of another tenant are refused", n)
	}
	if n := send("one", 1000); n == 0 {
		t.Error("premise: an identity without a tenant has its share")
	}
	if n := send("two", 50); n != 0 {
		t.Errorf("%d of another identity are refused", n)
	}
}
