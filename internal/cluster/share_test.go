package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// A cost above the share in force, but not above the limit, is denied for a while and not
// for ever: the majority may come back. The answer has a wait, as that of a closed rule.
func TestACostAboveTheShareIsNotDeniedForEver(t *testing.T) {
	window := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 60, Window: time.Minute}
	day := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 25, Window: 24 * time.Hour}
	for name, one := range map[string]struct {
		specs  []limiter.Spec
		policy bool // no owner answers
		cost   uint64
		never  bool
	}{
		"above the share":                 {specs: []limiter.Spec{window}, cost: 30},
		"above the limit":                 {specs: []limiter.Spec{window}, cost: 61, never: true},
		"above one limit of two":          {specs: []limiter.Spec{window, day}, cost: 30, never: true},
		"above both shares":               {specs: []limiter.Spec{window, day}, cost: 25},
		"above the share, without owner":  {specs: []limiter.Spec{window}, policy: true, cost: 30},
		"above the limit, without owner":  {specs: []limiter.Spec{window}, policy: true, cost: 61, never: true},
		"above one of two, without owner": {specs: []limiter.Spec{window, day}, policy: true, cost: 30, never: true},
	} {
		c, _, h, charge := limited(t, one.specs...)
		charge.Key(0).Cost = one.cost
		apart(c, h, 1, 3)
		answers := []*limiter.Decision{new(limiter.Decision)}
		if one.policy {
			shared := charge.Clone()
			rule := *charge.Key(0).Rule
			rule.Limits = nil
			for _, l := range charge.Key(0).Rule.Limits {
				rule.Limits = append(rule.Limits, arith.Scaled(l, 1, 3))
			}
			shared.Key(0).Rule = &rule
			if err := table.New(table.Config{MaxKeys: 10}).Decide(h.Now(), shared, answers[0]); err != nil {
				t.Fatal(err)
			}
			route.Relabel(charge, answers[0])
		} else {
			if err := c.Check(t.Context(), charge, answers[0]); err != nil {
				t.Fatal(err)
			}
			c.Explain(charge, func(all []route.Explained) {
				answers = append(answers, &all[0].Answer)
				if never := strings.HasSuffix(all[0].Limits[0].Arithmetic, ": never"); never != all[0].Answer.Limit(0).Never {
					t.Errorf("%s: it is explained by %s", name, all[0].Limits[0].Arithmetic)
				}
			})
		}
		for _, d := range answers {
			if d.Allowed || d.Never != one.never || (d.RetryAfter == time.Second) == one.never ||
				arith.Fields(&d.Receipt).Charged != 0 ||
				d.BlockedBy().Never != one.never || d.Limit(0).InForce != 20 {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
}

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
// Answers and reasons name the rules' own limits, the share in force beside them, and
// that a share decided. In a majority it admits the whole limit again, a second later.
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
		admitted, source, inForce := 0, limiter.SourceOwner, uint64(0)
		drawn := func(most int) {
			t.Helper()
			for d.Allowed = true; d.Allowed && admitted < most; {
				if err := c.Check(t.Context(), charge, d); err != nil || d.Source != source {
					t.Fatalf("%s: %v, %+v, want the source %s", name, err, d, source)
				}
				if l := d.Limit(0); l.InForce != inForce {
					t.Fatalf("%s: %d is in force, want %d", name, l.InForce, inForce)
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
		if 2*one.live <= one.members && one.policy == local {
			source, inForce = limiter.SourceShare, max(1, uint64(int(one.limit.Limit)*one.live/one.members))
		}
		if drawn(1000); admitted != one.want {
			t.Errorf("%s: %d units admitted, want %d", name, admitted, one.want)
		}
		c.Explain(charge, func(all []route.Explained) {
			if x := &all[0].Answer; x.Allowed || x.Limit(0).Limit != k.Rule.Limits[0] {
				t.Errorf("%s: a check that is denied is explained as one allowed %t by a limit of %d", name, x.Allowed,
					x.Limit(0).Limit.Limit())
			}
			text, shared := all[0].Limits[0].Limit, all[0].Answer.Source == limiter.SourceShare
			if shared != (inForce > 0) || all[0].Answer.Limit(0).InForce != inForce ||
				strings.Contains(text, "; in force: ") != shared || !strings.HasPrefix(text, k.Rule.Limits[0].String()) {
				t.Errorf("%s: it is explained by %s: %s", name, all[0].Answer.Source, text)
			}
		})
		// no member is lost here: a short minority would be that of a cluster that forms
		if one.live == 3 && one.members == 7 {
			h.pass(rejoinFor)
		}
		apart(c, h, 3, 3)
		if most := admitted; inForce > 0 {
			h.pass(rejoinFor - replica.TickEvery)
			if drawn(1000); admitted != most {
				t.Errorf("%s: %d units admitted before others have said what they have, want %d", name, admitted, most)
			}
			h.pass(fewFor) // the members of this test confirm nothing
		}
		source, inForce = limiter.SourceOwner, 0
		whole := int(one.limit.Limit)
		if one.limit.Burst > 0 {
			whole = int(one.limit.Burst)
		}
		if drawn(1000); admitted != whole {
			t.Errorf("%s: %d units admitted when all are back, want %d", name, admitted, whole)
		}
	}
}

// A member that sees new members before it can ask them is in a minority for a moment. Afterwards it applies the whole
// limit, since no other member has counted for it.
func TestNewcomersLeaveNoShare(t *testing.T) {
	for name, row := range map[string]struct {
		lost, long bool
		want       limiter.Source
	}{
		"for a moment":      {false, false, limiter.SourceOwner},
		"for a second":      {false, true, limiter.SourceShare},
		"and then one less": {true, false, limiter.SourceShare},
	} {
		c, _, h, charge := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 60, Window: time.Hour})
		charge.Key(0).Rule.OnUnreachable, charge.Key(0).Cost = limiter.UnreachableLocal, 1
		apart(c, h, 3, 7)
		if row.lost {
			apart(c, h, 2, 7)
		}
		if row.long {
			h.pass(rejoinFor)
		}
		apart(c, h, 3, 3)
		d := new(limiter.Decision)
		if err := c.Check(t.Context(), charge, d); err != nil || !d.Allowed || d.Source != row.want {
			t.Errorf("%s: %v, %+v, want the source %s", name, err, d, row.want)
		}
	}
}

// Who has merged what another owner had, or has become owner, when its minority is over applies the whole limit.
func TestAShareEndsWithAMerge(t *testing.T) {
	for name, does := range map[string]func(c *Core, p *partition){
		"merged": func(c *Core, p *partition) {
			c.Deliver(&peer.Frame{From: third, To: self, Batches: []peer.Batch{{
				Partition: p.id, Kind: peer.Push, Epoch: peer.Epoch{Counter: 1, Instance: third}, First: true, Last: true,
			}}})
		},
		"owns anew": func(c *Core, p *partition) {
			putAs(c, p, peer.Copy)
			own(c, p)
		},
		"neither": func(*Core, *partition) {},
	} {
		c, p, h, charge := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour})
		charge.Key(0).Rule.OnUnreachable = limiter.UnreachableLocal
		apart(c, h, 1, 3)
		apart(c, h, 3, 3)
		h.pass(2 * limiter.Millisecond)
		does(c, p)
		d := new(limiter.Decision)
		if err := c.Check(t.Context(), charge, d); err != nil || !d.Allowed {
			t.Fatalf("%s: %v, %+v", name, err, d)
		}
		if shared := d.Source == limiter.SourceShare; shared != (name == "neither") {
			t.Errorf("%s: a share decides: %t", name, shared)
		}
		c.Explain(charge, func(all []route.Explained) {
			text := all[0].Limits[0].Limit
			if says := strings.Contains(text, "as a saw 1 of 3 members a moment ago"); says != (name == "neither") {
				t.Errorf("%s: it is explained by %s", name, text)
			}
		})
	}
}
