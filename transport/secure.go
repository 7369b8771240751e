package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/records"
)

// TLS is how listeners are served with TLS.
type TLS struct {
	// Config says what counts about certificates; it must not be nil. The protocols above
	// TLS are the server's.
	Config *tls.Config
	// Optional serves clients without TLS too, on the same listeners; default false. It is
	// for the time in which clients are changed to TLS.
	Optional bool
}

// firstOfTLS is the first byte of a connection with TLS. No request without it begins so.
const firstOfTLS = 0x16

// maxRefusedLogs is how many refused handshakes are logged in a minute. Anyone can cause
// more of them.
const maxRefusedLogs = 10

// handshakeLog logs refused handshakes. It is safe for concurrent use.
type handshakeLog struct {
	log      *slog.Logger
	protocol string
	front    *frontend.Frontend // of audited events

	mu     sync.Mutex
	since  time.Time
	said   int
	unsaid int
}

// refused logs why a handshake failed.
func (h *handshakeLog) refused(from, why string) {
	if why == io.EOF.Error() {
		return // such as a probe that connects and leaves
	}
	by := h.front.Anyone(frontend.Address(from))
	by.Tell(frontend.AuditEvent{Action: "connect", Outcome: frontend.AuditRefused, Why: why})
	h.mu.Lock()
	now := time.Now()
	if h.since.IsZero() || now.Sub(h.since) >= time.Minute {
		h.since, h.said = now, 0
	}
	h.said++
	say, unsaid := h.said <= maxRefusedLogs, h.unsaid
	if say {
		h.unsaid = 0
	} else {
		h.unsaid++
	}
	h.mu.Unlock()
	if say {
		h.log.Warn("TLS handshake refused", "protocol", h.protocol, "from", from, "error", why, "not_logged_before", unsaid)
	}
}

// begunConn is a connection whose first byte has been read.
type begunConn struct {
	net.Conn
	first []byte // what is to be read before the rest; used by one reader
}

// Read implements [net.Conn].
func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// begin reads the first byte of a connection, and reports whether TLS follows.
func begin(c net.Conn) (*begunConn, bool, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, false, err
	}
	return &begunConn{c, first}, first[0] == firstOfTLS, nil
}

// accepted returns the connection that a listener accepted, of one that may have layers.
func accepted(c net.Conn) net.Conn {
	for {
		switch layer := c.(type) {
		case *tls.Conn:
			c = layer.NetConn()
		case *begunConn:
			c = layer.Conn
		default:
			return c
		}
	}
}

// securedConn is a connection of gRPC that may have TLS. Its frames are read above it, and
// it is counted below. Close and deadlines go to the connection itself: they come from
// goroutines that must not wait for the client, as an alert of TLS would.
type securedConn struct {
	net.Conn
	layer atomic.Pointer[net.Conn] // through which bytes pass; nil before the handshake
	state *tls.ConnectionState     // set by the handshake, before gRPC serves calls; nil: no TLS
	known frontend.Known           // who state proves
}

// Read implements [net.Conn].
func (c *securedConn) Read(p []byte) (int, error) {
	if l := c.layer.Load(); l != nil {
		return (*l).Read(p)
	}
	return 0, errNoHandshake
}

// Write implements [net.Conn].
func (c *securedConn) Write(p []byte) (int, error) {
	if l := c.layer.Load(); l != nil {
		return (*l).Write(p)
	}
	return 0, errNoHandshake
}

var errNoHandshake = errors.New("the TLS handshake has not ended")

// handshake makes the connection usable. It returns the state of TLS, nil if the client
// uses none and need not.
func (c *securedConn) handshake(config *tls.Config, optional bool, join *records.Joiner) (*tls.ConnectionState, error) {
	under := c.Conn
	if optional {
		begun, isTLS, err := begin(under)
		if err != nil {
			return nil, err
		}
		if under = begun; !isTLS {
			c.layer.Store(&under)
			return nil, nil
		}
	}
	t := join.Server(under, config)
	if err := t.Handshake(); err != nil { //nolint:noctx // gRPC has set the connection's deadline
		return nil, err
	}
	layer := records.Join(t)
	c.layer.Store(&layer)
	state := t.ConnectionState()
	c.state = &state
	return c.state, nil
}

// serverTLS is what gRPC calls, in a goroutine of each connection, to secure it. What the
// client has shown is then in the AuthInfo of its calls' peer, a [credentials.TLSInfo].
type serverTLS struct {
	config   *tls.Config
	optional bool
	log      *handshakeLog
	join     *records.Joiner
}

// newServerTLS returns credentials for connections whose frames are watched.
func newServerTLS(o *Options, front *frontend.Frontend) *serverTLS {
	return &serverTLS{withProtocols(o.TLS.Config, "h2"), o.TLS.Optional, &handshakeLog{log: o.Logger, protocol: "gRPC", front: front}, new(records.Joiner)}
}

// ServerHandshake implements [credentials.TransportCredentials].
func (s *serverTLS) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	w, ok := c.(*watchedConn)
	if !ok || w.secured == nil {
		return nil, nil, errors.New("the connection is not one of this server's listener")
	}
	state, err := w.secured.handshake(s.config, s.optional, s.join)
	switch {
	case err != nil:
		s.log.refused(c.RemoteAddr().String(), err.Error())
		return nil, nil, err
	case state == nil:
		return c, nil, nil
	}
	return c, credentials.TLSInfo{
		State: *state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ClientHandshake implements [credentials.TransportCredentials].
func (s *serverTLS) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

// Info implements [credentials.TransportCredentials].
func (s *serverTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements [credentials.TransportCredentials].
func (s *serverTLS) Clone() credentials.TransportCredentials { c := *s; return &c }

// OverrideServerName implements [credentials.TransportCredentials].
func (s *serverTLS) OverrideServerName(string) error { return nil }

// withProtocols returns a configuration that speaks only these protocols above TLS, also
// where it has others for some clients.
func withProtocols(config *tls.Config, protocols ...string) *tls.Config {
	config = config.Clone()
	config.NextProtos = protocols
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := choose(hello)
			if err != nil || c == nil {
				return c, err
			}
			c = c.Clone()
			c.NextProtos = protocols
			return c, nil
		}
	}
	return config
}

// secureHTTP returns a listener whose connections have TLS, or may have it. Package
// net/http makes the handshakes, in goroutines of their connections and within its bounds
// of time.
func secureHTTP(l net.Listener, by *TLS, within time.Duration) net.Listener {
	return secure(l, by, within, "http/1.1")
}

// secure is secureHTTP for other protocols above TLS.
func secure(l net.Listener, by *TLS, within time.Duration, protocols ...string) net.Listener {
	switch {
	case by == nil:
		return l
	case !by.Optional:
		return tls.NewListener(l, withProtocols(by.Config, protocols...))
	}
	e := &eitherListener{
		Listener: l, config: withProtocols(by.Config, protocols...), within: within,
		begun: make(chan net.Conn), done: make(chan struct{}), failed: make(chan struct{}),
	}
	go e.accept()
	return e
}

// eitherListener looks at the first byte of each connection, to see whether it has TLS.
// The listener below bounds how many connections wait for that.
type eitherListener struct {
	net.Listener
	config *tls.Config
	within time.Duration
	begun  chan net.Conn

	closing sync.Once
	done    chan struct{} // closed by Close
	failed  chan struct{} // closed when the listener below has failed
	err     error         // why
}

func (l *eitherListener) accept() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if t, ok := err.(interface{ Temporary() bool }); ok && t.Temporary() {
				select {
				case <-time.After(50 * time.Millisecond): // such as too many open files
					continue
				case <-l.done:
				}
			}
			l.err = err
			close(l.failed)
			return
		}
		go l.look(c)
	}
}

// look hands on a connection when its first byte is there.
func (l *eitherListener) look(c net.Conn) {
	if b, ok := c.(*boundedConn); ok {
		b.rest(time.Now().Unix()) // it may be replaced
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends the wait below when the listener is closed
		select {
		case <-l.done:
			_ = c.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(l.within)) // of a closed connection the next call fails
	b, isTLS, err := begin(c)
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	var out net.Conn = b
	if isTLS {
		out = tls.Server(b, l.config)
	}
	select {
	case l.begun <- out:
	case <-l.done:
		_ = c.Close()
	}
}

// Accept implements [net.Listener].
func (l *eitherListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.begun:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-l.failed:
		return nil, l.err
	}
}

// Close implements [net.Listener].
func (l *eitherListener) Close() error {
	l.closing.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// httpLog is the log of an HTTP server. Messages about handshakes are bounded.
type httpLog struct {
	slog.Handler
	handshakes *handshakeLog
}

func newHTTPLog(log *slog.Logger, front *frontend.Frontend) *httpLog {
	return &httpLog{log.Handler(), &handshakeLog{log: log, protocol: "HTTP", front: front}}
}

// Handle implements [slog.Handler].
func (h *httpLog) Handle(ctx context.Context, r slog.Record) error {
	if rest, ok := strings.CutPrefix(r.Message, "http: TLS handshake error from "); ok {
		from, why, _ := strings.Cut(rest, ": ")
		h.handshakes.refused(from, why)
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
