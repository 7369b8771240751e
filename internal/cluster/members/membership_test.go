package members_test

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/ring"
)

// moments is a scheduler whose time the test moves.
type moments struct {
	now  limiter.Tick
	seq  int
	todo queue
}

type moment struct {
	at  limiter.Tick
	seq int
	run func()
}

type queue []moment

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(moment)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func (s *moments) Now() limiter.Tick { return s.now }

func (s *moments) After(span limiter.Tick, f func()) {
	s.seq++
	heap.Push(&s.todo, moment{s.now + span, s.seq, f})
}

// pass advances the time.
func (s *moments) pass(span limiter.Tick) {
	end := s.now + span
	for len(s.todo) > 0 && s.todo[0].at <= end {
		m := heap.Pop(&s.todo).(moment)
		s.now = m.at
		s.run(m)
	}
	s.now = end
}

// errBurst is the value of a test's panics. They end where a real scheduler ends them.
var errBurst = errors.New("a burst")

func (*moments) run(m moment) {
	defer func() {
		v := recover()
		if err, _ := v.(error); v != nil && !errors.Is(err, errBurst) {
			panic(v)
		}
	}()
	m.run()
}

// skip advances the time at once; what was due meanwhile is due now. Minutes tick by
// tick would take minutes.
func (s *moments) skip(span limiter.Tick) {
	s.now += span
	for i := range s.todo {
		s.todo[i].at = max(s.todo[i].at, s.now)
	}
	heap.Init(&s.todo)
}

type nowhere struct{}

func (nowhere) Wake(peer.Instance) {}

// joiner is a node whose membership is tested. Its core reaches no other member.
type joiner struct {
	*members.Membership
	*moments
	core     *cluster.Core
	told     []peer.Member
	rings    [][]string
	fails    error // of building a ring
	burst    int   // how many of the next calls by the membership panic
	wrong    []error
	problems []members.Problem
	// listed is the list of members when Changed was last called.
	listed []peer.Member
	// mute is why who took a connection did not answer.
	mute error
}

const ms = limiter.Millisecond

// newJoiner starts a node that joins by so many addresses, its own included; 0 for a
// node that joins no cluster.
func newJoiner(seeds int) *joiner { return newJoinerOf(seeds, []int{1, 2, 1030}) }

// newJoinerOf is newJoiner for a node that manages the given partitions; without any it
// is informed at once.
func newJoinerOf(seeds int, partitions []int) *joiner {
	return newJoinerWith(seeds, partitions, func(*members.Config) {})
}

// newJoinerWith is newJoinerOf with a change of the configuration.
func newJoinerWith(seeds int, partitions []int, change func(*members.Config)) *joiner {
	j := &joiner{moments: &moments{now: 1_700_000_000 * limiter.Second}}
	self := peer.Member{Name: "b", Instance: 20, State: peer.Active}
	if seeds > 0 {
		self.State = peer.Joining
	}
	j.core = cluster.New(cluster.Config{
		Self: self, Table: table.New(table.Config{}), Fallback: table.New(table.Config{}),
		Scheduler: j.moments, Network: nowhere{}, Rand: rand.New(rand.NewPCG(1, 1)), Seeds: seeds,
		Rule: func(string) *limiter.Rule { return nil }, Partitions: partitions,
	})
	c := members.Config{
		Core: j.core, Self: self, Scheduler: j.moments,
		Ring: func(names []string) (view.Ring, error) {
			j.rings = append(j.rings, names)
			j.bursts()
			if j.fails != nil {
				return nil, j.fails
			}
			return ring.New(names)
		},
		Publish: func(m peer.Member) {
			j.bursts()
			j.told = append(j.told, m)
		},
		Report:     func(p members.Problem) { j.problems = append(j.problems, p) },
		RingFailed: func(err error) { j.wrong = append(j.wrong, err) },
		Changed: func() {
			if j.Membership != nil {
				j.listed = j.Listed()
			}
		},
	}
	if seeds > 0 {
		c.Seeds = func() int { return seeds }
		c.Mute = func() error { return j.mute }
	}
	change(&c)
	j.Membership = members.New(c)
	return j
}

// bursts panics as often as burst says.
func (j *joiner) bursts() {
	if j.burst > 0 {
		j.burst--
		panic(errBurst)
	}
}

// meet makes links report members, as they do when they come up.
func (j *joiner) meet(members ...peer.Member) {
	for _, m := range members {
		if m.Name != "b" {
			j.says(m.Instance, peer.Known{Name: m.Name, Instance: m.Instance})
		}
	}
}

// says makes the link to an instance report members.
func (j *joiner) says(from peer.Instance, known ...peer.Known) {
	j.core.Deliver(&peer.Frame{From: from, To: 20, Known: known})
}

// Update makes gossip report members after links have reported the same. For gossip
// alone see [members.Membership.Update].
func (j *joiner) Update(members []peer.Member) {
	j.meet(members...)
	j.Membership.Update(members)
}

func other(name string, instance peer.Instance, state peer.State) peer.Member {
	return peer.Member{Name: name, Instance: instance, State: state}
}

// active advances the time until the node is active, and returns how long that took, at
// most a minute.
func (j *joiner) active() limiter.Tick {
	began := j.now
	for j.State() != peer.Active && j.now-began < limiter.Minute {
		j.pass(10 * ms)
	}
	return j.now - began
}

func within(t *testing.T, what string, got, least, most limiter.Tick) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s after %v, want %v to %v", what, got.Duration(), least.Duration(), most.Duration())
	}
}

func TestWhoJoinsNobodyIsActiveAtOnce(t *testing.T) {
	j := newJoiner(0)
	if got := j.State(); got != peer.Active {
		t.Fatalf("it is %v", got)
	}
	j.pass(limiter.Second)
	if err := j.Ready(); err != nil {
		t.Errorf("not ready after a second: %v", err)
	}
	if v := j.core.View(); len(v.Members) != 1 || v.Known != 1 || v.Members[0].State != peer.Active {
		t.Errorf("the view is %+v", v)
	}
}

// Where something takes connections and does not answer there may be a node that is
// overloaded or attacked: who went on alone would be a second cluster. It waits, says why,
// and does not wait for ever, because it may be no node.
func TestWhoDoesNotAnswerMayBeThere(t *testing.T) {
	j := newJoiner(2)
	j.mute = errors.New("10.0.0.1:7946: EOF")
	within(t, "alone", j.active(), 20*limiter.Second, 20*limiter.Second+50*ms)
	if j = newJoiner(2); j.Ready() == nil || strings.Contains(j.Ready().Error(), "does not answer") {
		t.Errorf("where nobody is, it says %v", j.Ready())
	}
	j.mute = errors.New("10.0.0.1:7946: EOF")
	j.pass(15 * limiter.Second)
	if err := j.Ready(); !errors.Is(err, members.ErrJoining) ||
		!strings.Contains(err.Error(), "does not answer: 10.0.0.1:7946: EOF") {
		t.Errorf("it does not say what it waits for: %v", err)
	}
	j.mute = nil
	within(t, "alone, when there is nobody any more", j.active(), 0, 100*ms)
	j = newJoiner(2)
	j.mute = errors.New("10.0.0.1:7946: EOF")
	j.pass(5 * limiter.Second)
	j.Update([]peer.Member{other("a", 10, peer.Joining), other("b", 20, peer.Joining)})
	within(t, "active, when another was found", j.active(), 0, 4*limiter.Second)
}

// A panic in a function that the membership calls loses one view or one message, and not
// later ones.
func TestMembershipSurvivesPanics(t *testing.T) {
	j := newJoiner(1)
	j.burst = 2 // the ring, and what the others are told
	j.active()
	j.pass(limiter.Second)
	if j.burst != 0 {
		t.Fatalf("premise: %d calls did not panic", j.burst)
	}
	j.Update([]peer.Member{other("a", 10, peer.Active), other("b", 20, peer.Active)})
	j.pass(10 * limiter.Second)
	if v := j.core.View(); v == nil || len(v.Members) != 2 {
		t.Errorf("the view after panics is %+v", v)
	}
	j.Update([]peer.Member{other("a", 10, peer.Active), other("b", 20, peer.Active), other("c", 30, peer.Active)})
	j.pass(10 * limiter.Second)
	if v := j.core.View(); v == nil || len(v.Members) != 3 {
		t.Errorf("the view afterwards is %+v", v)
	}
	if err := j.Ready(); errors.Is(err, members.ErrJoining) {
		t.Errorf("it does not look any more: %v", err)
	}
}

func TestFirstNodeStartsAlone(t *testing.T) {
	j := newJoiner(1)
	if err := j.Ready(); !errors.Is(err, members.ErrJoining) {
		t.Errorf("while joining it says %v", err)
	}
	within(t, "active without anybody to join", j.active(), 3*limiter.Second, 3100*ms)
	if len(j.told) != 1 || j.told[0].State != peer.Active {
		t.Errorf("the others were told %v", j.told)
	}
	j = newJoiner(3)
	within(t, "active where nobody answers", j.active(), 10*limiter.Second, 10100*ms)
	within(t, "ready where nobody answers", func() limiter.Tick {
		began := j.now
		for j.Ready() != nil && j.now-began < limiter.Minute {
			j.pass(10 * ms)
		}
		return j.now - began
	}(), 0, 10100*ms)
}

// A node becomes active when its view stops changing. Here the others never tell what
// they hold, so the node is not informed, and the longer wait counts.
func TestViewStandsStill(t *testing.T) {
	j := newJoiner(2)
	j.core.Up(10)
	j.Update([]peer.Member{other("a", 10, peer.Active), j.Self()})
	j.pass(2 * limiter.Second)
	j.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Joining), j.Self()})
	within(t, "active after the view changed", j.active(), 3*limiter.Second, 3100*ms)

	j = newJoiner(2)
	for i := range 40 { // it never stops changing
		j.core.Up(peer.Instance(100 + i))
		j.Update([]peer.Member{other("a", peer.Instance(100+i), peer.Active)})
		j.pass(limiter.Second)
	}
	if got := j.State(); got != peer.Active {
		t.Errorf("after 40 seconds of changes it is %v", got)
	}
}

// A change of a member's data, without a change of the members, makes no new view.
func TestMetadataIsNoChange(t *testing.T) {
	j := newJoiner(2)
	j.core.Up(10)
	a := other("a", 10, peer.Active)
	j.Update([]peer.Member{a})
	for range 30 {
		j.pass(100 * ms)
		a.RulesHash++
		j.Update([]peer.Member{a})
	}
	j.pass(200 * ms)
	if got := j.State(); got != peer.Active {
		t.Errorf("it is %v although who is there has not changed", got)
	}
}

func TestViewsOfMembers(t *testing.T) {
	j := newJoiner(0)
	j.Update([]peer.Member{other("c", 30, peer.Active), other("a", 10, peer.Active), other("d", 40, peer.Dead)})
	j.pass(5 * limiter.Second) // the dead one may have been starting
	v := j.core.View()
	if len(v.Members) != 3 || v.Members[0].Name != "a" || v.Members[2].Name != "c" || v.Known != 4 || v.Recent != 4 {
		t.Fatalf("the view is %+v", v)
	}
	if got := j.rings[len(j.rings)-1]; !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the ring is made of %v", got)
	}
	j.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Dead), other("d", 40, peer.Dead)})
	j.pass(ms)
	if v = j.core.View(); len(v.Members) != 2 || v.Known != 4 {
		t.Errorf("after a death: %+v", v)
	}
	if got := len(j.core.Registry().Dead()); got != 2 {
		t.Errorf("%d dead, want 2", got)
	}
	// c left or was forgotten, which a link reports too. d is forgotten here.
	j.says(10, peer.Known{Name: "c", Instance: 30, Gone: true})
	j.Update([]peer.Member{other("a", 10, peer.Active), other("d", 40, peer.Dead)})
	j.pass(ms)
	if v = j.core.View(); v.Known != 3 {
		t.Errorf("after one was forgotten: %d count", v.Known)
	}
	if !j.Forget("d") || j.Forget("d") || j.Forget("a") || j.Forget("nobody") {
		t.Error("only a dead member that counts can be forgotten")
	}
	j.pass(ms)
	if v = j.core.View(); v.Known != 2 {
		t.Errorf("after both were forgotten: %d count", v.Known)
	}
	if got := j.core.View().Shares(); len(got) != 2 || got[10]+got[20] < 0.999 {
		t.Errorf("shares %v", got)
	}
}

// Dead members count for available partitions for ten minutes if a majority is left.
func TestDeadAge(t *testing.T) {
	j := newJoiner(0)
	j.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Active)})
	j.pass(ms)
	j.Update([]peer.Member{other("a", 10, peer.Active), other("c", 30, peer.Dead)})
	j.pass(limiter.Second)
	j.skip(9 * limiter.Minute)
	j.pass(5 * limiter.Second)
	if v := j.core.View(); v.Known != 3 || v.Recent != 3 {
		t.Errorf("after 9 minutes %d and %d count", v.Known, v.Recent)
	}
	j.skip(2 * limiter.Minute)
	j.pass(5 * limiter.Second)
	if v := j.core.View(); v.Known != 3 || v.Recent != 2 {
		t.Errorf("after 11 minutes %d and %d count", v.Known, v.Recent)
	}
}

// A minority never stops counting the others by itself: what looks dead to it may be the
// other side of a split. Members that die one after the other stop counting in turn if a
// majority was alive each time.
func TestOnlyAMajorityForgets(t *testing.T) {
	everybody := []peer.Member{
		other("a", 10, peer.Active), other("c", 30, peer.Active), other("d", 40, peer.Active), other("e", 50, peer.Active),
	}
	for name, one := range map[string]struct {
		deaths []int // how many die at once, every 11 minutes
		recent int
	}{
		"a minority":                      {[]int{3}, 5},
		"half of four":                    {[]int{1, 2}, 4},
		"a majority":                      {[]int{2}, 3},
		"one after the other":             {[]int{1, 1, 1}, 2},
		"the last two":                    {[]int{1, 1, 1, 1}, 2},
		"a minority, though not at first": {[]int{2, 2}, 3},
	} {
		j := newJoiner(0)
		members := slices.Clone(everybody)
		j.Update(members)
		j.pass(ms)
		gone := 0
		for _, n := range one.deaths {
			for range n {
				members[gone].State = peer.Dead
				gone++
			}
			j.Update(members)
			j.pass(limiter.Second)
			j.skip(11 * limiter.Minute)
			j.pass(5 * limiter.Second)
		}
		if v := j.core.View(); v.Known != 5 || v.Recent != one.recent {
			t.Errorf("%s: %d and %d count, want 5 and %d", name, v.Known, v.Recent, one.recent)
		}
		for i := range members { // a member that comes back counts
			members[i].State = peer.Active
		}
		j.Update(members)
		j.pass(ms)
		if v := j.core.View(); v.Known != 5 || v.Recent != 5 {
			t.Errorf("%s: %d and %d count after all are back", name, v.Known, v.Recent)
		}
	}
}

// Of the changes during the building of a ring, only the last is built.
func TestNewestWins(t *testing.T) {
	j := newJoiner(0)
	for i := range 20 {
		j.Update([]peer.Member{other("a", peer.Instance(100+i), peer.Active), other(string(rune('c'+i)), 30, peer.Active)})
	}
	j.pass(ms)
	if len(j.rings) > 2 {
		t.Errorf("%d rings were built for changes that came at once", len(j.rings))
	}
	if v := j.core.View(); len(v.Members) != 3 || v.Members[2].Name != "v" {
		t.Errorf("the view is not the newest: %+v", v.Members)
	}
}

// If a ring cannot be built, the old view stays in force; the next change tries again.
func TestRingThatFails(t *testing.T) {
	j := newJoiner(0)
	j.pass(ms)
	j.fails = errors.New("no")
	j.Update([]peer.Member{other("a", 10, peer.Active)})
	j.pass(ms)
	if v := j.core.View(); len(v.Members) != 1 || len(j.wrong) != 1 {
		t.Errorf("the view is %+v, complaints %v", v.Members, j.wrong)
	}
	j.fails = nil
	j.Update([]peer.Member{other("a", 11, peer.Active)})
	j.pass(ms)
	if v := j.core.View(); len(v.Members) != 2 {
		t.Errorf("the view is %+v", v.Members)
	}
}

// A node without other members has none to hand over to, and leaves at once, when its
// own core knows the state.
func TestLeaveAlone(t *testing.T) {
	j := newJoiner(0)
	j.pass(limiter.Second)
	whole := make(chan bool, 2)
	if err := j.Leave(func(ok bool) { whole <- ok }); err != nil {
		t.Fatal(err)
	}
	if err := j.Leave(nil); !errors.Is(err, members.ErrLeaving) {
		t.Errorf("leaving twice: %v", err)
	}
	j.pass(ms)
	if got := j.core.View().Members[0].State; got != peer.Leaving {
		t.Errorf("its own core sees it %v", got)
	}
	if got := j.told[len(j.told)-1].State; got != peer.Leaving {
		t.Errorf("the others were told that it is %v", got)
	}
	if err := j.Ready(); !errors.Is(err, members.ErrLeaving) {
		t.Errorf("while leaving it is ready: %v", err)
	}
	j.pass(100 * ms)
	select {
	case ok := <-whole:
		if !ok {
			t.Error("not all was handed over")
		}
	default:
		t.Error("it never left")
	}
}

// A node that was never in the ring has nothing to hand over, and need not reach any
// other.
func TestLeaveWhileJoining(t *testing.T) {
	j := newJoiner(2)
	j.Update([]peer.Member{other("a", 10, peer.Active)})
	j.pass(5 * limiter.Second)
	whole := make(chan bool, 1)
	if err := j.Leave(func(ok bool) { whole <- ok }); err != nil {
		t.Fatal(err)
	}
	j.pass(100 * ms)
	select {
	case ok := <-whole:
		if !ok {
			t.Error("not all was handed over")
		}
	default:
		t.Error("it never left")
	}
}

// A node that has lost all members, none of which has left, waits for one of them before it
// takes its counters away.
func TestLeaveWaitsForTheLost(t *testing.T) {
	for name, back := range map[string]bool{"none comes back": false, "one comes back": true} {
		t.Run(name, func(t *testing.T) {
			j := newJoiner(0)
			j.pass(limiter.Second)
			j.Update([]peer.Member{other("a", 10, peer.Active)})
			j.pass(limiter.Second)
			j.Update(nil)
			j.pass(limiter.Second)
			if n := len(j.core.View().Members); n != 1 {
				t.Fatalf("%d members in view, want itself", n)
			}
			began, left, handed := j.now, limiter.Tick(0), false
			if err := j.Leave(func(ok bool) { left, handed = j.now, ok }); err != nil {
				t.Fatal(err)
			}
			j.pass(2 * limiter.Second)
			if left != 0 {
				t.Fatalf("it left after %v, without waiting for any", left-began)
			}
			least, most := 3*limiter.Second, 3100*ms
			if back {
				j.Update([]peer.Member{other("a", 10, peer.Active)})
				least, most = 10*limiter.Second, 10100*ms // it hands over, which this other never answers
			}
			j.pass(limiter.Minute)
			within(t, "left", left-began, least, most)
			if handed == back {
				t.Errorf("it says that all was handed over: %v", handed)
			}
		})
	}
}

// A node that leaves, and whose gossip reports no other member that stays, hands over to one that answers
// on its link. One that is silent can take nothing. Either is told that it leaves.
func TestLeaveSeesWhoAnswers(t *testing.T) {
	for name, test := range map[string]struct{ answers, leaver bool }{
		"it answers": {true, false}, "it is silent": {false, false},
		"it answers, and another leaves": {true, true}, "it is silent, and another leaves": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			j, answers, alone, leaver := newJoiner(0), test.answers, "2", ""
			if test.leaver { // c leaves too, so it takes nothing
				alone, leaver = "3", " c/30 leaving"
				j.core.Up(30)
				j.says(30, peer.Known{Name: "c", Instance: 30})
				j.Update([]peer.Member{other("c", 30, peer.Active)})
				j.says(30, peer.Known{Name: "c", Instance: 30, Gone: true})
			}
			j.core.Up(10)
			j.says(10, peer.Known{Name: "a", Instance: 10, Joining: true})
			j.beats(10, 1500*ms)
			if got := j.seen(); got != alone+" b/20"+leaver {
				t.Fatalf("before it leaves it sees %q", got)
			}
			j.takeKnown(10)
			if !answers {
				j.pass(limiter.Second)
			}
			began, left := j.now, limiter.Tick(0)
			if err := j.Leave(func(bool) { left = j.now }); err != nil {
				t.Fatal(err)
			}
			want := alone + " b/20 leaving" + leaver
			if answers {
				j.beats(10, 1500*ms)
				want = alone + " a/10 b/20 leaving" + leaver
			} else {
				j.pass(1500 * ms)
			}
			if got := j.seen(); got != want {
				t.Errorf("when it leaves it sees %q, want %q", got, want)
			}
			word := peer.Known{Name: "b", Instance: 20, Gone: true}
			if got := j.takeKnown(10); !slices.ContainsFunc(got, word.Equal) {
				t.Errorf("a is told %+v", got)
			}
			j.pass(limiter.Minute)
			if !answers {
				within(t, "left", left-began, 3*limiter.Second, 3100*ms)
			}
		})
	}
}

// A handover that does not succeed is given up after ten seconds.
func TestLeaveIsBounded(t *testing.T) {
	j := newJoiner(0)
	j.pass(limiter.Second)
	j.Update([]peer.Member{other("a", 10, peer.Active)})
	j.pass(ms)
	began, left := j.now, limiter.Tick(0)
	if err := j.Leave(func(ok bool) {
		if left = j.now; ok {
			t.Error("it says that all was handed over, to nobody")
		}
	}); err != nil {
		t.Fatal(err)
	}
	j.pass(limiter.Minute)
	within(t, "given up", left-began, 10*limiter.Second, 10100*ms)
}

func TestRulesAreTold(t *testing.T) {
	j := newJoiner(0)
	j.SetRules(5)
	j.SetRules(5)
	if len(j.told) != 1 || j.told[0].RulesHash != 5 {
		t.Errorf("the others were told %v", j.told)
	}
	j.Close()
	views := len(j.rings)
	j.Update([]peer.Member{other("a", 10, peer.Active)})
	j.pass(limiter.Second)
	if len(j.rings) != views {
		t.Error("after Close a view was built")
	}
}

// A member that such a node takes into its view remembers ids if one of its name did, or else if
// this node does: what is handed over to it has the ids with the charges.
func TestLeaveKnowsWhoRemembersIDs(t *testing.T) {
	j := newJoinerWith(0, []int{1}, func(c *members.Config) { c.Self.Wire = peer.LeaseWire })
	j.core.Up(10)
	j.says(10, peer.Known{Name: "a", Instance: 10, Joining: true})
	j.beats(10, 1500*ms)
	if err := j.Leave(func(bool) {}); err != nil {
		t.Fatal(err)
	}
	j.beats(10, 1500*ms)
	if m := j.core.View().Member(10); m == nil || m.Wire != peer.LeaseWire {
		t.Errorf("in the view is %+v", m)
	}
	r := members.NewRegistry("")
	r.Set([]peer.Member{{Name: "a", Instance: 10, State: peer.Active, Wire: 2}}, nil, 1)
	r.Set(nil, []peer.Known{{Name: "a", Instance: 10, Gone: true}}, 2)
	r.Hear(11, []peer.Known{{Name: "a", Instance: 11, Joining: true}}, 0, 3)
	if a, b := r.Wire("a", 3), r.Wire("b", 3); a != 2 || b != 3 {
		t.Errorf("the versions are %d and %d, want 2 and 3", a, b)
	}
}
