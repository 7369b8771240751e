package sim

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// asked asks a subject and returns the answer.
func asked(t *testing.T, s *subject, r *limiter.Request) *limiter.Decision {
	t.Helper()
	d := new(limiter.Decision)
	if err := s.CheckInto(context.Background(), r, d); err != nil {
		t.Fatal(err)
	}
	return d
}

const ipAndUser = `
version: 1
rules:
  - name: login
    keys: [[ip], [user]]
    limits: [{limit: 5, window: 1h, algorithm: fixed_window%s}]
`

// A check that one owner denies costs at the other owners nothing: neither is the
// next check denied because the reservation of the first is still open, nor does it
// begin a block there.
//
// A9, A12, B1.
func TestADenialCostsOthersNothing(t *testing.T) {
	worlds(t)
	for name, block := range map[string]string{"no block": "", "block": ", block: 1h"} {
		s := newSubject(t, fmt.Sprintf(ipAndUser, block)).(*subject)
		for i := range 6 {
			asked(t, s, &limiter.Request{User: "spent", IP: fmt.Sprint("10.1.0.", i)})
		}
		wrong := 0
		const tries = 200
		for i := range tries {
			ip := fmt.Sprint("10.2.0.", i)
			for j := range 4 {
				if !asked(t, s, &limiter.Request{User: fmt.Sprint("u", i, "-", j), IP: ip}).Allowed {
					t.Fatal("premise: the address has 5")
				}
			}
			if asked(t, s, &limiter.Request{User: "spent", IP: ip}).Allowed {
				t.Fatal("premise: the user has none left")
			}
			if !asked(t, s, &limiter.Request{User: fmt.Sprint("last", i), IP: ip}).Allowed {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d addresses with 1 of 5 left were denied after another user was", name, wrong, tries)
		}
	}
}

// What a denial says of when to ask again holds, also where another owner's limit
// charges denials: asked at that instant it is allowed, a tick earlier denied.
func TestRetryAfterOverOwners(t *testing.T) {
	worlds(t)
	for _, count := range []string{"none", "room", "all"} {
		s := newSubject(t, `
version: 1
defaults: {keys: [[ip], [user]], count_rejected: `+count+`}
rules:
  - {name: log, limits: [{limit: 5, window: 1m, algorithm: sliding_log}, {limit: 40, window: 1h}]}
  - {name: bucket, limits: [{limit: 5, window: 1m, algorithm: token_bucket}]}
  - {name: counter, limits: [{limit: 5, window: 1m}]}
`).(*subject)
		for _, rule := range []string{"log", "bucket", "counter"} {
			early, late := 0, 0
			const tries = 60
			for i := range tries {
				// Two callers in the same state: one asks at the instant, one earlier.
				var r [2]limiter.Request
				for k := range r {
					r[k] = limiter.Request{Rule: rule, User: fmt.Sprint(rule, i, "-", k), IP: fmt.Sprint("10.", k, ".3.", i)}
					for j := range 5 { // the user has none left
						asked(t, s, &limiter.Request{Rule: rule, User: r[k].User, IP: fmt.Sprintf("10.4.%d.%d", i, 10*j+k)})
					}
				}
				s.clock += 5 * limiter.Second
				var waits [2]limiter.Tick
				for k := range r {
					for j := range 4 { // the address has one left
						asked(t, s, &limiter.Request{Rule: rule, User: fmt.Sprint("o", i, "-", j, "-", k), IP: r[k].IP})
					}
					d := asked(t, s, &r[k])
					if d.Allowed {
						t.Fatal("premise: it is denied")
					}
					waits[k] = limiter.Span(d.RetryAfter)
				}
				if waits[0] != waits[1] || waits[0] <= 0 {
					t.Errorf("%s, %s: two callers alike are told %v and %v", rule, count, waits[0].Duration(), waits[1].Duration())
				}
				s.clock += waits[0] - 1
				if asked(t, s, &r[0]).Allowed {
					early++
				}
				s.clock++
				if !asked(t, s, &r[1]).Allowed {
					late++
				}
			}
			if early+late > 0 {
				t.Errorf("%s, count_rejected %s: of %d, %d were allowed a tick too early and %d denied at the instant they were "+
					"told", rule, count, tries, early, late)
			}
		}
	}
}

// together begins checks at once, each at another node, and returns the answers when
// all are there.
func together(t *testing.T, s *subject, rs ...*limiter.Request) []*limiter.Decision {
	t.Helper()
	out, open := make([]*limiter.Decision, len(rs)), len(rs)
	for i, r := range rs {
		var c arith.Charge
		if _, err := s.set.Resolve(r, &c); err != nil {
			t.Fatal(err)
		}
		out[i] = new(limiter.Decision)
		n, d := s.node(), out[i]
		s.w.after(s.w.between(0, 2*ms), func() { n.do(func() { n.core.Begin(&c, d, 0, func() { open-- }) }) })
	}
	err := s.w.run(2*limiter.Second, func() error {
		if open == 0 {
			return errDone
		}
		return nil
	})
	if open > 0 {
		t.Fatalf("%d of %d checks have no answer: %v", open, len(rs), err)
	}
	for i, d := range out {
		if d.Source.ByPolicy() {
			t.Fatalf("a policy answered check %d of %d", i, len(rs))
		}
	}
	return out
}

// Checks at the same time are decided as one after the other would be, in some order:
// what one of them reserves and takes back denies none of the others, and begins no
// block.
func TestReservationsDenyNobodyAtTheSameTime(t *testing.T) {
	worlds(t)
	for name, block := range map[string]string{"no block": "", "block": ", block: 1h"} {
		s := newSubject(t, fmt.Sprintf(ipAndUser, block)).(*subject)
		for i := range 6 {
			asked(t, s, &limiter.Request{User: "spent", IP: fmt.Sprint("10.1.0.", i)})
		}
		const tries = 200
		wrong, after := 0, 0
		for i := range tries {
			ip := fmt.Sprint("10.2.0.", i)
			var rs []*limiter.Request
			for j := range 4 {
				rs = append(rs, &limiter.Request{User: "spent", IP: ip}, &limiter.Request{User: fmt.Sprint("u", i, "-", j), IP: ip})
			}
			for j, d := range together(t, s, rs...) {
				if j%2 == 1 && !d.Allowed {
					wrong++
				}
			}
			if !asked(t, s, &limiter.Request{IP: ip, User: fmt.Sprint("after", i)}).Allowed {
				after++ // it has the fifth
			}
		}
		if wrong+after > 0 {
			t.Errorf("%s: %d of %d checks were denied by reservations that were taken back, and %d of %d afterwards", name,
				wrong, 4*tries, after, tries)
		}
	}
}

// Two checks that each hold what the other needs do not wait for each other: one of
// them is allowed, and neither is left to a policy.
func TestCrossedReservations(t *testing.T) {
	worlds(t)
	s := newSubject(t, `
version: 1
rules: [{name: pair, keys: [["attr:a"], ["attr:b"]], limits: [{limit: 1, window: 1h, algorithm: fixed_window}]}]
`).(*subject)
	wrong := 0
	const tries = 300
	for i := range tries {
		allowed := 0
		var rs []*limiter.Request
		for range 3 {
			rs = append(rs, &limiter.Request{Attributes: map[string]string{"a": fmt.Sprint("x", i), "b": fmt.Sprint("y", i)}})
		}
		for _, d := range together(t, s, rs...) {
			if d.Allowed {
				allowed++
			}
		}
		if allowed != 1 {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("of %d times that several checks wanted the last unit of two owners, %d times not one got it", tries, wrong)
	}
}

// TestADenialByPolicyCostsOthersNothing: of a check over two owners one is out of reach, and
// the policy denies it at the deadline. Only then can the other take its charge back, for
// which the check's time is over too.
func TestADenialByPolicyCostsOthersNothing(t *testing.T) {
	worlds(t)
	s := newSubject(t, `
version: 1
rules: [{name: login, keys: [[ip], [user]], on_unreachable: closed, limits: [{limit: 100, window: 1h, algorithm: fixed_window}]}]
`).(*subject)
	s.only = true
	at := s.node()
	tried := 0
	for i := 0; tried < 4; i++ {
		r := &limiter.Request{IP: fmt.Sprint("10.3.0.", i), User: fmt.Sprint("u", i)}
		var c arith.Charge
		if _, err := s.set.Resolve(r, &c); err != nil {
			t.Fatal(err)
		}
		ip, _ := at.core.Partition(table.PartitionOf(c.Key(0)))
		user, _ := at.core.Partition(table.PartitionOf(c.Key(1)))
		if ip.Role != peer.Owned || user.Role == peer.Owned {
			continue
		}
		tried++
		for _, n := range s.w.live()[1:] {
			n.pause()
		}
		d, done := new(limiter.Decision), false
		at.core.Begin(&c, d, 0, func() { done = true })
		if err := s.wait(&done); err != nil {
			t.Fatal(err)
		}
		if d.Allowed || d.Source != limiter.SourceFallbackClosed {
			t.Fatalf("premise: the policy denies: %t by %v", d.Allowed, d.Source)
		}
		s.w.heal()
		if err := s.w.run(3*limiter.Second, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.ask(r, d, true); err != nil {
			t.Fatal(err)
		}
		if left := d.Limit(0).Remaining; left != 100 {
			t.Errorf("address %d: after a denial %d of 100 are left", i, left)
		}
	}
}
