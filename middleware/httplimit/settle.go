package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/middle"
	"github.com/weirlimit/weir/limiter"
)

// Settler is a [Decider] with reservations; a *weir.Node and a *client.Client are ones.
type Settler interface {
	Decider
	// Settle ends the reservation of the request's id, which has used actual units. It must not
	// keep the request.
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
}

// Response is how a request was answered.
type Response struct {
	// Status is the status of the response. It is 200 if the handler has set none, and 0 if the
	// handler panicked or took the connection over before.
	Status int
	// Header has the fields of the response. It belongs to the handler.
	Header http.Header
	// Bytes is the number of bytes of the body that the handler has written.
	Bytes int64
	// Hijacked reports that the handler took the connection over, as for a WebSocket. Bytes
	// leaves out what it wrote to the connection.
	Hijacked bool
	// Err is the error of the request's context when the handler ended, such as
	// [context.Canceled] if the client hung up; nil if the context had not ended.
	Err error
	// Panicked reports that the handler panicked, also with [http.ErrAbortHandler].
	Panicked bool
}

// Settle turns each request that [Limiter.Handler] passes on into a reservation. First the
// request is charged an estimate: what [CostFunc], [CostByMethod] or the rule says. When the
// handler has ended, in any way, used returns the units that it has used. If the estimate was
// too high, the rest is given back. If it was too low, the rest is charged, also beyond the
// limit. limiter.Units(0) cancels the reservation, for instance if the handler panicked or the
// client hung up. The zero Cost leaves it unsettled, and the rule decides when the hold ends
// (on_expiry). The end of the response waits for the settlement, 5 s at most.
//
// hold should be longer than any request takes, since a settlement after it is charged in
// full. The decider must be a [Settler], and nodes must allow refunds. Rules with "any" reserve nothing: their requests
// are treated as while the decider fails, and a warning is logged (log/slog) once a minute. Each request has an id
// of its own, so Settle and [ID] exclude each other. Checks by other methods are not
// reservations. A request that could not be decided, but passes, is not settled. It may have
// been reserved all the same, so it is cancelled, in the background unless its context has ended, and used is not
// called. If used panics, the estimate counts as used.
func Settle(hold time.Duration, used func(*http.Request, *Response) limiter.Cost) Option {
	return func(l *Limiter) error {
		if used == nil {
			return l.core.NeedsFunction("Settle")
		}
		return l.core.Settle(hold, false, func(r *http.Request, out *Response) middle.Usage {
			return middle.Usage{Units: used(r, out)}
		})
	}
}

// SettleBy is [Settle] for reservations of different units, such as tokens and micro-dollars: used returns what the
// request has used by the attributes from which its rules take their costs, as for limiter.Actual. An empty map cancels
// the reservation. nil leaves it unsettled, and so does a panic of used.
func SettleBy(hold time.Duration, used func(*http.Request, *Response) map[string]int64) Option {
	return func(l *Limiter) error {
		if used == nil {
			return l.core.NeedsFunction("SettleBy")
		}
		return l.core.Settle(hold, true, func(r *http.Request, out *Response) middle.Usage {
			return middle.UsedBy(used(r, out))
		})
	}
}

// OnSettled is called after each settlement, with what was done or why it failed. After an
// error that wraps limiter.ErrInvalid, or limiter.ErrSettled, nothing has changed. Any other
// leaves the estimate charged until the hold is over. It needs [Settle].
func OnSettled(f func(*http.Request, limiter.Amended, error)) Option {
	return func(l *Limiter) error { return l.core.OnSettled(f, f != nil) }
}

// serve reserves a request, passes it on if it is allowed, and settles it.
func (l *Limiter) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if l.skip != nil && l.skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	c := l.core.Get()
	defer l.core.Release(c)
	l.core.Settling.Reserve(&c.Request)
	pass, decided := l.check(w, r, c)
	if !pass {
		return
	}
	if !decided || c.Decision.Len() == 0 { // nothing was reserved
		next.ServeHTTP(w, r)
		return
	}
	seen := &writer{ResponseWriter: w}
	seen.Panicked = true
	defer func() { l.settled(r, c, seen) }() // and a panic goes on
	next.ServeHTTP(seen, r)
	seen.Panicked = false
}

// settled settles a request whose handler has ended.
func (l *Limiter) settled(r *http.Request, c *middle.Check, seen *writer) {
	if seen.Status == 0 && !seen.Panicked && !seen.Hijacked {
		seen.Status = http.StatusOK
	}
	seen.Response.Header, seen.Err = seen.Header(), r.Context().Err()
	settling := l.core.Settling
	settling.Finish(r.Context(), c, func() middle.Usage { return settling.Used(r, &seen.Response) },
		func(out limiter.Amended, err error) {
			if settling.Told != nil {
				settling.Told(r, out, err)
			}
		})
}

// writer sees what a handler writes. It has the methods that handlers look for, which do
// nothing or fail where the writer inside has none.
type writer struct {
	http.ResponseWriter
	Response
}

func (w *writer) Header() http.Header { return w.ResponseWriter.Header() }

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	w.begun(status)
	w.ResponseWriter.WriteHeader(status)
}

// begun notes the status of the response: the first one that is not informational.
func (w *writer) begun(status int) {
	if w.Status == 0 && !w.Hijacked && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.Status = status
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.begun(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.Bytes += int64(n)
	return n, err
}

// ReadFrom writes the rest of a reader, without a copy where the writer inside can.
func (w *writer) ReadFrom(from io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, from)
	if n > 0 { // else the status is still to be set, as after a reader that failed
		w.begun(http.StatusOK)
	}
	w.Bytes += n
	return n, err
}

// Flush sends what was written.
func (w *writer) Flush() { _ = w.FlushError() } // a Flusher cannot say that it failed

// FlushError is Flush for [http.ResponseController].
func (w *writer) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.begun(http.StatusOK)
	}
	return err
}

// Push begins a server push, if the connection is one of HTTP/2.
func (w *writer) Push(target string, o *http.PushOptions) error {
	for inner := w.ResponseWriter; ; {
		switch t := inner.(type) {
		case http.Pusher:
			return t.Push(target, o)
		case interface{ Unwrap() http.ResponseWriter }:
			inner = t.Unwrap()
		default:
			return http.ErrNotSupported
		}
	}
}

// Hijack takes the connection over. What is written to it then is not seen.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.Hijacked = w.Hijacked || err == nil
	return c, rw, err
}
