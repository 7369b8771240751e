package transport

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// explain is the gRPC method Explain.
func (s *service) explain(ctx context.Context, m *weirv1.CheckRequest) (*weirv1.ExplainResponse, error) {
	var r limiter.Request
	by, err := s.admit(ctx, &r, m, ActionExplain)
	if err == nil {
		err = by.About(&r, m.GetTenant(), ActionExplain)
	}
	if err != nil {
		return nil, err
	}
	r.Cost = weirwire.CostOf(m)
	e, err := by.Explain(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &weirv1.ExplainResponse{Decision: new(weirv1.CheckResponse), NowUnixUs: int64(e.Now), Rules: e.Rules,
		Unlimited: e.Unlimited}
	if err := proto.Unmarshal(s.encoder.AppendResponse(nil, &r, e.Decision), out.Decision); err != nil {
		return nil, err
	}
	for i := range e.Limits {
		out.Limits = append(out.Limits, weirwire.ExplanationMessage(&e.Limits[i]))
	}
	return out, nil
}

// serveExplain serves /v1/explain.
func (f *front) serveExplain(w http.ResponseWriter, r *http.Request, h *listen.Hold) error {
	by, q, err := f.ask(w, r, h, f.checkFields, ActionExplain)
	if err == nil {
		err = by.About(&q.request, q.tenant, ActionExplain)
	}
	if err != nil {
		return err
	}
	e, err := by.Explain(r.Context(), q.request)
	if err == nil {
		writeAnswer(w, http.StatusOK, e, h)
	}
	return err
}
