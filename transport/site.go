package transport

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/spelling"
)

// site is what one HTTP listener serves. It is safe for concurrent use.
type site struct {
	routes   map[string]route
	paths    []string    // of routes, sorted
	observer Observer    // may be nil
	flag     string      // of the node program for its address, for errors; "" if there is none
	stopping func() bool // nil: never
	hosts    *hosts      // by which it may be addressed; nil: any
	// browsers limits hosts to requests that a browser may have sent. Open routes are
	// exempt.
	browsers bool
	guard    *guard.Guard
	front    *frontend.Frontend // who asks, and who is told of it
}

// Flags of the node program for the addresses of sites.
const (
	clientsFlag = "--http-addr"
	adminFlag   = "--admin-addr"
)

// route is what is served at one path, or below it if the path ends in a slash.
type route struct {
	methods []string
	serve   http.HandlerFunc
	// open routes also answer requests from pages of other sites. They change nothing,
	// and their answers are no secret.
	open bool
	// page routes may be reached by a link of another site: a browser asks for a document, of
	// which that site sees nothing.
	page bool
	// call routes are methods of gRPC. Nothing else is served over HTTP/2.
	call bool
	// traced routes decide checks, or do what else is done for clients.
	traced bool
	// action names the route for the audit. accounted routes are told to it whatever
	// becomes of the request, the others only if it is refused.
	action    string
	accounted bool
	// over is the protocol in lines of the audit, if it is not that of the site.
	over string
}

// reading returns the methods of a read-only route.
func reading() []string { return []string{http.MethodGet, http.MethodHead} }

func newSite(routes map[string]route, front *frontend.Frontend, o Observer, g *guard.Guard) *site {
	return &site{routes: routes, front: front, observer: o, guard: g, paths: slices.Sorted(maps.Keys(routes))}
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var begin time.Time
	if s.observer != nil {
		begin = time.Now()
	}
	name := "other" // so that clients cannot create names
	if s.stopping != nil && s.stopping() {
		w.Header().Set("Connection", "close")
	}
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK, body: body{ReadCloser: r.Body}}
	r.Body = &seen.body
	defer func() { r.Body = seen.body.ReadCloser }() // the server looks at it again
	route, known := s.find(r.URL.Path)
	switch {
	case s.hosts != nil && !s.browsers && !s.hosts.allow(r):
		writeProblem(seen, http.StatusForbidden, s.hosts.refusal(r))
	case !known:
		s.noPath(seen, r.URL.Path)
	case r.ProtoMajor > 1 && !route.call:
		writeProblem(seen, http.StatusHTTPVersionNotSupported, "this is not served over HTTP/2: ask by HTTP/1.1")
	case !slices.Contains(route.methods, r.Method):
		allow := strings.Join(route.methods, ", ")
		seen.Header().Set("Allow", allow)
		writeProblem(seen, http.StatusMethodNotAllowed, "the methods of "+r.URL.Path+" are "+allow+", not "+
			frontend.Quote(r.Method))
	default:
		name = r.Method + " " + r.URL.Path
		if problem := foreign(r); problem != "" && !route.open && !(route.page && followed(r)) {
			writeProblem(seen, http.StatusForbidden, problem)
			break
		}
		if s.browsers && !route.open && ofBrowser(r) && !s.hosts.allow(r) {
			writeProblem(seen, http.StatusForbidden, s.hosts.refusal(r))
			break
		}
		if s.front.Tracer != nil && route.traced {
			s.serveTraced(name, route, seen, r)
			break
		}
		s.serve(route, seen, r)
	}
	s.account(route, seen, r)
	seen.discard(r)
	if s.observer != nil {
		s.observer.Served(name, strconv.Itoa(seen.status), time.Since(begin))
	}
}

// serve serves a route. A panic ends the request with an error.
func (s *site) serve(of route, w *statusWriter, r *http.Request) {
	defer s.guard.Recover(guard.HTTP, func(err error) {
		if !w.begun {
			writeProblem(w, http.StatusInternalServerError, err.Error())
		}
	})
	of.serve(w, r)
}

// find returns the route of a path.
func (s *site) find(path string) (route, bool) {
	if r, ok := s.routes[path]; ok {
		return r, true
	}
	for below := path; ; {
		at := strings.LastIndexByte(strings.TrimSuffix(below, "/"), '/')
		if at < 1 {
			return route{}, false
		}
		below = below[:at+1]
		if r, ok := s.routes[below]; ok {
			return r, true
		}
	}
}

func (s *site) noPath(w http.ResponseWriter, path string) {
	text := "there is nothing at " + frontend.Quote(path) + "; see /openapi.yaml"
	if flag := addressOf(path); flag != "" && flag != s.flag {
		text = "there is nothing at " + frontend.Quote(path) + " here: the node serves it at another address, its " + flag
	} else if near := spelling.Nearest(path, s.paths); near != "" {
		text = "there is nothing at " + frontend.Quote(path) + "; did you mean " + near + "?"
	}
	writeProblem(w, http.StatusNotFound, text)
}

// addressOf returns the flag of the node program for the address at which a path is served;
// "" if at none.
func addressOf(path string) string {
	switch path {
	case "/v1/check", "/v1/check/batch", "/v1/explain", "/v1/settle", "/v1/cancel", "/v1/extend", "/v1/refund",
		"/v1/reset", "/healthz", "/readyz":
		return clientsFlag
	case "/v1/members", "/v1/members/forget", "/v1/members/expel", "/v1/members/readmit", "/v1/reload", "/v1/top",
		"/metrics":
		return adminFlag
	}
	if strings.HasPrefix(path, profilesPath) {
		return adminFlag
	}
	return ""
}

// foreign returns why a request is refused as one that a page of another site may have
// caused in a browser, or "" if it is not refused. A page can make a browser send
// requests to any address that the browser reaches, for an image for example, without
// being able to read the answer.
//
// Browsers send Sec-Fetch-Site only to loopback addresses or over TLS. Without it, a
// request for an image cannot be distinguished from one for an address that a person
// typed. Browsers call themselves Mozilla, and a page cannot change that for a request
// that needs no permission. Who is between a browser and the node can write a page that comes
// without TLS: over TLS it is one of another site, whatever its host.
func foreign(r *http.Request) string {
	from, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	u, err := url.Parse(origin)
	switch {
	case from != "" && from != "same-origin" && from != "none":
		return "a page of another site has a browser ask this (Sec-Fetch-Site: " + frontend.Quote(from) +
			"), and may not: ask without a browser"
	case origin != "" && (err != nil || !strings.EqualFold(u.Host, r.Host) || r.TLS != nil && u.Scheme != "https"):
		return "a page of another site has a browser ask this (Origin: " + frontend.Quote(origin) +
			"), and may not: ask without a browser"
	case origin == "" && from == "" && strings.HasPrefix(r.UserAgent(), "Mozilla/"):
		return "a browser asks this without saying for which page, so it may be one of another site: ask without a " +
			"browser, such as with curl"
	}
	return ""
}

// followed reports whether a person may have followed a link, or typed an address: a browser wants a document for a
// window of its own. Over plain HTTP to another machine it does not say so.
func followed(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "":
		return r.Method != http.MethodPost && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
	case "document":
		return r.Method != http.MethodPost && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
	return false
}

// ofBrowser reports whether a browser may have sent a request. A page cannot remove
// Sec-Fetch-Site, or Origin where a browser adds it. Over plain HTTP a browser adds
// neither to a GET, and a page may replace User-Agent, but it cannot remove
// Accept-Language. The clients of HTTP libraries send none of these; that of Node.js sends
// Accept-Language, but with Sec-Fetch-Mode, which no browser sends on its own.
func ofBrowser(r *http.Request) bool {
	for _, name := range []string{"Origin", "Sec-Fetch-Site"} {
		if _, sent := r.Header[name]; sent {
			return true
		}
	}
	_, languages := r.Header["Accept-Language"]
	_, mode := r.Header["Sec-Fetch-Mode"]
	return languages && !mode || strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// serveTraced serves a route with a span around it.
func (s *site) serveTraced(name string, of route, w *statusWriter, r *http.Request) {
	ctx, traceparent, end := s.front.Trace(r.Context(), name, r.Header.Get(fieldParent), r.Header.Get(fieldState))
	if end == nil {
		s.serve(of, w, r)
		return
	}
	w.Header().Set(fieldParent, traceparent)
	s.serve(of, w, r.WithContext(ctx))
	end(strconv.Itoa(w.status))
}

// account tells the auditor of a request over HTTP, as the method of service does over
// gRPC.
func (s *site) account(of route, w *statusWriter, r *http.Request) {
	if s.front.Audit == nil {
		return
	}
	e := AuditEvent{Action: of.action, Over: of.over, Subject: w.subject, Why: w.why, Count: w.refusedParts}
	refused := !w.decided && (w.status == http.StatusUnauthorized || w.status == http.StatusForbidden)
	switch {
	case refused, w.refusedParts > 0:
		e.Outcome = AuditRefused
	case !of.accounted, w.status == http.StatusMethodNotAllowed: // then nothing was asked for
		return
	case w.status < http.StatusBadRequest:
		e.Outcome, e.Why = AuditDone, w.did
	default:
		e.Outcome = AuditFailed
		if w.status != http.StatusServiceUnavailable && w.status != http.StatusGatewayTimeout &&
			w.status != http.StatusConflict {
			e.Why = "" // that text has parts of the request
		}
	}
	e.Action = cmp.Or(e.Action, "request") // of a path that there is not
	by := s.front.Anyone(frontend.Address("unix"))
	if !overSocket(r) {
		by, _ = overhttp.Identify(s.front, r) // one who is not identified has an address
	}
	by.Tell(e)
}
