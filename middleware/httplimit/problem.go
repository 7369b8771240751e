package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
)

// Problem types that the IETF draft registers.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is the body of a denial (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// writeDenial answers a request that was denied.
func writeDenial(w http.ResponseWriter, d *limiter.Decision) {
	p := problem{
		Type:     typeQuotaExceeded,
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   front.StatusOf(d),
		Detail:   front.Why(d),
		Violated: front.Violated(d),
	}
	switch d.Source {
	case limiter.SourceFallbackClosed:
		p.Type = typeReducedCapacity
		p.Title = "Request cannot be satisfied due to temporary server capacity constraints"
	case limiter.SourceRule:
		p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	}
	p.write(w)
}

// writeFailure answers a request that could not be decided. The error is not shown,
// since its text may describe internal systems.
func writeFailure(w http.ResponseWriter, err error) {
	p := problem{
		Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Detail: "The limits cannot be looked up now, and without them nothing is let through.",
	}
	switch {
	case errors.Is(err, errPathLength):
		p.Title, p.Status = http.StatusText(http.StatusRequestURITooLong), http.StatusRequestURITooLong
		p.Detail = "The path is too long to be counted against its limits."
	case errors.Is(err, limiter.ErrInvalid):
		p.Title, p.Status = http.StatusText(http.StatusBadRequest), http.StatusBadRequest
		p.Detail = "The request cannot be counted against its limits: its path or what names its sender is not valid or " +
			"too long, or something is missing from it."
	case errors.Is(err, limiter.ErrScope):
		p.Title, p.Status = http.StatusText(http.StatusForbidden), http.StatusForbidden
		p.Detail = "A rule that matches the request is not one that the service may use."
	case errors.Is(err, limiter.ErrBudget):
		p.Title, p.Status = http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests
		p.Detail = "The service asks more about limits than it may: send the request later."
		if wait := front.RetryAfter(err); wait > 0 {
			w.Header().Set("Retry-After", decimal(limiter.Seconds(wait)))
		}
	case errors.Is(err, limiter.ErrSettled):
		p.Title, p.Status = http.StatusText(http.StatusConflict), http.StatusConflict
		p.Detail = "The id of the request is that of another one, which is over."
	}
	p.write(w)
}

func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		body = nil // strings and numbers can always be encoded
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the connection may be closed
}
