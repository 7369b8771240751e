package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// TestPeeksOfABatchAreAskedTogether: the peeks of a batch whose owner does not answer wait
// for it together, each until the same deadline, and not one after the other. They charge
// nothing.
func TestPeeksOfABatchAreAskedTogether(t *testing.T) {
	node, r := cutOff(t, time.Minute)
	const n = 20
	rs, ds := make([]weir.Request, n), make([]weir.Decision, n)
	for i := range rs {
		rs[i] = *r
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- node.PeekBatchInto(ctx, rs, ds, nil) }()
	until(t, fmt.Sprintf("%d peeks wait", n), func() bool {
		s, _ := node.Cluster().Stats()
		return s.Waiting == n
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("the peeks of a key that no member can decide are answered before their deadline")
	}
}

// TestPeeksOfABatchInACluster: of a batch with checks and peeks a member charges the checks.
func TestPeeksOfABatchInACluster(t *testing.T) {
	node := open(t, memberConfig("node-1", closedHundred))
	together(t, []*weir.Node{node})
	rs, ds := make([]weir.Request, 4), make([]weir.Decision, 4)
	for i := range rs {
		rs[i] = weir.Request{Path: "/towns", Cost: weir.Units(10)}
	}
	for _, row := range []struct {
		peeks []bool
		left  [4]uint64
	}{
		{nil, [4]uint64{100, 100, 100, 100}},
		{[]bool{true, false, true, false}, [4]uint64{100, 90, 90, 80}},
	} {
		if err := node.PeekBatchInto(t.Context(), rs, ds, row.peeks); err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			if left := ds[i].Limit(0).Remaining; left != row.left[i] {
				t.Errorf("with peeks %v request %d finds %d left, want %d", row.peeks, i, left, row.left[i])
			}
		}
	}
}
