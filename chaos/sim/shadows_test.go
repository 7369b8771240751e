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
