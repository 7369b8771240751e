package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// shadowFirst is a rule in shadow that counts addresses, before one in force that counts users.
const shadowFirst = `
version: 1
rules:
  - {name: tried, shadow: true, continue: true, key: [ip], limits: [2/hour]}
  - {name: forced, key: [user], limits: [2/hour]}
`

// A rule in shadow that would deny a check charges nothing, and its owner remembers the check's id all the same. If
// another owner denies the check, the id is forgotten there, too: it stands for nothing.
func TestADeniedChecksIDIsForgottenByRulesInShadow(t *testing.T) {
	worlds(t)
	s := newSubject(t, shadowFirst).(*subject)
	several := 0
	for i := range 24 {
		r := limiter.Request{User: fmt.Sprint("u", i), IP: fmt.Sprintf("10.0.0.%d", i), Cost: limiter.Units(2)}
		var d limiter.Decision
		if err := s.CheckInto(context.Background(), &r, &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		for _, hold := range []time.Duration{0, time.Minute} {
			r.ID, r.Hold = fmt.Sprint("id", hold), hold
			if err := s.CheckInto(context.Background(), &r, &d); err != nil || d.Allowed {
				t.Fatal(d, err)
			}
			if d.Limit(0).Owner != d.Limit(1).Owner {
				several++
			}
			settled := r
			settled.Hold, settled.Cost = 0, limiter.Units(1)
			out, err := s.Amend(context.Background(), settled, limiter.Settling{Amend: limiter.Amend{IgnoreUnknown: true}})
			if err != nil || out.State != limiter.AmendUnknown {
				t.Errorf("pair %d, held for %v: a denied check is %+v, %v", i, hold, out, err)
			}
		}
	}
	if several < 8 {
		t.Errorf("%d checks had several owners", several)
	}
}

// A look at a check whose id is known for the rule in force, and not for that in shadow, is no repetition: the check
// would count there.
func TestALookOfWhatARuleInShadowDoesNotKnow(t *testing.T) {
	worlds(t)
	s := newSubject(t, shadowFirst).(*subject)
	for i := range 24 {
		r := limiter.Request{User: fmt.Sprint("u", i), IP: fmt.Sprintf("10.0.0.%d", i), ID: "id"}
		var d limiter.Decision
		if err := s.CheckInto(context.Background(), &r, &d); err != nil || !d.Allowed || d.Repeated {
			t.Fatal(d, err)
		}
		if err := s.PeekInto(context.Background(), &r, &d); err != nil || !d.Repeated {
			t.Errorf("pair %d: repeated %t, %v", i, d.Repeated, err)
		}
		r.IP = fmt.Sprintf("10.0.1.%d", i)
		if err := s.PeekInto(context.Background(), &r, &d); err != nil || d.Repeated {
			t.Errorf("pair %d from elsewhere: repeated %t, %v", i, d.Repeated, err)
		}
	}
}

// A rule in shadow takes back what one of its keys was charged, if another owner's would have denied it. A settlement
// of more than the estimate charges it nothing either.
func TestASettlementChargesNothingToWhatShadowsTookBack(t *testing.T) {
	worlds(t)
	s := newSubject(t, `
version: 1
rules:
  - {name: tried, shadow: true, continue: true, keys: [[ip], [user]], limits: [4/hour]}
  - {name: forced, key: [user], limits: [100/hour]}
`).(*subject)
	for i := range 24 {
		r := limiter.Request{User: fmt.Sprint("u", i), IP: fmt.Sprintf("10.0.0.%d", i), Cost: limiter.Units(4)}
		var d limiter.Decision
		if err := s.CheckInto(context.Background(), &r, &d); err != nil || d.ShadowDenied {
			t.Fatal(d, err)
		}
		r.IP, r.Cost, r.ID, r.Hold = fmt.Sprintf("10.0.1.%d", i), limiter.Units(1), "id", time.Minute
		if err := s.CheckInto(context.Background(), &r, &d); err != nil || !d.Allowed || !d.ShadowDenied {
			t.Fatal(d, err)
		}
		r.Hold, r.Cost = 0, limiter.Units(3)
		if out, err := s.Amend(context.Background(), r, limiter.Settling{}); err != nil || out.State != limiter.AmendDone {
			t.Fatal(out, err)
		}
		r.ID = ""
		if err := s.PeekInto(context.Background(), &r, &d); err != nil || d.Limit(0).Remaining != 4 {
			t.Errorf("pair %d: %d of 4 are left of what charged nothing, %v", i, d.Limit(0).Remaining, err)
		}
	}
}

// What a check changes without being charged is copied: its id and a block, where only a rule in shadow would deny it,
// and a counter that it converts into one of a new limit.
func TestWhatAChargeOfNothingChangesIsCopied(t *testing.T) {
	worlds(t)
	rules := func(limit string) string {
		return "version: 1\nrules: [{name: r, shadow: true, key: [user], limits: [" + limit + "]}]"
	}
	r := limiter.Request{User: "ada", Cost: limiter.Units(4)}
	for _, x := range []struct {
		name, limit, then, id string
		peek                  bool
		after                 limiter.Tick
		cost                  int64 // of the check at the new owner
		want                  func(d *limiter.Decision) bool
	}{
		{"an id", "{limit: 5, window: 1h}", "", "id", false, 0, 4,
			func(d *limiter.Decision) bool { return d.Repeated }},
		{"a block", "{limit: 5, window: 1h, block: 1h}", "", "", false, 0, 1,
			func(d *limiter.Decision) bool { return d.Limit(0).Blocked }},
		{"a conversion by a look", "{name: l, limit: 5, window: 1h, algorithm: token_bucket}",
			"{name: l, limit: 5, window: 1s, algorithm: sliding_log}", "", true, 2 * limiter.Second, 4,
			func(d *limiter.Decision) bool { return d.Allowed && !d.ShadowDenied && d.Limit(0).Remaining == 1 }},
	} {
		s := newSubject(t, rules(x.limit)).(*subject)
		var d limiter.Decision
		if err := s.ask(&r, &d, false); err != nil || d.ShadowDenied {
			t.Fatal(err, d)
		}
		if err := s.pass(100 * ms); err != nil {
			t.Fatal(err)
		}
		if x.then != "" {
			if err := s.SetRules(rules(x.then)); err != nil {
				t.Fatal(err)
			}
		}
		again := r
		again.ID = x.id
		if err := s.ask(&again, &d, x.peek); err != nil || !d.ShadowDenied {
			t.Fatal(err, d)
		}
		for _, n := range s.w.live() {
			if n.name == d.Limit(0).Owner {
				if err := s.crash(n); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.clock += x.after
		again.Cost = limiter.Units(x.cost)
		if err := s.ask(&again, &d, false); err != nil || !x.want(&d) {
			t.Errorf("%s: %v, %s", x.name, err, answered(&d))
		}
	}
}
