package transport

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Reserver is a [Decider] with reservations. The errors of its methods wrap
// [limiter.ErrSettled] for a request that is final, and [limiter.ErrNoRoom] if there is no room
// for the charge.
type Reserver interface {
	Decider
	// Settle ends the reservation with the request's id: the request has used actual units. If
	// the id is not known, they are charged, unless ignoreUnknown is set.
	Settle(ctx context.Context, r limiter.Request, actual int64, ignoreUnknown bool) (limiter.Amended, error)
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
func (s *service) settle(ctx context.Context, q *question) (limiter.Amended, error) {
	if q.amend.actual == nil {
		return limiter.Amended{}, invalid("the settlement does not say what was used: give actual, in units, or cancel it")
	}
	return s.reserver.Settle(ctx, q.request, *q.amend.actual, q.amend.ignore)
}

// cancel settles it with nothing.
func (s *service) cancel(ctx context.Context, q *question) (limiter.Amended, error) {
	return s.reserver.Settle(ctx, q.request, 0, true)
}

// extend lets it last longer.
func (s *service) extend(ctx context.Context, q *question) (limiter.Amended, error) {
	return s.reserver.Extend(ctx, q.request)
}

// errNoReservations returns the error of a decider without reservations.
func errNoReservations() error { return invalid("there are no reservations here") }

// serveAmend serves what is done with reservations. It needs the permission to refund: who may
// settle can take every charge of its own back, and charge beyond a limit. fields returns the fields of the question,
// do does it.
func (f *front) serveAmend(fields func() []field, do func(context.Context, *question) (limiter.Amended, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if f.reserver == nil {
			writeError(w, errNoReservations())
			return
		}
		if err := f.mayRefund(true); err != nil {
			writeError(w, err)
			return
		}
		h := hold{room: &f.room, remote: r.RemoteAddr}
		defer h.release()
		by, q, err := f.ask(w, r, &h, fields(), ActionRefund)
		var out limiter.Amended
		if err == nil {
			out, err = do(r.Context(), q)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		by.amended(out)
		writeAmended(w, out)
	}
}

// amended charges the caller's budget of new keys with a settlement that may have made them.
func (p pass) amended(a limiter.Amended) {
	if b, ok := p.caller.(KeyBudget); ok && a.State == limiter.AmendCharged && b.CountsKeys() {
		b.SpendKeys(max(1, a.Keys)) // a decider of another program may not say
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
