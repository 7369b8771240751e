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

// Listen opens a listener for a server at host:port, or at a Unix socket if the address
// is "unix:" and a path. If it fails, the error names flag, such as "--grpc-addr", as
// the setting to change.
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

// boundedListener closes connections above a bound as soon as it has accepted them. So
// the open ones are served, and other clients learn at once. (In the kernel's queue
// they would wait for a timeout.)
type boundedListener struct {
	net.Listener
	most, mostFrom int // negative: no bound
	log            *slog.Logger

	mu     sync.Mutex
	open   int
	from   map[netip.Prefix]int // open connections by their origin
	logged time.Time            // when a refused connection was last logged
}

// logRefusedEvery is the shortest interval between two log messages about refused
// connections.
const logRefusedEvery = time.Minute

// bound bounds the open connections of a listener, in total and from one address;
// negative for no bound.
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
		_ = c.Close() // an error does not matter
	}
}

// origin returns what identifies the connections of one client: the IPv4 address or the
// IPv6 /64 network, which one site has. It is the zero value for connections without an
// address, such as those of Unix sockets.
func origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return originOf(tcp.AddrPort().Addr())
}

// originOf returns the origin of connections from an address.
func originOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{} // not reached: every address has that many bits
	}
	return p
}

// enter counts a connection and reports true, unless the bound is reached.
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

// boundedConn is counted until it is closed.
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
