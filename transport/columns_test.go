package transport

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// stub decides as a test defines.
type stub struct {
	decide func(r *limiter.Request, d *limiter.Decision) error
	err    error // of everything
	calls  int   // of CheckBatch
}

func (s *stub) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	d.Clear()
	if s.err != nil || s.decide == nil {
		return s.err
	}
	return s.decide(r, d)
}

func (s *stub) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.CheckInto(ctx, r, d)
}

func (s *stub) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	s.calls++
	if s.err != nil {
		return s.err
	}
	var some limiter.BatchError
	for i := range rs {
		if err := s.CheckInto(ctx, &rs[i], &ds[i]); err != nil {
			ds[i].Clear()
			ds[i].Allowed = false
			some.Index, some.Errs = append(some.Index, i), append(some.Errs, err)
		}
	}
	if len(some.Index) > 0 {
		return &some
	}
	return nil
}

func (s *stub) Reset(context.Context, limiter.Request) (int, error) { return 0, s.err }

func (s *stub) Answer(_ *limiter.Request, d *limiter.Decision) limiter.Answer {
	return limiter.NewAnswer(d, func(i int) string { return fmt.Sprint("key", i) })
}

func (s *stub) KeyName(r *limiter.Request, l *limiter.LimitDecision) string {
	return r.User + ":" + l.Limit.Name()
}

// limits2 are two limits of one rule.
func limits2(t *testing.T) (minute, hour limiter.LimitDecision) {
	make := func(s limiter.Spec) limiter.LimitDecision {
		l := limitertest.Limit(t, s)
		return limiter.LimitDecision{Rule: &limiter.Rule{Name: "r"}, Limit: l, Allowed: true}
	}
	return make(limiter.Spec{Limit: 5, Window: time.Minute}),
		make(limiter.Spec{Limit: 50, Window: time.Hour, Algorithm: limiter.TokenBucket, Burst: 60})
}

// TestNamesThatAreNoText: a reply that cannot be encoded is an error of its message. The
// stream, and what else is in flight on it, goes on.
func TestNamesThatAreNoText(t *testing.T) {
	s := newService(Options{Decider: &stub{}})
	for name, want := range map[string]codes.Code{"\xff": codes.Internal, "text": codes.OK} {
		m := &columnsMessage{service: s, turn: s.turns.Get().(*turn), hold: listen.Hold{Room: &s.room}}
		m.turn.reply.Reset()
		m.turn.reply.Id, m.turn.reply.EveryLimit = 7, &weirv1.LimitColumns{Keys: []string{name}}
		out, err := m.writeReply()
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		var got weirv1.DecisionColumns
		if err := proto.Unmarshal(out.Materialize(), &got); err != nil || got.Id != 7 ||
			codes.Code(got.GetError().GetCode()) != want {
			t.Errorf("%q: %v, %v, want %v", name, err, &got, want)
		}
	}
	if err := weirwire.CheckError(invalid("\xff")); !utf8.ValidString(err.Message) {
		t.Errorf("%q", err.Message)
	}
}

// TestErrorsInARowAreToldOnce: an unknown rule in a column concerns every check,
// and is one error.
func TestErrorsInARowAreToldOnce(t *testing.T) {
	by := &stub{decide: func(r *limiter.Request, d *limiter.Decision) error {
		if r.Rule != "" {
			return invalid("there is no rule %q", r.Rule)
		}
		return nil
	}}
	s := newService(Options{Decider: by})
	var tn turn
	in := &weirv1.CheckColumns{Costs: make([]int64, MaxBatch), Rule: "nine"}
	if err := s.decideColumns(t.Context(), &tn, in, nil); err != nil {
		t.Fatal(err)
	}
	if e := tn.reply.Errors; len(e) != 1 || len(e[0].Checks) != MaxBatch || !strings.Contains(e[0].Message, "nine") {
		t.Errorf("errors %v", e)
	}
	if by.calls != 1 {
		t.Errorf("a message took %d calls of the decider, want 1", by.calls)
	}
}

// TestColumnsAllocateNothingPerCheck: what one message costs does not grow with
// its checks, but for the one copy of its keys.
func TestColumnsAllocateNothingPerCheck(t *testing.T) {
	minute, hour := limits2(t)
	by := &stub{decide: func(_ *limiter.Request, d *limiter.Decision) error {
		d.Source = limiter.SourceOwner
		d.Grow(2)
		*d.Limit(0), *d.Limit(1) = minute, hour
		return nil
	}}
	s := newService(Options{Decider: by})
	in := &weirv1.CheckColumns{}
	for range MaxBatch {
		in.Keys = append(in.Keys, "/townsada"...)
		in.PathLengths, in.UserLengths = append(in.PathLengths, 6), append(in.UserLengths, 3)
	}
	var tn turn
	if err := s.decideColumns(t.Context(), &tn, in, nil); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() { _ = s.decideColumns(t.Context(), &tn, in, nil) }); n > 4 {
		t.Errorf("a message of %d checks makes %v allocations", MaxBatch, n)
	}
}
