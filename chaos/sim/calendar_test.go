package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

const monthUnits = 100

// monthly has a quota of 100 units by months of Berlin, one of which begins while the test
// runs, and of 150 by quarters of Kathmandu, none of which does. A rule that draws on it has
// limits by hours, and by days of the zone that the request names.
const monthly = `
quotas:
  - name: units
    key: [group]
    limits: [{limit: 100, calendar: month, zone: Europe/Berlin}, {name: term, limit: 150, calendar: quarter, anchor_day: 31, zone: Asia/Kathmandu}]
    replication: strict
    on_unreachable: closed
rules:
  - name: search
    match: {path: "^/search"}
    key: [user]
    limits: [{limit: 1000, calendar: hour, zone: Europe/Berlin}, {limit: 1000, calendar: day, zone: {from: "attr:tz", default: Europe/Berlin}}]
    quotas: [{name: units, cost: 5}]
    replication: strict
    on_unreachable: closed
  - {name: towns, match: {path: "^/towns"}, quotas: [units]}
`

// monthsOf counts the units of a quota that two months admitted.
type monthsOf struct {
	before, after int             // in the first month, and in checks that began in the second
	admitted      int             // in both
	unsure        int             // perhaps: the node that was asked crashed, or a policy answered
	late          []time.Duration // how long after the end of the month a denial told to wait
}

// The owner of a quota crashes about when a month of Berlin begins, which is an hour before
// it does in UTC. Each month admits no more than the quota has and all of it, and denials
// promise its beginning to the microsecond.
func TestMonthBeginsDuringACrash(t *testing.T) {
	set, err := rules.Parse("rules", []byte(monthly), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	berlin := limiter.TickOf(time.Date(2026, 10, 31, 23, 0, 0, 0, time.UTC)) // 00:00 there; a week after the clocks moved
	eachSeed(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		w.size, w.split = 3, true
		w.ruleNamed = func(name string) *limiter.Rule { return set.Rule(name) }
		begins := epoch + 10*limiter.Second
		w.clock = func(limiter.Tick) limiter.Tick { return w.now - begins + berlin }
		d := &directed{World: w, t: t}
		users := []string{"ada", "bob", "eve", "kim"}
		resolve := func(path, user string) (c arith.Charge) {
			r := &limiter.Request{Path: path, User: user,
				Attributes: map[string]string{"tz": []string{"Asia/Tokyo", "", "America/Lima"}[len(path+user)%3]}}
			if _, err := set.Resolve(r, &c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		for _, user := range users {
			c := resolve("/search", user)
			for i := range c.Len() {
				if p := table.PartitionOf(c.Key(i)); !slices.Contains(w.parts, p) {
					w.parts = append(w.parts, p)
				}
			}
		}
		c := resolve("/towns", "ada")
		quota := *c.Key(0)
		d.key = &key{rule: quota.Rule, hash: quota.Hash, part: table.PartitionOf(&quota), limit: monthUnits,
			byPolicy: map[string]int{}}
		for i := range w.size {
			w.start(string(rune('a'+i)), i == 0, nil, w.size)
		}
		d.pass(begins - 2*limiter.Second - w.now)
		if err := w.settled(); err != nil {
			t.Fatal(err)
		}
		x := &monthsOf{}
		for i := range 400 {
			w.after(limiter.Tick(i)*20*ms, func() {
				live := w.live()
				c := resolve([]string{"/search", "/towns"}[w.rng.IntN(2)], users[w.rng.IntN(len(users))])
				x.ask(w, live[w.rng.IntN(len(live))], &c, begins)
			})
		}
		w.after(2*limiter.Second+w.between(-100*ms, 100*ms), func() { d.holder(peer.Owned).crash(w.chance(50)) })
		d.pass(12 * limiter.Second)
		const lost = 4 + 5*staying // less than a search's cost may be left, and reservations stay
		if x.before > monthUnits || x.after > monthUnits/2 || x.admitted > monthUnits*3/2 {
			d.fails("%d units were admitted in October, %d in November of 50, %d in all", x.before, x.after, x.admitted)
		}
		if x.before < monthUnits-4 || x.admitted+x.unsure < monthUnits*3/2-lost {
			d.fails("%d units of 100 were admitted in October, %d of 150 in all, perhaps %d more", x.before, x.admitted,
				x.unsure)
		}
		for _, late := range x.late {
			if late != 0 {
				d.fails("a denial promised units %v after the month begins", late)
				break
			}
		}
		if len(x.late) == 0 {
			d.fails("nothing was denied in October")
		}
	})
}

// ask has a client make a request that draws on the quota.
func (x *monthsOf) ask(w *World, n *Node, c *arith.Charge, begins limiter.Tick) {
	cost, began := int(c.Key(c.Len()-1).Cost), w.now
	x.unsure += cost
	answer := new(limiter.Decision)
	n.do(func() {
		n.core.Begin(c, answer, 0, func() {
			if !n.alive || answer.Source.ByPolicy() {
				return // charged or not, nobody knows
			}
			x.unsure -= cost
			switch {
			case answer.Allowed && w.now < begins:
				x.before += cost
			case answer.Allowed && began >= begins:
				x.after += cost
			case !answer.Allowed && w.now < begins:
				if l := answer.BlockedBy(); l.Limit.Calendar() == limiter.CalendarMonth {
					// The owner decided between the beginning of the check and now.
					promised := answer.RetryAfter
					if promised < (begins-w.now).Duration() || promised > (begins-began).Duration() {
						x.late = append(x.late, promised-(begins-w.now).Duration())
						return
					}
					x.late = append(x.late, 0)
				}
			}
			if answer.Allowed {
				x.admitted += cost
			}
		})
	})
}
