package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// A member that refuses resets of other members refuses them for keys that it holds, and
// the caller at another member learns which keys. It resets what it holds for its own
// callers.
func TestMembersThatRefuseResets(t *testing.T) {
	if raceDetector {
		t.Skip("two nodes and two cores: long under the race detector; make wire runs it")
	}
	config := func(name string, refuses bool, join ...string) weir.Config {
		c := memberConfig(name, hundred, join...)
		part(c).Deadline, part(c).RefuseResets = soon/4, refuses
		return c
	}
	strict := open(t, config("node-1", true))
	nodes := []*weir.Node{strict, open(t, config("node-2", false, gossipAddr(strict)))}
	together(t, nodes)
	refused := make(map[bool]int) // by whether the strict node holds the key
	for u := range 40 {
		r := weir.Request{Path: "/towns", User: fmt.Sprint("user", u)}
		var d weir.Decision
		if err := nodes[1].CheckInto(t.Context(), &r, &d); err != nil {
			t.Fatal(err)
		}
		held := nodes[1].Answer(&r, &d).Limits[0].Owner == "node-1"
		n, err := nodes[1].Reset(t.Context(), r)
		switch {
		case !held && (err != nil || n != 1):
			t.Errorf("%s, which the node holds itself: %d, %v", r.User, n, err)
		case held && (n != 0 || !errors.Is(err, weir.ErrForbidden) || !strings.Contains(err.Error(), r.User)):
			t.Errorf("%s, which the strict node holds: %d, %v", r.User, n, err)
		}
		refused[held]++
		if err := nodes[1].CheckInto(t.Context(), &r, &d); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]uint64{true: 98, false: 99}[held]; d.Limit(0).Remaining != want {
			t.Errorf("%s has %d left, want %d", r.User, d.Limit(0).Remaining, want)
		}
		if n, err := strict.Reset(t.Context(), r); n != 1 || err != nil {
			t.Errorf("%s, by way of the strict node: %d, %v", r.User, n, err)
		}
	}
	if refused[true] == 0 || refused[false] == 0 {
		t.Errorf("the keys are held by one node only: %v", refused)
	}
}
