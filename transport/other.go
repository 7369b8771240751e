package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
)

// What servers of further protocols share with a [Server].

// Listener returns a listener for another protocol, with the TLS and the bounds of
// connections that the options have for a [Server]. Its connections may be [*tls.Conn]. The
// caller must bound the time of the handshake, and call [NoteIdle] when a connection begins
// or ceases to wait for its client.
func Listener(l net.Listener, o Options) (net.Listener, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return secure(o.bound(l), o.TLS, handshakeTimeout), nil
}

// NoteIdle records whether a connection of a [Listener] waits, at the time now, for its client
// to begin a command. At the bound on connections, idle ones are closed first.
func NoteIdle(c net.Conn, idle bool, now time.Time) {
	b, ok := accepted(c).(*boundedConn)
	switch {
	case !ok:
	case idle:
		b.rest(now.Unix())
	default:
		b.work(now.Unix())
	}
}

// Admit returns why a caller may not do something with a request, nil if it may. The
// request then has the caller's tenant and scope. A nil caller may do everything.
func Admit(by Caller, r *limiter.Request, a Action) error { return pass{by}.admit(r, a) }

// HandshakeLog returns what a server of another protocol calls with each handshake of TLS
// that failed: the address of the client, and why. The logger of the options is told of some
// of them, as anyone can cause more, and the auditor of all. protocol names the server in the
// log, over in the audit.
func HandshakeLog(o Options, protocol, over string) func(from, why string) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return (&handshakeLog{log: o.Logger, protocol: protocol, audit: o.Audit, over: over}).refused
}

// WriteRefusal answers a request over HTTP with the reason why its caller may not send it, and
// reports it to the audit of its site.
func WriteRefusal(w http.ResponseWriter, err error) { writeError(w, err) }

// passKey is the key of an authPass in the context of a request for Options.Auth.
type passKey struct{}

// authPass is the caller of a request for Options.Auth, and what became of its check.
type authPass struct {
	pass
	decided bool  // so the answer is no refusal, whatever its status is
	refused error // why the caller may not ask this; nil if it may
}

// serveAuth has Options.Auth answer, for callers that are identified and may check.
func serveAuth(access Access, auth http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by, err := identifyHTTP(access, r)
		if err == nil {
			err = by.spend(1, 0)
		}
		if err == nil {
			err = by.may(ActionCheck)
		}
		if err != nil {
			if seen, ok := w.(*statusWriter); ok {
				seen.instead, _ = fields.DeniedAs(r.URL.RawQuery)
			}
			writeError(w, err)
			return
		}
		p := &authPass{pass: by}
		auth.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passKey{}, p)))
		if seen, ok := w.(*statusWriter); ok {
			seen.decided = p.decided
		}
		if p.refused != nil {
			Refused(w, p.refused)
		}
	}
}

// Checker decides checks.
type Checker interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// Admitting decides checks for the handler of Options.Auth. It refuses those that the caller of
// the request may not send, and sets the caller's tenant.
type Admitting struct{ Checker }

// CheckInto decides a request, see [Decider].
func (a Admitting) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	p, ok := ctx.Value(passKey{}).(*authPass)
	if !ok {
		return a.Checker.CheckInto(ctx, r, d)
	}
	err := p.admitCheck(r, false, false)
	if err == nil {
		err = a.Checker.CheckInto(ctx, r, d)
	}
	if err == nil {
		p.madeOne(d, false)
	}
	if p.decided = err == nil; refusedFor(codeOf(err)) {
		p.refused = err
	}
	return err
}

// Status returns the gRPC status of an error of a decider or of an [Access], nil for nil.
// If the time to wait is known, the status has it as RetryInfo.
func Status(err error) error { return statusOf(err) }

// ServiceRoute is what Options.Services serve over HTTP at one path. One of Get and Post is
// set.
type ServiceRoute struct {
	// Get answers GET and HEAD.
	Get http.HandlerFunc
	// Post answers POST with the body of the request, at most [MaxBodyBytes], which it must
	// not keep. The memory of body and decoded message counts among that of all large
	// messages until it returns: see MaxDecodingBytes of [Options].
	Post func(w http.ResponseWriter, r *http.Request, body []byte)
	// Action names the route for the audit, and Over its protocol; empty: http. A handler says by [Refused]
	// why it answers with 401 or 403.
	Action, Over string
}

// Refused records for the audit why a handler, such as that of a [ServiceRoute], refuses a request. The handler calls it
// before or after it answers.
func Refused(w http.ResponseWriter, why error) {
	if seen, ok := w.(*statusWriter); ok {
		seen.why = AuditText(why)
	}
}

// otherRoutes returns the routes of Options.Services.
func (f *front) otherRoutes(of map[string]ServiceRoute) map[string]route {
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
	return func(w http.ResponseWriter, r *http.Request) {
		h := hold{room: &f.room, remote: r.RemoteAddr}
		defer h.release()
		body, err := readAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes), &h)
		if err == nil {
			err = h.add(int64(len(body)) * weightOfOther)
		}
		switch tooLarge := (*http.MaxBytesError)(nil); {
		case errors.As(err, &tooLarge):
			writeError(w, errBodySize)
		case lacksRoom(err):
			writeError(w, err)
		case err != nil:
			writeError(w, invalid("the body could not be read to its end: %v", err))
		default:
			post(w, r, body)
		}
	}
}

// weightOfOther is how much larger than its text a message of another protocol in JSON may
// become, besides what is reckoned for any JSON: a list of empty objects becomes a structure
// for each three bytes.
const weightOfOther = 64
