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
