package members_test

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// expecting starts a node that joins by several addresses and expects so many members.
func expecting(expect int) *joiner {
	return newJoinerWith(expect+1, []int{1, 2, 1030}, func(c *members.Config) { c.Expect = expect })
}

// A node that expects others becomes active with an active member, or with more than half
// of the expected ones, and never before.
func TestExpectedMembers(t *testing.T) {
	a, c, d := other("a", 10, peer.Joining), other("c", 30, peer.Joining), other("d", 40, peer.Joining)
	active, leaving := other("a", 10, peer.Active), other("a", 10, peer.Leaving)
	for name, row := range map[string]struct {
		expect int
		met    []peer.Member
		active bool
	}{
		"alone of one":             {1, nil, true},
		"alone of two":             {2, nil, false},
		"alone of three":           {3, nil, false},
		"both of two":              {2, []peer.Member{a}, true},
		"two of three":             {3, []peer.Member{a}, true},
		"two of four":              {4, []peer.Member{a}, false},
		"three of four":            {4, []peer.Member{a, c}, true},
		"two of five":              {5, []peer.Member{a}, false},
		"three of five":            {5, []peer.Member{a, c}, true},
		"more than expected":       {2, []peer.Member{a, c, d}, true},
		"an active one":            {256, []peer.Member{active}, true},
		"one that leaves":          {3, []peer.Member{leaving}, false},
		"one that leaves, and one": {3, []peer.Member{leaving, c}, true},
	} {
		t.Run(name, func(t *testing.T) {
			j := expecting(row.expect)
			for _, m := range row.met {
				j.core.Up(m.Instance)
			}
			j.Update(row.met)
			j.pass(limiter.Minute)
			if got := j.State() == peer.Active; got != row.active {
				t.Fatalf("it is %v", j.State())
			}
			if row.active {
				return
			}
			j.unready(t, members.ErrJoining, "waits until it has met an active member or ")
			if len(j.problems) != 1 || j.problems[0].Awaited != row.expect/2+1 {
				t.Errorf("it reported %+v", j.problems)
			}
		})
	}
}

// Members that only gossip reports do not count, whatever it says of their state.
func TestExpectedMembersAreMet(t *testing.T) {
	j := expecting(3)
	j.Membership.Update([]peer.Member{other("a", 10, peer.Joining), other("c", 30, peer.Joining),
		other("d", 40, peer.Joining)})
	j.pass(limiter.Minute)
	if j.State() != peer.Joining {
		t.Fatal("it began a cluster with members that no link has shown")
	}
	j.core.Up(10)
	j.meet(other("a", 10, peer.Joining))
	within(t, "active with two of three", j.active(), 0, 4*limiter.Second)
}

// A node that is connected to an active member, and whose gossip tells of joining ones only, could make
// nobody heir. So it stays joining until gossip tells of one, or for 3 s.
func TestWhoCouldHaveNoHeirWaits(t *testing.T) {
	joining := other("c", 30, peer.Joining)
	begin := func() *joiner {
		j := newJoinerOf(3, []int{})
		j.core.Up(10)
		j.core.Up(30)
		j.meet(other("a", 10, peer.Active))
		j.Update([]peer.Member{joining})
		return j
	}
	within(t, "active beside one that gossip does not report", begin().active(), 3*limiter.Second, 3100*ms)

	j := begin()
	j.pass(limiter.Second)
	j.Update([]peer.Member{other("a", 10, peer.Active), joining})
	within(t, "active after gossip reports it", j.active(), 300*ms, 400*ms)

	j = begin()
	j.core.Up(40)
	j.Update([]peer.Member{other("d", 40, peer.Active), joining})
	within(t, "active where another is active", j.active(), 300*ms, 400*ms)

	j = begin()
	j.says(10, peer.Known{Name: "a", Instance: 10, Gone: true})
	within(t, "active beside one that leaves", j.active(), 300*ms, 400*ms)

	j = begin()
	j.core.Down(10)
	within(t, "active after the connection broke", j.active(), 300*ms, 400*ms)
}
