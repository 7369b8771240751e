package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
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
	var c limiter.Charge
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

// Nodes that draw on one quota for different rules, while its owner crashes, admit no more
// than it has and use all of it, and a request that it denies costs nothing in its rule, but
// for a few that were under way.
func TestSharedQuotaThroughACrash(t *testing.T) {
	set, err := rules.Parse("rules", []byte(sharedQuota), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	users := []string{"ada", "bob", "eve", "kim"}
	eachSeed(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		w.size, w.split = 3, true
		w.ruleNamed = func(name string) *limiter.Rule { return set.Rule(name) }
		d := &directed{World: w, t: t}
		var c limiter.Charge
		seen := map[int]bool{}
		for _, user := range users {
			if _, err := set.Resolve(&limiter.Request{Path: "/search", User: user}, &c); err != nil || c.Len() != 2 {
				t.Fatal(err, c.Len())
			}
			for i := range c.Len() {
				if p := table.PartitionOf(c.Key(i)); !seen[p] {
					seen[p] = true
					w.parts = append(w.parts, p)
				}
			}
		}
		quota := *c.Key(1)
		d.key = &key{rule: quota.Rule, hash: quota.Hash, part: table.PartitionOf(&quota), limit: quotaUnits, byPolicy: map[string]int{}}
		for i := range w.size {
			w.start(string(rune('a'+i)), i == 0, nil, w.size)
		}
		d.pass(6 * limiter.Second)
		if err := w.settled(); err != nil {
			t.Fatal(err)
		}
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
			var c limiter.Charge
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
