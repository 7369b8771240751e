package weirwire_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// names names counters by the user and the limit.
type names struct{}

func (names) Answer(_ *limiter.Request, d *limiter.Decision) limiter.Answer {
	return limiter.NewAnswer(d, func(i int) string { return fmt.Sprint("key", i) })
}

func (names) KeyName(r *limiter.Request, l *limiter.LimitDecision) string {
	return r.User + ":" + l.Limit.Name()
}

func (n names) append(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte {
	return append(dst, n.KeyName(r, l)...)
}

// limits3 are two limits of one rule and one of a shadow rule.
func limits3(t *testing.T) (minute, hour, shadow limiter.LimitDecision) {
	make := func(rule *limiter.Rule, s limiter.Spec) limiter.LimitDecision {
		l := limitertest.Limit(t, s)
		return limiter.LimitDecision{Rule: rule, Limit: l, Allowed: true}
	}
	r := &limiter.Rule{Name: "r"}
	return make(r, limiter.Spec{Limit: 5, Window: time.Minute}),
		make(r, limiter.Spec{Limit: 50, Window: time.Hour, Algorithm: limiter.TokenBucket, Burst: 60}),
		make(&limiter.Rule{Name: "s", Shadow: true}, limiter.Spec{Limit: 1, Window: time.Second})
}

// TestReplyTellsOfOneLimit: of a denied check the one that denied, of an allowed
// one that with least remaining, shadow limits last.
func TestReplyTellsOfOneLimit(t *testing.T) {
	minute, hour, shadow := limits3(t)
	ds := make([]limiter.Decision, 5)
	for i := range ds {
		ds[i].Clear()
	}
	put := func(i int, ls ...limiter.LimitDecision) *limiter.Decision {
		d := &ds[i]
		d.Grow(len(ls))
		for j, l := range ls {
			*d.Limit(j) = l
		}
		d.Source = limiter.SourceOwner
		return d
	}
	shadow.Remaining, minute.Remaining, hour.Remaining = 0, 4, 3
	hour.ResetAfter = 77 * time.Microsecond
	put(0, shadow, minute, hour) // the hour has least
	put(1, shadow)
	d := put(2, minute, hour)
	l := d.Limit(0)
	l.Allowed, l.RetryAfter, l.Remaining, l.Blocked, d.Allowed = false, 9*time.Microsecond, 2, true, false
	d.Limit(1).RetryAfter = 12 * time.Microsecond // counted although another denied
	arith.Conclude(d)
	// 3: no rule. 4: not decided.
	ds[3].Source = limiter.SourceNone
	ds[4].Allowed = false
	var reply weirwire.Reply
	reply.Fill(ds, []int{4}, []error{fmt.Errorf("%w: no", limiter.ErrInvalid)})
	reply.FillEvery(names{}, make([]limiter.Request, 5), ds)

	want := &weirv1.DecisionColumns{
		Flags:        []byte{1, 1, 8, 1, 128},
		Remaining:    []uint64{3, 0, 2, 1<<32 - 1, 0},
		ResetAfterUs: []int64{77, 0, 0, 0, 0},
		RetryAfterUs: []int64{0, 0, 12, 0, 0},
		LimitRefs:    []uint32{1, 2, 3, 0, 0},
		Sources:      []byte{1, 1, 1, 0, 0},
		Limits: []*weirv1.LimitInfo{
			{Rule: "r", Name: "hour", Algorithm: weirv1.Algorithm_ALGORITHM_TOKEN_BUCKET, Limit: 50, Capacity: 60,
				WindowUs: 3600e6},
			{Rule: "s", Name: "second", Limit: 1, Capacity: 1, WindowUs: 1e6, Shadow: true},
			{Rule: "r", Name: "minute", Limit: 5, Capacity: 5, WindowUs: 60e6},
		},
		Errors: []*weirv1.ColumnsError{{Code: 3, Message: "invalid: no", Checks: []uint32{4}}},
		EveryLimit: &weirv1.LimitColumns{
			Counts:       []uint32{3, 1, 2, 0, 0},
			LimitIndexes: []uint32{1, 2, 0, 1, 2, 0},
			Flags:        []byte{1, 1, 1, 1, 8, 1},
			Remaining:    []uint64{0, 4, 3, 0, 2, 3},
			ResetAfterUs: []int64{0, 0, 77, 0, 0, 77},
			RetryAfterUs: []int64{0, 0, 0, 0, 9, 12},
			Costs:        []uint64{0, 0, 0, 0, 0, 0},
			KeyIndexes:   []uint32{0, 0, 0, 0, 0, 0},
			Keys:         []string{":second", ":minute", ":hour", ":second", ":minute", ":hour"},
			RuleRefs:     []uint32{0, 0, 1, 0, 0},
			RuleNames:    []string{"r"},
		},
	}
	if !proto.Equal(&reply.DecisionColumns, want) {
		t.Errorf("got  %v\nwant %v", &reply.DecisionColumns, want)
	}

	// The next reply has nothing left of this one.
	ds[0].Clear()
	put(0, minute)
	reply.Fill(ds[:1], nil, nil)
	want = &weirv1.DecisionColumns{
		Flags: []byte{1}, Remaining: []uint64{4}, ResetAfterUs: []int64{0}, LimitRefs: []uint32{1},
		Limits: []*weirv1.LimitInfo{{Rule: "r", Name: "minute", Limit: 5, Capacity: 5, WindowUs: 60e6}},
	}
	if !proto.Equal(&reply.DecisionColumns, want) {
		t.Errorf("the next reply: got %v\nwant %v", &reply.DecisionColumns, want)
	}
}

// TestRepliesInColumnsSurviveEncoding compares what Append makes of random columns with what
// the protobuf library reads from it. So it notices a column of numbers that is left out.
func TestRepliesInColumnsSurviveEncoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		n := rng.IntN(weirwire.MaxBatch + 1)
		number := func() uint64 { return rng.Uint64() >> rng.IntN(64) }
		var reply weirwire.Reply
		m := &reply.DecisionColumns
		m.Id, m.View, m.Flags, m.Sources = number(), number(), make([]byte, n), make([]byte, n/2)
		m.Limits = []*weirv1.LimitInfo{{Rule: "towns", Name: "minute", Limit: number()}}
		m.Errors = []*weirv1.ColumnsError{{Code: 3, Message: "wrong", Checks: []uint32{1, 1 << 20}}}
		for range n {
			m.Remaining, m.InForce = append(m.Remaining, number()), append(m.InForce, number())
			m.ResetAfterUs, m.RetryAfterUs = append(m.ResetAfterUs, int64(number())), append(m.RetryAfterUs, int64(number()))
			m.LimitRefs = append(m.LimitRefs, uint32(number()))
		}
		want := proto.Clone(m)
		out, err := reply.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got weirv1.DecisionColumns
		if err := proto.Unmarshal(out, &got); err != nil {
			t.Fatalf("round %d, %d checks: %v", round, n, err)
		}
		if !proto.Equal(&got, want) || !proto.Equal(m, want) {
			t.Fatalf("round %d, %d checks: got %v\nwant %v", round, n, &got, want)
		}
	}
}
