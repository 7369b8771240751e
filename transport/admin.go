package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/guard"
)

// AdminOptions configures [NewAdmin]. Fields that are nil are not served.
type AdminOptions struct {
	// Directory lists members at /v1/members, forgets dead ones at /v1/members/forget, and expels
	// members and lets them in again at /v1/members/expel and /v1/members/readmit; these for
	// requests from this machine. Default nil: the node is in no
	// cluster, and all answer 404.
	Directory Directory
	// Top returns the n keys of a tenant that are checked most and the n that are denied most, for
	// /v1/top; with an empty tenant, those of all. Default nil: it answers 404.
	Top func(tenant string, n int) (hottest, denied []TopKey)
	// Reload reads the rules file again, for POST /v1/reload from this machine; default nil:
	// it answers 404. An error that wraps [limiter.ErrInvalid] has all that is wrong with the
	// file; after any error the old rules are in force.
	Reload func(ctx context.Context) (Reloaded, error)
	// Warnings returns the reasons why a ready node does not decide as its rules say, for
	// /v1/top; default nil: there are none.
	Warnings func() []string
	// Overrides serves the methods of gRPC about overrides, over HTTP/2; default nil: there are none.
	Overrides Overrides
	// Routes are served besides, by path. A path that ends in a slash is for all below it.
	Routes map[string]AdminRoute
	// Token, unless nil, returns the token of a request to a Page that shows none itself, such as by a cookie; empty:
	// it has none.
	Token func(r *http.Request) string
	// Metrics is served at /metrics; Profiles is served below /debug/pprof/, for
	// requests from this machine only.
	Metrics, Profiles http.Handler
	// Hosts are further names by which the site may be addressed, besides localhost,
	// loopback addresses and the address that was connected to; see [NewAdmin].
	Hosts []string
	// Access, if not nil, must allow [ActionAdmin] to each caller over the network. Over a
	// Unix socket the mode of the socket decides. Default nil: see [NewAdmin].
	Access Access
	// TLS is like TLS of [Options], for this site; default none. A Unix socket has no TLS: the
	// mode of its file decides who may use it.
	TLS *TLS
	// Audit receives each request that changes something, and refusals; default nil: none
	// does.
	Audit Auditor
	// Panicked is called with "http" for each panic that ended a request; default nil.
	Panicked func(place string)
	// Logger receives the HTTP server's messages about broken connections, and panics;
	// default none.
	Logger *slog.Logger
}

// NewAdmin makes the administration site, for operators. It is served on a listener of
// its own, because its answers name users and its requests can weaken the guarantees of
// a cluster.
//
// Without AdminOptions.Access it has no authentication. It refuses requests that a page of another
// site can cause in an operator's browser: requests from such pages, and requests whose Host
// is not localhost, a loopback address, the address of the connection or one of
// AdminOptions.Hosts (the name of an attacker may resolve to this machine). Forgetting
// and expelling members, reloading and taking profiles is allowed from loopback addresses and over a Unix
// socket only.
func NewAdmin(o AdminOptions) *Apart {
	a := &admin{o}
	routes := map[string]route{
		"/v1/members":         {methods: reading(), serve: a.serveMembers},
		"/v1/members/forget":  {methods: []string{http.MethodPost}, serve: near(a.about(Directory.Forget))},
		"/v1/members/expel":   {methods: []string{http.MethodPost}, serve: near(a.about(Directory.Expel))},
		"/v1/members/readmit": {methods: []string{http.MethodPost}, serve: near(a.about(Directory.Readmit))},
		"/v1/reload":          {methods: []string{http.MethodPost}, serve: near(a.serveReload)},
		"/openapi.yaml":       {methods: reading(), serve: serveOpenAPI},
	}
	if o.Metrics != nil {
		routes["/metrics"] = route{methods: reading(), serve: o.Metrics.ServeHTTP}
	}
	if o.Profiles != nil {
		routes[profilesPath] = route{methods: append(reading(), http.MethodPost), serve: near(o.Profiles.ServeHTTP)}
	}
	front := frontend.New(frontend.Config{Access: o.Access, Audit: o.Audit}, frontend.Protocol{Over: "administration"})
	own := map[string]AdminRoute{"/v1/top": {Serve: a.serveTop}}
	maps.Copy(own, o.Routes)
	if o.Overrides != nil {
		maps.Copy(own, overrideCalls(o.Overrides))
	}
	for path, r := range own {
		routes[path] = a.routeOf(r)
	}
	for path, r := range routes {
		of, ok := own[path]
		// What can be asked with POST changes something, or costs much, as profiles do. Methods of gRPC that only read
		// are asked so as well.
		r.action = cmp.Or(r.action, actionOf(path))
		r.accounted = slices.Contains(r.methods, http.MethodPost) && (of.call == nil || of.Changes)
		switch {
		case ok:
			r.serve = serveAdmin(front, of, o.Token)
		case o.Access != nil:
			r.serve = administers(front, r.serve)
		}
		routes[path] = r
	}
	s := newSite(routes, front, nil, guard.New(o.Logger, o.Panicked))
	s.flag, s.hosts = adminFlag, newHosts("--admin-host", o.Hosts)
	site := newApart("administration", s, o.Logger)
	if o.Overrides != nil {
		site.withCalls()
	}
	site.tls = o.TLS
	return site
}

// admin handles the requests of operators.
type admin struct{ AdminOptions }

// errNotHere is the answer to requests that are allowed from this machine only.
var errNotHere = errors.New("this request is accepted only from the node's own machine: send it over a loopback " +
	"address or the socket of --admin-addr")

// near serves connections from loopback or over a Unix socket, and refuses all others.
func near(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !fromHere(r) {
			writeProblem(w, http.StatusForbidden, errNotHere.Error())
			return
		}
		serve(w, r)
	}
}

// fromHere reports whether a request comes from this machine.
func fromHere(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return overSocket(r) || err == nil && net.ParseIP(host).IsLoopback()
}

func (a *admin) serveMembers(w http.ResponseWriter, _ *http.Request) {
	if a.Directory == nil {
		writeProblem(w, http.StatusNotFound, errAlone.Error())
		return
	}
	writeJSON(w, members{append([]Member{}, a.Directory.Members()...)})
}

// about serves a request about one member: it is forgotten, expelled or let in again.
func (a *admin) about(do func(d Directory, name string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if a.Directory == nil {
			writeProblem(w, http.StatusNotFound, errAlone.Error())
			return
		}
		body, err := readBody(w, r, nil)
		if err != nil {
			writeError(w, err)
			return
		}
		name := ""
		err = eachField(body, func(field string, raw json.RawMessage) error {
			if field != "name" {
				return errForget
			}
			return json.Unmarshal(raw, &name)
		})
		if len(body) > maxForgetBytes || err != nil || name == "" {
			writeProblem(w, http.StatusBadRequest, errForget.Error())
			return
		}
		subject(w, name)
		if err := do(a.Directory, name); err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, members{append([]Member{}, a.Directory.Members()...)})
	}
}

// reloadTimeout bounds how long a reload may take, such as from a file system that hangs. The
// tool waits for 5 s.
const reloadTimeout = 4 * time.Second

// serveReload reads the rules file again.
func (a *admin) serveReload(w http.ResponseWriter, r *http.Request) {
	if a.Reload == nil {
		writeProblem(w, http.StatusNotFound, errNoReload.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), reloadTimeout)
	defer cancel()
	out, err := a.Reload(ctx)
	if err != nil {
		writeProblem(w, statusCodeOf(err), "the old rules stay in force: "+err.Error())
		return
	}
	subject(w, "rules "+out.RulesHash)
	writeJSON(w, out)
}

// serveTop lists the keys that are checked and denied most. An administrator of a tenant sees that one's.
func (a *admin) serveTop(w http.ResponseWriter, r *http.Request, by AdminCaller) {
	n := topDefault
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > topMost {
			writeProblem(w, http.StatusBadRequest, errTop.Error())
			return
		}
	}
	if a.Top == nil {
		writeProblem(w, http.StatusNotFound, errNoTopper.Error())
		return
	}
	hottest, denied := a.Top(by.Tenant(), n)
	out := top{Hottest: append([]TopKey{}, hottest...), Denied: append([]TopKey{}, denied...)}
	if a.Warnings != nil && by.MayAll() == nil {
		out.Warnings = a.Warnings()
	}
	writeJSON(w, out)
}
