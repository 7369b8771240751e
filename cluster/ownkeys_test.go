package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// Members agree on the counters of limits that come with a request and name their keys,
// also where the keys, and those of the rule that the request names, have several owners.
func TestKeysOfOwnLimitsAcrossMembers(t *testing.T) {
	nodes := three(t, "version: 1\nrules: [{name: all, match: {path: ^/never}, key: [group], limits: [40/day]}]\n")
	var limits []*weir.Limit
	for _, s := range []weir.Spec{{Name: "user", Limit: 20, Window: 24 * time.Hour},
		{Name: "ip", Limit: 30, Window: 24 * time.Hour}} {
		l := limitertest.Limit(t, s)
		limits = append(limits, l)
	}
	several := 0
	for u := range 20 {
		r := weir.Request{
			User: fmt.Sprint("user", u), IP: fmt.Sprint("192.0.2.", u), Group: fmt.Sprint("group", u), Rule: "all",
			Limits: limits, LimitKeys: [][]string{{"user"}, {"ip"}},
		}
		for i := range 6 {
			d := check(t, nodes[i%3], r)
			for j, most := range []int{40, 20, 30} {
				if d.Len() != 3 || d.Limit(j).Remaining != uint64(most-1-i) {
					t.Fatalf("user %d, check %d: limit %d of %d: %+v (%v)", u, i, j, d.Len(), d.Limit(j), d.Source)
				}
			}
			if i == 0 && (d.Limit(0).Owner != d.Limit(1).Owner || d.Limit(1).Owner != d.Limit(2).Owner) {
				several++
			}
		}
	}
	if several == 0 {
		t.Error("no check had several owners")
	}
}
