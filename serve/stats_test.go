package serve

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
	node, err := weir.Open(t.Context(), weir.Config{Cluster: &cluster.Config{Name: "node-1", PeerAddr: "127.0.0.1:0",
		GossipAddr: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for name, want := range map[string]string{
		"node-3": `invalid: there is no dead member "node-3", and only a dead member can be forgotten: list the members ` +
			`with weir members`,
		"node-1": `invalid: member "node-1" is alive: end it with SIGTERM, and it leaves`,
	} {
		if err := (directory{node}).Forget(name); !errors.Is(err, limiter.ErrInvalid) || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
