package sim

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// One node serves, and four start at the same moment. At first only one of them is linked
// to the node that serves, which hears of the others by that one. They are joining, and do
// not make a minority of it.
func TestJoiningTogetherDeniesNothing(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 1, limiter.UnreachableLocal, limiter.ReplicationLag)
		first := d.live()[0]
		for _, name := range []string{"b", "c", "d", "e"} {
			d.start(name, false, first.rules, 5)
		}
		late := d.live()[2:]
		d.part([]*Node{first}, late)
		d.after(400*ms, func() { d.link([]*Node{first}, late) })
		d.demandAt(first, limitOfDirected, 8*ms)
		d.pass(8 * limiter.Second)
		if len(d.given) != limitOfDirected {
			d.fails("%d of %d are admitted while four members join, %d denied, %d answered by policy", len(d.given),
				limitOfDirected, d.key.denied, d.key.fallbacks)
		}
		d.settles()
	})
}

// One node serves and another starts. Gossip at the first takes the other for dead for five
// seconds, while their link works: it is on no other side of a split, so it makes no minority
// of the first.
func TestWhoIsSuspectedWhileItStartsDeniesNothing(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 1, limiter.UnreachableLocal, limiter.ReplicationLag)
		first := d.live()[0]
		d.start("b", false, first.rules, 2)
		p := pair{first.inst, d.live()[1].inst}
		d.suspects[p] = true
		d.after(5*limiter.Second, func() { delete(d.suspects, p) })
		d.demandAt(first, limitOfDirected, 80*ms)
		d.pass(10 * limiter.Second)
		if len(d.given) != limitOfDirected {
			d.fails("%d of %d are admitted, %d denied, %d answered by policy", len(d.given), limitOfDirected, d.key.denied,
				d.key.fallbacks)
		}
		d.settles()
	})
}

// Three nodes serve, one crashes, and another starts and stands still before it is active. It is on no other side of a
// split, so the two that are left are no minority.
func TestWhoStandsStillWhileItStartsDeniesNothing(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableLocal, limiter.ReplicationLag)
		owner := d.holder(peer.Owned)
		third := d.others(owner, d.holder(peer.Heir))[0]
		third.crash(true)
		for owner.sees(third) {
			d.pass(10 * ms)
		}
		d.start("y", false, owner.rules, 3)
		y := d.live()[2]
		for !owner.sees(y) {
			d.pass(10 * ms)
		}
		if y.members.State() != peer.Joining {
			return // gossip told of it late
		}
		y.pause()
		d.after(600*ms, y.resume)
		d.demandAt(owner, limitOfDirected, 8*ms)
		d.pass(10 * limiter.Second)
		if len(d.given) != limitOfDirected {
			d.fails("%d of %d are admitted, %d denied, %d answered by policy", len(d.given), limitOfDirected, d.key.denied,
				d.key.fallbacks)
		}
		d.settles()
	})
}

// One node serves and another starts. Gossip at the first never reports the other, while their
// link works. The first leaves: what it counted stands.
func TestLeavingToWhoIsUnseen(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 1, limiter.UnreachableClosed, limiter.ReplicationLag)
		first := d.live()[0]
		d.start("b", false, first.rules, 2)
		second := d.live()[1]
		d.suspects[pair{first.inst, second.inst}] = true
		d.demandAt(first, limitOfDirected/2, 20*ms)
		d.pass(4 * limiter.Second)
		leaves, left := d.now, limiter.Tick(0)
		first.leave(func() { left = d.now })
		d.demandAt(second, 2*limitOfDirected, 20*ms)
		d.pass(12 * limiter.Second)
		if took := left - leaves; left == 0 || took > 3*limiter.Second {
			d.fails("gone after %v", took.Duration())
		}
		if len(d.given) != limitOfDirected || d.key.fallbacks > 0 {
			d.fails("%d of %d are admitted, %d answered by policy", len(d.given), limitOfDirected, d.key.fallbacks)
		}
		d.settles()
	})
}

// After four of seven members were killed, three decide by 3/7 of the limits. Whoever is
// asked, the owner itself or another, says so, with the share; explain shows both.
func TestThreeOfSevenSaySo(t *testing.T) {
	worlds(t)
	s, _ := newSubject(t,
		"rules:\n  - {name: day, key: [user], limits: [{limit: 100, window: 1d, algorithm: fixed_window}]}\n").(*subject)
	pass := func(span limiter.Tick) {
		t.Helper()
		if err := s.w.run(span, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"d", "e", "f", "g"} {
		s.w.start(name, false, nil, 3)
	}
	for pass(5000 * ms); s.w.settled() != nil; {
		pass(100 * ms)
	}
	ask := func(user int) (d limiter.Decision, c arith.Charge, at *Node) {
		t.Helper()
		r := limiter.Request{User: fmt.Sprint("u", user)}
		if _, err := s.set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		if err := s.CheckInto(t.Context(), &r, &d); err != nil {
			t.Fatal(err)
		}
		live := s.w.live()
		return d, c, live[s.next%len(live)]
	}
	if d, _, _ := ask(0); d.Source != limiter.SourceOwner || d.Limit(0).InForce != 0 {
		t.Fatalf("of seven: %s, %d in force", d.Source, d.Limit(0).InForce)
	}
	for _, n := range s.w.live()[3:] { // one at a time, so that an owner or an heir is left
		n.crash(true)
		pass(5000 * ms)
	}
	elsewhere := 0
	for u := range 60 {
		d, c, at := ask(u)
		if d.Source != limiter.SourceShare || d.Limit(0).InForce != 42 || d.Limit(0).Limit.Limit() != 100 ||
			d.Limit(0).Remaining > 41 {
			t.Fatalf("user %d: %s, %d in force of %d, %d left", u, d.Source, d.Limit(0).InForce, d.Limit(0).Limit.Limit(),
				d.Limit(0).Remaining)
		}
		if d.Limit(0).Owner != at.name {
			elsewhere++
		}
		x := s.explained(at, &c)[0]
		want := fmt.Sprintf("fixed_window 100/day; in force: fixed_window 42/day, as %s sees 3 of 7 members",
			d.Limit(0).Owner)
		if x.Answer.Source != limiter.SourceShare || x.Answer.Limit(0).InForce != 42 || x.Limits[0].Limit != want {
			t.Fatalf("user %d is explained by %s: %s", u, x.Answer.Source, x.Limits[0].Limit)
		}
	}
	if elsewhere == 0 || elsewhere == 60 {
		t.Errorf("%d of 60 were decided by another node than was asked", elsewhere)
	}
}
