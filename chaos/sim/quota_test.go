package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

const quotaUnits = 200

// staying is how many reservations of one counter may stay after the crash: their cancels
// are sent once, and are lost if the partition changes hands.
const staying = 2

// sharedQuota has two rules that draw on one quota at different costs.
const sharedQuota = `
quotas:
  - {name: units, key: [group], limits: [{limit: 200, window: 400d, algorithm: fixed_window}], replication: strict, on_unreachable: closed}
rules:
  - {name: search, match: {path: "^/search"}, key: [user], limits: [{limit: 1000, window: 400d, algorithm: fixed_window}], quotas: [{name: units, cost: 5}], replication: strict, on_unreachable: closed}
  - {name: towns, match: {path: "^/towns"}, quotas: [units]}
`

// drawn is what clients were told of requests that draw on the quota.
type drawn struct {
	admitted, unsure int            // units of the quota
	own              map[string]int // admissions of rule search, by user
	lost             map[string]int // of which nobody knows, by user
}

// drawOn has a client make a request at a node, and notes the answer.
func (x *drawn) drawOn(d *directed, set *rules.Set, n *Node, r *limiter.Request) {
	var c arith.Charge
	if _, err := set.Resolve(r, &c); err != nil {
		d.t.Fatal(err)
	}
	cost, search := int(c.Key(c.Len()-1).Cost), c.Len() == 2
	x.unsure += cost
	if search {
		x.lost[r.User]++
	}
	answer := new(limiter.Decision)
	n.do(func() {
		n.core.Begin(&c, answer, 0, func() {
			if !n.alive || answer.Source.ByPolicy() {
				return // charged or not, nobody knows
			}
			x.unsure -= cost
			if search {
				x.lost[r.User]--
			}
			if answer.Allowed {
				if x.admitted += cost; search {
					x.own[r.User]++
				}
			}
		})
	})
}

func quotaUsers() []string { return []string{"ada", "bob", "eve", "kim"} }

// directQuota starts three nodes with the rules of sharedQuota, or with alternatives, which have settled. The key of
// the run is the quota's, or that of the last alternative.
func directQuota(t *testing.T, seed uint64, set *rules.Set, others ...*rules.Set) *directed {
	t.Helper()
	w := newWorld(seed)
	w.size, w.split = 3, true
	w.ruleNamed = func(name string) *limiter.Rule { return set.Rule(name) }
	d := &directed{World: w, t: t}
	var c arith.Charge
	seen := map[int]bool{}
	for _, at := range append([]*rules.Set{set}, others...) {
		for _, user := range quotaUsers() {
			if _, err := at.Resolve(&limiter.Request{Path: "/search", User: user}, &c); err != nil || c.Len() != 2 {
				t.Fatal(err, c.Len())
			}
			for i := range c.Len() {
				if p := table.PartitionOf(c.Key(i)); !seen[p] {
					seen[p] = true
					w.parts = append(w.parts, p)
				}
			}
		}
	}
	quota := *c.Key(1)
	d.key = &key{rule: quota.Rule, hash: quota.Hash, part: table.PartitionOf(&quota), limit: quotaUnits,
		byPolicy: map[string]int{}}
	for i := range w.size {
		w.start(string(rune('a'+i)), i == 0, nil, w.size)
	}
	d.pass(6 * limiter.Second)
	if err := w.settled(); err != nil {
		t.Fatal(err)
	}
	return d
}

// Nodes that draw on one quota for different rules, while its owner crashes, admit no more
// than it has and use all of it, and a request that it denies costs nothing in its rule, but
// for a few that were under way.
func TestSharedQuotaThroughACrash(t *testing.T) {
	set, err := rules.Parse("rules", []byte(sharedQuota), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	users := quotaUsers()
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := directQuota(t, seed, set)
		w := d.World
		x := &drawn{own: map[string]int{}, lost: map[string]int{}}
		for i := range 150 {
			w.after(limiter.Tick(i)*20*ms, func() {
				r := &limiter.Request{Path: []string{"/search", "/towns"}[w.rng.IntN(2)], User: users[w.rng.IntN(len(users))]}
				live := w.live()
				x.drawOn(d, set, live[w.rng.IntN(len(live))], r)
			})
		}
		d.pass(limiter.Second / 2)
		d.holder(peer.Owned).crash(true)
		d.pass(8 * limiter.Second)
		if x.admitted+x.unsure < quotaUnits-4-5*staying || x.admitted > quotaUnits {
			d.fails("%d units of %d were admitted, and perhaps %d more", x.admitted, quotaUnits, x.unsure)
		}
		for _, user := range users {
			var c arith.Charge
			r := &limiter.Request{Path: "/search", User: user, Cost: limiter.Units(0)}
			if _, err := set.Resolve(r, &c); err != nil {
				t.Fatal(err)
			}
			answer, done := new(limiter.Decision), false
			w.live()[0].core.Begin(&c, answer, 0, func() { done = true })
			d.pass(limiter.Second)
			if !done || answer.Source.ByPolicy() || answer.Allowed != (answer.Limit(1).Remaining > 0) {
				d.fails("%s: done %v, %+v", user, done, answer)
				continue
			}
			used := 1000 - int(answer.Limit(0).Remaining)
			if used < x.own[user] || used > x.own[user]+x.lost[user]+staying {
				d.fails("%s: rule search counts %d, and admitted %d, perhaps %d more", user, used, x.own[user], x.lost[user])
			}
		}
	})
}

// gave is an admission of a check over several keys.
type gave struct {
	user    string
	charge  arith.Charge
	receipt limiter.Receipt
}

// Receipts of a rule and the quota on which it draws take back all that was charged, at
// whichever owners. If the owner of the quota crashes before, what it charged stays, and the
// others' charges are taken back all the same; used again, a receipt with a number does
// nothing.
func TestRefundsOfSeveralOwnersThroughACrash(t *testing.T) {
	set, err := rules.Parse("rules", []byte(sharedQuota), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, crash := range map[string]bool{"no crash": false, "a crash": true} {
		t.Run(name, func(t *testing.T) {
			severalOwners := 0
			eachSeed(t, func(t *testing.T, seed uint64) { severalOwners += refundsOfAQuota(t, seed, set, crash) })
			if severalOwners == 0 {
				t.Error("no receipt has several owners")
			}
		})
	}
}

// ownerOf returns the live node that owns a partition.
func (d *directed) ownerOf(part int) *Node {
	for _, n := range d.live() {
		if info, _ := n.core.Partition(part); info.Role == peer.Owned {
			return n
		}
	}
	return nil
}

// refundsOfAQuota returns how many receipts had several parts.
func refundsOfAQuota(t *testing.T, seed uint64, set *rules.Set, crash bool) (severalOwners int) {
	d := directQuota(t, seed, set)
	users := quotaUsers()
	var all []*gave
	own := map[string]int{}
	for i := range 24 {
		d.after(limiter.Tick(i)*30*ms, func() {
			a := &gave{user: users[i%len(users)]}
			if _, err := set.Resolve(&limiter.Request{Path: "/search", User: a.user}, &a.charge); err != nil {
				t.Error(err)
			}
			live, answer := d.live(), new(limiter.Decision)
			n := live[d.rng.IntN(len(live))]
			n.do(func() {
				n.core.Begin(&a.charge, answer, 0, func() {
					if answer.Allowed && !answer.Source.ByPolicy() {
						a.receipt = answer.Receipt
						arith.Fields(&a.receipt).Once = uint64(i)<<32 + 1
						all = append(all, a)
						own[a.user]++
					}
				})
			})
		})
	}
	d.pass(3 * limiter.Second)
	if len(all) != 24 {
		d.fails("seed %d: %d admissions", seed, len(all))
	}
	kept := map[string]int{} // what stays in the rule's counters
	quotaStays := 0
	if crash {
		before := map[string]*Node{}
		for _, a := range all {
			before[a.user] = d.ownerOf(table.PartitionOf(a.charge.Key(0)))
		}
		quotaStays = 5 * len(all)
		d.holder(peer.Owned).crash(true)
		d.pass(5 * limiter.Second)
		for _, a := range all {
			if d.ownerOf(table.PartitionOf(a.charge.Key(0))) != before[a.user] {
				kept[a.user] = own[a.user]
			}
		}
	}
	for range 2 {
		for i, a := range all {
			if arith.Fields(&a.receipt).Parts != nil {
				severalOwners++
			}
			d.after(limiter.Tick(i)*10*ms, func() {
				n := d.live()[i%len(d.live())]
				c := a.charge.Clone()
				n.do(func() {
					n.core.Refund(c, a.receipt, func(o route.Outcome) {
						if o.Unanswered != 0 {
							d.fails("seed %d: %+v", seed, o)
						}
					})
				})
			})
		}
		d.pass(3 * limiter.Second)
	}
	for _, user := range users {
		var c arith.Charge
		if _, err := set.Resolve(&limiter.Request{Path: "/search", User: user, Cost: limiter.Units(0)}, &c); err != nil {
			t.Fatal(err)
		}
		answer, done := new(limiter.Decision), false
		d.live()[0].core.Begin(&c, answer, 0, func() { done = true })
		d.pass(limiter.Second)
		if used := 1000 - int(answer.Limit(0).Remaining); !done || used != kept[user] {
			d.fails("seed %d, %s: done %v, rule search counts %d, want %d", seed, user, done, used, kept[user])
		}
		if used := quotaUnits - int(answer.Limit(1).Remaining); used != quotaStays {
			d.fails("seed %d: the quota counts %d, want %d", seed, used, quotaStays)
		}
	}
	return severalOwners
}
