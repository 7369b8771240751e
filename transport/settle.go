package transport

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

// amended is what was done with a reservation, in the form of its JSON.
type amended struct {
	State        string `json:"state"`
	Estimate     uint64 `json:"estimate,omitempty"`
	Over         uint64 `json:"over,omitempty"`
	RetryAfterMs *int64 `json:"retry_after_ms,omitempty"`
}

func (f *front) cancelFields() []field { return append(f.resetFields(), idFields()...) }

func (f *front) settleFields() []field {
	return append(f.cancelFields(),
		field{"actual", func(q *question, raw json.RawMessage) error {
			if hasMore(raw, MaxAttributes) {
				return moreThan("settlement", "attributes", MaxAttributes)
			}
			if len(raw) > 0 && raw[0] == '{' {
				return decodeNamed(raw, &q.amend.named)
			}
			return decode("actual", raw, &q.amend.actual, "a whole number of units, or an object with one for each attribute")
		}},
		field{"if_unknown", func(q *question, raw json.RawMessage) error {
			var text string
			if err := decode("if_unknown", raw, &text, `"charge" or "ignore"`); err != nil {
				return err
			}
			if q.amend.ignore = text == "ignore"; !q.amend.ignore && text != "charge" {
				return invalid(`if_unknown is %s; it must be "charge" or "ignore"`, frontend.Quote(text))
			}
			return nil
		}})
}

// decodeNamed reads what was used of each attribute. A null is no number: as 0 it would give all back.
func decodeNamed(raw json.RawMessage, to *map[string]int64) error {
	const wanted = "whole numbers of units by attribute"
	var named map[string]*int64
	if err := decodeByName("actual", raw, &named, wanted); err != nil {
		return err
	}
	*to = make(map[string]int64, len(named))
	for attribute, n := range named {
		if n == nil {
			return invalid("actual of %s is null; it must be %s", frontend.Quote(attribute), wanted)
		}
		(*to)[attribute] = *n
	}
	return nil
}

func (f *front) extendFields() []field { return append(f.cancelFields(), holdField(), costField()) }

func settle(ctx context.Context, by *frontend.Session, q *question) (limiter.Amended, error) {
	var opts []limiter.SettleOption
	actual := int64(0)
	switch {
	case q.amend.actual != nil:
		actual = *q.amend.actual
	case q.amend.named == nil:
		return limiter.Amended{}, invalid("the settlement does not say what was used: give actual, in units, or cancel it")
	}
	if q.amend.named != nil {
		opts = append(opts, limiter.Actual(q.amend.named))
	}
	if q.amend.ignore {
		opts = append(opts, limiter.IgnoreUnknown())
	}
	return by.Settle(ctx, q.request, actual, opts...)
}

// cancel settles it with nothing.
func cancel(ctx context.Context, by *frontend.Session, q *question) (limiter.Amended, error) {
	return by.Settle(ctx, q.request, 0, limiter.IgnoreUnknown())
}

// extend lets it last longer.
func extend(ctx context.Context, by *frontend.Session, q *question) (limiter.Amended, error) {
	return by.Extend(ctx, q.request)
}

// serveAmend serves what is done with reservations. It needs the permission to refund: who may
// settle can take every charge of its own back, and charge beyond a limit. fields returns the fields of the question,
// do does it.
func (f *front) serveAmend(fields func() []field, do func(context.Context, *frontend.Session,
	*question) (limiter.Amended, error)) http.HandlerFunc {
	return f.holding(func(w http.ResponseWriter, r *http.Request, h *listen.Hold) error {
		if err := f.mayAmend(); err != nil {
			return err
		}
		by, q, err := f.ask(w, r, h, fields, ActionRefund)
		var out limiter.Amended
		if err == nil {
			out, err = do(r.Context(), &by, q)
		}
		if err == nil {
			writeAmended(w, out)
		}
		return err
	})
}

func writeAmended(w http.ResponseWriter, a limiter.Amended) {
	out := amended{State: a.State.String(), Estimate: a.Estimate, Over: a.Over}
	if a.State != limiter.AmendDenied {
		writeJSON(w, out)
		return
	}
	if a.RetryAfter > 0 {
		out.RetryAfterMs = new((a.RetryAfter + time.Millisecond - 1).Milliseconds())
		w.Header().Set("Retry-After", strconv.FormatInt(limiter.Seconds(a.RetryAfter), 10))
	}
	write(w, http.StatusTooManyRequests, "application/json", out)
}
