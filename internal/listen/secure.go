package listen

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
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

// HandshakeTimeout bounds the time of a handshake.
const HandshakeTimeout = 5 * time.Second

// maxRefusedLogs is how many refused handshakes are logged in a minute. Anyone can cause
// more of them.
const maxRefusedLogs = 10

// HandshakeLog logs refused handshakes. It is safe for concurrent use.
type HandshakeLog struct {
	log      *slog.Logger
	protocol string
	front    *frontend.Frontend // whose audit is told

	mu     sync.Mutex
	since  time.Time
	said   int
	unsaid int
}

// NewHandshakeLog returns a log of the handshakes of a protocol. The log is told of some
// of those that failed, as anyone can cause more, and the audit of all.
func NewHandshakeLog(log *slog.Logger, protocol string, front *frontend.Frontend) *HandshakeLog {
	return &HandshakeLog{log: log, protocol: protocol, front: front}
}

// Refused logs why a handshake failed.
func (h *HandshakeLog) Refused(from, why string) {
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

// SecureHTTP returns a listener whose connections have TLS, or may have it. Package
// net/http makes the handshakes, in goroutines of their connections and within its bounds
// of time.
func SecureHTTP(l net.Listener, by *TLS, within time.Duration) net.Listener {
	return Secure(l, by, within, "http/1.1")
}

// Secure is SecureHTTP for other protocols above TLS.
func Secure(l net.Listener, by *TLS, within time.Duration, protocols ...string) net.Listener {
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

func (l *eitherListener) Close() error {
	l.closing.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// httpLog is the log of an HTTP server. Messages about handshakes are bounded.
type httpLog struct {
	slog.Handler
	handshakes *HandshakeLog
}

// HTTPLog returns the log of an HTTP server.
func HTTPLog(log *slog.Logger, front *frontend.Frontend) slog.Handler {
	return &httpLog{log.Handler(), NewHandshakeLog(log, "HTTP", front)}
}

func (h *httpLog) Handle(ctx context.Context, r slog.Record) error {
	if rest, ok := strings.CutPrefix(r.Message, "http: TLS handshake error from "); ok {
		from, why, _ := strings.Cut(rest, ": ")
		h.handshakes.Refused(from, why)
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
