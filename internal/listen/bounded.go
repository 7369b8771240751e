package listen

import (
	"cmp"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/seldom"
)

// boundedListener bounds the open connections. Beyond the bound of one address it closes
// new ones as soon as it has accepted them, so that clients learn at once. (In the
// kernel's queue they would wait for a timeout.) Beyond the total bound a new connection
// replaces an idle one of a site that has more, or else the least recently used one of
// the site that has the most, if that is at least twice as many. So few sites cannot keep
// all others out. If there is none, the new one is closed.
type boundedListener struct {
	net.Listener
	most, mostFrom int // negative: no bound
	log            *slog.Logger
	observer       Observer // nil: none
	name           string   // its address

	mu       sync.Mutex
	open     int
	sites    map[netip.Prefix]int                       // how many are open by their site
	from     map[netip.Prefix]map[*boundedConn]struct{} // open connections by their origin
	searched time.Time                                  // when no connection to replace was last found
	logged   seldom.Lines                               // about connections that were refused or replaced
}

// Observer learns of clients' connections. listener is the address of a listener.
type Observer interface {
	// Connections is called when a connection has begun or ended, with the number of those
	// that are open. It is called under a lock and must be quick.
	Connections(listener string, open int)
	// ConnectionRefused is called when a bound was reached: "total", so that a connection was
	// closed at once, "replaced", so that an older one was closed for it, or "per_address".
	ConnectionRefused(listener, reason string)
}

// Bounds are the bounds of the open connections of a listener.
type Bounds struct {
	// Most is the bound of all, MostFrom that of those from one address; negative for none. Default 0:
	// 16384, or less if the process may open fewer files, and 4096.
	Most, MostFrom int
	// Log is told of connections that are refused; nil: nothing is.
	Log *slog.Logger
	// Observer, if it is an [Observer], learns of connections.
	Observer any
}

// Bounded bounds the open connections of a listener.
func Bounded(l net.Listener, by Bounds) net.Listener {
	if by.Most == 0 {
		by.Most = ConnectionsWithin(openFiles())
	}
	by.Log = cmp.Or(by.Log, slog.New(slog.DiscardHandler))
	b := bound(l, by.Most, cmp.Or(by.MostFrom, defaultFromAddress), by.Log)
	if o, ok := by.Observer.(Observer); ok {
		b.observer, b.name = o, l.Addr().String()
		o.Connections(b.name, 0)
	}
	return b
}

func bound(l net.Listener, most, mostFrom int, log *slog.Logger) *boundedListener {
	return &boundedListener{
		Listener: l, most: most, mostFrom: mostFrom, log: log,
		from: make(map[netip.Prefix]map[*boundedConn]struct{}), sites: make(map[netip.Prefix]int),
	}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: conn, of: l, from: Origin(conn.RemoteAddr())}
		replaced, ok := l.enter(c, time.Now())
		if replaced != nil {
			_ = replaced.Conn.Close() // its users get an error and close it
		}
		if ok {
			return c, nil
		}
		_ = conn.Close() // an error does not matter
	}
}

// report logs, once a minute, that a connection was refused or replaced.
func (l *boundedListener) report(c, replaced *boundedConn, reason string, now time.Time) {
	if _, due := l.logged.Due("", now); !due {
		return
	}
	message, from := "connection refused", c.from
	if replaced != nil {
		message, from = "connection closed for a new one", replaced.from
	}
	l.log.Warn(message, "listener", l.Addr().String(), "from", from.String(), "open", l.open, "open_from_there",
		len(l.from[from]), "reason", reason)
}

// enter counts a connection and reports true, unless a bound is reached. replaced is a
// connection that it does not count any more and that is to be closed; nil if there is
// none.
func (l *boundedListener) enter(c *boundedConn, now time.Time) (replaced *boundedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason, counted := "", ""
	switch {
	case l.mostFrom >= 0 && c.from.IsValid() && len(l.from[c.from]) >= l.mostFrom:
		reason = "there are as many as it takes from one address: see --max-connections-per-ip"
		counted = "per_address"
	case l.most >= 0 && l.open >= l.most:
		reason = "there are as many as the listener takes: see --max-connections"
		counted = "total"
		if now.Sub(l.searched) >= searchPause {
			if replaced = l.replaceable(l.sites[siteOf(c.from)]); replaced == nil {
				l.searched = now
			} else {
				counted = "replaced"
			}
		}
	}
	if counted != "" && l.observer != nil {
		l.observer.ConnectionRefused(l.name, counted)
	}
	if reason != "" {
		l.report(c, replaced, reason, now)
	}
	if reason != "" && replaced == nil {
		return nil, false
	}
	if replaced != nil {
		l.leave(replaced)
	}
	l.open++
	l.sites[siteOf(c.from)]++
	if l.from[c.from] == nil {
		l.from[c.from] = make(map[*boundedConn]struct{})
	}
	l.from[c.from][c] = struct{}{}
	l.observe()
	return replaced, true
}

// replaceable returns the connection to close for a new one of a site that has n; nil if
// there is none. It is the one that is idle for the longest time, of the site with the
// most connections that has an idle one and would still have as many as the new one's.
// If there is none, it is the least recently used one of the site with the most
// connections, if these are at least twice as many as the new one's site would have. The
// lock is held.
func (l *boundedListener) replaceable(n int) *boundedConn {
	var idle, busy *boundedConn
	idleMost, busyMost := n+1, 2*(n+1)-1
	idleAt, busyAt := int64(math.MaxInt64), int64(math.MaxInt64)
	for from, conns := range l.from {
		size := l.sites[siteOf(from)]
		if size <= n+1 {
			continue
		}
		for c := range conns {
			switch at := c.idle.Load(); {
			case at > 0 && (size > idleMost || size == idleMost && at < idleAt):
				idle, idleMost, idleAt = c, size, at
			case at < 0 && (size > busyMost || size == busyMost && -at < busyAt):
				busy, busyMost, busyAt = c, size, -at
			}
		}
	}
	if idle != nil {
		return idle
	}
	return busy
}

// leave no longer counts a connection. It may be called again. The lock is held.
func (l *boundedListener) leave(c *boundedConn) {
	conns := l.from[c.from]
	if _, ok := conns[c]; !ok {
		return
	}
	l.open--
	site := siteOf(c.from)
	if l.sites[site]--; l.sites[site] == 0 {
		delete(l.sites, site)
	}
	if delete(conns, c); len(conns) == 0 {
		delete(l.from, c.from)
	}
	l.observe()
}

// observe reports how many are open. The lock is held.
func (l *boundedListener) observe() {
	if l.observer != nil {
		l.observer.Connections(l.name, l.open)
	}
}

// boundedConn is a connection of a bounded listener. It is counted until it is closed or replaced.
type boundedConn struct {
	net.Conn
	of   *boundedListener
	from netip.Prefix

	// idle is 1 + when it began to wait for a call, in seconds or ticks. While calls are
	// open it is -(1 + when one was last used). 0: its server has not noted it yet.
	idle atomic.Int64
}

// rest takes note that the connection waits for a call from a time on.
func (c *boundedConn) rest(now int64) { c.idle.Store(1 + now) }

// work takes note that a call of the connection is open, and used at a time.
func (c *boundedConn) work(now int64) { c.idle.Store(-1 - now) }

// boundedOf returns what a connection is at its listener, nil if that is not bounded. It may have layers.
func boundedOf(c net.Conn) *boundedConn {
	b, _ := accepted(c).(*boundedConn)
	return b
}

// NoteState takes note of the state of a connection of an HTTP server.
func NoteState(c net.Conn, state http.ConnState) {
	NoteIdle(c, state == http.StateNew || state == http.StateIdle, time.Now())
}

// NoteIdle records whether a connection waits, at the time now, for its client
// to begin a command. At the bound on connections, idle ones are closed first.
func NoteIdle(c net.Conn, idle bool, now time.Time) {
	b := boundedOf(c)
	switch {
	case b == nil:
	case idle:
		b.rest(now.Unix())
	default:
		b.work(now.Unix())
	}
}

func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	c.of.leave(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
