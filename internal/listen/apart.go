package listen

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/seldom"
)

// apartListener bounds the open connections, in total and from one address. At the
// bound a new connection replaces the one that has waited longest without a complete
// request, else the one whose client has read nothing for longest, so that such connections keep no probe out. If all
// of them are being answered, the new one is closed.
type apartListener struct {
	net.Listener
	log *slog.Logger

	mu     sync.Mutex
	open   []*apartConn // those that wait longest first
	watch  []*apartConn // those on which someone watches; they are not among open
	logged seldom.Lines // about the bound
}

// Apart bounds the open connections of a site that is served apart from checks.
func Apart(l net.Listener, log *slog.Logger) net.Listener {
	return &apartListener{Listener: l, log: log}
}

func (l *apartListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a := &apartConn{Conn: c, of: l, from: Origin(c.RemoteAddr())}
		if l.enter(a) {
			return a, nil
		}
		_ = c.Close() // an error does not matter
	}
}

// enter adds a connection, in the place of another one at the bound. It reports false
// if there is no place.
func (l *apartListener) enter(c *apartConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	fromThere := func(o *apartConn) bool { return o.from == c.from }
	n := 0
	for _, o := range l.open {
		if fromThere(o) {
			n++
		}
	}
	ofAddress := c.from.IsValid() && n >= maxApartFrom
	if ofAddress || len(l.open) >= maxApart {
		i := slices.IndexFunc(l.open, func(o *apartConn) bool { return !o.serving && (!ofAddress || fromThere(o)) })
		for j, o := range l.open { // if all are served, the one whose client has read nothing for longest
			if o.serving && !o.writing.IsZero() && (!ofAddress || fromThere(o)) &&
				(i < 0 || l.open[i].serving && o.writing.Before(l.open[i].writing)) {
				i = j
			}
		}
		l.report(c, n, i >= 0)
		if i < 0 {
			return false
		}
		_ = l.open[i].Conn.Close() // an error does not matter
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.open = append(l.open, c)
	return true
}

// report logs, once a minute, that the bound is reached.
func (l *apartListener) report(c *apartConn, n int, replaced bool) {
	if _, due := l.logged.Due("", time.Now()); due {
		message := "connection refused"
		if replaced {
			message = "connection replaced by a new one"
		}
		l.log.Warn(message, "listener", l.Addr().String(), "from", c.from.String(), "open", len(l.open), "open_from_there", n)
	}
}

// apartConn is a connection of an apartListener.
type apartConn struct {
	net.Conn
	of      *apartListener
	from    netip.Prefix
	serving bool // a request is being answered; under of.mu
	// writing is since when the client has not taken what is written, zero if it has; under of.mu.
	writing time.Time
}

// Write implements [net.Conn]. While it runs, the connection can be replaced if no idle one can,
// so that clients that do not read their answers cannot lock probes out.
func (c *apartConn) Write(p []byte) (int, error) {
	c.write(time.Now())
	defer c.write(time.Time{})
	return c.Conn.Write(p)
}

func (c *apartConn) write(since time.Time) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.writing = since
}

// apartKey is the key of the connection in the context of a request.
type apartKey struct{}

// ApartContext and ApartState are for the fields ConnContext and ConnState of the [http.Server] of such a site.
func ApartContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, apartKey{}, accepted(c))
}

// ApartState is for ConnState.
func ApartState(c net.Conn, state http.ConnState) {
	if a, ok := accepted(c).(*apartConn); ok && state == http.StateIdle {
		a.serve(false)
	}
}

// Serving returns a handler that keeps the connections of its requests open while it
// answers, except while it waits for the body of a request. Connections of HTTP/2 have several at a time, of which
// one that does not end would keep the place of all: they give way at any time.
func Serving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(apartKey{}).(*apartConn)
		if !ok || r.ProtoMajor > 1 {
			h.ServeHTTP(w, r)
			return
		}
		c.serve(true)
		was := r.Body
		rest := &awaited{ReadCloser: was, of: c, over: was == nil || was == http.NoBody}
		r.Body = rest
		h.ServeHTTP(w, r)
		if r.Body = was; !rest.over { // the server reads some of it before or after it answers
			c.await(true)
		}
	})
}

// awaited is the body of a request. Its connection can be replaced while more of it is awaited.
type awaited struct {
	io.ReadCloser
	of   *apartConn
	over bool
}

func (b *awaited) Read(p []byte) (n int, err error) {
	if b.over {
		return b.ReadCloser.Read(p)
	}
	b.of.await(true)
	defer b.of.await(false)
	n, err = b.ReadCloser.Read(p)
	b.over = err != nil
	return n, err
}

// await takes note that the rest of a request is awaited, or has come. The connection has
// waited since its request began.
func (c *apartConn) await(on bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.serving = !on
}

// serve takes note that a request of the connection is being answered, or that the
// connection begins to wait for the next one.
func (c *apartConn) serve(on bool) {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	c.serving = on
	if i := slices.Index(l.open, c); i >= 0 && !on {
		l.open = append(slices.Delete(l.open, i, i+1), c)
	}
}

func (c *apartConn) Close() error {
	c.of.mu.Lock()
	is := func(o *apartConn) bool { return o == c }
	c.of.open, c.of.watch = slices.DeleteFunc(c.of.open, is), slices.DeleteFunc(c.of.watch, is)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Watch gives the place of a connection, on which a request is answered for long, to others, so that those who watch
// keep no probe out. It reports false if too many watch, in total or from its address. The answer must be the last one
// of the connection.
func Watch(ctx context.Context) bool {
	c, ok := ctx.Value(apartKey{}).(*apartConn)
	if !ok {
		return true // not such a site
	}
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, o := range l.watch {
		if o.from == c.from {
			n++
		}
	}
	if len(l.watch) >= maxWatch || c.from.IsValid() && n >= maxWatchFrom {
		return false
	}
	if i := slices.Index(l.open, c); i >= 0 { // else it is closed
		l.open = slices.Delete(l.open, i, i+1)
		l.watch = append(l.watch, c)
	}
	return true
}
