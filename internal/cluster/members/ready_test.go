package members_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

func at(m peer.Member, addr string) peer.Member {
	m.PeerAddr = addr
	return m
}

// unready requires that a node is not ready, with an error that contains all of the
// texts.
func (j *joiner) unready(t *testing.T, want error, texts ...string) {
	t.Helper()
	err := j.Ready()
	if !errors.Is(err, want) {
		t.Fatalf("it says %v, want %v", err, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it does not say %q: %v", text, err)
		}
	}
}

// A node that sees others and reaches none of them stays out of the ring and not ready,
// however long it waits, and reports that once. When it reaches one it joins.
func TestCutOffWhileJoining(t *testing.T) {
	j := newJoiner(3)
	j.Update([]peer.Member{at(other("a", 10, peer.Active), "a:1"), at(other("c", 30, peer.Joining), "c:1")})
	j.pass(2 * limiter.Second)
	if err := j.Ready(); strings.Contains(err.Error(), "reaches none") {
		t.Errorf("it complains before connections can be there: %v", err)
	}
	j.pass(limiter.Minute)
	j.unready(t, members.ErrJoining, `reaches none at its peer address: "a" at a:1, "c" at c:1; check the peer addresses`)
	if v := j.core.View(); v.Members[1].State != peer.Joining {
		t.Errorf("it is in the ring: %+v", v.Members)
	}
	if len(j.problems) != 1 || j.problems[0].State != peer.Joining || j.problems[0].Others != 2 ||
		len(j.problems[0].Unreached) != 2 || j.problems[0].Ready {
		t.Errorf("it reported %+v", j.problems)
	}
	j.core.Up(30) // another joining member does not know what is held
	j.pass(limiter.Second)
	j.unready(t, members.ErrJoining)
	j.core.Up(10)
	within(t, "active after it reached one", j.active(), 0, 100*ms)
	j.unready(t, members.ErrSettling)
}

// A member that is not active, or has gone, is not waited for.
func TestWhoIsNotWaitedFor(t *testing.T) {
	for name, state := range map[string]peer.State{"joining": peer.Joining, "leaving": peer.Leaving} {
		j := newJoiner(2)
		j.Update([]peer.Member{other("a", 10, state)})
		within(t, "active beside one that is "+name, j.active(), 3*limiter.Second, 3100*ms)
	}
	j := newJoiner(2)
	j.Update([]peer.Member{other("a", 10, peer.Active)})
	j.pass(20 * limiter.Second)
	j.Update([]peer.Member{other("a", 10, peer.Dead)})
	within(t, "active after the other died", j.active(), 0, 100*ms)
}

// An active node that does not hold what it should is ready after ten seconds, and
// reports once how much is missing. A node that is cut off is not ready before it
// reaches another.
func TestCutOffWhileActive(t *testing.T) {
	j := newJoiner(2)
	j.core.Up(10)
	j.Update([]peer.Member{at(other("a", 10, peer.Active), "a:1"), at(other("c", 30, peer.Active), "c:1")})
	within(t, "active", j.active(), 3*limiter.Second, 3100*ms)
	j.core.Down(10)
	j.pass(limiter.Minute)
	j.unready(t, members.ErrSettling, "of them, and reaches none at its peer address", `"a" at a:1, "c" at c:1`)
	if len(j.problems) != 1 || j.problems[0].State != peer.Active || j.problems[0].Unsettled != 3 || j.problems[0].Ready {
		t.Errorf("it reported %+v", j.problems)
	}
	j.core.Up(30)
	j.pass(100 * ms)
	if err := j.Ready(); err != nil {
		t.Errorf("not ready with one to talk to: %v", err)
	}
	if len(j.problems) != 2 || !j.problems[1].Ready || j.problems[1].Others != 2 || len(j.problems[1].Unreached) != 1 ||
		j.problems[1].Unreached[0].Name != "a" {
		t.Errorf("it reported %+v", j.problems)
	}
	j.core.Down(30)
	j.pass(limiter.Minute)
	if err := j.Ready(); err != nil || len(j.problems) != 2 {
		t.Errorf("it does not stay ready: %v, %+v", err, j.problems)
	}
}

// A node in a minority answers by policy, and is ready though it reaches no other: no
// others serve.
func TestCutOffInAMinority(t *testing.T) {
	j := newJoiner(4)
	j.Update([]peer.Member{
		other("a", 10, peer.Active), other("c", 30, peer.Dead), other("d", 40, peer.Dead),
	})
	within(t, "active", j.active(), 3*limiter.Second, 3100*ms)
	j.pass(9 * limiter.Second)
	j.unready(t, members.ErrSettling)
	j.pass(2 * limiter.Second)
	if err := j.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if len(j.problems) != 1 || !j.problems[0].Minority || !j.problems[0].Ready || j.problems[0].Unsettled == 0 {
		t.Errorf("it reported %+v", j.problems)
	}
}

// A node that was ready and is expelled: while one member has a link to it nothing changes, since a single one may
// lie. Without any it is not ready, alone in its view, and the others count. A link ends that.
func TestExpelledNodeIsNotReady(t *testing.T) {
	out := false
	j := newJoinerWith(2, []int{1, 2, 1030}, func(c *members.Config) {
		c.Expels = func(i peer.Instance) bool { return out && i == 10 }
	})
	j.core.Up(10)
	j.core.Up(30)
	j.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)})
	within(t, "active", j.active(), 3*limiter.Second, 3100*ms)
	j.pass(limiter.Minute)
	if err := j.Ready(); err != nil {
		t.Fatal(err)
	}
	out = true
	j.core.Down(10)
	j.pass(limiter.Second)
	if err := j.Ready(); err != nil || j.Expelled() != nil || j.core.View().Minority() {
		t.Errorf("by one member's word: %v, %v", err, j.Expelled())
	}
	j.core.Down(30)
	j.pass(limiter.Second)
	j.unready(t, members.ErrJoining, `expelled: member "a" refuses this node`)
	if v := j.core.View(); len(v.Members) != 1 || v.Recent != 3 || !v.Minority() {
		t.Errorf("it sees %+v of %d", v.Members, v.Recent)
	}
	if l := j.Listed(); len(l) != 2 || l[0].State != peer.Active || l[1].State != peer.Active {
		t.Errorf("it lists %+v", l)
	}
	j.core.Up(10)
	j.pass(limiter.Second)
	if err := j.Ready(); err != nil || j.Expelled() != nil || j.core.View().Minority() {
		t.Errorf("it is let in again: %v, %v", err, j.Expelled())
	}
}

// A text names at most eight members.
func TestNameMembers(t *testing.T) {
	var list []peer.Member
	for range 10 {
		list = append(list, peer.Member{Name: "n", PeerAddr: "h:1"})
	}
	if got := members.NameMembers(list); strings.Count(got, `"n" at h:1`) != 8 || !strings.HasSuffix(got, " and 2 more") {
		t.Error(got)
	}
}
