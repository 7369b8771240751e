package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// A member remembers no ids yet: a request that insists on its id is refused, and counts
// nothing; one whose id is optional is decided without it.
func TestIDsAreRefused(t *testing.T) {
	nodes := three(t, "version: 1\nrules: [{name: all, key: [user], limits: [40/day]}]\n")
	r := weir.Request{User: "ada", ID: "7"}
	for _, n := range nodes {
		if _, err := n.Check(t.Context(), r); !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), "ids are not supported in a cluster yet") {
			t.Errorf("%v", err)
		}
		if _, err := n.CheckBatch(t.Context(), []weir.Request{r}); err == nil || !strings.Contains(err.Error(), "ids are not supported in a cluster yet") {
			t.Errorf("%v", err)
		}
	}
	r.IDOptional = true
	for i, n := range nodes {
		if d := check(t, n, r); d.Repeated || d.Limit(0).Remaining != uint32(39-i) {
			t.Errorf("%+v", d)
		}
	}
}
