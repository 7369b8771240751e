package weirwire_test

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// response turns a decision into a message, field by field: what the bytes that
// the service writes are compared with.
func response(r *limiter.Request, d *limiter.Decision,
	keyName func(*limiter.Request, *limiter.LimitDecision) string) *weirv1.CheckResponse {
	m := &weirv1.CheckResponse{
		Allowed: d.Allowed, Never: d.Never, ShadowDenied: d.ShadowDenied, Rule: d.Rule,
		Repeated: d.Repeated, RetryAfterUs: int64(limiter.Span(d.RetryAfter)), Source: weirv1.Source(d.Source),
	}
	if b := d.BlockedBy(); b != nil {
		m.BlockedBy = b.FullName()
	}
	for i := range d.Len() {
		l := d.Limit(i)
		m.Limits = append(m.Limits, &weirv1.LimitDecision{
			Rule: l.Rule.Name, Name: l.Limit.Name(), Key: keyName(r, l), Algorithm: weirv1.Algorithm(l.Limit.Algorithm()),
			Limit: l.Limit.Limit(), Capacity: l.Limit.Capacity(), WindowUs: int64(limiter.Span(l.Limit.Window())),
			Remaining: l.Remaining, ResetAfterUs: int64(limiter.Span(l.ResetAfter)),
			RetryAfterUs: int64(limiter.Span(l.RetryAfter)),
			Allowed:      l.Allowed, Never: l.Never, Blocked: l.Blocked, Shadow: l.Rule.Shadow, Overflow: l.Overflow,
			Cost: l.Cost, KeyIndex: uint32(l.KeyIndex), Owner: l.Owner, InForce: l.InForce,
		})
	}
	return m
}

// randomDecision fills d with what could be anything, large and small.
func randomDecision(rng *rand.Rand, some []limiter.LimitDecision, d *limiter.Decision) {
	d.Clear()
	d.Source, d.Repeated = limiter.Source(rng.IntN(int(limiter.SourceShare)+1)), rng.IntN(4) == 0
	n := rng.IntN(4)
	d.Grow(n)
	number := func() uint64 { return rng.Uint64() >> (1 + rng.IntN(63)) }
	for i := range n {
		l := d.Limit(i)
		*l = some[rng.IntN(len(some))]
		l.Allowed, l.Never, l.Blocked, l.Overflow = rng.IntN(2) == 0, rng.IntN(4) == 0, rng.IntN(4) == 0, rng.IntN(4) == 0
		l.Remaining, l.Cost, l.KeyIndex = number(), number(), uint8(rng.IntN(4))
		l.ResetAfter, l.RetryAfter = limiter.Tick(number()).Duration(), limiter.Tick(number()).Duration()
		l.Owner, l.InForce = []string{"", "node-2"}[rng.IntN(2)], number()*uint64(rng.IntN(2))
	}
	arith.Combine(d, false)
	arith.Conclude(d)
	if d.Rule == "" && rng.IntN(2) == 0 {
		d.Rule = "r"
	}
}

// The protobuf library decodes what the service encodes to the same decision, for a
// single answer and for a batch with errors.
func TestDecisionsAreWrittenAsMessages(t *testing.T) {
	minute, hour, shadow := limits3(t)
	some := []limiter.LimitDecision{minute, hour, shadow}
	by := names{}
	for _, e := range []weirwire.Encoder{{Names: by}, {Names: by, AppendKeyName: by.append}} {
		rng := rand.New(rand.NewPCG(7, 1))
		for range 2000 {
			r := limiter.Request{User: string(make([]byte, rng.IntN(300)))}
			var d limiter.Decision
			randomDecision(rng, some, &d)
			got := new(weirv1.CheckResponse)
			if err := proto.Unmarshal(e.AppendResponse(nil, &r, &d), got); err != nil {
				t.Fatal(err)
			}
			if want := response(&r, &d, by.KeyName); !proto.Equal(got, want) {
				t.Fatalf("got  %v\nwant %v", got, want)
			}
		}
	}
}
