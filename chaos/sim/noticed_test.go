package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const (
	shortLimit  = 20
	shortWindow = limiter.Second
)

// recovers gives the key of a directed run a limit that recovers each second, at all nodes, and lets their clocks be
// right.
func (d *directed) recovers() {
	r := &limiter.Rule{Name: "r", OnUnreachable: d.key.rule.OnUnreachable, Replication: d.key.rule.Replication}
	r.Limits = limits(limiter.Spec{Limit: shortLimit, Window: time.Second, Algorithm: limiter.FixedWindow})
	for _, n := range d.live() {
		n.rules["r"], n.clock = r, clock{}
	}
	d.key.rule = r
}

// eachWindow has clients ask all nodes for a span. It returns what owners and heirs admit in each window, of
// what was asked for and answered within one.
func (d *directed) eachWindow(span limiter.Tick) map[limiter.Tick]int {
	given := map[limiter.Tick]int{}
	for at := limiter.Tick(0); at < span; at += 20 * ms {
		for _, n := range d.live() {
			d.after(at, func() {
				var c arith.Charge
				c.Add(d.key.key(n, 1))
				answer, call := new(limiter.Decision), d.now
				n.do(func() {
					n.core.Begin(&c, answer, 0, func() {
						if answer.Allowed && !answer.Source.ByPolicy() && call/shortWindow == d.now/shortWindow {
							given[call/shortWindow]++
						}
					})
				})
			})
		}
	}
	return given
}

// A split under local: the side that is in a minority, or each of two halves, applies its share from when few answered
// its claim, and not only when gossip has lost the others. So short windows that begin after that have 1.5 times the
// limit at most, as long ones. Meanwhile, and in the window of the cut, each side may have the limit.
func TestASplitIsNoticedByItsClaims(t *testing.T) {
	worlds(t)
	for _, size := range []int{2, 3, 4, 5} {
		for minority := 1; 2*minority <= size; minority++ {
			for _, with := range [][]peer.Role{{peer.Owned}, {peer.Heir}, {peer.Owned, peer.Heir}} {
				if len(with) > minority {
					continue
				}
				t.Run(fmt.Sprintf("%d of %d with %v", minority, size, with), func(t *testing.T) {
					eachSeed(t, func(t *testing.T, seed uint64) {
						d := direct(t, seed, size, limiter.UnreachableLocal, limiter.ReplicationLag)
						d.recovers()
						var small []*Node
						for _, r := range with {
							small = append(small, d.holder(r))
						}
						small = append(small, d.others(d.holder(peer.Owned), d.holder(peer.Heir))[:minority-len(with)]...)
						d.pass(shortWindow - (d.now-epoch)%shortWindow + limiter.Tick(seed%10)*90*ms)
						given := d.eachWindow(8 * limiter.Second)
						cut := d.now
						d.part(small, d.others(small...))
						d.pass(8 * limiter.Second)
						for w, units := range given {
							most := max(shortLimit*3/2, shortLimit+2)
							if w*shortWindow <= cut {
								most = 2*shortLimit + 1
							}
							if units > most {
								d.fails("%d of %d are admitted in the window from %v after the cut, at most %d", units, shortLimit,
									(w*shortWindow - cut).Duration(), most)
							}
						}
						// What a node asks in one window and is answered in the next counts in neither.
						if last := given[(cut+6*limiter.Second)/shortWindow]; last < shortLimit/2-size {
							d.fails("only %d of %d are admitted in a window later on", last, shortLimit)
						}
					})
				})
			}
		}
	}
}

// An owner that is cut off together with its heir claims nothing. It knows before others can own what it has.
func TestACutIsNoticedWithoutAClaim(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 5, limiter.UnreachableLocal, limiter.ReplicationLag)
		d.recovers()
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		d.eachWindow(2 * limiter.Second)
		d.pass(limiter.Second)
		d.part([]*Node{owner, heir}, d.others(owner, heir))
		d.pass(900 * ms)
		if by := d.answeredBy(owner); by != limiter.SourceShare {
			d.fails("0.9 s after the cut the owner answers as %v, want its share", by)
		}
	})
}

// answeredBy returns who answers a check of one unit at an owner.
func (d *directed) answeredBy(owner *Node) limiter.Source {
	d.t.Helper()
	answer := new(limiter.Decision)
	var c arith.Charge
	c.Add(d.key.key(owner, 1))
	owner.do(func() { owner.core.Begin(&c, answer, 0, func() {}) })
	d.pass(10 * ms)
	return answer.Source
}

// An owner that is asked nothing while it is cut off knows as soon as gossip has lost the first member, since it asks
// the others then: it does not wait until gossip has lost a majority.
func TestACutIsNoticedByTheFirstThatIsLost(t *testing.T) {
	worlds(t)
	early := 0
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 5, limiter.UnreachableLocal, limiter.ReplicationLag)
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		d.part([]*Node{owner, heir}, d.others(owner, heir))
		for len(owner.core.View().Members) == 5 {
			d.pass(ms)
		}
		if d.pass(120 * ms); !owner.core.View().Minority() {
			early++
		}
		if by := d.answeredBy(owner); by != limiter.SourceShare {
			d.fails("120 ms after gossip has lost a member the owner answers as %v, want its share", by)
		}
	})
	if early == 0 {
		t.Error("premise: in no run gossip loses one member long before the others")
	}
}

// A member that stands still for a moment makes no minority of a cluster of three, and of two only while it does: the
// heir that takes over applies a half until it answers again.
func TestAPauseIsNoSplit(t *testing.T) {
	worlds(t)
	for _, size := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				d := direct(t, seed, size, limiter.UnreachableLocal, limiter.ReplicationLag)
				d.recovers()
				owner := d.holder(peer.Owned)
				d.pass(shortWindow - (d.now-epoch)%shortWindow)
				given := d.eachWindow(6 * limiter.Second)
				from := d.now
				owner.pause()
				d.pass(700 * ms)
				owner.resume()
				d.pass(6 * limiter.Second)
				for _, w := range slices.Sorted(func(yield func(limiter.Tick) bool) {
					for w := range given {
						if !yield(w) {
							return
						}
					}
				}) {
					late := w*shortWindow >= from+2*limiter.Second && w*shortWindow < from+5*limiter.Second
					if units := given[w]; (late || size > 2 && w*shortWindow == from) && units < shortLimit*3/4 {
						d.fails("%d of %d are admitted in the window from %v after the pause began", units, shortLimit,
							(w*shortWindow - from).Duration())
					}
				}
			})
		})
	}
}
