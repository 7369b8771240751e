package members_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// seen returns the members in the view, with states, and how many count.
func (j *joiner) seen() string {
	v := j.core.View()
	s := fmt.Sprint(v.Known)
	for _, m := range v.Members {
		s += " " + m.Name + "/" + fmt.Sprint(uint64(m.Instance))
		if m.State != peer.Active {
			s += " " + m.State.String()
		}
	}
	return s
}

// sees advances the time a little and requires a view.
func (j *joiner) sees(t *testing.T, want string) {
	t.Helper()
	j.pass(ms)
	if got := j.seen(); got != want {
		t.Errorf("it sees %q, want %q", got, want)
	}
	if got := j.Listed(); !slices.Equal(got, j.listed) {
		t.Errorf("nobody was told that the list is now %+v, and not %+v", got, j.listed)
	}
}

// beats makes a link send something every 100 ms for a while.
func (j *joiner) beats(from peer.Instance, span limiter.Tick) {
	for end := j.now + span; j.now < end; {
		j.core.Deliver(&peer.Frame{From: from, To: 20})
		j.pass(100 * ms)
	}
}

// linked starts a node b/20 that is active and has links to the active nodes a/10 and
// c/30.
func linked() *joiner {
	j := newJoiner(0)
	j.core.Up(10)
	j.core.Up(30)
	j.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)})
	j.pass(ms)
	return j
}

// takeKnown returns the reports about members that are sent to a member.
func (j *joiner) takeKnown(to peer.Instance) (known []peer.Known) {
	for f := j.core.Take(to, true); f != nil; f = j.core.Take(to, true) {
		known = append(known, f.Known...)
	}
	return known
}

// Names that gossip invents, live or dead, do not count and are in no ring. This node
// connects to the live ones and not to the dead.
func TestInventedMembersDoNotCount(t *testing.T) {
	j := linked()
	rings := len(j.rings)
	list := []peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)}
	for i := range 200 {
		list = append(list, other(fmt.Sprintf("dead-%d", i), peer.Instance(1000+i), peer.Dead),
			other(fmt.Sprintf("live-%d", i), peer.Instance(2000+i), peer.Active))
	}
	j.Membership.Update(list)
	j.sees(t, "3 a/10 b/20 c/30")
	if v := j.core.View(); v.Recent != 3 || len(j.core.Registry().Dead()) != 0 || len(j.rings) != rings {
		t.Errorf("%d count, %d are dead, %d rings were built", v.Recent, len(j.core.Registry().Dead()), len(j.rings)-rings)
	}
	if got := j.Listed(); len(got) != 202 || slices.ContainsFunc(got, func(o peer.Member) bool {
		return o.State == peer.Dead
	}) {
		t.Errorf("%d are listed", len(got))
	}
	// One of them has a member's instance; it is not that member.
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active),
		other("ghost", 10, peer.Active)})
	j.sees(t, "3 a/10 b/20 c/30")
	// One shows itself over a link, as members do.
	j.Membership.Update(list)
	j.says(2007, peer.Known{Name: "live-7", Instance: 2007})
	j.sees(t, "4 a/10 b/20 c/30 live-7/2007")
}

// That a member leaves, its link says: gossip may still call it active, or dead already.
func TestTheLinkSaysWhoLeaves(t *testing.T) {
	for name, state := range map[string]peer.State{"gossip is late": peer.Active, "gossip calls it dead": peer.Dead} {
		j := linked()
		j.says(30, peer.Known{Name: "c", Instance: 30, Gone: true})
		j.core.Deliver(&peer.Frame{From: 30, To: 20})
		j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, state)})
		j.pass(ms)
		if got, want := j.seen(), "3 a/10 b/20 c/30 leaving"; got != want {
			t.Errorf("%s: it sees %q, want %q", name, got, want)
		}
		if state == peer.Active { // it ends, and gossip is still late
			j.core.Down(30)
			j.sees(t, "3 a/10 b/20 c/30 leaving")
		}
	}
}

// A member reports more runs of another's name than are remembered. The other, which is
// linked to this node, stays met, even if a relayed frame in its name gives it another
// name.
func TestInventedRunsOfAMember(t *testing.T) {
	j := linked()
	list := []peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)}
	for i := range 10 {
		j.says(30, peer.Known{Name: "a", Instance: peer.Instance(1000 + i)})
	}
	j.Membership.Update(list)
	j.sees(t, "3 a/10 b/20 c/30")
	j.core.Deliver(&peer.Frame{From: 10, To: 20, Relayed: true, Via: 30, Known: []peer.Known{{Name: "x", Instance: 10}}})
	if !j.core.Met("a", 10) {
		t.Error("who is linked to this node is not met any more")
	}
}

// Names that are not valid for a member are ignored: operators read them.
func TestNamesThatCannotBe(t *testing.T) {
	j := linked()
	for _, name := range []string{"", "two\nlines", "\x1b[2J", "\xff", strings.Repeat("x", 129)} {
		j.says(30, peer.Known{Name: name, Instance: 77})
	}
	j.says(30, peer.Known{Name: "nobody"})
	if dead := j.core.Registry().Dead(); len(dead) != 0 {
		t.Errorf("%+v count", dead)
	}
	j.sees(t, "3 a/10 b/20 c/30")
}

// A member that answers on its link stays as it was, whatever gossip says. When gossip
// is right again, nothing is left of the error.
func TestGossipEvictsNobodyWhoAnswers(t *testing.T) {
	honest := []peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)}
	for name, lie := range map[string]peer.Member{
		"dead":       other("c", 30, peer.Dead),
		"another":    other("c", 31, peer.Active),
		"leaving":    other("c", 30, peer.Leaving),
		"joining":    other("c", 30, peer.Joining),
		"left":       {},
		"its corpse": other("c", 31, peer.Dead),
	} {
		t.Run(name, func(t *testing.T) {
			j := linked()
			lies := []peer.Member{other("a", 10, peer.Active)}
			if lie.Name != "" {
				lies = append(lies, lie)
			}
			j.Membership.Update(lies)
			rings := len(j.rings)
			for range 30 {
				j.beats(30, 100*ms)
				j.sees(t, "3 a/10 b/20 c/30")
			}
			if got := j.Listed(); !slices.Contains(got, honest[1]) {
				t.Errorf("it would not be connected to: %+v", got)
			}
			j.Membership.Update(honest)
			j.sees(t, "3 a/10 b/20 c/30")
			if len(j.rings) != rings {
				t.Errorf("%d rings were built for it", len(j.rings)-rings)
			}
		})
	}
}

// A member that gossip calls dead and whose link is up and silent is asked, and is dead
// half a second later. If its link breaks it is dead at once. It counts in both cases,
// and is back when it answers, whatever gossip says.
func TestDeathOnALink(t *testing.T) {
	j := linked()
	j.pass(limiter.Second)
	dead := []peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Dead)}
	j.takeKnown(30)
	j.Membership.Update(dead)
	j.sees(t, "3 a/10 b/20 c/30")
	asked := 0
	for f := j.core.Take(30, true); f != nil; f = j.core.Take(30, true) {
		asked += len(f.Claims)
	}
	if asked != 1 {
		t.Errorf("it was asked %d things", asked)
	}
	j.pass(150 * ms)
	j.skip(limiter.Minute) // during which this node was paused
	j.pass(150 * ms)
	j.sees(t, "3 a/10 b/20 c/30")
	j.pass(400 * ms)
	j.sees(t, "3 a/10 b/20")
	j.pass(2 * limiter.Second)
	j.sees(t, "3 a/10 b/20")
	j.beats(30, 400*ms) // the member was only paused
	j.sees(t, "3 a/10 b/20 c/30")
	j.core.Down(30)
	j.sees(t, "3 a/10 b/20")
	j.core.Up(30)
	j.says(30, peer.Known{Name: "c", Instance: 30})
	j.sees(t, "3 a/10 b/20 c/30")
	// It does not matter either if gossip has given its name to another instance.
	j.core.Down(30)
	j.sees(t, "3 a/10 b/20")
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 31, peer.Active)})
	j.core.Up(30)
	j.says(30, peer.Known{Name: "c", Instance: 30})
	j.sees(t, "3 a/10 b/20 c/30")
}

// TestTheAddressOfWhoWasThereBefore: a node that starts knows others by name from its disk, and where they listen from
// gossip. It connects to them there, and learns so that it is expelled, as they do not connect to it then.
func TestTheAddressOfWhoWasThereBefore(t *testing.T) {
	j := newJoiner(3)
	j.core.Registry().Restore([]peer.Known{{Name: "a", Instance: 10}, {Name: "c", Instance: 30}}, j.now)
	a := other("a", 10, peer.Active)
	a.PeerAddr = "10.0.0.1:7947"
	j.Membership.Update([]peer.Member{a})
	j.pass(ms)
	if got := j.Listed(); !slices.Equal(got, []peer.Member{a, other("c", 30, peer.Dead)}) {
		t.Errorf("it connects to %+v", got)
	}
}

// A member that starts, and that gossip does not report, makes no minority as long as it
// answers on its link. When it has been silent for long it does.
func TestWhoAnswersMakesNoMinority(t *testing.T) {
	j := newJoiner(0)
	j.core.Up(10)
	j.says(10, peer.Known{Name: "a", Instance: 10, Joining: true})
	for range 60 {
		j.beats(10, 100*ms)
		if v := j.core.View(); v.Minority() || v.Known != 2 {
			t.Fatalf("it sees %q, %d count, and it answers", j.seen(), v.Recent)
		}
	}
	j.pass(3 * limiter.Second)
	if !j.core.View().Minority() {
		t.Error("it has not answered for three seconds, and may be anywhere")
	}
}

// A member has left if its link said that it leaves. Otherwise it is dead and counts
// until a link reports that it left or was forgotten.
func TestDepartures(t *testing.T) {
	gone := []peer.Member{other("a", 10, peer.Active)}
	word := peer.Known{Name: "c", Instance: 30, Gone: true}
	t.Run("it said so", func(t *testing.T) {
		j := linked()
		j.takeKnown(10)
		j.says(30, word)
		j.sees(t, "3 a/10 b/20 c/30 leaving")
		if got := j.takeKnown(10); len(got) != 0 { // it is leaving, but not gone
			t.Errorf("a is told %+v", got)
		}
		j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Leaving)})
		j.sees(t, "3 a/10 b/20 c/30 leaving")
		j.Membership.Update(gone)
		j.sees(t, "2 a/10 b/20")
		if len(j.Listed()) != 1 {
			t.Errorf("%+v", j.Listed())
		}
		j.meet(other("c", 31, peer.Joining)) // and comes again under its name
		j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 31, peer.Joining)})
		j.sees(t, "3 a/10 b/20 c/31 joining")
	})
	t.Run("it said nothing", func(t *testing.T) {
		j := linked()
		j.core.Down(30)
		j.Membership.Update(gone)
		j.sees(t, "3 a/10 b/20")
		if got := j.Listed(); len(got) != 2 || got[1].Name != "c" || got[1].State != peer.Dead {
			t.Errorf("%+v", got)
		}
		j.says(10, word) // another has heard it
		j.sees(t, "2 a/10 b/20")
	})
	t.Run("forgotten by way of gossip", func(t *testing.T) {
		j := linked()
		j.core.Down(30)
		j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Dead)})
		j.sees(t, "3 a/10 b/20")
		j.Membership.Update(gone)
		j.sees(t, "3 a/10 b/20")
	})
	t.Run("forgotten here, and dead to gossip", func(t *testing.T) {
		j := linked()
		j.core.Down(30)
		j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Dead)})
		j.pass(ms)
		j.Forget("c")
		j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Dead)})
		j.sees(t, "2 a/10 b/20")
		j.core.Up(30)
		j.says(30, peer.Known{Name: "c", Instance: 30})
		j.beats(30, limiter.Second)
		j.sees(t, "2 a/10 b/20") // it is a member again when gossip says that it lives
		j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)})
		j.sees(t, "3 a/10 b/20 c/30")
	})
	t.Run("forgotten here", func(t *testing.T) {
		j := linked()
		j.core.Down(30)
		j.Membership.Update(gone)
		j.pass(ms)
		j.takeKnown(10)
		if !j.Forget("c") {
			t.Fatal("it is not dead")
		}
		j.sees(t, "2 a/10 b/20")
		if got := j.takeKnown(10); !slices.ContainsFunc(got, word.Equal) {
			t.Errorf("a is told %+v", got)
		}
		if len(j.Listed()) != 1 {
			t.Errorf("%+v", j.Listed())
		}
	})
}

// A node that starts while a member is dead learns of that over its first link: it must
// not take two of three members for all.
func TestTheDeadAreToldOverLinks(t *testing.T) {
	j := newJoiner(0)
	j.core.Up(10)
	j.says(10, peer.Known{Name: "a", Instance: 10}, peer.Known{Name: "c", Instance: 30})
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active)})
	j.sees(t, "3 a/10 b/20")
	if got := j.Listed(); len(got) != 2 || got[1].Name != "c" || got[1].State != peer.Dead {
		t.Errorf("%+v", got)
	}
}

// A member without a link to this node counts if more than half of the others report it. News is
// passed on once, and not to its sender or its subject.
func TestWordIsPassedOn(t *testing.T) {
	j := linked()
	j.takeKnown(10)
	j.takeKnown(30)
	d := peer.Known{Name: "d", Instance: 40}
	for range 2 {
		j.says(10, d)
	}
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active),
		other("d", 40, peer.Active)})
	j.sees(t, "3 a/10 b/20 c/30")
	if got := j.takeKnown(30); len(got) != 0 {
		t.Errorf("one member says it, and c is told %+v", got)
	}
	for range 2 {
		j.says(30, d)
	}
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active),
		other("d", 40, peer.Active)})
	j.sees(t, "4 a/10 b/20 c/30 d/40")
	if got := j.takeKnown(10); !slices.EqualFunc(got, []peer.Known{d}, peer.Known.Equal) {
		t.Errorf("a is told %+v", got)
	}
	if got := j.takeKnown(30); len(got) != 0 {
		t.Errorf("c is told %+v", got)
	}
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active), other("d", 40, peer.Dead)})
	j.sees(t, "4 a/10 b/20 c/30") // without a link to it, only gossip tells its state
}

// A joining node tells over its first link who it is, and waits for those whom it has
// only heard of.
func TestJoiningWaitsForLinks(t *testing.T) {
	j := newJoiner(3)
	j.core.Up(10)
	if got := j.takeKnown(10); !slices.ContainsFunc(got, peer.Known{Name: "b", Instance: 20, Joining: true}.Equal) {
		t.Errorf("a is told %+v", got)
	}
	j.meet(other("a", 10, peer.Active))
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)})
	within(t, "active where one is only heard of", j.active(), 3*limiter.Second, 3100*ms)

	j = newJoinerOf(3, []int{})
	j.meet(other("a", 10, peer.Active))
	j.core.Up(10)
	j.Membership.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)})
	within(t, "active, informed, where one is only heard of", j.active(), 3*limiter.Second, 3100*ms)

	j = newJoinerOf(3, []int{})
	j.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)})
	j.core.Up(10)
	within(t, "active, informed, where all are linked", j.active(), 300*ms, 400*ms)

	j = newJoiner(2)
	j.Membership.Update([]peer.Member{other("a", 10, peer.Joining)})
	within(t, "active beside one that is joining, and only heard of", j.active(), 3*limiter.Second, 3100*ms)

	j = newJoiner(2)
	j.Membership.Update([]peer.Member{at(other("a", 10, peer.Active), "a:1")})
	j.pass(20 * limiter.Second)
	if got := j.State(); got != peer.Joining {
		t.Errorf("it hears of one that is active, cannot reach it, and is %v", got)
	}
	j.core.Up(10)
	j.meet(other("a", 10, peer.Active))
	within(t, "active after it reached it", j.active(), 0, 3100*ms)
	j.sees(t, "2 a/10 b/20")
}
