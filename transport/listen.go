package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Listen opens a listener for a server, at host:port, or at a socket if the address
// is "unix:" and a path. The error of an address that cannot be had names the flag that
// chose it, such as "--grpc-addr".
func Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listenSocket(ctx, flag, path)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on %s: another program has that port; stop it, or choose another address with %s: %w", address, flag, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("cannot listen on %s: this user may not have that port; choose one above 1023 with %s: %w", address, flag, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("cannot listen on %s: this machine does not have that address; choose another with %s: %w", address, flag, err)
	default:
		return nil, fmt.Errorf("cannot listen on %s; choose another address with %s: %w", address, flag, err)
	}
}

// boundedListener closes connections above a bound as soon as it has accepted
// them, so that those who are there are served and those who are not learn at
// once. (Left waiting in the kernel's queue they would find out by a timeout.)
type boundedListener struct {
	net.Listener
	most, mostFrom int // negative: no bound
	log            *slog.Logger

	mu     sync.Mutex
	open   int
	from   map[netip.Prefix]int // open connections, by where they come from
	logged time.Time            // when a connection was refused and it was logged
}

// logRefusedEvery is how long the log is silent about connections that are refused, after
// it was told of one.
const logRefusedEvery = time.Minute

// bound bounds the open connections of a listener, and those from one address; negative
// for no bound.
func bound(l net.Listener, most, mostFrom int, log *slog.Logger) net.Listener {
	return &boundedListener{Listener: l, most: most, mostFrom: mostFrom, log: log, from: make(map[netip.Prefix]int)}
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := origin(c.RemoteAddr())
		if l.enter(from) {
			return &boundedConn{Conn: c, of: l, from: from}, nil
		}
		_ = c.Close() // the other end will notice, whatever the error
	}
}

// origin returns what connections of one client have in common: the address, of IPv6 the
// network of 64 bits that a site has; the zero value if there is none, as for sockets.
func origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{} // not reached: all addresses have as many bits
	}
	return p
}

// enter counts a connection, unless there are as many as may be.
func (l *boundedListener) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := ""
	switch {
	case l.most >= 0 && l.open >= l.most:
		reason = "there are as many as the listener takes: see --max-connections"
	case l.mostFrom >= 0 && from.IsValid() && l.from[from] >= l.mostFrom:
		reason = "there are as many as it takes from one address: see --max-connections-per-ip"
	}
	if reason == "" {
		l.open++
		l.from[from]++
		return true
	}
	if now := time.Now(); l.logged.IsZero() || now.Sub(l.logged) >= logRefusedEvery {
		l.logged = now
		l.log.Warn("connection refused", "listener", l.Addr().String(), "from", from.String(), "open", l.open, "open_from_there", l.from[from], "reason", reason)
	}
	return false
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	of   *boundedListener
	from netip.Prefix
	once sync.Once
}

// Close implements [net.Conn].
func (c *boundedConn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.open--
		if c.of.from[c.from]--; c.of.from[c.from] == 0 {
			delete(c.of.from, c.from)
		}
	})
	return c.Conn.Close()
}
