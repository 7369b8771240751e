package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// apart gives a core a view with or without another member, and so many members that
// count for available partitions. Two more have been dead so long that they count only
// for closed ones.
func apart(c *Core, h *byHand, live, members int) {
	all := []peer.Member{
		{Name: "a", Instance: self, State: peer.Active},
		{Name: "b", Instance: other, State: peer.Active},
		{Name: "c", Instance: third, State: peer.Active},
	}
	c.SetView(view.New(self, all[:live], h, members+2, members))
}

// With no more than half of the members in view, an owner under local admits its share
// of each limit, counting what it admitted before: other sides may have owners too.
// Answers and reasons show the rules' own numbers. In a majority it admits the whole
// limit again.
func TestAMinorityDecidesWithItsShare(t *testing.T) {
	const local = limiter.UnreachableLocal
	window := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour}
	small, bucket := window, limiter.Spec{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 60, Window: 24 * time.Hour}
	small.Limit = 2
	for name, one := range map[string]struct {
		limit         limiter.Spec
		policy        limiter.Unreachable
		before        int // units admitted before the split
		live, members int
		want          int // units admitted in all before a denial
	}{
		"all":                              {window, local, 0, 3, 3, 100},
		"a majority":                       {window, local, 0, 2, 3, 100},
		"one of three":                     {window, local, 0, 1, 3, 33},
		"half of two":                      {window, local, 0, 1, 2, 50},
		"half of four":                     {window, local, 0, 2, 4, 50},
		"two of five":                      {window, local, 0, 2, 5, 40},
		"three of seven":                   {window, local, 0, 3, 7, 42},
		"one of three, with some admitted": {window, local, 20, 1, 3, 33},
		"one of three, with more admitted": {window, local, 60, 1, 3, 60},
		"less than one unit":               {small, local, 0, 1, 5, 1},
		"one of three, of a bucket":        {bucket, local, 0, 1, 3, 20},
		"another policy":                   {window, limiter.UnreachableOpen, 0, 1, 3, 100},
	} {
		c, _, h, charge := limited(t, one.limit)
		k := charge.Key(0)
		k.Rule.OnUnreachable, k.Cost = one.policy, 1
		d := new(limiter.Decision)
		admitted := 0
		drawn := func(most int) {
			t.Helper()
			for d.Allowed = true; d.Allowed && admitted < most; {
				if err := c.Check(t.Context(), charge, d); err != nil || d.Source != limiter.SourceOwner {
					t.Fatalf("%s: %v, %+v, want an answer of the owner", name, err, d)
				}
				if l := d.Limit(0); l.Limit != k.Rule.Limits[0] || l.Rule != k.Rule {
					t.Fatalf("%s: it names a limit of %d, which is not the rule's", name, l.Limit.Limit())
				}
				if d.Allowed {
					admitted++
				}
			}
		}
		drawn(one.before)
		apart(c, h, one.live, one.members)
		if drawn(1000); admitted != one.want {
			t.Errorf("%s: %d units admitted, want %d", name, admitted, one.want)
		}
		c.Explain(charge, func(all []route.Explained) {
			if x := &all[0].Answer; x.Allowed || x.Limit(0).Limit != k.Rule.Limits[0] {
				t.Errorf("%s: a check that is denied is explained as one allowed %t by a limit of %d", name, x.Allowed, x.Limit(0).Limit.Limit())
			}
		})
		apart(c, h, 3, 3)
		whole := int(one.limit.Limit)
		if one.limit.Burst > 0 {
			whole = int(one.limit.Burst)
		}
		if drawn(1000); admitted != whole {
			t.Errorf("%s: %d units admitted when all are back, want %d", name, admitted, whole)
		}
	}
}
