package transport

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// refund takes back the charge of a request.
func refund(ctx context.Context, by *frontend.Session, r limiter.Request, sealed string) error {
	if sealed == "" {
		return invalid(`there is no receipt: send the one that came with the answer to a check with "receipt: true"`)
	}
	return by.Refund(ctx, r, limiter.SealedReceipt(sealed))
}

// refund is the gRPC method Refund.
func (s *service) refund(ctx context.Context, m *weirv1.RefundRequest) (*weirv1.RefundResponse, error) {
	if err := s.mayRefund(true); err != nil {
		return nil, err
	}
	var r limiter.Request
	by, err := s.admit(ctx, &r, m, ActionRefund)
	if err != nil {
		return nil, err
	}
	if m.Cost != nil {
		r.Cost = limiter.Units(m.GetCost())
	}
	return &weirv1.RefundResponse{}, refund(ctx, &by, r, m.GetReceipt())
}

func (f *front) refundFields() []field {
	return append(f.resetFields(), costField(), idField(), field{"receipt", func(q *question, raw json.RawMessage) error {
		return decode("receipt", raw, &q.sealed, "a string, as in an answer")
	}})
}

// serveRefund serves /v1/refund.
func (f *front) serveRefund(w http.ResponseWriter, r *http.Request, h *listen.Hold) error {
	if err := f.mayRefund(true); err != nil {
		return err
	}
	by, q, err := f.ask(w, r, h, f.refundFields, ActionRefund)
	if err == nil {
		err = refund(r.Context(), &by, q.request, q.sealed)
	}
	if err == nil {
		writeJSON(w, struct{}{})
	}
	return err
}
