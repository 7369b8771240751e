package transport

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/listen"
)

// apartHeaderTimeout is the time from the first byte of a request, or the beginning of
// a connection, to the end of the header.
const apartHeaderTimeout = time.Second

// Apart is a site with a listener and a connection bound of its own, so that it answers
// however many clients the node has.
type Apart struct {
	what string
	http *http.Server
	log  *slog.Logger

	tls       *TLS     // nil: none
	protocols []string // above TLS
}

func newApart(what string, s *site, log *slog.Logger) *Apart {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Apart{what: what, log: log, protocols: []string{"http/1.1"}, http: &http.Server{
		Handler:           listen.Serving(s),
		ReadHeaderTimeout: apartHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout, // a profile takes its requested time in addition
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(listen.HTTPLog(log, s.front), slog.LevelWarn),
		ConnContext:       listen.ApartContext,
		ConnState:         listen.ApartState,
	}}
}

// withCalls has the site take HTTP/2 too, which gRPC needs. A browser that may choose gets HTTP/1.1.
func (a *Apart) withCalls() {
	a.protocols = append(a.protocols, "h2")
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	a.http.Protocols = p
	a.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxCalls, MaxDecoderHeaderTableSize: 4 << 10,
		MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10, WriteByteTimeout: writeTimeout}
}

// maxCalls bounds the calls of one connection that are under way.
const maxCalls = 8

// Handler returns the handler, for programs that serve it themselves.
func (a *Apart) Handler() http.Handler { return a.http.Handler }

// Serve serves on the listener until Close is called, and then returns nil, or until
// the listener fails. It closes the listener in any case.
func (a *Apart) Serve(l net.Listener) error {
	by := a.tls
	if l.Addr().Network() == "unix" {
		by = nil
	}
	return wrap(a.what, a.http.Serve(listen.Secure(listen.Apart(l, a.log), by, apartHeaderTimeout, a.protocols...)))
}

// Close stops the site at once.
func (a *Apart) Close() error { return a.http.Close() }
