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

// Refund implements the service.
func (s *service) Refund(ctx context.Context, m *weirv1.RefundRequest) (*weirv1.RefundResponse, error) {
	begin := s.begin()
	return &weirv1.RefundResponse{}, s.end("Refund", begin, s.refundMessage(ctx, m))
}

func (s *service) refundMessage(ctx context.Context, m *weirv1.RefundRequest) error {
	if err := s.mayRefund(true); err != nil {
		return err
	}
	var r limiter.Request
	by, err := s.admit(ctx, &r, m, ActionRefund)
	if err != nil {
		return err
	}
	if m.Cost != nil {
		r.Cost = limiter.Units(m.GetCost())
	}
	return refund(ctx, &by, r, m.GetReceipt())
}

// refundFields returns the fields of a refund.
func (s *service) refundFields() []field {
	return append(s.resetFields(), costField(), idField(), field{"receipt", func(q *question, raw json.RawMessage) error {
		return decode("receipt", raw, &q.sealed, "a string, as in an answer")
	}})
}

// serveRefund serves /v1/refund.
func (f *front) serveRefund(w http.ResponseWriter, r *http.Request) {
	if err := f.mayRefund(true); err != nil {
		writeError(w, err)
		return
	}
	h := listen.Hold{Room: &f.room, Remote: r.RemoteAddr}
	defer h.Release()
	by, q, err := f.ask(w, r, &h, f.refundFields, ActionRefund)
	if err == nil {
		err = refund(r.Context(), &by, q.request, q.sealed)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, struct{}{})
}
