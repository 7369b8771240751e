package transport

import (
	"context"
	"net/http"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

// passKey is the key of an authPass in the context of a request for Options.Auth.
type passKey struct{}

// authPass is the caller of a request for Options.Auth, and what became of its check.
type authPass struct {
	frontend.Session
	decided bool  // so the answer is no refusal, whatever its status is
	refused error // why the caller may not ask this; nil if it may
}

// serveAuth has Options.Auth answer, for callers that are identified and may check.
func serveAuth(front *frontend.Frontend, auth http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by, err := overhttp.Identify(front, r)
		if err == nil {
			err = by.Spend(1, 0)
		}
		if err == nil {
			_, err = by.May(ActionCheck)
		}
		if err != nil {
			if seen, ok := w.(*statusWriter); ok {
				seen.instead, _ = fields.DeniedAs(r.URL.RawQuery)
			}
			writeError(w, err)
			return
		}
		p := &authPass{Session: by}
		auth.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passKey{}, p)))
		if seen, ok := w.(*statusWriter); ok {
			seen.decided = p.decided
		}
		if p.refused != nil {
			overhttp.Refused(w, p.refused)
		}
	}
}

// Checker decides checks.
type Checker = frontend.Checker

// Admitting decides checks for the handler of Options.Auth. It refuses those that the caller of
// the request may not send, and sets the caller's tenant.
type Admitting struct{ Checker }

// CheckInto decides a request, see [Decider].
func (a Admitting) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	p, ok := ctx.Value(passKey{}).(*authPass)
	if !ok {
		return a.Checker.CheckInto(ctx, r, d)
	}
	var err error
	if p.Identified() { // limits of anyone's are the handler's own
		err = p.Admit(r, ActionCheck)
	}
	if err == nil {
		err = p.CheckBy(ctx, a.Checker, r, d)
	}
	if p.decided = err == nil; refusedFor(overgrpc.Code(err)) {
		p.refused = err
	}
	return err
}

// otherRoutes returns the routes of Options.Services.
func (f *front) otherRoutes(of map[string]overhttp.Route) map[string]route {
	routes := make(map[string]route, len(of))
	for path, r := range of {
		own := route{methods: reading(), serve: r.Get, action: r.Action, over: r.Over}
		if r.Post != nil {
			own.methods, own.serve, own.traced = []string{http.MethodPost}, f.servePost(r.Post), true
		}
		routes[path] = own
	}
	return routes
}

// servePost has a route answer with the body of the request.
func (f *front) servePost(post func(http.ResponseWriter, *http.Request, []byte)) http.HandlerFunc {
	return f.holding(func(w http.ResponseWriter, r *http.Request, h *listen.Hold) error {
		body, err := readAll(w, r, h)
		if err == nil {
			err = h.Add(int64(len(body)) * weightOfOther)
		}
		if err == nil {
			post(w, r, body)
		}
		return err
	})
}

// weightOfOther is how much larger than its text a message of another protocol in JSON may
// become, besides what is reckoned for any JSON: a list of empty objects becomes a structure
// for each three bytes.
const weightOfOther = 64

// administers serves callers that may administer, and refuses all others.
func administers(front *frontend.Frontend, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if overSocket(r) {
			serve(w, r)
			return
		}
		by, err := overhttp.Identify(front, r)
		if err == nil {
			_, err = by.May(ActionAdmin)
		}
		if err == nil && by.Tenant() != "" {
			err = ofTenant() // all tenants share what it is about
		}
		if err != nil {
			writeError(w, err)
			return
		}
		serve(w, r)
	}
}
