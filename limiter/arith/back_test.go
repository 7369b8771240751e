package arith

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// What entries give back at once is what they give back one after the other, and the same is left to the others.
func TestGiveBackAll(t *testing.T) {
	differ := false
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, err := limiter.NewLimit(limiter.Spec{Name: "b", Algorithm: []limiter.Algorithm{limiter.TokenBucket,
			limiter.LeakyBucket, limiter.GCRA}[seed%3], Limit: 70, Window: time.Second, Burst: 100})
		if err != nil {
			t.Fatal(err)
		}
		const most = 12
		var s, holds State
		words, now := make([]uint64, most*HoldWords), limiter.Tick(1e15)
		charge := func(n uint64) {
			c := s.Open(l)
			c.roll(of(l), nil, now)
			NoteCharge(l, &c, &holds, words, now, n)
			s.Overdraw(l, nil, now, n)
		}
		for id := range uint64(most) {
			now += limiter.Tick(r.Int64N(int64(200 * limiter.Millisecond)))
			charge(r.Uint64N(60))
			n := 1 + r.Uint64N(30)
			charge(n)
			holds.AddHold(words, Hold{ID: id, End: now + limiter.Minute, At: now, Limit: CountsID(l), Cost: n, Keep: true,
				Lent: r.IntN(3) > 0})
		}
		now += limiter.Tick(r.Int64N(int64(limiter.Second)))
		one, oneHolds, oneWords := s, holds, slices.Clone(words)
		full := s.Probe(l, nil, now, new(limiter.LimitDecision))
		for i := range most {
			if h := HoldAt(oneWords, i); h.Lent {
				GiveBack(l, &one, nil, &oneHolds, oneWords, i, now, now, h.Cost)
			}
		}
		GiveBackAll(l, &s, &holds, words, now, func(h Hold) bool { return h.Lent })
		a, b := one.Probe(l, nil, now, new(limiter.LimitDecision)), s.Probe(l, nil, now, new(limiter.LimitDecision))
		differ = differ || b > 0 && b+10 < full
		for i := range most {
			if h := HoldAt(words, i); !h.Lent {
				GiveBack(l, &one, nil, &oneHolds, oneWords, i, now, now, h.Cost)
				GiveBack(l, &s, nil, &holds, words, i, now, now, h.Cost)
			}
		}
		c, d := one.Probe(l, nil, now, new(limiter.LimitDecision)), s.Probe(l, nil, now, new(limiter.LimitDecision))
		if a != b || c != d {
			t.Fatalf("seed %d: %d and then %d are used after one by one, %d and then %d after all", seed, a, c, b, d)
		}
	}
	if !differ {
		t.Error("nothing comes back, or all: there is nothing to compare")
	}
}
