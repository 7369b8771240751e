package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A sealed receipt takes back its charge once, whichever members are asked and how often.
// Without a secret, a member opens only its own receipts.
func TestReceiptsAcrossMembers(t *testing.T) {
	for _, secret := range []string{"sixteen bytes and more of a secret", ""} {
		nodes := threeWith(t, hundred, nil, func(c *weir.Config) { c.Secret = []byte(secret) })
		owners := map[string]bool{}
		for u := range 30 {
			r := weir.Request{Path: "/towns", User: fmt.Sprint("user", u), Cost: weir.Units(10)}
			asked := nodes[u%3]
			check(t, nodes[(u+1)%3], r)
			d := check(t, asked, r)
			rc := asked.SealReceipt(&r, d)
			if owners[d.Limit(0).Owner] = true; rc.Sealed() == "" {
				t.Fatalf("%+v", d)
			}
			for i, n := range nodes {
				err := n.Refund(t.Context(), r, rc)
				if mine := n == asked || secret != ""; mine != (err == nil) || !mine && !errors.Is(err, weir.ErrInvalid) {
					t.Errorf("user %d at member %d: %v", u, i, err)
				}
			}
			for _, n := range nodes {
				d, err := n.Peek(t.Context(), r)
				if err != nil || d.Limit(0).Remaining != 90 {
					t.Errorf("user %d: %+v, %v", u, d.Limit(0), err)
				}
			}
		}
		if len(owners) != 3 {
			t.Errorf("owners %v", owners)
		}
	}
}

// backend is one that must not be asked to refund anything.
type backend struct {
	weir.Backend
	t *testing.T
}

func (b backend) Refund(_ context.Context, _ arith.Instant, _ *arith.Charge, r limiter.Receipt,
	_ arith.KeyNamer) error {
	b.t.Errorf("refunds %+v", r)
	return nil
}

func (backend) Extras() (none weir.BackendExtras) { return none }

func (backend) Close() error { return nil }

// A receipt of a member names an ownership. A node with a backend and the same secret, which
// would read another thing from it, does not open it.
func TestReceiptsOfAMemberAreNoneOfABackend(t *testing.T) {
	c := memberConfig("node-1", hundred)
	c.Secret = []byte("sixteen bytes and more of a secret")
	member := open(t, c)
	together(t, []*weir.Node{member})
	r := weir.Request{Path: "/towns", User: "ada", Cost: weir.Units(10)}
	rc := member.SealReceipt(&r, check(t, member, r))
	if rc.Sealed() == "" {
		t.Fatal("no receipt")
	}
	other := open(t, weir.Config{Rules: []byte(hundred), Secret: c.Secret, ClusterName: c.ClusterName,
		Backend: backend{t: t}})
	if err := other.Refund(t.Context(), r, rc); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
	if err := member.Refund(t.Context(), r, rc); err != nil {
		t.Error(err)
	}
}

// A credit reaches the counter wherever it is, whoever owned it before, and its copies.
func TestCreditAcrossMembers(t *testing.T) {
	nodes := threeWith(t,
		"version: 1\nrules: [{name: all, key: [user], limits: [{limit: 10, window: 1h, algorithm: fixed_window, "+
			"count_rejected: all}]}]\n", nil, func(*weir.Config) {})
	for user := range 20 {
		for i, n := range nodes {
			r := weir.Request{User: fmt.Sprint("user-", user, "-", i), Cost: limiter.Units(4)}
			check(t, nodes[(i+1)%3], r)
			r.Cost = limiter.Units(3)
			if err := n.Refund(t.Context(), r, limiter.Credit()); err != nil {
				t.Fatal(err)
			}
			r.Cost = limiter.Units(0)
			if d := check(t, nodes[(i+2)%3], r); d.Limit(0).Remaining != 9 {
				t.Errorf("%s: %d left", r.User, d.Limit(0).Remaining)
			}
		}
	}
}

// All members reload a limit and reload it back between a charge and its refund. The receipt
// takes nothing back at whichever owner, since the charge may have been forgotten meanwhile.
// One from after that is good.
func TestReceiptsOfLimitsThatChangeBack(t *testing.T) {
	file := func(window string) []byte {
		return fmt.Appendf(nil,
			"version: 1\nrules: [{name: r, key: [user], limits: [{name: x, limit: 100, window: %s, algorithm: "+
				"fixed_window}]}]\n", window)
	}
	nodes := threeWith(t, string(file("9600h")), nil, func(c *weir.Config) {
		c.Secret = []byte("sixteen bytes and more of a secret")
	})
	type charged struct {
		weir.Request
		weir.Receipt
	}
	var old []charged
	owners := map[string]bool{}
	spend := func(n *weir.Node, u int) charged {
		t.Helper()
		r := weir.Request{User: fmt.Sprint("user", u), Cost: weir.Units(10)}
		d := check(t, n, r)
		owners[d.Limit(0).Owner] = true
		return charged{r, n.SealReceipt(&r, d)}
	}
	left := func(u int) uint64 {
		t.Helper()
		d, err := nodes[u%3].Peek(t.Context(), weir.Request{User: fmt.Sprint("user", u)})
		if err != nil {
			t.Fatal(err)
		}
		return d.Limit(0).Remaining
	}
	const users = 12
	for u := range users {
		old = append(old, spend(nodes[u%3], u))
	}
	for _, window := range []string{"4800h", "9600h"} {
		for _, n := range nodes {
			if err := n.SetRules(file(window)); err != nil {
				t.Fatal(err)
			}
		}
		for u := range users {
			spend(nodes[(u+1)%3], u)
		}
	}
	if len(owners) != 3 {
		t.Errorf("owners %v", owners)
	}
	for u := range users {
		for i, n := range nodes {
			if err := n.Refund(t.Context(), old[u].Request, old[u].Receipt); err != nil || left(u) != 70 {
				t.Errorf("user %d: %d left after the refund at member %d, want 70; %v", u, left(u), i, err)
			}
		}
		renewed := spend(nodes[u%3], u)
		if err := nodes[(u+2)%3].Refund(t.Context(), renewed.Request, renewed.Receipt); err != nil || left(u) != 70 {
			t.Errorf("user %d: %d left after a refund of now, want 70; %v", u, left(u), err)
		}
	}
}

const severalOwners = `version: 1
quotas:
  - {name: units, key: [ip], limits: [{limit: 100, window: 1h, algorithm: fixed_window}], replication: strict}
rules:
  - {name: towns, replication: strict, key: [user], limits: [{limit: 50, window: 1h, algorithm: fixed_window}], quotas: [{name: units, cost: 20}]}
`

// remaining returns what remains of the rule's limit and of the quota's.
func remaining(t *testing.T, n *weir.Node, r weir.Request) [2]uint64 {
	t.Helper()
	d, err := n.Peek(t.Context(), r)
	if err != nil || d.Len() != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	return [2]uint64{d.Limit(0).Remaining, d.Limit(1).Remaining}
}

// requestOf returns a request whose user has one owner and whose address has another one.
func requestOf(t *testing.T, n *weir.Node, user, ip string) weir.Request {
	t.Helper()
	for i := range 1000 {
		r := weir.Request{User: fmt.Sprint("u", i), IP: fmt.Sprintf("192.0.2.%d", i%250)}
		d, err := n.Peek(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if d.Limit(0).Owner == user && d.Limit(1).Owner == ip {
			return r
		}
	}
	t.Fatalf("no key of %s beside one of %s", user, ip)
	return weir.Request{}
}

// A receipt of a rule and the quota on which it draws takes back what both owners charged,
// once, whichever member is asked.
func TestReceiptsOfSeveralOwners(t *testing.T) {
	nodes := threeWith(t, severalOwners, nil, func(c *weir.Config) {
		c.Secret = []byte("sixteen bytes and more of a secret")
	})
	r := requestOf(t, nodes[2], "node-1", "node-2")
	kept := check(t, nodes[0], r)
	d := check(t, nodes[2], r)
	rc := nodes[2].SealReceipt(&r, d)
	if rc.Sealed() == "" || arith.Fields(&d.Receipt).Parts == nil || len(*arith.Fields(&d.Receipt).Parts) != 2 {
		t.Fatalf("%+v, %+v", d.Receipt, rc)
	}
	if got := remaining(t, nodes[1], r); got != [2]uint64{48, 60} {
		t.Fatalf("before: %v", got)
	}
	for _, n := range nodes {
		if err := n.Refund(t.Context(), r, rc); err != nil {
			t.Error(err)
		}
		if got := remaining(t, n, r); got != [2]uint64{49, 80} {
			t.Errorf("after: %v", got)
		}
	}
	other := r
	other.IP = "198.51.100.1"
	if err := nodes[0].Refund(t.Context(), other, rc); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("of another address: %v", err)
	}
	// A receipt that is not sealed works too, and a denied check has none.
	if err := nodes[1].Refund(t.Context(), r, kept.Receipt); err != nil {
		t.Error(err)
	}
	if got := remaining(t, nodes[0], r); got != [2]uint64{50, 100} {
		t.Errorf("after all: %v", got)
	}
	expensive := r
	expensive.Cost = weir.Units(60)
	if d := check(t, nodes[1], expensive); d.Allowed || d.Receipt != (weir.Receipt{}) {
		t.Errorf("a denied check: %+v", d.Receipt)
	}
	for range 5 {
		check(t, nodes[0], r)
	}
	if d := check(t, nodes[1], r); d.Allowed || d.Never || d.Receipt != (weir.Receipt{}) {
		t.Errorf("a check that the quota denies has a receipt of the rule's part, which was taken back: %+v", d.Receipt)
	}
}

// One of two owners crashes between the charge and the refund. What the other one charged
// is taken back; the charge of the lost ownership stays, and nothing else changes.
func TestReceiptsOfSeveralOwnersAfterACrash(t *testing.T) {
	nodes := threeWith(t, severalOwners, nil, func(c *weir.Config) {
		c.Secret = []byte("sixteen bytes and more of a secret")
	})
	r := requestOf(t, nodes[2], "node-1", "node-2")
	d := check(t, nodes[2], r)
	rc := nodes[2].SealReceipt(&r, d)
	if rc.Sealed() == "" {
		t.Fatalf("%+v", d.Receipt)
	}
	if err := nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "another owner", func() bool {
		d, err := nodes[2].Peek(t.Context(), r)
		return err == nil && d.Limit(0).Owner != "node-1" && d.Limit(0).Owner != "" && d.Source == limiter.SourceOwner
	})
	for range 2 {
		if err := nodes[2].Refund(t.Context(), r, rc); err != nil {
			t.Fatal(err)
		}
		if got := remaining(t, nodes[1], r); got != [2]uint64{49, 100} {
			t.Errorf("after the crash: %v", got)
		}
	}
}

// A credit reaches the counters of a rule and of its quota, whichever members own them.
func TestCreditOfSeveralOwners(t *testing.T) {
	nodes := threeWith(t, severalOwners, nil, func(*weir.Config) {})
	for _, owners := range [][2]string{{"node-1", "node-1"}, {"node-1", "node-2"}, {"node-2", "node-3"}} {
		r := requestOf(t, nodes[0], owners[0], owners[1])
		r.Cost = limiter.Units(8)
		check(t, nodes[1], r)
		before := remaining(t, nodes[2], r)
		r.Cost = limiter.Units(3)
		if err := nodes[2].Refund(t.Context(), r, limiter.Credit()); err != nil {
			t.Fatal(err)
		}
		if after := remaining(t, nodes[0], r); after != [2]uint64{before[0] + 3, before[1] + 3} {
			t.Errorf("%s and %s: %v left, and %v after a credit of 3", owners[0], owners[1], before, after)
		}
	}
}
