package transport

import (
	"log/slog"
	"net"
	"net/http"
)

// maxApart bounds the open connections of a site that is served apart from checks. Its
// clients are a few operators, scrapers and probes.
const maxApart = 64

// keptFiles is how many file descriptors are reserved and not used for clients'
// connections: those of administration and health, and of everything else in the
// process. Without the reserve, clients could take all descriptors, and the health
// probes would fail.
const keptFiles = 2*maxApart + 128

// connectionsWithin returns how many connections each of two listeners may have open in
// a process that may open so many files.
func connectionsWithin(files int) int {
	return min(defaultConnections, max((files-keptFiles)/2, 16))
}

// Apart is a site with a listener and a connection bound of its own, so that it answers
// however many clients the node has.
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
		WriteTimeout:      writeTimeout, // a profile takes its requested time in addition
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
}

// Health returns a site with /healthz and /readyz of the server, to be served on a
// separate listener. On the clients' listener, many clients can make a probe fail, and
// a supervisor would then restart the node. The server itself serves both paths, too.
func (s *Server) Health() *Apart {
	a := newApart("health", newSite(map[string]route{
		"/healthz": {methods: reading(), serve: serveHealthy, open: true},
		"/readyz":  {methods: reading(), serve: serveReady(s.ready), open: true},
	}, nil, s.options.guard()), s.options.Logger)
	a.http.SetKeepAlivesEnabled(false) // no probe occupies a connection
	return a
}

// Handler returns the handler, for programs that serve it themselves.
func (a *Apart) Handler() http.Handler { return a.http.Handler }

// Serve serves on the listener until Close is called, and then returns nil, or until
// the listener fails. It closes the listener in any case.
func (a *Apart) Serve(l net.Listener) error {
	return wrap(a.what, a.http.Serve(bound(l, maxApart, -1, slog.New(slog.DiscardHandler))))
}

// Close stops the site at once.
func (a *Apart) Close() error { return a.http.Close() }
