package transport_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

const lends = `
version: 1
rules:
  - name: lends
    match: {path: "^/lends$"}
    key: [rule, user]
    leases: auto
    limits: [{limit: 1000, window: 24h, algorithm: fixed_window}]
  - name: not
    match: {path: ^/not}
    key: [rule, user]
    leases: off
    limits: [{limit: 1000, window: 24h, algorithm: fixed_window}]
`

// wishes are checks of a path for leases with ids, each of so many units, for 300 ms.
func wishes(path string, units int64, ids ...string) *weirv1.CheckColumns {
	m := &weirv1.CheckColumns{HoldUs: 300_000}
	for _, id := range ids {
		m.Keys = append(m.Keys, path+"ada"...)
		m.PathLengths, m.UserLengths = append(m.PathLengths, uint32(len(path))), append(m.UserLengths, 3)
		m.Ids, m.IdLengths = append(m.Ids, id...), append(m.IdLengths, uint32(len(id)))
		m.Costs = append(m.Costs, units)
	}
	return m
}

func wishesFor(hold int64) *weirv1.CheckColumns {
	m := wishes("/lends", 1, "f")
	m.HoldUs = hold
	return m
}

// What is lent counts until it is returned, and then what was used of it: never more than was lent, whatever the client
// says. Only a rule that lends does so, for no longer than it says.
func TestLease(t *testing.T) {
	s := newServer(t, lends, nil)
	left := func(want uint64) {
		t.Helper()
		d, err := s.node.Peek(t.Context(), limiter.Request{Path: "/lends", User: "ada"})
		if err != nil || d.Limit(0).Remaining != want {
			t.Errorf("%d remain, want %d (%v)", d.Limit(0).Remaining, want, err)
		}
	}
	lease := func(m *weirv1.LeaseRequest) *weirv1.LeaseResponse {
		t.Helper()
		out, err := s.api.Lease(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := lease(&weirv1.LeaseRequest{Asked: wishes("/lends", 100, "a", "b", "c")})
	if a := out.GetAsked(); !slices.Equal(a.GetFlags(), []byte{1, 1, 1}) ||
		!slices.Equal(a.GetEveryLimit().GetRemaining(), []uint64{900, 800, 700}) {
		t.Fatal(out)
	}
	left(700)
	back := wishes("/lends", 5000, "a", "b", "unknown")
	back.Costs[1] = 40
	if out = lease(&weirv1.LeaseRequest{Returned: back}); !slices.Equal(out.GetReturned(), []byte{1, 1, 0}) {
		t.Error(out)
	}
	left(1000 - 100 - 40 - 100)
	if out = lease(&weirv1.LeaseRequest{Asked: wishes("/lends", 900, "d")}); out.GetAsked().GetFlags()[0]&1 != 0 {
		t.Error("more than is left is lent")
	}
	for text, m := range map[string]*weirv1.CheckColumns{
		`rule "not" lends no units: it says leases: off`: wishes("/not", 10, "e"),
		"it waits for them for at most 300ms":            wishesFor(300_001),
		"give the request a hold":                        wishesFor(0),
	} {
		a := lease(&weirv1.LeaseRequest{Asked: m}).GetAsked()
		if len(a.GetErrors()) != 1 || !strings.Contains(a.GetErrors()[0].GetMessage(), text) {
			t.Errorf("%q: %v", text, a)
		}
	}
	none := wishes("/lends", 1, "g")
	none.Costs = nil
	for _, out := range []*weirv1.CheckError{lease(&weirv1.LeaseRequest{Asked: none}).GetAsked().GetError(),
		lease(&weirv1.LeaseRequest{Returned: none}).GetError()} {
		if !strings.Contains(out.GetMessage(), "give each of them both") {
			t.Error(out)
		}
	}
	left(1000 - 100 - 40 - 100)
}

// A return ends a lease, and no hold of another kind: who may borrow may not settle.
func TestAReturnEndsALease(t *testing.T) {
	s := newServer(t, `
version: 1
rules: [{name: slots, key: [user], hold: 10s, limits: [{algorithm: concurrency, limit: 1}]}]
`, nil)
	check := func(id string) bool {
		t.Helper()
		d, err := s.node.Check(t.Context(), limiter.Request{User: "ada", ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	check("a")
	out, err := s.api.Lease(t.Context(), &weirv1.LeaseRequest{Returned: &weirv1.CheckColumns{
		Keys: []byte("ada"), UserLengths: []uint32{3}, Ids: []byte("a"), IdLengths: []uint32{1}, Costs: []int64{0}}})
	if err != nil || !slices.Equal(out.GetReturned(), []byte{0}) || check("b") {
		t.Errorf("%v, %v: the slot of another request is free", out, err)
	}
}

// A lease comes back although its rule lends no more, and its id ends no reservation with the same text.
func TestALeaseComesBackWhenItsRuleLendsNoMore(t *testing.T) {
	s := newServer(t, lends, nil)
	left := func() uint64 {
		t.Helper()
		d, err := s.node.Peek(t.Context(), limiter.Request{Path: "/lends", User: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		return d.Limit(0).Remaining
	}
	_, err := s.api.Lease(t.Context(), &weirv1.LeaseRequest{Asked: wishes("/lends", 100, "a")})
	if err != nil || left() != 900 {
		t.Fatal(left(), err)
	}
	reserved := limiter.Request{Path: "/lends", User: "ada", ID: "a", Hold: time.Minute, Cost: limiter.Units(50)}
	if d, err := s.node.Check(t.Context(), reserved); err != nil || d.Repeated || left() != 850 {
		t.Fatalf("premise: 50 are reserved: %+v, %v", d, err)
	}
	if err := s.node.SetRules([]byte(strings.Replace(lends, "leases: auto", "leases: off", 1))); err != nil {
		t.Fatal(err)
	}
	for _, known := range []byte{1, 1} { // the second time it is known that it came back
		out, err := s.api.Lease(t.Context(), &weirv1.LeaseRequest{Returned: wishes("/lends", 30, "a")})
		if err != nil || !slices.Equal(out.GetReturned(), []byte{known}) || left() != 1000-50-30 {
			t.Errorf("%v, %v: %d are left", out, err, left())
		}
	}
}

// Nothing is lent by a rule of which an override is in force: who borrows does not know of whom it is.
func TestOverridesStopLeases(t *testing.T) {
	s := newServer(t, lends, nil)
	ask := func(id string) bool {
		t.Helper()
		out, err := s.api.Lease(t.Context(), &weirv1.LeaseRequest{Asked: wishes("/lends", 20, id)})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetAsked().GetFlags()[0]&1 != 0
	}
	if !ask("a") {
		t.Error("nothing is lent")
	}
	s.node.SetOverrides([]rules.Override{{Rule: "lends", User: "eve", Deny: true}})
	if ask("b") {
		t.Error("units are lent by an overridden rule")
	}
	out, err := s.api.Lease(t.Context(), &weirv1.LeaseRequest{Returned: wishes("/lends", 4, "a")})
	if err != nil || !slices.Equal(out.GetReturned(), []byte{1}) {
		t.Error("what was lent before does not come back", out, err)
	}
}

// A message has a bounded number of leases: with more it is not read.
func TestLeasesInAMessage(t *testing.T) {
	s := newServer(t, lends, nil)
	var ids []string
	for i := range transport.MaxLeases + 1 {
		ids = append(ids, fmt.Sprint(i))
	}
	for name, m := range map[string]*weirv1.LeaseRequest{
		"asked": {Asked: wishes("/lends", 1, ids...)}, "returned": {Returned: wishes("/lends", 1, ids...)},
	} {
		if _, err := s.api.Lease(t.Context(), m); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "at most 256") {
			t.Errorf("%s: %v", name, err)
		}
	}
	out, err := s.api.Lease(t.Context(), &weirv1.LeaseRequest{Asked: wishes("/lends", 1, ids[1:]...)})
	if err != nil || len(out.GetAsked().GetFlags()) != transport.MaxLeases {
		t.Error(err)
	}
}

// borrower is a caller that may do some things.
type borrower struct {
	spender
	may map[transport.Action]limiter.Scope
}

func (b *borrower) Identify(transport.Credentials) (transport.Caller, error) { return b, nil }
func (b *borrower) May(a transport.Action) (limiter.Scope, error) {
	if scope, ok := b.may[a]; ok {
		return scope, nil
	}
	return nil, fmt.Errorf("%w: not this", limiter.ErrForbidden)
}

type onlyRule string

func (o onlyRule) Permits(rule string) bool { return rule == string(o) }

// A caller needs the permission to borrow, and that to check.
func TestWhoMayBorrow(t *testing.T) {
	for name, may := range map[string]struct {
		actions map[transport.Action]limiter.Scope
		want    codes.Code
	}{
		"both":   {map[transport.Action]limiter.Scope{transport.ActionCheck: nil, transport.ActionLease: nil}, codes.OK},
		"check":  {map[transport.Action]limiter.Scope{transport.ActionCheck: nil}, codes.PermissionDenied},
		"borrow": {map[transport.Action]limiter.Scope{transport.ActionLease: nil}, codes.PermissionDenied},
		"by others": {map[transport.Action]limiter.Scope{transport.ActionCheck: nil, transport.ActionLease: onlyRule("x")},
			codes.PermissionDenied},
	} {
		s := newServer(t, lends, func(o *transport.Options) { o.Access = &borrower{may: may.actions} })
		out, err := s.api.Lease(t.Context(), &weirv1.LeaseRequest{Asked: wishes("/lends", 20, "a")})
		got := status.Code(err)
		if e := out.GetAsked().GetError(); err == nil && e != nil {
			got = codes.Code(e.GetCode())
		} else if e := out.GetAsked().GetErrors(); err == nil && len(e) > 0 {
			got = codes.Code(e[0].GetCode())
		}
		if got != may.want {
			t.Errorf("%s: %v, want %v (%v)", name, got, may.want, out)
		}
	}
}
