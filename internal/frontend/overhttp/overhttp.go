// Package overhttp is what protocols over HTTP share: what a caller has shown, what is served at a path, and how the
// site that serves it is told of refusals.
package overhttp

import (
	"context"
	"net"
	"net/http"

	"github.com/weirlimit/weir/internal/frontend"
)

// knownKey is the key of the context of a connection for what is known of its certificates.
type knownKey struct{}

// WithKnown is for [http.Server.ConnContext]. A certificate may have thousands of names, and
// reading them for each request would take longer than the rest.
func WithKnown(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, knownKey{}, new(frontend.Known))
}

// Credentials returns what the caller of an HTTP request has shown.
func Credentials(r *http.Request) frontend.Credentials {
	known, _ := r.Context().Value(knownKey{}).(*frontend.Known)
	return frontend.Credentials{Authorization: r.Header.Values("Authorization"), TLS: r.TLS, Known: known}
}

// Identify begins the session of the caller of a request.
func Identify(f *frontend.Frontend, r *http.Request) (frontend.Session, error) {
	return f.Identify(frontend.Address(r.RemoteAddr), Credentials(r))
}

// Route is what a protocol serves at one path. One of Get and Post is set.
type Route struct {
	// Get answers GET and HEAD.
	Get http.HandlerFunc
	// Post answers POST with the body of the request, of a bounded size, which it must
	// not keep. The memory of body and decoded message counts among that of all large
	// messages until it returns.
	Post func(w http.ResponseWriter, r *http.Request, body []byte)
	// Action names the route for the audit, and Over its protocol; empty: http. A handler says by [Refused]
	// why it answers with 401 or 403.
	Action, Over string
}

// refuser is what a site gives its handlers to answer with.
type refuser interface {
	http.ResponseWriter
	// Refused records why a request is refused. Refuse answers it with the reason, too.
	Refused(why error)
	Refuse(why error)
}

// Refused records for the audit of its site why a handler refuses a request. The handler calls it
// before or after it answers.
func Refused(w http.ResponseWriter, why error) {
	if to, ok := w.(refuser); ok {
		to.Refused(why)
	}
}

// Refuse answers a request with the reason why its caller may not send it, and
// reports it to the audit of its site.
func Refuse(w http.ResponseWriter, why error) {
	if to, ok := w.(refuser); ok {
		to.Refuse(why)
		return
	}
	http.Error(w, why.Error(), http.StatusForbidden) // of no site
}
