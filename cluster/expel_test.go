package cluster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// A live member that is expelled finds that out: it is not ready and says why, sees a minority, and decides by
// policy. When it is let in again it is a member as before.
func TestExpelledMemberKnowsIt(t *testing.T) {
	nodes := three(t, "rules: [{name: login, on_unreachable: closed, key: [user], limits: [100/hour]}]")
	out := nodes[2]
	if err := nodes[0].Cluster().Expel("node-3"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is not ready, and says why", func() bool {
		err := out.Ready()
		return err != nil && strings.HasPrefix(err.Error(), "expelled: member ") && errors.Is(err, weir.ErrJoining)
	})
	until(t, "it is in a minority", func() bool { s, _ := out.Cluster().Stats(); return s.Minority })
	s, _ := out.Cluster().Stats()
	if s.Members["expelled"] != 1 || s.Members["active"] != 2 || s.Members["dead"] != 0 || s.Counted != 3 {
		t.Errorf("it counts %v of %d", s.Members, s.Counted)
	}
	if sees(out, "node-3") != "expelled" || sees(out, "node-1") != "active" {
		t.Errorf("it lists %+v", out.Cluster().Members())
	}
	if !slices.ContainsFunc(out.Warnings(), func(w string) bool { return strings.HasPrefix(w, "expelled: ") }) {
		t.Errorf("its warnings are %q", out.Warnings())
	}
	until(t, "policies decide", func() bool {
		d := check(t, out, weir.Request{User: "ada"})
		return d.Source == limiter.SourceFallbackClosed
	})
	if err := nodes[1].Cluster().Readmit("node-3"); err != nil {
		t.Fatal(err)
	}
	until(t, "all three are together again", func() bool {
		return !slices.ContainsFunc(nodes, func(n *weir.Node) bool {
			s, _ := n.Cluster().Stats()
			return n.Ready() != nil || s.Minority || s.Members["active"] != 3 || s.Members["expelled"] != 0 || s.Unsettled != 0
		})
	})
}
