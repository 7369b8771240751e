package limitertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// thereAndBack: a limit that is used up, becomes any other, is asked, and becomes what it was at the same
// instant, is used up. Nothing is forgotten by the changes, however little the other limit admits.
func thereAndBack(t *testing.T, f Factory) {
	cs, before, after := changes()
	for i, s := range variants() { // across the largest number of units that 32 bits count
		if s.Algorithm == limiter.SlidingLog {
			continue
		}
		for j, limits := range [][2]int64{{5e9, 4e9}, {4e9, 5e9}, {limiter.NarrowUnits + 1, 1}, {9, 1 << 50}} {
			c := change{fmt.Sprintf("w%d-%d", i, j), s, s}
			c.from.Limit, c.to.Limit = limits[0], limits[1]
			c.from.DripUnits, c.to.DripUnits = 0, 0
			cs = append(cs, c)
			before.add(c.rule, c.from)
			after.add(c.rule, c.to)
		}
	}
	ask := newAsker(t, f, before.String())
	ask.goTo(ask.now + 5*limiter.Second)
	for _, c := range cs {
		if !ask.check(c.rule, "u", uint64(c.from.Limit)).Allowed {
			t.Fatalf("%s: all of the limit was denied", spellLimit(c.from))
		}
	}
	ask.setRules(after)
	for _, c := range cs {
		if allowed := ask.check(c.rule, "u", 1).Allowed; allowed && c.to.Limit <= c.from.Limit {
			t.Errorf("%s, used up, changed to %s: one more is admitted", spellLimit(c.from), spellLimit(c.to))
		}
	}
	ask.setRules(before)
	for _, c := range cs {
		if d := ask.check(c.rule, "u", 1); d.Allowed {
			t.Errorf("%s, used up, changed to %s and back: one more is admitted", spellLimit(c.from), spellLimit(c.to))
		}
	}
}

// slotsThereAndBack: what reservations hold of a limit on concurrency is held still when its number changes, or
// when it was a limit of another kind for a while. Nothing that ended meanwhile is held.
func slotsThereAndBack(t *testing.T, f Factory) {
	const slots = "{name: main, limit: %d, algorithm: concurrency}"
	others := []string{
		fmt.Sprintf(slots, 2), fmt.Sprintf(slots, 1<<32), fmt.Sprintf(slots, int64(limiter.MaxUnits)),
		"{name: main, limit: 10, window: 1s, algorithm: fixed_window}",
	}
	for _, s := range variants() {
		others = append(others, spellLimit(s))
	}
	rules := func(limit func(i int) string) string {
		text := "version: 1\ndefaults: {id_ttl: 1h}\nrules:\n"
		for i := range others {
			text += fmt.Sprintf("  - {name: c%d, match: {path: \"^/c%d$\"}, key: [rule, user], limits: [%s]}\n", i, i, limit(i))
		}
		return text
	}
	ten := rules(func(int) string { return fmt.Sprintf(slots, 10) })
	s := f(t, ten)
	amender, can := s.(Amender)
	if _, limits := s.(Concurrent); !can || !limits {
		t.Skip("this decider has no limits on concurrency")
	}
	now := Start() + 4*limiter.Day
	s.SetTime(now)
	check := func(i int, id string, cost int64, hold time.Duration) *limiter.Decision {
		t.Helper()
		var d limiter.Decision
		r := limiter.Request{Path: fmt.Sprint("/c", i), User: "u", ID: id, Hold: hold, Cost: limiter.Units(cost)}
		if err := s.CheckInto(context.Background(), &r, &d); err != nil {
			t.Fatalf("%s: %v", others[i], err)
		}
		return &d
	}
	set := func(yaml string) {
		t.Helper()
		if err := s.SetRules(yaml); err != nil {
			t.Fatal(err)
		}
	}
	left := func(when string, want uint64) {
		t.Helper()
		for i := range others {
			if d := check(i, "", 0, 0); d.Limit(0).Remaining != want {
				t.Errorf("%s, %s: %d are left, want %d", others[i], when, d.Limit(0).Remaining, want)
			}
		}
	}
	for i := range others {
		for id, hold := range []time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute} {
			if !check(i, fmt.Sprint(id), 1, hold).Allowed {
				t.Fatal("a slot was denied")
			}
		}
	}
	set(rules(func(i int) string { return others[i] }))
	for i := range others {
		check(i, "other", 1, time.Minute) // it may be denied
	}
	now += 90 * limiter.Second // what counts by a window or bucket may be over
	s.SetTime(now)
	for i := range others {
		check(i, "", 0, 0)
	}
	set(ten)
	left("and back", 8)
	now += 30 * limiter.Second
	s.SetTime(now)
	left("when the second has ended", 9)
	for i := range others {
		r := limiter.Request{Path: fmt.Sprint("/c", i), User: "u", ID: "2", Cost: limiter.Units(0)}
		if a, err := amender.Amend(context.Background(), r, limiter.Settling{}); err != nil || a.State != limiter.AmendDone {
			t.Errorf("%s: %+v, %v", others[i], a, err)
		}
	}
	left("when the third is cancelled", 10)
}

// wideSlots: five slots of a billion are held of five billion. Under four billion none is free until two are
// given back, though 32 bits do not count what is held.
func wideSlots(t *testing.T, f Factory) {
	rules := func(limit int64) string {
		return fmt.Sprintf("version: 1\nrules: [{name: r, key: [user], limits: [{name: main, limit: %d, algorithm: "+
			"concurrency}]}]\n", limit)
	}
	s := f(t, rules(5e9))
	amender, can := s.(Amender)
	if _, limits := s.(Concurrent); !can || !limits {
		t.Skip("this decider has no limits on concurrency")
	}
	s.SetTime(Start() + 4*limiter.Day)
	request := func(id int, cost int64) *limiter.Request {
		return &limiter.Request{Path: "/", User: "u", ID: fmt.Sprint(id), Hold: time.Hour, Cost: limiter.Units(cost)}
	}
	check := func(id int, want bool) {
		t.Helper()
		var d limiter.Decision
		if err := s.CheckInto(context.Background(), request(id, 1e9), &d); err != nil || d.Allowed != want {
			t.Errorf("check %d: allowed %t, %v", id, d.Allowed, err)
		}
	}
	cancel := func(id int) {
		t.Helper()
		r := request(id, 0)
		r.Hold = 0 // a settlement has none
		if a, err := amender.Amend(context.Background(), *r, limiter.Settling{}); err != nil || a.State != limiter.AmendDone {
			t.Errorf("%+v, %v", a, err)
		}
	}
	for id := range 5 {
		check(id, true)
	}
	if err := s.SetRules(rules(4e9)); err != nil {
		t.Fatal(err)
	}
	check(5, false)
	cancel(0)
	check(6, false)
	cancel(1)
	check(7, true)
	check(8, false)
	if err := s.SetRules(rules(5e9)); err != nil {
		t.Fatal(err)
	}
	check(9, true)
	check(10, false)
}
