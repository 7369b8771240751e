package mesh

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

const (
	self   peer.Instance = 0xa
	other  peer.Instance = 0xb
	third  peer.Instance = 0xc
	fourth peer.Instance = 0xd
)

// node is a mesh whose surroundings the test plays.
type node struct {
	*Mesh
	Writer
	now     limiter.Tick
	members []peer.Member
	waiting map[uint64]bool
	woken   []peer.Instance
	relayed int
	panicAt int // after how many keys of a batch; 0 means never
}

// newNode returns the mesh of self, which is up with three other members.
func newNode() *node {
	n := &node{now: 1_700_000_000 * limiter.Second, waiting: map[uint64]bool{}}
	for i, name := range []string{"a", "b", "c", "d"} {
		n.members = append(n.members, peer.Member{Name: name, Instance: self + peer.Instance(i), State: peer.Active})
	}
	n.Mesh = New(Config{
		Self: self, Now: func() limiter.Tick { return n.now },
		View:    func() *view.View { return view.New(self, n.members, nobody{}, 0, 0) },
		Wake:    func(to peer.Instance) { n.woken = append(n.woken, to) },
		Waiting: func(id uint64) bool { return n.waiting[id] }, Relayed: func() { n.relayed++ },
		Counters: oneCounter{}, Probe: 7,
		Fault: func(uint16) {
			if n.panicAt--; n.panicAt == 0 {
				panic("half written")
			}
		},
	})
	n.Begin(n.Mesh)
	for _, i := range []peer.Instance{other, third, fourth} {
		n.Up(i)
	}
	return n
}

type nobody struct{}

func (nobody) Owner(int) int     { return -1 }
func (nobody) Successor(int) int { return -1 }

// oneCounter has one counter for each key.
type oneCounter struct{}

func (oneCounter) PrefetchKey(int, uint64) {}

func (oneCounter) ExportIDs(int, uint64, limiter.Tick, func(table.ID)) uint64 { return 0 }

func (oneCounter) ExportKey(_ int, hi uint64, _ limiter.Tick, visit func(table.Entry)) {
	visit(table.Entry{Hi: hi, Limit: hourly})
}

var hourly, errHourly = limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Window: time.Hour})

// flush ends a turn, and returns the requests that are lost.
func (n *node) flush() (lost []Lost) {
	for n.Flush() {
	}
	for x, ok := n.Lost(); ok; x, ok = n.Lost() {
		lost = append(lost, x)
	}
	n.End()
	return lost
}

// take returns all frames for a member.
func (n *node) take(to peer.Instance) (all []*peer.Frame) {
	for f := n.Take(to, true); f != nil; f = n.Take(to, true) {
		all = append(all, f)
	}
	return all
}

func (n *node) down(i peer.Instance) {
	s, _ := n.Down(i, n.now)
	n.Redirect(s)
}

// asks returns a frame of this node with one check for third, which somebody waits for.
func (n *node) asks(id uint64) *peer.Frame {
	n.waiting[id] = true
	return &peer.Frame{From: self, To: third, Checks: []peer.Check{{ID: id}}}
}

// A relay without room is skipped, a frame that a member has already is not given to it
// again, and an abandoned request is not relayed.
func TestWhoRelaysWhat(t *testing.T) {
	n := newNode()
	to := []*link{n.link(other), n.link(fourth)}
	for range maxRelayed {
		to[0].carry(new(peer.Frame), n.now)
	}
	asks, tells := n.asks(1), &peer.Frame{From: self, To: third, Replies: []peer.Reply{{ID: 9}}}
	n.carry(carriers{seen: to}, []*peer.Frame{asks, tells, tells})
	if got := n.take(fourth); len(got) != 2 || got[0] != asks || got[1] != tells || n.relayed != 3 {
		t.Errorf("the one with room is to relay %v, want both frames, once", got)
	}
	n.take(other)
	n.down(third)
	dead := &peer.Frame{From: self, To: third, Checks: []peer.Check{{ID: 2}}}
	n.Redirect(Stranded{carried: []*peer.Frame{dead, tells}})
	if a, b := len(n.take(other)), len(n.take(fourth)); a != 1 || b != 1 {
		t.Errorf("the others are to relay %d and %d frames, want the reply and not a check that is over", a, b)
	}
}

// Requests that no member can relay are handed back.
func TestLostRequestsAreHandedBack(t *testing.T) {
	n := newNode()
	n.carry(carriers{}, []*peer.Frame{n.asks(1), {To: third, Refunds: []peer.Refund{{}, {ID: 2}}}})
	if got := n.flush(); len(got) != 2 || got[0] != (Lost{1, third}) || got[1] != (Lost{2, third}) {
		t.Errorf("lost are %v, want both that somebody waits for", got)
	}
	if n.Pending() {
		t.Error("something is left")
	}
}

// A member is out of reach: what is said to it goes to relays, a request to one of them.
func TestAMemberOutOfReach(t *testing.T) {
	n := newNode()
	n.Status(third, peer.Reply{ID: 9})
	n.Check(third, new(arith.Charge), false, peer.Check{ID: 1})
	n.down(third)
	if lost := n.flush(); len(lost) != 0 {
		t.Errorf("lost are %v", lost)
	}
	replies, checks := 0, 0
	for _, to := range []peer.Instance{other, fourth} {
		for _, f := range n.take(to) {
			if f.To != third || f.From != self {
				t.Errorf("%v is to relay %+v", to, f)
			}
			replies += len(f.Replies)
			checks += len(f.Checks)
		}
	}
	if replies != 2 || checks != 1 || len(n.take(third)) != 0 {
		t.Errorf("%d replies and %d checks are relayed, want both relays to have the reply and one the check", replies,
			checks)
	}
}

// What a member out of reach has asked by a relay that is not in the view yet, is answered
// by that relay, while it is connected. Nobody else outside the view relays anything.
func TestWhoHasAskedByARelayIsAnsweredByIt(t *testing.T) {
	for name, one := range map[string]struct {
		before func(n *node)
		want   int
	}{
		"it carried the question": {func(n *node) {
			n.Received(&peer.Frame{From: other, Relayed: true, Via: fourth}, n.now)
		}, 1},
		"it carried nothing": {func(*node) {}, 0},
		"it is gone": {func(n *node) {
			n.Received(&peer.Frame{From: other, Relayed: true, Via: fourth}, n.now)
			n.down(fourth)
		}, 0},
		"it leaves": {func(n *node) {
			n.Received(&peer.Frame{From: other, Relayed: true, Via: fourth}, n.now)
			n.Introduced(peer.Known{Name: "d", Instance: fourth, Gone: true})
		}, 0},
	} {
		n := newNode()
		n.members = n.members[:2]
		n.down(other)
		one.before(n)
		n.Answer(other, peer.Answer{Partition: 7})
		n.flush()
		if got := len(n.take(fourth)); got != one.want {
			t.Errorf("%s: it is to relay %d frames, want %d", name, got, one.want)
		}
	}
}

// A relay that is not in the view may have ended, and its connection lasts: a request goes to one in the view,
// whichever of them carried something last. What is no request goes to the others as well as to it.
func TestARelayOutOfTheViewIsAskedLast(t *testing.T) {
	const fifth, sixth peer.Instance = 0xe, 0xf
	for name, seen := range map[string][]peer.Instance{"alone": nil, "one": {third},
		"as many as there can be": {third, fifth, sixth}} {
		n := newNode()
		n.members = n.members[:2] // fourth has ended
		for _, i := range seen {
			n.members = append(n.members, peer.Member{Name: i.String(), Instance: i, State: peer.Active})
			n.Up(i)
		}
		n.down(other)
		n.Received(&peer.Frame{From: other, Relayed: true, Via: fourth}, n.now)
		for id := range uint64(4) {
			n.Check(other, new(arith.Charge), false, peer.Check{ID: 1 + id})
			n.flush()
		}
		n.Status(other, peer.Reply{ID: 9})
		if lost := n.flush(); len(lost) != 0 {
			t.Errorf("%s: lost are %v", name, lost)
		}
		checks, replies := map[bool]int{}, map[bool]int{}
		for _, to := range append(seen, fourth) {
			for _, f := range n.take(to) {
				checks[to == fourth] += len(f.Checks)
				replies[to == fourth] += len(f.Replies)
			}
		}
		if want := 4; len(seen) == 0 && checks[true] != want || len(seen) > 0 && checks[false] != want {
			t.Errorf("%s: relays in the view have %d requests, and the one that is not %d", name, checks[false], checks[true])
		}
		if replies[true] != 1 || replies[false] != min(len(seen), maxRelays-1) {
			t.Errorf("%s: %d relays in the view have the reply, and it is %d times at the one that is not", name, replies[false],
				replies[true])
		}
	}
}

// A connection that is suspect is better for a request than a relay out of the view, which may have ended: one packet
// was late, and the request would be lost until its caller gives up. What is no request goes both ways.
func TestASuspectConnectionIsBetterThanARelayOutOfTheView(t *testing.T) {
	for name, redirected := range map[string]bool{"a new request": false, "one that another relay had": true} {
		n := newNode()
		n.members = n.members[:2] // fourth has ended
		n.Received(&peer.Frame{From: other, Relayed: true, Via: fourth}, n.now)
		n.Claim(other, peer.Claim{Kind: peer.Ask}, true)
		n.flush()
		n.take(other)
		n.now += suspectAfter + 1
		n.Watch(n.now)
		n.take(other)
		if redirected {
			n.waiting[1] = true
			n.Redirect(Stranded{carried: []*peer.Frame{{From: self, To: other, Checks: []peer.Check{{ID: 1}}}}})
		} else {
			n.Check(other, new(arith.Charge), false, peer.Check{ID: 1})
		}
		n.Status(other, peer.Reply{ID: 9})
		n.flush()
		for to, want := range map[peer.Instance]int{other: 1, fourth: 0} {
			checks, replies := 0, 0
			for _, f := range n.take(to) {
				checks, replies = checks+len(f.Checks), replies+len(f.Replies)
			}
			if checks != want || replies != 1 {
				t.Errorf("%s: %v gets %d checks and %d replies, want %d and 1", name, to, checks, replies, want)
			}
		}
	}
}

// A relay from which something has come a moment ago gets requests before one that may have ended since.
func TestARelayThatWasHeardComesFirst(t *testing.T) {
	for ago, want := range map[limiter.Tick]int{freshFor: 0, freshFor - 1: 6} {
		n := newNode()
		n.down(third)
		n.Received(&peer.Frame{From: third, To: self, Relayed: true, Via: other}, n.now) // it would come first
		n.now += ago
		n.Received(&peer.Frame{From: fourth, To: self}, n.now)
		count := 0
		for id := range uint64(6) {
			n.Check(third, new(arith.Charge), false, peer.Check{ID: 1 + id})
			n.flush()
			for _, f := range n.take(other) {
				count += len(f.Checks)
			}
		}
		if count != want {
			t.Errorf("heard %v ago it gets %d requests of 6, want %d", ago.Duration(), count, want)
		}
	}
}

// A relay from which nothing comes back is suspect, although nothing that it relays is confirmed: a request goes to
// another one, until something comes from it or by it.
func TestASilentRelayIsSuspect(t *testing.T) {
	for name, one := range map[string]struct {
		then  func(n *node)
		again bool // it gets requests
	}{
		"nothing comes":                  {func(*node) {}, false},
		"it says that a request is lost": {func(n *node) { n.Received(&peer.Frame{From: other, To: self}, n.now) }, true},
		"it carries an answer": {func(n *node) {
			n.Received(&peer.Frame{From: third, To: self, Relayed: true, Via: other}, n.now)
		}, true},
		"another carries an answer": {func(n *node) {
			n.Received(&peer.Frame{From: third, To: self, Relayed: true, Via: fourth}, n.now)
		}, false},
		"it is connected anew":  {func(n *node) { n.now += freshFor; n.down(other); n.Up(other) }, true},
		"this node stood still": {func(n *node) { n.now += freshFor; n.Restart(n.now) }, true},
	} {
		n := newNode()
		n.down(third)
		requests := func() (count int) {
			for id := range uint64(6) {
				n.Check(third, new(arith.Charge), false, peer.Check{ID: 1 + id})
				n.flush()
			}
			for _, f := range n.take(other) {
				count += len(f.Checks)
			}
			n.take(fourth)
			n.Received(&peer.Frame{From: fourth, To: self}, n.now)
			return count
		}
		n.Status(third, peer.Reply{ID: 9})
		n.flush()
		n.take(other)
		n.now += 2 * suspectAfter
		n.Received(&peer.Frame{From: other, To: self}, n.now) // else it comes last, suspect or not
		if requests() == 0 {
			t.Fatalf("%s: the rotation gives it no request, and a reply was given to it before", name)
		}
		n.now += suspectAfter + 1
		if one.then(n); (requests() > 0) != one.again {
			t.Errorf("%s: it gets requests %t, want %t", name, !one.again, one.again)
		}
	}
}

// A silent connection is suspect: messages go both ways, requests only by a relay.
func TestASilentConnection(t *testing.T) {
	n := newNode()
	n.Claim(third, peer.Claim{Kind: peer.Ask}, true)
	n.flush()
	if n.take(third); !n.Watch(n.now) {
		t.Error("an answer is expected, and nobody watches")
	}
	n.now += suspectAfter + 1
	n.Watch(n.now)
	if f := n.take(third); len(f) != 1 || len(f[0].Claims) != 1 || f[0].Claims[0].Partition != 7 {
		t.Errorf("it is probed by %+v", f)
	}
	n.Status(third, peer.Reply{ID: 9})
	n.Check(third, new(arith.Charge), false, peer.Check{ID: 1})
	n.flush()
	if got := n.take(third); len(got) != 1 || len(got[0].Replies) != 1 || len(got[0].Checks) != 0 {
		t.Errorf("sent directly is %+v, want the reply", got)
	}
	checks := 0
	for _, f := range append(n.take(other), n.take(fourth)...) {
		checks += len(f.Checks)
	}
	if checks != 1 {
		t.Errorf("%d checks are relayed, want one", checks)
	}
	n.Received(&peer.Frame{From: third, To: self, Got: 99}, n.now)
	if n.Watch(n.now); n.link(third).line.suspect {
		t.Error("it is suspect after it confirmed everything")
	}
}

// A connection is cut, and a packet to the only relay is late. A request goes to that relay all
// the same, since the other connection is silent for longer.
func TestARelayThatIsLateIsBetterThanNone(t *testing.T) {
	for name, one := range map[string]struct {
		silent []peer.Instance // since one after the other
		relays peer.Instance   // who gets the check for third; third: it is sent directly
	}{
		"all relays are late":              {[]peer.Instance{third, fourth, other}, other},
		"one relay is late":                {[]peer.Instance{third, fourth}, other},
		"all relays are silent for longer": {[]peer.Instance{other, fourth, third}, third},
	} {
		n := newNode()
		for _, to := range one.silent {
			n.Claim(to, peer.Claim{Kind: peer.Ask}, true)
			n.flush()
			n.take(to)
			n.now++
		}
		n.now += suspectAfter
		n.Watch(n.now)
		n.Check(third, new(arith.Charge), false, peer.Check{ID: 1})
		if lost := n.flush(); len(lost) != 0 {
			t.Errorf("%s: lost are %v", name, lost)
		}
		for _, to := range []peer.Instance{other, third, fourth} {
			for _, f := range n.take(to) {
				if len(f.Checks) > 0 && to != one.relays {
					t.Errorf("%s: the check is sent to %v, want %v", name, to, one.relays)
				}
			}
		}
	}
}

// A frame of another member comes for a connection that is silent. Requests are said to be
// lost, so that they can be asked again. A reply waits for the connection.
func TestAReplyWaitsForASilentConnection(t *testing.T) {
	n := newNode()
	n.Claim(third, peer.Claim{Kind: peer.Ask}, true)
	n.flush()
	n.take(third)
	n.now += suspectAfter + 1
	n.Watch(n.now)
	n.take(third)
	n.Relay(&peer.Frame{From: other, To: third, Replies: []peer.Reply{{ID: 9}}})
	n.Relay(&peer.Frame{From: other, To: third, Checks: []peer.Check{{ID: 7}}})
	if got := n.take(third); len(got) != 1 || len(got[0].Replies) != 1 || got[0].Via != self {
		t.Errorf("relayed are %+v, want the reply", got)
	}
	if said := n.take(other); len(said) != 1 || len(said[0].Replies) != 1 || said[0].Replies[0].Status != peer.Lost {
		t.Errorf("said is %+v, want that the check is lost", said)
	}
}

// A frame for a member that is in reach again is sent directly when its relay fails, and
// as a copy that others do not share.
func TestInReachAgain(t *testing.T) {
	n := newNode()
	n.members = n.members[:3] // other is the only relay
	tells := &peer.Frame{From: self, To: third, Replies: []peer.Reply{{ID: 9}}}
	n.carry(carriers{seen: []*link{n.link(other)}}, []*peer.Frame{n.asks(1), tells})
	n.down(other)
	got := n.take(third)
	if len(got) != 2 || len(got[0].Replies) != 1 || len(got[1].Checks) != 1 {
		t.Fatalf("it is given %+v, want the reply and the check", got)
	}
	if tells.Number != 0 {
		t.Error("a frame that others may still have is sent as if it were nobody else's")
	}
}

// A member for which this node was to relay requests is gone: their sender learns it.
func TestRelayedRequestsAreSaidToBeLost(t *testing.T) {
	n := newNode()
	n.Relay(&peer.Frame{From: other, To: third, Checks: []peer.Check{{ID: 7}}, Refunds: []peer.Refund{{ID: 8}, {}}})
	if _, queued := n.Size(); queued != 1 {
		t.Fatalf("%d frames are queued, want the one to be relayed", queued)
	}
	n.down(third)
	said := n.take(other)
	if len(said) != 1 || len(said[0].Replies) != 2 {
		t.Fatalf("said %+v, want that two are lost", said)
	}
	for i, r := range said[0].Replies {
		if r.ID != uint64(7+i) || r.Status != peer.Lost || r.Owner.Instance != third {
			t.Errorf("said %+v", r)
		}
	}
	if _, queued := n.Size(); queued != 0 {
		t.Errorf("%d frames are left", queued)
	}
}

// A name that restarts again and again is a new instance each time. What is kept of
// ended instances is bounded. An instance that is only out of reach, or only out of the
// view, stays.
func TestEndedInstancesAreForgotten(t *testing.T) {
	n := newNode()
	n.members = n.members[:2]
	const quick = 0x100 // instances that end after 10 s each
	most := 0
	for k := range 100 {
		n.Up(peer.Instance(quick + k))
		n.now += 10 * limiter.Second
		n.down(peer.Instance(quick + k))
		n.ForgetEnded(n.now)
		links, _ := n.Size()
		most = max(most, links)
	}
	if most > 12 {
		t.Errorf("at most %d links were kept, want those of a minute", most)
	}
	kept := func(i peer.Instance) bool { return n.links.Load().byID[i] != nil }
	if !kept(third) {
		t.Error("the link to a member that is out of view and connected is forgotten")
	}
	n.down(other)
	n.down(third)
	if n.ForgetEnded(n.now); !kept(third) {
		t.Error("a link that has just come down is forgotten")
	}
	n.now += 2 * limiter.Minute
	if n.ForgetEnded(n.now); !kept(other) || kept(third) {
		t.Error("a member in view is forgotten, or one out of view and reach for two minutes is kept")
	}
	n.down(third)
	if n.Reachable(third) || kept(third) {
		t.Error("a failed attempt to reach who is forgotten makes a link")
	}
	if n.link(third); kept(third) {
		t.Error("the link to somebody who is neither in view nor connected is kept")
	}
}

// The numbers of frames continue after a link was removed: the other side remembers the
// highest, and would seem to confirm frames that it never got.
func TestNumbersOfFramesContinue(t *testing.T) {
	n := newNode()
	last := uint64(0)
	for range 20 {
		n.Known(third, []peer.Known{{Name: "x", Instance: 1}})
		n.flush()
		last = n.Take(third, true).Number
	}
	n.members = n.members[:2]
	n.down(third)
	n.down(fourth) // its numbers are low
	n.now += 2 * limiter.Minute
	n.ForgetEnded(n.now)
	n.Up(third)
	n.Known(third, []peer.Known{{Name: "x", Instance: 1}})
	f := n.Take(third, true)
	if f == nil || f.Number <= last {
		t.Fatalf("it begins with %+v, want a number above %d", f, last)
	}
	n.Received(&peer.Frame{From: third, To: self, Number: 1, Got: last}, n.now)
	if n.link(third).line.lacks == 0 {
		t.Error("a frame that was not received is confirmed")
	}
}

// For a member that reads nothing, this node keeps a bounded number of bytes.
func TestAMemberThatReadsNothing(t *testing.T) {
	n := newNode()
	for range 800_000 {
		n.Answer(other, peer.Answer{Role: peer.Copy})
	}
	o := &n.link(other).out
	bytes := 0
	for _, f := range o.control.full {
		bytes += weight(f)
	}
	if bytes > maxControlSize || bytes < maxControlSize/2 || bytes != o.controlSize {
		t.Errorf("%d bytes wait, which are counted as %d, of %d at most", bytes, o.controlSize, maxControlSize)
	}
	if n.take(other); o.controlSize != 0 {
		t.Errorf("%d bytes are counted where nothing waits", o.controlSize)
	}
}

// A frame carries at most as many results as a link accepts, however many replies there
// are.
func TestRepliesOfManyLimits(t *testing.T) {
	n := newNode()
	d := new(limiter.Decision)
	d.Grow(limiter.MaxKeys * limiter.MaxLimits)
	for i := range maxReplies {
		n.Reply(other, peer.Reply{ID: uint64(i + 1), Results: uint16(d.Len()), Idle: true}, d, d)
	}
	n.flush()
	replies := 0
	for _, f := range n.take(other) {
		replies += len(f.Replies)
		if len(f.Results) > 1<<16 {
			t.Errorf("a frame has %d results, which a link does not take", len(f.Results))
		}
	}
	if replies != maxReplies {
		t.Errorf("%d replies were sent, want %d", replies, maxReplies)
	}
}

// A panic while something is appended to a frame leaves the frame as it was, and the
// next frame is complete.
func TestAFrameIsWholeAfterAPanic(t *testing.T) {
	if errHourly != nil {
		t.Fatal(errHourly)
	}
	n := newNode()
	caught := 0
	batch := func(panics bool) {
		defer func() {
			if recover() != nil {
				caught++
			}
		}()
		keys := []uint64{7}
		if n.panicAt = 0; panics {
			keys, n.panicAt = []uint64{7, 8}, 2
		}
		n.Batch(other, &peer.Batch{Partition: 7, Kind: peer.Delta}, keys, table.NoIDs, n.now)
	}
	batch(true) // also its limit is appended again
	batch(false)
	batch(true)
	batch(false)
	f := n.Take(other, true)
	if caught != 2 || f == nil || len(f.Entries) != 2 || len(f.Batches) != 2 {
		t.Fatalf("after %d panics the frame is %+v", caught, f)
	}
	for _, e := range f.Entries {
		if int(e.Limit) >= len(f.Limits) {
			t.Errorf("an entry names limit %d of %d", e.Limit, len(f.Limits))
		}
	}
}

// Only so many snapshots may be under way to one member, until its connection breaks.
func TestSnapshotsUnderWay(t *testing.T) {
	n := newNode()
	for range maxSnapshots {
		if !n.BeginSnapshot(other, 1) {
			t.Fatal("there is no room")
		}
	}
	if under := n.link(other).snapshots; n.BeginSnapshot(other, 1) || under != maxSnapshots {
		t.Errorf("%d are under way, and more may be", under)
	}
	if n.EndSnapshot(other, 1); !n.BeginSnapshot(other, 1) {
		t.Error("one that ended makes no room")
	}
	n.down(other)
	if n.link(other).snapshots != 0 {
		t.Error("a broken connection carries snapshots")
	}
}

// Large snapshots are fewer, because checks wait behind them. One is always sent.
func TestLargeSnapshotsUnderWay(t *testing.T) {
	n := newNode()
	const third = maxSnapshotKeys / 3
	for i := range 3 {
		if !n.BeginSnapshot(other, third) {
			t.Fatalf("there is no room for snapshot %d of three thirds", i)
		}
	}
	if n.BeginSnapshot(other, third) {
		t.Error("four thirds are under way")
	}
	if n.EndSnapshot(other, third); !n.BeginSnapshot(other, third) {
		t.Error("one that ended makes no room")
	}
	n.down(other)
	if !n.BeginSnapshot(other, 2*maxSnapshotKeys) {
		t.Error("a snapshot above the bound is never sent")
	}
	if n.EndSnapshot(other, 2*maxSnapshotKeys); !n.BeginSnapshot(other, maxSnapshotKeys) || n.BeginSnapshot(other, 1) {
		t.Error("a large one that ended makes no room, or too much")
	}
}

// A member that gossip calls dead is asked, counts as alive while its answer may come,
// and is alive when it comes.
func TestAnswers(t *testing.T) {
	n := newNode()
	if !n.Answers(other, true, n.now) || len(n.take(other)) != 1 {
		t.Error("a member that was not heard of lately is not asked, or is not waited for")
	}
	n.now += answersWithin / 2
	for range 3 { // a long gap counts as lookGap
		n.now += 10 * limiter.Second
		if !n.Answers(other, true, n.now) {
			t.Fatal("the wait ends while this node was paused")
		}
	}
	n.now += lookGap
	if n.Answers(other, true, n.now) {
		t.Error("a silent member is alive")
	}
	n.Received(&peer.Frame{From: other, To: self, Number: 1}, n.now)
	if !n.Answers(other, false, n.now) || n.Answers(0x99, true, n.now) {
		t.Error("a member that has just spoken is dead, or a stranger is alive")
	}
}

// The counters of a batch are exported without an allocation for each key.
func TestKeysOfABatchAllocateNothing(t *testing.T) {
	n := newNode()
	keys := make([]uint64, 500)
	allocs := testing.AllocsPerRun(50, func() {
		n.Batch(other, &peer.Batch{}, keys, table.NoIDs, n.now)
		for _, f := range n.take(other) {
			if len(f.Entries) != len(keys) {
				t.Fatalf("%d counters of %d keys were sent", len(f.Entries), len(keys))
			}
			n.Release(f)
		}
	})
	if allocs > float64(len(keys))/2 {
		t.Errorf("%v allocations for a batch of %d keys", allocs, len(keys))
	}
}
