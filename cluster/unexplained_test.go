package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/peer"
)

// The error for a key without explanation names its owner and says what to do.
func TestWhyNobodyExplains(t *testing.T) {
	old := peer.Member{Name: "node-2", Instance: 2, State: peer.Active, Version: "0.1"}
	for name, c := range map[string]struct {
		owner, by peer.Member
		wraps     error
		want      string
	}{
		"an old member": {old, old, weir.ErrUnexplained,
			`member "node-2" (version "0.1") answered for "/towns:ada" without its reasons`},
		"nobody owns": {peer.Member{}, peer.Member{}, weir.ErrUnanswered, `no member is known that owns "/towns:ada"`},
		"nobody there": {peer.Member{Name: "node-3", Instance: 3, State: peer.Dead}, peer.Member{}, weir.ErrUnanswered,
			`member "node-3", which is dead, owns "/towns:ada", and neither it nor its heir has answered within 300ms`},
	} {
		if err := unexplained(c.owner, c.by, "/towns:ada", DefaultDeadline); !errors.Is(err, c.wraps) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
