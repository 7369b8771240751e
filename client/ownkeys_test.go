package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// A client's limits keep their keys on the way, alone and in batches.
func TestKeysOfLimits(t *testing.T) {
	n := newNode(t, "version: 1\nrules: [{name: all, match: {path: ^/never}, key: [rule], limits: [30/hour]}]\n")
	c := open(t, client.Config{Addrs: []string{serve(t, n, "", nil).addr}})
	l := limitertest.Limit(t, limiter.Spec{Limit: 10, Window: time.Hour})
	r := limiter.Request{User: "ada", Rule: "all", Limits: []*limiter.Limit{l}, LimitKeys: [][]string{{"user"}}}
	for i := range 3 {
		r.Path = string(rune('a' + i)) // another path has no other counter
		d, err := c.Check(t.Context(), r)
		if err != nil || d.Len() != 2 || d.Limit(0).Remaining != uint64(29-2*i) || d.Limit(1).Remaining != uint64(9-2*i) {
			t.Errorf("check %d: %+v, %v", i, d, err)
		}
		ds, err := c.CheckBatch(t.Context(), []limiter.Request{r, {Path: "/x"}})
		if err != nil || ds[0].Len() != 2 || ds[0].Limit(1).Remaining != uint64(8-2*i) {
			t.Errorf("batch %d: %+v, %v", i, ds, err)
		}
	}
	for _, keys := range [][][]string{{{"user"}, {"ip"}}, {make([]string, 9)}, {{"\xff"}}} {
		r.LimitKeys = keys
		if _, err := c.Check(t.Context(), r); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%q: %v", keys, err)
		}
	}
}
