package cluster_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
)

// A check with an id counts once, whichever members are asked, alone or in a batch, and also
// after a member has left.
func TestIDsAcrossMembers(t *testing.T) {
	nodes := three(t, "version: 1\nrules: [{name: all, key: [user], limits: [40/day]}]\n")
	request := func(u int) weir.Request { return weir.Request{User: fmt.Sprint("user", u), ID: "7"} }
	once := func(n *weir.Node, u int, repeated bool) {
		t.Helper()
		d := check(t, n, request(u))
		ds, err := n.CheckBatch(t.Context(), []weir.Request{request(u)})
		if err != nil {
			t.Fatal(err)
		}
		if d.Repeated != repeated || d.Limit(0).Remaining != 39 || !ds[0].Repeated || ds[0].Limit(0).Remaining != 39 {
			t.Errorf("user %d: %+v, then %+v", u, d, ds[0])
		}
	}
	for u := range 12 {
		for i, n := range nodes {
			once(n, u, i > 0)
		}
	}
	if err := nodes[2].Cluster().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	for u := range 12 {
		for _, n := range nodes[:2] {
			once(n, u, true)
		}
	}
}

// A check with an id that is known is repeated also if a rule costs it nothing, or is in shadow and never admits
// it, whoever owns that key and whatever the others have used of it since.
func TestRepetitionBesideKeysWithoutIDs(t *testing.T) {
	nodes := three(t, `version: 1
rules:
  - {name: writes, key: [ip], continue: true, limits: [1/day], cost: {default: 1, GET: 0}}
  - {name: trial, key: [group], continue: true, shadow: true, limits: [1/day], cost: 2}
  - {name: all, key: [user], limits: [5/day]}
`)
	for u := range 12 {
		r := weir.Request{User: fmt.Sprint("user", u), IP: fmt.Sprintf("192.0.2.%d", u), Group: fmt.Sprint(u), Method: "GET",
			ID: "7"}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed || d.Repeated {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		for used := range 2 {
			for _, n := range nodes {
				d, err := n.Check(t.Context(), r)
				if err != nil || !d.Allowed || !d.Repeated || d.Limit(2).Remaining != 4 {
					t.Errorf("user %d, %d used: %+v, %v", u, used, d, err)
				}
			}
			other := weir.Request{User: fmt.Sprint("other", u), IP: r.IP, Method: "POST"}
			if d, err := nodes[1].Check(t.Context(), other); err != nil || d.Allowed != (used == 0) {
				t.Errorf("user %d: %+v, %v", u, d, err)
			}
		}
	}
}

// An id that is known for one key gives no other key for nothing, and forbids none: a check whose cost is above what
// the limit of the known key ever admits is counted, whoever owns the keys.
func TestAnIDOfOneKeyAndACostAboveItsLimit(t *testing.T) {
	nodes := three(t, `version: 1
rules:
  - {name: address, key: [ip], continue: true, limits: [5/day]}
  - {name: export, match: {path: ^/export}, key: [user], limits: [100/day]}
`)
	for u := range 12 {
		r := weir.Request{Path: "/", User: fmt.Sprint("user", u), IP: fmt.Sprintf("192.0.2.%d", u), ID: "7"}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		r.Path, r.Cost = "/export", weir.Units(10)
		for _, n := range nodes {
			d, err := n.Check(t.Context(), r)
			if err != nil || !d.Allowed || d.Never || d.Limit(1).Remaining != 90 {
				t.Errorf("user %d: %+v, %v", u, d, err)
			}
		}
	}
}
