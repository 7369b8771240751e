package transport

import (
	"log/slog"
	"net"
	"net/http"
)

// maxApart bounds the open connections of what is served apart from checks. A few
// people, scrapers and probes ask there.
const maxApart = 64

// keptFiles is how many of the files that the process may have open are not for
// connections of clients: those of administration and health, and of whatever else the
// process does. Without them a process that has too few files could not even say that it
// lives while clients hold them all.
const keptFiles = 2*maxApart + 128

// connectionsWithin returns how many connections each of two listeners may have open in
// a process that may have so many files open.
func connectionsWithin(files int) int {
	return min(defaultConnections, max((files-keptFiles)/2, 16))
}

// Apart is a site that is served apart from checks, on a listener of its own with a
// bound of its own, so that however many clients a node has, it answers here.
type Apart struct {
	what string
	http *http.Server
}

func newApart(what string, s *site, log *slog.Logger) *Apart {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Apart{what, &http.Server{
		Handler:           s,
		ReadHeaderTimeout: handshakeTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout, // a profile takes as long as it is asked for, and this on top
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
}

// Health returns /healthz and /readyz of the server, to be served apart from it: where
// probes share a listener with clients, as many clients as it takes make a probe fail,
// and a node that is probed is restarted for it. The server serves both too.
func (s *Server) Health() *Apart {
	a := newApart("health", newSite(map[string]route{
		"/healthz": {methods: reading(), serve: serveHealthy, open: true},
		"/readyz":  {methods: reading(), serve: serveReady(s.ready), open: true},
	}, nil, s.options.guard()), s.options.Logger)
	a.http.SetKeepAlivesEnabled(false) // no probe keeps the place of another
	return a
}

// Handler is what is served, for those who serve it otherwise.
func (a *Apart) Handler() http.Handler { return a.http.Handler }

// Serve serves on the listener until Close has been called, and then returns nil, or
// until the listener fails. It closes the listener in any case.
func (a *Apart) Serve(l net.Listener) error {
	return wrap(a.what, a.http.Serve(bound(l, maxApart, -1, slog.New(slog.DiscardHandler))))
}

// Close ends it at once.
func (a *Apart) Close() error { return a.http.Close() }
