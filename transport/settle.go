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

// Reserver is a [Decider] with reservations. The errors of its methods wrap
// [limiter.ErrSettled] for a request that is final, and [limiter.ErrNoRoom] if there is no room
// for the charge.
type Reserver interface {
	Decider
	// Settle ends the reservation with the request's id: the request has used actual units. If
	// the id is not known, they are charged, unless an option says otherwise.
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
	// Extend lets the reservation last for the request's Hold from now on. If the request's cost
	// is higher than the estimate, it becomes the estimate.
	Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error)
}

// amendment is what a question says of a reservation.
type amendment struct {
	actual *int64
	ignore bool // charge nothing if the id is not known
}

// amended is what was done with a reservation, in the form of its JSON.
type amended struct {
	State        string `json:"state"`
	Estimate     uint64 `json:"estimate,omitempty"`
	Over         uint64 `json:"over,omitempty"`
	RetryAfterMs *int64 `json:"retry_after_ms,omitempty"`
}

// holdField returns the field that makes a check a reservation, or extends one.
func holdField() field {
	return field{"hold_ms", func(q *question, raw json.RawMessage) error {
		return decodeTime("hold_ms", raw, &q.request.Hold)
	}}
}

// cancelFields returns the fields that identify a reservation.
func (s *service) cancelFields() []field { return append(s.resetFields(), idFields()...) }

// settleFields returns the fields of a settlement.
func (s *service) settleFields() []field {
	return append(s.cancelFields(),
		field{"actual", func(q *question, raw json.RawMessage) error {
			return decode("actual", raw, &q.amend.actual, "a whole number of units")
		}},
		field{"if_unknown", func(q *question, raw json.RawMessage) error {
			var text string
			if err := decode("if_unknown", raw, &text, `"charge" or "ignore"`); err != nil {
				return err
			}
			if q.amend.ignore = text == "ignore"; !q.amend.ignore && text != "charge" {
				return invalid(`if_unknown is %s; it must be "charge" or "ignore"`, quote(text))
			}
			return nil
		}})
}

// extendFields returns the fields of an extension.
func (s *service) extendFields() []field { return append(s.cancelFields(), holdField(), costField()) }

// settle settles the reservation that a question is about.
func settle(ctx context.Context, by *frontend.Session, q *question) (limiter.Amended, error) {
	if q.amend.actual == nil {
		return limiter.Amended{}, invalid("the settlement does not say what was used: give actual, in units, or cancel it")
	}
	var opts []limiter.SettleOption
	if q.amend.ignore {
		opts = append(opts, limiter.IgnoreUnknown())
	}
	return by.Settle(ctx, q.request, *q.amend.actual, opts...)
}

// cancel settles it with nothing.
func cancel(ctx context.Context, by *frontend.Session, q *question) (limiter.Amended, error) {
	return by.Settle(ctx, q.request, 0, limiter.IgnoreUnknown())
}

// extend lets it last longer.
func extend(ctx context.Context, by *frontend.Session, q *question) (limiter.Amended, error) {
	return by.Extend(ctx, q.request)
}

// mayAmend returns why there are no reservations to be settled, nil if there may be.
func (s *service) mayAmend() error {
	if !s.front.Reserves() {
		return frontend.ErrNoReservations
	}
	return s.front.Allows(ActionRefund)
}

// serveAmend serves what is done with reservations. It needs the permission to refund: who may
// settle can take every charge of its own back, and charge beyond a limit. fields returns the fields of the question,
// do does it.
func (f *front) serveAmend(fields func() []field, do func(context.Context, *frontend.Session, *question) (limiter.Amended, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f.mayAmend(); err != nil {
			writeError(w, err)
			return
		}
		h := listen.Hold{Room: &f.room, Remote: r.RemoteAddr}
		defer h.Release()
		by, q, err := f.ask(w, r, &h, fields(), ActionRefund)
		var out limiter.Amended
		if err == nil {
			out, err = do(r.Context(), &by, q)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		writeAmended(w, out)
	}
}

func writeAmended(w http.ResponseWriter, a limiter.Amended) {
	out := amended{State: a.State.String(), Estimate: a.Estimate, Over: a.Over}
	if a.State != limiter.AmendDenied {
		writeJSON(w, out)
		return
	}
	if a.RetryAfter > 0 {
		ms := (a.RetryAfter + time.Millisecond - 1).Milliseconds()
		out.RetryAfterMs = &ms
		w.Header().Set("Retry-After", strconv.FormatInt(limiter.Seconds(a.RetryAfter), 10))
	}
	write(w, http.StatusTooManyRequests, "application/json", out)
}
