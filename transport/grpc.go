package transport

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// service is weir.v1.Limiter. It is safe for concurrent use.
type service struct {
	weirv1.UnimplementedLimiterServer

	decider     Decider
	observer    Observer // nil: nobody
	allowLimits bool
	allowReset  bool

	checks sync.Pool // of *check
	turns  sync.Pool // of *turn
}

func newService(o Options) *service {
	return &service{
		decider: o.Decider, observer: o.Observer,
		allowLimits: o.AllowRequestLimits, allowReset: o.AllowReset,
		checks: sync.Pool{New: func() any { return new(check) }},
		turns:  sync.Pool{New: func() any { return new(turn) }},
	}
}

// check is the memory of one check.
type check struct {
	request  limiter.Request
	decision limiter.Decision
}

// Check implements the service.
func (s *service) Check(ctx context.Context, m *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	begin := s.begin()
	out, err := s.check(ctx, m)
	return out, s.end("Check", begin, err)
}

func (s *service) check(ctx context.Context, m *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	c := s.checks.Get().(*check)
	defer s.checks.Put(c)
	if err := s.fillRequest(&c.request, m); err != nil {
		return nil, err
	}
	c.request.Cost = costOf(m)
	ask := s.decider.Check
	if m.GetPeek() {
		ask = s.decider.Peek
	}
	if err := ask(ctx, &c.request, &c.decision); err != nil {
		return nil, err
	}
	return s.response(&c.request, &c.decision), nil
}

// CheckBatch implements the service.
func (s *service) CheckBatch(ctx context.Context, m *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
	begin := s.begin()
	out, err := s.checkBatch(ctx, m.GetChecks())
	return out, s.end("CheckBatch", begin, err)
}

func (s *service) checkBatch(ctx context.Context, asked []*weirv1.CheckRequest) (*weirv1.CheckBatchResponse, error) {
	if len(asked) > MaxBatch {
		return nil, tooLarge(len(asked))
	}
	t := s.turns.Get().(*turn)
	defer s.turns.Put(t)
	b := &t.batch
	b.grow(len(asked))
	results := make([]weirv1.CheckResult, len(asked))
	refs := make([]*weirv1.CheckResult, len(asked))
	at := make([]int, 0, len(asked)) // where in the message each request stands
	peeks := false
	for i, m := range asked {
		refs[i] = &results[i]
		r := &b.requests[len(at)]
		if err := s.fillRequest(r, m); err != nil {
			results[i].Result = failure(err)
			continue
		}
		r.Cost = costOf(m)
		peeks = peeks || m.GetPeek()
		at = append(at, i)
	}
	if peeks {
		b.decideEach(ctx, s.decider, len(at), func(i int) bool { return asked[at[i]].GetPeek() })
	} else if err := b.decide(ctx, s.decider, len(at)); err != nil {
		return nil, err
	}
	for i, f := range b.failed {
		results[at[f]].Result = failure(b.errs[i])
	}
	for i, j := range at {
		if results[j].Result == nil {
			results[j].Result = &weirv1.CheckResult_Decision{Decision: s.response(&b.requests[i], &b.decisions[i])}
		}
	}
	return &weirv1.CheckBatchResponse{Results: refs}, nil
}

func tooLarge(n int) error {
	return invalid("the batch has %d checks; at most %d are allowed", n, MaxBatch)
}

func failure(err error) *weirv1.CheckResult_Error {
	return &weirv1.CheckResult_Error{Error: checkError(err)}
}

func checkError(err error) *weirv1.CheckError {
	return &weirv1.CheckError{Code: uint32(codeOf(err)), Message: err.Error()}
}

// Reset implements the service.
func (s *service) Reset(ctx context.Context, m *weirv1.ResetRequest) (*weirv1.ResetResponse, error) {
	begin := s.begin()
	n, err := s.reset(ctx, m)
	return &weirv1.ResetResponse{Counters: int64(n)}, s.end("Reset", begin, err)
}

func (s *service) reset(ctx context.Context, m *weirv1.ResetRequest) (int, error) {
	if !s.allowReset {
		return 0, errReset
	}
	var r limiter.Request
	if err := s.fillRequest(&r, m); err != nil {
		return 0, err
	}
	return s.decider.Reset(ctx, &r)
}

// begin reads the clock if anybody wants to know.
func (s *service) begin() time.Time {
	if s.observer == nil {
		return time.Time{}
	}
	return time.Now()
}

// end tells the observer of a call, and returns its error as a status.
func (s *service) end(method string, begin time.Time, err error) error {
	err = statusOf(err)
	if s.observer != nil {
		s.observer.Served(method, status.Code(err).String(), time.Since(begin))
	}
	return err
}
