package transport

import (
	"cmp"
	"log/slog"
	"net/http"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/guard"
)

// SiteRoute is what a site of [NewSite] serves at one path.
type SiteRoute struct {
	// Serve answers. Its panics are recovered from.
	Serve http.HandlerFunc
	// Post makes it answer POST in place of GET and HEAD.
	Post bool
	// Open answers requests from pages of other sites, too. It must change nothing, and its
	// answers must be no secret.
	Open bool
	// Near answers requests from this machine only.
	Near bool
	// Traced has its requests traced, if the site has a Tracer.
	Traced bool
	// Checks needs a caller that may check, whose budget is charged for one, if the site has
	// an Access. [Admitting] then decides what the caller may check.
	Checks bool
	// Admin needs a caller that may administer, if the site has an Access.
	Admin bool
	// Action names the route for the audit; default its path.
	Action string
}

// SiteOptions configures [NewSite].
type SiteOptions struct {
	// Name begins the errors of the site.
	Name string
	// Routes are what is served, by path.
	Routes map[string]SiteRoute
	// Hosts are further names by which browsers may address the site, see [Options]. Flag is
	// the setting that adds such names, for errors.
	Hosts []string
	Flag  string
	// Access identifies callers for routes with Admin or Checks; default nil: every
	// caller may use them.
	Access Access
	// Tracer traces requests of routes with Traced; default nil, which costs nothing.
	Tracer Tracer
	// Audit receives refusals, with Over as their protocol; default nil: no audit.
	Audit Auditor
	Over  string
	// Panicked is called with "http" for each panic that ended a request; default nil.
	Panicked func(place string)
	// Logger receives the HTTP server's messages and panics; default none.
	Logger *slog.Logger
}

// NewSite makes a site with routes of the program's own, for a listener apart from checks. It
// has the bounds and the protection against pages of other sites that [Server.Health] and
// [NewAdmin] have, and no TLS.
func NewSite(o SiteOptions) *Apart {
	front := frontend.New(frontend.Config{Access: o.Access, Audit: o.Audit, Tracer: o.Tracer},
		frontend.Protocol{Over: o.Over})
	routes := make(map[string]route, len(o.Routes))
	for path, r := range o.Routes {
		own := route{methods: reading(), serve: r.Serve, open: r.Open, traced: r.Traced,
			action: cmp.Or(r.Action, actionOf(path))}
		if r.Post {
			own.methods = []string{http.MethodPost}
		}
		if r.Admin && o.Access != nil {
			own.serve = administers(front, own.serve)
		}
		if r.Checks {
			own.serve = serveAuth(front, own.serve)
		}
		if r.Near {
			own.serve = near(own.serve)
		}
		routes[path] = own
	}
	s := newSite(routes, front, nil, guard.New(o.Logger, o.Panicked))
	s.hosts, s.browsers = newHosts(o.Flag, o.Hosts), true
	return newApart(o.Name, s, o.Logger)
}
