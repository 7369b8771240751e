package members_test

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A node that sees no more than half of the others when it leaves counts on. One that sees more, that
// is alone, or that never was active does not.
func TestWhoLeavesWithoutAMajorityCountsOn(t *testing.T) {
	all := []peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active), other("d", 40, peer.Active),
		other("e", 50, peer.Active)}
	for name, test := range map[string]struct {
		others, lost int
		joining      bool
		want         bool
	}{
		"alone":            {0, 0, false, false},
		"sees all":         {2, 0, false, false},
		"sees most":        {3, 1, false, false},
		"sees half":        {2, 1, false, true},
		"sees two of four": {4, 2, false, true},
		"sees none":        {1, 1, false, true},
		"was never active": {2, 1, true, false},
	} {
		seeds := 0
		if test.joining {
			seeds = 3
		}
		j := newJoiner(seeds)
		if !test.joining {
			j.pass(limiter.Second)
		}
		j.Update(all[:test.others])
		j.pass(ms)
		now := append([]peer.Member(nil), all[:test.others]...)
		for i := range test.lost {
			now[i].State = peer.Dead
		}
		j.Update(now)
		j.pass(2 * limiter.Second)
		if v := j.core.View(); v.Known != 1+test.others || len(v.Members) != 1+test.others-test.lost {
			t.Fatalf("%s: premise: it sees %d of %d", name, len(v.Members), v.Known)
		}
		if err := j.Leave(func(bool) {}); err != nil {
			t.Fatal(err)
		}
		j.pass(ms)
		if got := j.Membership.CountsOn(); got != test.want {
			t.Errorf("%s: counts on %t, want %t", name, got, test.want)
		}
	}
}
