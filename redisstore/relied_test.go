package redisstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Of a check with keys in two slots, one part is charged and remembered while the other is not
// known. If the check is denied, its cancellation takes the charge back and forgets the id, but
// not if another attempt has relied on it meanwhile: that one may have been admitted.
func TestCancelledReservationsOfIDs(t *testing.T) {
	srv := redistest.Start(t)
	s, err := Open(t.Context(), Config{Addrs: []string{srv.Socket}, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		mustLimit(t, limiter.Spec{Name: "a", Limit: 10, Window: time.Hour}),
		mustLimit(t, limiter.Spec{Name: "b", Limit: 20, Window: time.Hour}),
	}}
	now := limiter.TickOf(time.Now())
	run := func(made *call) []int64 {
		t.Helper()
		calls, err := s.ask(t.Context(), s.config.deadline(), []*call{made})
		if err != nil || calls[0].err != nil {
			t.Fatal(err, calls[0].err)
		}
		return calls[0].reply
	}
	for hi, c := range []struct {
		what          string
		relied        bool
		own           bool // the store cancels; else a caller refunds
		after         int64
		left          int64 // of the first limit, after a charge of 3
		known, nBits  int64 // what the next attempt finds
		cancelsSecond bool
		hold          time.Duration
		ends          bool // nobody settles it
	}{
		{what: "alone", own: true, after: -1, left: 10},
		{what: "relied on", relied: true, own: true, after: -1, left: 7, known: 1, nBits: 3},
		{what: "relied on, refunded by a caller", relied: true, after: -1, left: 10},
		{what: "one limit is cancelled", relied: true, own: true, after: 1, left: 7, known: 1, nBits: 1, cancelsSecond: true},
		{what: "of a hold", hold: 10 * time.Millisecond, own: true, after: -1, left: 10},
		{what: "one limit of a hold is cancelled", hold: 10 * time.Millisecond, relied: true, own: true, after: 1, left: 7,
			known: 1, nBits: 1, cancelsSecond: true},
		{what: "one limit of a hold is cancelled, and the hold ends", hold: 10 * time.Millisecond, relied: true, own: true,
			after: 1, left: 7, known: 1, nBits: 1, cancelsSecond: true, ends: true},
	} {
		charge := &arith.Charge{ID: &arith.Idempotency{ID: 7, Life: time.Minute, Hold: c.hold}}
		for i := range 2 { // the second is in another slot
			charge.Add(arith.Key{Hash: arith.Hash{Hi: uint64(hi), Lo: uint64(i)}, Rule: rule, Cost: 3})
		}
		attempt := func(at limiter.Tick, mode int64) []int64 {
			t.Helper()
			made, err := s.calls.decision(when{at, estimateSlack}, mode, charge, charge.ID, 0, 0, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return run(made)
		}
		const ids = 1 + 2*perLimit
		if r := attempt(now, modeCheck); r[ids] != -1 {
			t.Fatalf("%s: the first attempt is told %v", c.what, r)
		}
		if c.relied {
			if r := attempt(now+5, modeCheck); r[ids] != int64(now) || r[ids+1] != 3 || r[ids+2] != 3 {
				t.Fatalf("%s: the second attempt is told %v", c.what, r)
			}
		}
		r := arith.NewReceipt(arith.ReceiptFields{Time: now, Set: 1})
		if c.own {
			arith.Fields(&r).Set = 0
		}
		cancels := func(j int) bool { return !c.cancelsSecond || j == 1 }
		run(s.calls.refund(when{now + 9, estimateSlack}, r, cancels, charge, &forgotten{3, c.after}, 0, 0, 0, nil))
		found := attempt(now+20, modePeek)
		if left := found[1] >> flagBits; left != c.left {
			t.Errorf("%s: %d left, want %d", c.what, left, c.left)
		}
		if c.cancelsSecond && found[1+perLimit]>>flagBits != 20 {
			t.Errorf("%s: of the limit that is cancelled %d left", c.what, found[1+perLimit]>>flagBits)
		}
		if known := found[ids] > 0; known != (c.known == 1) || found[ids+2] != c.nBits {
			t.Errorf("%s: afterwards it is told %v", c.what, found[ids:])
		}
		if c.hold == 0 {
			continue
		}
		// What was cancelled is not given back once more, nor is a hold that is forgotten or settled: what
		// others have charged stays.
		nothing := charge.Clone()
		other := charge.Clone()
		other.ID, other.Key(0).Cost = nil, 2
		if made, err := s.calls.decision(when{now + 25, estimateSlack}, modeCheck, other, nil, 0, 0, 1, nil); err != nil {
			t.Fatal(err)
		} else if r := run(made); r[1]>>flagBits != c.left-2 {
			t.Fatalf("%s: another charge is told %v", c.what, r)
		}
		nothing.Key(0).Cost = 0
		state := limiter.AmendUnknown
		if c.known == 1 {
			state = limiter.AmendDone
		}
		at := []limiter.Tick{now + 40, now + 20*limiter.Millisecond}
		if c.ends {
			at = at[1:]
		} else if r := run(s.calls.amendment(when{now + 30, estimateSlack}, nothing, amendSettle, nil,
			limiter.Amend{IgnoreUnknown: true}, 0, 1,
			nil)); r[1] != int64(state) {
			t.Errorf("%s: it is settled with %v", c.what, r)
		}
		for _, at := range at {
			if found := attempt(at, modePeek); found[1]>>flagBits != 8 || found[1+perLimit]>>flagBits != 18 {
				t.Errorf("%s: %v later %d and %d are left, want 8 and 18", c.what, (at - now).Duration(), found[1]>>flagBits,
					found[1+perLimit]>>flagBits)
			}
		}
	}
}
