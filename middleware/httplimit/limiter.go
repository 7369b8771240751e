package httplimit

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/middle"
	"github.com/weirlimit/weir/limiter"
)

// Decider decides checks; a *weir.Node is one. A denial is a decision, never an error.
// CheckInto is called from many goroutines and must not keep its arguments.
type Decider interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// Limiter asks a decider about requests and answers those that are denied. It is safe
// for concurrent use.
type Limiter struct {
	decider   Decider
	core      core
	skip      func(*http.Request) bool
	path      func(*http.Request) string // nil, or an empty result: normalPath
	identify  []func(*http.Request, *limiter.Request)
	costs     map[string]limiter.Cost
	cost      func(*http.Request) limiter.Cost
	onDenied  func(http.ResponseWriter, *http.Request, *limiter.Decision)
	onError   func(http.ResponseWriter, *http.Request, error) bool
	spellings []Spelling
	reset     Reset
	now       func() time.Time
	named     bool // requests have ids
}

// core is what a limiter has in common with those of other protocols.
type core = middle.Core[Extract, func(*http.Request, *Response) middle.Usage,
	func(*http.Request, limiter.Amended, error)]

// New returns a middleware, or an error that names the invalid options. [NewLimiter]
// gives access to the same limiter in other ways.
func New(d Decider, opts ...Option) (func(http.Handler) http.Handler, error) {
	l, err := NewLimiter(d, opts...)
	if err != nil {
		return nil, err
	}
	return l.Handler, nil
}

// NewLimiter returns a limiter, or an error that joins those of all invalid options.
func NewLimiter(d Decider, opts ...Option) (*Limiter, error) {
	l := &Limiter{decider: d, core: core{Package: "httplimit"}, spellings: []Spelling{IETF}, now: time.Now}
	var problems []error
	for _, o := range opts {
		if err := o(l); err != nil {
			problems = append(problems, err)
		}
	}
	if err := l.core.Complete(d, "X-Forwarded-For", l.named, problems); err != nil {
		return nil, err
	}
	return l, nil
}

// Handler returns a handler that passes allowed requests to next.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.core.Settling != nil {
			l.serve(w, r, next)
		} else if l.Check(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// Check is for use within a handler. It reports whether the request may proceed. If so,
// it has set the header fields that report the limits. If not, it has written the
// response and the handler should return. The check takes no longer than a client of the
// Connect protocol says that it waits (Connect-Timeout-Ms).
func (l *Limiter) Check(w http.ResponseWriter, r *http.Request) bool {
	if l.skip != nil && l.skip(r) {
		return true
	}
	c := l.core.Get()
	defer l.core.Release(c)
	pass, _ := l.check(w, r, c)
	return pass
}

// check is Check with the memory for it. It also reports whether the request was decided.
func (l *Limiter) check(w http.ResponseWriter, r *http.Request, c *middle.Check) (pass, decided bool) {
	r, cancel := inTime(r)
	defer cancel()
	if err := l.decide(r, c); err != nil {
		l.core.Settling.GivenUp(r.Context(), &c.Request, err)
		return l.failed(w, r, err), false
	}
	l.writeFields(w.Header(), c)
	if c.Decision.Allowed {
		return true, true
	}
	if s, ok := front.RetryAfterSeconds(&c.Decision); ok {
		w.Header().Set("Retry-After", decimal(s))
	}
	if l.onDenied != nil {
		l.onDenied(w, r, &c.Decision)
	} else {
		writeDenial(w, &c.Decision)
	}
	return false, true
}

// DecideInto asks the decider about a request as Check does, overwrites d with the
// decision, and writes nothing. The error wraps limiter.ErrInvalid if the request
// cannot be counted; any other is the decider's. Skip is not called.
func (l *Limiter) DecideInto(r *http.Request, d *limiter.Decision) error {
	r, cancel := inTime(r)
	defer cancel()
	c := l.core.Get()
	defer l.core.Release(c)
	if err := l.fill(r, c); err != nil {
		return err
	}
	return l.decider.CheckInto(r.Context(), &c.Request, d)
}

func (l *Limiter) decide(r *http.Request, c *middle.Check) error {
	if err := l.fill(r, c); err != nil {
		return err
	}
	return l.decider.CheckInto(r.Context(), &c.Request, &c.Decision)
}

// failed answers a request that could not be decided, and reports whether it may
// proceed all the same.
func (l *Limiter) failed(w http.ResponseWriter, r *http.Request, err error) bool {
	err = l.core.Blame(err)
	if l.onError != nil {
		return l.onError(w, r, err)
	}
	// Callers must not pass by sending a request that cannot be counted, or by
	// cancelling it before it is counted.
	if l.core.FailOpen && !front.OfRequest(err) && r.Context().Err() == nil {
		return true
	}
	writeFailure(w, err)
	return false
}

// fill fills in the request for the decider.
func (l *Limiter) fill(r *http.Request, c *middle.Check) error {
	q := &c.Request
	q.Rule, q.Method = l.core.Rule, r.Method
	if l.path != nil {
		q.Path = l.path(r)
	}
	if q.Path == "" {
		path, err := normalPath(r)
		if err != nil {
			return err
		}
		q.Path = path
	}
	if len(q.Path) > limiter.MaxFieldBytes {
		return errPathLength
	}
	q.IP = l.core.Addresses.Text(l.client(r))
	for _, from := range l.identify {
		from(r, q)
	}
	l.core.SetAttributes(c, func(read Extract) string { return read(r) })
	if l.cost != nil {
		q.Cost = l.cost(r)
	} else if l.costs != nil {
		q.Cost = l.costs[r.Method]
	}
	return nil
}

// client returns the address of the caller, as far as it is known.
func (l *Limiter) client(r *http.Request) netip.Addr {
	remote, ok := address.Parse(r.RemoteAddr)
	switch {
	case !ok && l.core.UnixSocket && isUnixSocket(r.RemoteAddr):
		return l.core.Addresses.Behind(r.Header[l.core.AddressIn])
	case !ok:
		return netip.Addr{}
	case len(l.core.Addresses.Trusted) == 0:
		return remote
	}
	return l.core.Addresses.Client(remote, r.Header[l.core.AddressIn])
}

// isUnixSocket reports whether a remote address is that of a Unix socket: empty, a
// path, or a name that begins with @.
func isUnixSocket(remote string) bool {
	return remote == "" || remote[0] == '@' || remote[0] == '/'
}
