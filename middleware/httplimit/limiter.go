package httplimit

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/internal/front"
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
	decider    Decider
	skip       func(*http.Request) bool
	path       func(*http.Request) string // nil, or an empty result: normalPath
	rule       string
	addresses  front.Addresses
	addrField  string
	unixSocket bool
	identify   []func(*http.Request, *limiter.Request)
	attributes []attribute
	costs      map[string]limiter.Cost
	cost       func(*http.Request) limiter.Cost
	onDenied   func(http.ResponseWriter, *http.Request, *limiter.Decision)
	onError    func(http.ResponseWriter, *http.Request, error) bool
	failOpen   bool
	spellings  []Spelling
	reset      Reset
	now        func() time.Time
	pool       sync.Pool // of *check
	settle     *settling // nil: requests are charged for good
	named      bool      // requests have ids
}

// check is the memory for one request; it is pooled.
type check struct {
	request    limiter.Request
	decision   limiter.Decision
	attributes map[string]string
	limits     []*limiter.LimitDecision
	text       []byte
}

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
	l := &Limiter{decider: d, spellings: []Spelling{IETF}, now: time.Now}
	var problems []error
	if d == nil {
		problems = append(problems, errors.New("httplimit: the decider is nil: pass a *weir.Node or a *client.Client"))
	}
	for _, o := range opts {
		if err := o(l); err != nil {
			problems = append(problems, err)
		}
	}
	if l.addrField == "" {
		l.addrField = "X-Forwarded-For"
	} else if len(l.addresses.Trusted) == 0 && !l.unixSocket {
		problems = append(problems, errors.New("httplimit: "+l.addrField+
			" names the caller, but no proxy is trusted to set it: name the proxies with TrustedProxies"))
	}
	if err := l.checkSettle(); err != nil {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	l.pool.New = func() any { return new(check) }
	return l, nil
}

// Handler returns a handler that passes allowed requests to next.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.settle != nil {
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
	c := l.pool.Get().(*check)
	defer l.release(c)
	pass, _ := l.check(w, r, c)
	return pass
}

// check is Check with the memory for it. It also reports whether the request was decided.
func (l *Limiter) check(w http.ResponseWriter, r *http.Request, c *check) (pass, decided bool) {
	r, cancel := inTime(r)
	defer cancel()
	if err := l.decide(r, c); err != nil {
		l.givenUp(r.Context(), &c.request, err)
		return l.failed(w, r, err), false
	}
	l.writeFields(w.Header(), c)
	if c.decision.Allowed {
		return true, true
	}
	if s, ok := front.RetryAfterSeconds(&c.decision); ok {
		w.Header().Set("Retry-After", decimal(s))
	}
	if l.onDenied != nil {
		l.onDenied(w, r, &c.decision)
	} else {
		writeDenial(w, &c.decision)
	}
	return false, true
}

// DecideInto asks the decider about a request as Check does, overwrites d with the
// decision, and writes nothing. The error wraps limiter.ErrInvalid if the request
// cannot be counted; any other is the decider's. Skip is not called.
func (l *Limiter) DecideInto(r *http.Request, d *limiter.Decision) error {
	r, cancel := inTime(r)
	defer cancel()
	c := l.pool.Get().(*check)
	defer l.release(c)
	if err := l.fill(r, c); err != nil {
		return err
	}
	return l.decider.CheckInto(r.Context(), &c.request, d)
}

func (l *Limiter) decide(r *http.Request, c *check) error {
	if err := l.fill(r, c); err != nil {
		return err
	}
	return l.decider.CheckInto(r.Context(), &c.request, &c.decision)
}

// release returns c to the pool without references to its request.
func (l *Limiter) release(c *check) {
	c.request = limiter.Request{}
	c.decision.Clear()
	clear(c.attributes)
	clear(c.limits)
	c.limits, c.text = c.limits[:0], c.text[:0]
	l.pool.Put(c)
}

// failed answers a request that could not be decided, and reports whether it may
// proceed all the same.
func (l *Limiter) failed(w http.ResponseWriter, r *http.Request, err error) bool {
	if l.onError != nil {
		return l.onError(w, r, err)
	}
	// Callers must not pass by sending a request that cannot be counted, or by
	// cancelling it before it is counted.
	if l.failOpen && !front.OfRequest(err) && r.Context().Err() == nil {
		return true
	}
	writeFailure(w, err)
	return false
}

// fill fills in the request for the decider.
func (l *Limiter) fill(r *http.Request, c *check) error {
	q := &c.request
	q.Rule, q.Method = l.rule, r.Method
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
	q.IP = l.addresses.Text(l.client(r))
	for _, from := range l.identify {
		from(r, q)
	}
	if len(l.attributes) > 0 {
		if c.attributes == nil {
			c.attributes = make(map[string]string, len(l.attributes))
		}
		for _, a := range l.attributes {
			if v := a.from(r); v != "" {
				c.attributes[a.name] = v
			}
		}
		q.Attributes = c.attributes
	}
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
	case !ok && l.unixSocket && isUnixSocket(r.RemoteAddr):
		return l.addresses.Behind(r.Header[l.addrField])
	case !ok:
		return netip.Addr{}
	case len(l.addresses.Trusted) == 0:
		return remote
	}
	return l.addresses.Client(remote, r.Header[l.addrField])
}

// isUnixSocket reports whether a remote address is that of a Unix socket: empty, a
// path, or a name that begins with @.
func isUnixSocket(remote string) bool {
	return remote == "" || remote[0] == '@' || remote[0] == '/'
}
