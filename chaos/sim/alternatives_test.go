package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// ownOrPool has a rule that draws on the user's own quota, and on a common one if that denies.
const ownOrPool = `
quotas:
  - {name: own, key: [user], limits: [{limit: 30, window: 400d, algorithm: fixed_window}], replication: strict,
     on_unreachable: closed}
  - {name: pool, key: [rule], limits: [{limit: 200, window: 400d, algorithm: fixed_window}],
     replication: strict, on_unreachable: closed}
rules:
  - {name: search, match: {path: "^/search"}, key: [user], limits: [{limit: 1000, window: 400d,
     algorithm: fixed_window}], quotas: [{any: [own, pool], cost: 5}], replication: strict, on_unreachable: closed}
`

const ownUnits, poured = 30, 5 // of a user's own quota, and what a check costs there

// pouring is what clients of a rule with alternatives were told.
type pouring struct {
	rule, own, pool counting
	denied          int // by owners of all alternatives
}

// counting is how many checks of each user a counter has counted: so many, and perhaps some more, of which nobody
// knows.
type counting struct{ sure, unsure map[string]int }

func newCounting() counting { return counting{map[string]int{}, map[string]int{}} }

// ask has a client ask by an alternative at a node, and by the next one if its quota denies, as a node does.
func (x *pouring) ask(d *directed, at *rules.Set, n *Node, r *limiter.Request, quotas []*counting) {
	var c arith.Charge
	if _, err := at.Resolve(r, &c); err != nil {
		d.t.Fatal(err)
	}
	x.rule.unsure[r.User]++
	quotas[0].unsure[r.User]++
	answer := new(limiter.Decision)
	n.do(func() {
		n.core.Begin(&c, answer, 0, func() {
			if !n.alive {
				return
			}
			if !answer.Source.ByPolicy() { // else nobody knows whether it was charged
				x.rule.unsure[r.User]--
				quotas[0].unsure[r.User]--
			}
			next, _ := at.Next(r, answer)
			switch {
			case answer.Allowed:
				x.rule.sure[r.User]++
				quotas[0].sure[r.User]++
			case next != nil:
				x.ask(d, next, n, r, quotas[1:])
			default:
				x.denied++
			}
		})
	})
}

// holds fails unless a counter has used what the answers say, with what nobody knows and what cancels may leave behind.
func (c counting) holds(d *directed, what, user string, used, cost int) {
	d.t.Helper()
	sure, unsure := c.sure[user], c.unsure[user]
	if user == "" {
		for _, u := range quotaUsers() {
			sure, unsure = sure+c.sure[u], unsure+c.unsure[u]
		}
	}
	if used < sure*cost || used > (sure+unsure+staying)*cost {
		d.fails("%s of %q counts %d, and %d checks of %d were admitted, perhaps %d more", what, user, used, sure, cost,
			unsure)
	}
}

// Each check by alternatives is charged at exactly one of them, with the key that all have, or at none, while the owner
// of the last one crashes: so the rule has as many checks as the quotas together, but for those of which nobody knows.
// All that the quotas have is used.
func TestAlternativesThroughACrash(t *testing.T) {
	set, err := rules.Parse("rules", []byte(ownOrPool), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sets := set.Alternatives(&limiter.Request{Path: "/search"})
	fromPool, denied := 0, 0
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := directQuota(t, seed, set, sets[1:]...)
		w, users := d.World, quotaUsers()
		x := &pouring{rule: newCounting(), own: newCounting(), pool: newCounting()}
		for i := range 150 {
			w.after(limiter.Tick(i)*20*ms, func() {
				r := &limiter.Request{Path: "/search", User: users[w.rng.IntN(len(users))]}
				live := w.live()
				x.ask(d, set, live[w.rng.IntN(len(live))], r, []*counting{&x.own, &x.pool})
			})
		}
		d.pass(limiter.Second)
		d.holder(peer.Owned).crash(true)
		d.pass(10 * limiter.Second)
		used := func(k int, user string) (rule, quota int) {
			var c arith.Charge
			if _, err := sets[k].Resolve(&limiter.Request{Path: "/search", User: user, Cost: limiter.Units(0)}, &c); err != nil {
				t.Fatal(err)
			}
			answer, done := new(limiter.Decision), false
			w.live()[0].core.Begin(&c, answer, 0, func() { done = true })
			d.pass(limiter.Second)
			if !done || answer.Source.ByPolicy() || answer.Len() != 2 {
				d.fails("%s: done %v, %+v", user, done, answer)
				return 0, 0
			}
			return 1000 - int(answer.Limit(0).Remaining), []int{ownUnits, quotaUnits}[k] - int(answer.Limit(1).Remaining)
		}
		all, quotas, unsure := 0, 0, 0
		for _, user := range users {
			rule, own := used(0, user)
			x.rule.holds(d, "the rule", user, rule, 1)
			x.own.holds(d, "the own quota", user, own, poured)
			if own != ownUnits {
				d.fails("%d units of the quota of %s are used", own, user)
			}
			all, quotas, unsure = all+rule, quotas+own, unsure+x.rule.unsure[user]
		}
		_, pool := used(1, users[0])
		x.pool.holds(d, "the pool", "", pool, poured)
		if pool < quotaUnits-poured+1 {
			d.fails("%d units of the pool are used", pool)
		}
		if diff := all*poured - quotas - pool; diff < -(unsure+staying)*poured || diff > (unsure+staying*len(users))*poured {
			d.fails("the rule counts %d checks, and the quotas %d units: %d checks are unsure", all, quotas+pool, unsure)
		}
		for _, user := range users {
			fromPool += x.pool.sure[user]
		}
		denied += x.denied
	})
	if fromPool == 0 || denied == 0 {
		t.Errorf("the pool admitted %d checks, and %d were denied", fromPool, denied)
	}
}
