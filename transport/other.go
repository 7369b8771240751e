package transport

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// What servers of further protocols share with a [Server].

// Listener returns a listener for another protocol, with the TLS and the bounds of
// connections that the options have for a [Server]. Its connections may be [*tls.Conn];
// whoever serves them bounds the time of the handshake, and tells of each by [NoteIdle] when
// it waits for its client.
func Listener(l net.Listener, o Options) (net.Listener, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return secure(bound(l, o.MaxConnections, o.MaxConnectionsPerAddress, o.Logger), o.TLS, handshakeTimeout), nil
}

// NoteIdle notes whether a connection of a [Listener] waits for its client to begin a
// command. When there are as many connections as there may be, idle ones make room first.
func NoteIdle(c net.Conn, idle bool) {
	b, ok := accepted(c).(*boundedConn)
	switch {
	case !ok:
	case idle:
		b.rest(time.Now().Unix())
	default:
		b.work(time.Now().Unix())
	}
}

// Admit returns why a caller may not do something with a request, nil if it may. The
// request then has the caller's tenant and scope. A nil caller may do everything.
func Admit(by Caller, r *limiter.Request, a Action) error { return pass{by}.admit(r, a) }

// passKey is the key of the caller in the context of a request for Options.Auth.
type passKey struct{}

// serveAuth has Options.Auth answer, for callers that are identified.
func (f *front) serveAuth(auth http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by, err := f.identifyHTTP(r)
		if err == nil {
			err = by.spend(1, 0)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		auth.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passKey{}, by)))
	}
}

// Checker decides checks.
type Checker interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// Admitting decides checks for the handler of Options.Auth: those that the caller of the
// request may send, with its tenant.
type Admitting struct{ Checker }

// CheckInto decides a request, see [Decider].
func (a Admitting) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	if by, ok := ctx.Value(passKey{}).(pass); ok {
		if err := by.admitCheck(r, false, false); err != nil {
			return err
		}
	}
	return a.Checker.CheckInto(ctx, r, d)
}
