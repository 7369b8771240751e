package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A minority is logged from the second report that finds it, once a minute, and its end
// if it was logged.
func TestMinorityIsLoggedOnceAMinute(t *testing.T) {
	var n minorityNews
	var log []string
	for second := range limiter.Tick(250) {
		// One report that finds it; a minute and a half; ten seconds soon after.
		in := second == 5 || second >= 20 && second < 110 || second >= 120 && second < 130
		switch say, over := n.step(second*limiter.Second, in); {
		case say:
			log = append(log, fmt.Sprint(int(second)))
		case over:
			log = append(log, fmt.Sprint("over ", int(second)))
		}
	}
	if want := []string{"21", "81", "over 110"}; !slices.Equal(log, want) {
		t.Errorf("logged at %v, want %v", log, want)
	}
}

type noOwners struct{}

func (noOwners) Owner(int) int     { return -1 }
func (noOwners) Successor(int) int { return -1 }

// A node is in a minority once it is a member: what it sees before says nothing.
func TestMinorityOfMembersOnly(t *testing.T) {
	for state, want := range map[peer.State]bool{peer.Joining: false, peer.Active: true, peer.Leaving: true} {
		self := []peer.Member{{Name: "a", Instance: 1, State: state}}
		if got := minority(view.New(1, self, noOwners{}, 2, 2)); got != want {
			t.Errorf("%v: %t", state, got)
		}
	}
	if minority(view.None(1)) {
		t.Error("a node without a view is in a minority")
	}
}
