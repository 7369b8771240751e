package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// meanwhile are what becomes of an owner that stood still, and is asked for an amendment meanwhile.
var meanwhile = map[string]func(d *directed, heir *Node){
	"its heir owns":            func(*directed, *Node) {},
	"its heir has handed over": func(d *directed, heir *Node) { heir.leave(func() {}); d.pass(2 * limiter.Second) },
	"its heir goes on":         func(d *directed, heir *Node) { d.demandAt(heir, 3, 5*ms) },
}

// TestAPausedOwnerSettles: an owner stands still while it is asked to settle, to extend or to cancel, and its heir
// takes over. When it goes on it does so before it hears of that. Whatever the client is told, what was used is
// counted once: not less because the id alone comes to the new owner, and not twice.
func TestAPausedOwnerSettles(t *testing.T) {
	worlds(t)
	for name, test := range map[string]struct {
		id, cost uint64
		amend    limiter.Amend
		counts   int // of it, in the end
	}{
		"above the estimate":   {id: 1, cost: 30, counts: 30},
		"below the estimate":   {id: 1, cost: 4, counts: 4},
		"cancelled":            {id: 1, counts: 0},
		"an id that is over":   {id: 2, cost: 25, counts: 10 + 25},
		"raised, and not used": {id: 1, cost: 35, amend: limiter.Amend{Extend: true}, counts: 35},
	} {
		for after, happens := range meanwhile {
			t.Run(name+", "+after, func(t *testing.T) {
				eachSeed(t, func(t *testing.T, seed uint64) {
					d := direct(t, seed, 4, limiter.UnreachableClosed, limiter.ReplicationStrict)
					owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
					third := d.others(owner, heir)[0]
					d.reserve(third, 1, 10)
					d.pass(300 * ms)
					owner.pause()
					x := d.amend(owner, test.id, test.cost, test.amend)
					d.demandAt(third, 20, 5*ms)
					d.pass(600 * ms)
					happens(d, heir)
					owner.resume()
					d.pass(4 * limiter.Second)
					if !x.done {
						d.fails("not answered")
					}
					if x.out.Unanswered != 0 { // the client asks again, as it is told to
						x = d.amend(third, test.id, test.cost, test.amend)
						d.pass(500 * ms)
					}
					if s := x.out.Amended; s == nil || s.State > limiter.AmendCharged {
						d.fails("answered with %+v", x.out)
					}
					d.counts(test.counts+len(d.given), "in the end")
				})
			})
		}
	}
}

// TestACutOffOwnerSaysNothingOfReservations: an owner is cut off and its heir takes over, while clients reach
// both. What the former owner knows of an id is old. Whatever it would answer, it says nothing without its heir, and
// the truth once it is back.
func TestACutOffOwnerSaysNothingOfReservations(t *testing.T) {
	worlds(t)
	ignore, extend := limiter.Amend{IgnoreUnknown: true}, limiter.Amend{Extend: true}
	for at, wait := range map[string]limiter.Tick{"at once": 0, "while the others find out": 150 * ms, "later": 700 * ms} {
		t.Run(at, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				d := direct(t, seed, 5, limiter.UnreachableClosed, limiter.ReplicationStrict)
				owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
				rest := d.others(owner, heir)
				d.reserve(rest[0], 1, 10)
				d.reserve(rest[0], 2, 8)
				d.settledAs(rest[0], 2, 5, limiter.AmendDone)
				d.pass(300 * ms)
				d.part([]*Node{owner}, append([]*Node{heir}, rest...))
				d.demandAt(rest[0], 3, 20*ms)
				d.pass(wait)
				for what, x := range map[string]*amending{
					"a cancel of what others reserve":    d.amend(owner, 3, 0, ignore),
					"an extension of what others do":     d.amend(owner, 3, 20, extend),
					"a settlement of what others settle": d.amend(owner, 1, 6, ignore),
					"an extension beyond the limit":      d.amend(owner, 1, 61, extend),
					"another number":                     d.amend(owner, 2, 7, limiter.Amend{}),
					"the same number":                    d.amend(owner, 2, 5, limiter.Amend{}),
					"an id that is over":                 d.amend(owner, 4, 9, limiter.Amend{}),
				} {
					d.pass(400 * ms)
					if !x.done || x.out.Unanswered != 1 {
						d.fails("%s: the owner that is cut off answers: %t, %+v", what, x.done, x.out.Amended)
					}
				}
				d.reserve(rest[1], 3, 20)
				d.settledAs(rest[1], 1, 4, limiter.AmendDone)
				d.heal()
				d.pass(3 * limiter.Second)
				for _, n := range []*Node{owner, rest[1]} {
					if a := d.amended(n, 1, 6, limiter.Amend{}, limiter.AmendSettled); a.First != 4 {
						d.fails("%s: it stands for %d, want 4", n.name, a.First)
					}
				}
				d.settledAs(owner, 3, 15, limiter.AmendDone)
				d.counts(4+5+15+len(d.given), "in the end")
			})
		})
	}
}

// TestAReservationEndsWhileAnOwnerIsCutOff: an owner that nobody hears is asked to settle, and its heir takes over,
// where the reservation ends by itself before the owner is back. Its client was not answered. When it asks again,
// what it is then told is counted: a new charge or, if a frame of the first request came late, a repeated one.
func TestAReservationEndsWhileAnOwnerIsCutOff(t *testing.T) {
	worlds(t)
	for cut, oneWay := range map[string]bool{"in one direction": true, "in both": false} {
		for name, test := range map[string]struct {
			cost, again uint64
			ignore      bool
		}{
			"with the same number":    {cost: 20, again: 20},
			"with another number":     {cost: 20, again: 8},
			"below the estimate":      {cost: 4, again: 4},
			"with if_unknown: ignore": {cost: 20, again: 20, ignore: true},
		} {
			t.Run(name+", cut off "+cut, func(t *testing.T) {
				eachSeed(t, func(t *testing.T, seed uint64) {
					d := direct(t, seed, 4, limiter.UnreachableClosed, limiter.ReplicationStrict)
					owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
					third := d.others(owner, heir)[0]
					d.reserve(third, 1, 10)
					d.pass(300 * ms)
					for _, n := range d.others(owner) {
						d.sever(pair{owner.inst, n.inst})
						if !oneWay {
							d.sever(pair{n.inst, owner.inst})
						}
					}
					d.pass(20 * ms)
					a := limiter.Amend{IgnoreUnknown: test.ignore}
					x := d.amend(owner, 1, test.cost, a)
					d.demandAt(third, 30, 5*ms)
					d.pass(limiter.Span(heldFor) + limiter.Second)
					if !x.done || x.out.Unanswered != 1 {
						d.fails("the owner that nobody hears answers: %t, %+v", x.done, x.out.Amended)
					}
					d.heal()
					d.pass(3 * limiter.Second)
					x = d.amend(third, 1, test.again, a)
					d.pass(500 * ms)
					if !x.done || x.out.Unanswered != 0 {
						d.fails("asked again: answered %t, %+v", x.done, x.out)
						return
					}
					stands := test.again
					switch s := x.out.Amended; s.State {
					case limiter.AmendCharged, limiter.AmendRepeated:
					case limiter.AmendSettled:
						stands = s.First
					case limiter.AmendUnknown:
						stands = 0
					default:
						d.fails("answered with %+v", s)
					}
					if stands == 0 && !test.ignore {
						d.fails("nothing was charged")
					}
					d.counts(int(stands)+len(d.given), "in the end")
					d.settles()
				})
			})
		}
	}
}
