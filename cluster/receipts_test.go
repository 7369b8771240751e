package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
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
			if owners[d.Limit(0).Owner] = true; rc.Sealed == "" {
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

func (b backend) Refund(_ context.Context, _ limiter.Instant, _ *limiter.Charge, r limiter.Receipt, _ limiter.KeyNamer) error {
	b.t.Errorf("refunds %+v", r)
	return nil
}

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
	if rc.Sealed == "" {
		t.Fatal("no receipt")
	}
	other := open(t, weir.Config{Rules: []byte(hundred), Secret: c.Secret, ClusterName: c.ClusterName, Backend: backend{t: t}})
	if err := other.Refund(t.Context(), r, rc); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
	if err := member.Refund(t.Context(), r, rc); err != nil {
		t.Error(err)
	}
}

// A credit reaches the counter wherever it is, whoever owned it before, and its copies.
func TestCreditAcrossMembers(t *testing.T) {
	nodes := threeWith(t, "version: 1\nrules: [{name: all, key: [user], limits: [{limit: 10, window: 1h, algorithm: fixed_window, count_rejected: all}]}]\n", nil, func(*weir.Config) {})
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
