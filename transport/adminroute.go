package transport

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

// AdminRoute is what a program serves at a path of its administration, see [AdminOptions].
type AdminRoute struct {
	// Post answers POST, in place of GET and HEAD.
	Post bool
	// Serve serves requests of callers that have [ActionAdmin].
	Serve func(w http.ResponseWriter, r *http.Request, by AdminCaller)
	// Page is for people with a browser: it can be reached by a link of another site, and Serve gets requests of those
	// that may not see it too, with the reason.
	Page bool
	// Changes is for what has lasting effects: without an Access it is allowed from this machine only.
	Changes bool
	// Action names the route for the audit; default: its path. A page that is seen is not told.
	Action string

	// call makes it a method of gRPC in place of Serve: it gets the message of a call, and returns that of the answer.
	call func(message []byte, by *AdminCaller) (proto.Message, error)
}

// AdminCaller is who asks for an [AdminRoute].
type AdminCaller struct {
	session frontend.Session
	all     bool // over a socket, or there is no Access
	near    bool // from this machine
	w       http.ResponseWriter
	again   func() error
	watch   func() bool

	// Err is why the caller may not see a Page, or call a method of gRPC, nil if it may.
	Err error
}

// Name returns the name of the identity, empty for none.
func (c *AdminCaller) Name() string { return c.session.Name() }

// May returns why the caller may not do something with the counters of a rule, nil if it may. Without an Access all who
// ask from this machine may.
func (c *AdminCaller) May(a Action, rule string) error {
	switch {
	case c.Err != nil:
		return c.Err
	case c.all && c.near:
		return nil
	case c.all:
		return errNotHere
	}
	scope, err := c.session.May(a)
	if err == nil && scope != nil && !scope.Permits(rule) {
		err = frontend.ForbiddenError("the caller may not do this to rule " + frontend.Quote(rule) +
			": the operator must list it, or a prefix of its name, in the permissions file")
	}
	return err
}

// Admit returns why the caller may not explain or reset the counters of a request, nil if it may. The request then has
// its tenant, that of the caller or the one that an administrator without a tenant names, and its scope.
func (c *AdminCaller) Admit(r *limiter.Request, tenant string, a Action) error {
	switch {
	case c.Err != nil:
		return c.Err
	case c.all && a != ActionExplain && !c.near:
		return errNotHere
	case c.all:
		r.Tenant = tenant
		return nil
	}
	if err := c.session.Admit(r, a); err != nil {
		return err
	}
	return c.session.About(r, tenant, a)
}

// Still returns why the caller may not see anything any more, nil if it may: it has signed out, or its permission is
// gone.
func (c *AdminCaller) Still() error { return c.again() }

// Watch makes the answer one that lasts, and the last one of its connection. It reports false if too many last already,
// in total or from that address.
func (c *AdminCaller) Watch() bool {
	c.w.Header().Set("Connection", "close")
	return c.watch()
}

// MayAll returns why an administrator may not do something to the rules of every tenant, nil if it may.
func (c *AdminCaller) MayAll() error {
	if c.all || c.session.Tenant() == "" {
		return c.Err
	}
	return ofTenant()
}

// ofTenant is the answer to an administrator of a tenant about what all tenants share.
func ofTenant() error {
	return frontend.ForbiddenError("only an administrator without a tenant may do this")
}

// Tenant returns the tenant of the caller, empty for none.
func (c *AdminCaller) Tenant() string { return c.session.Tenant() }

// Subject notes, for the audit, what the request is about, and what was done.
func (c *AdminCaller) Subject(text, did string) {
	subject(c.w, text)
	if seen, ok := c.w.(*statusWriter); ok {
		seen.did = did
	}
}

// Fail answers with an error, as the other routes do.
func (c *AdminCaller) Fail(err error) { writeError(c.w, err) }

// routeOf returns the route of one of the program's own.
func (a *admin) routeOf(r AdminRoute) route {
	out := route{methods: reading(), action: r.Action, page: r.Page}
	out.call = r.call != nil
	if r.Post || out.call {
		out.methods = []string{http.MethodPost}
	}
	return out
}

// serveAdmin identifies the caller of a route and serves it.
func serveAdmin(front *frontend.Frontend, of AdminRoute, token func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by := AdminCaller{session: front.Anyone(frontend.Address(r.RemoteAddr)), w: w, near: fromHere(r)}
		by.all = overSocket(r) || front.Access == nil
		by.watch = func() bool { return listen.Watch(r.Context()) }
		by.again = func() (err error) {
			if !by.all {
				_, err = identifyAdmin(front, r, of, token)
			}
			return err
		}
		if !by.all {
			by.session, by.Err = identifyAdmin(front, r, of, token)
		} else if of.Changes && !by.near {
			by.Err = errNotHere
			if !of.Page && of.call == nil {
				writeProblem(w, http.StatusForbidden, errNotHere.Error())
				return
			}
		}
		if of.call != nil {
			serveCall(w, r, of, &by)
			return
		}
		if by.Err != nil && !of.Page {
			writeError(w, by.Err)
			return
		}
		if by.Err != nil {
			overhttp.Refused(w, by.Err)
		}
		of.Serve(w, r, by)
	}
}

// identifyAdmin identifies who asks for a route, by its own credentials or, of a page, by its token, and returns why it
// may not.
func identifyAdmin(front *frontend.Frontend, r *http.Request, of AdminRoute,
	token func(*http.Request) string) (frontend.Session, error) {
	if of.Page && token != nil && r.Header.Get("Authorization") == "" {
		if t := token(r); t != "" {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+t)
		}
	}
	by, err := overhttp.Identify(front, r)
	if err == nil {
		_, err = by.May(ActionAdmin)
	}
	return by, err
}
