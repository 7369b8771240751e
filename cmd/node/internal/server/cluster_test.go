package server

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/limiter"
)

// A member that cannot be forgotten yields a one-sentence error, which the caller must
// correct.
func TestForgetNobody(t *testing.T) {
	node, err := weir.Open(t.Context(), weir.Config{Cluster: &cluster.Config{Name: "node-1", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for name, want := range map[string]string{
		"node-3": `invalid: no member "node-3" is dead, and only a dead one can be forgotten: see who is, by weir members`,
		"node-1": `invalid: member "node-1" is alive: have it leave, by ending it with SIGTERM`,
	} {
		if err := (directory{node}).Forget(name); !errors.Is(err, limiter.ErrInvalid) || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
