package peerlink

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// earlyBytes is the most that is read of a connection, HTTP/2 included, before the
	// other side has proved who it is. A hello with the longest names takes a quarter of
	// it.
	earlyBytes = 4 << 10
	// maxWaiting bounds the connections without a session: those that have not proved
	// yet who they are, and those whose session has ended.
	maxWaiting = 256
)

// port keeps the connections that others have opened. A connection waits, for a bounded
// time, until it has proved who is there. Then it is settled while its session lasts.
type port struct {
	most    int // bound of settled connections
	stall   time.Duration
	within  time.Duration // longest wait of a connection
	refused func(from net.Addr, reason string)
	notice  string // text that tells what port this is
	links   *Links

	mu      sync.Mutex
	settled int
	waiting int
	hosts   map[string]map[*conn]bool // waiting connections by address
}

func newPort(c Config) *port {
	return &port{most: c.MaxConnections, stall: c.StallTimeout, within: 2 * c.ConnectTimeout,
		hosts: make(map[string]map[*conn]bool)}
}

// enter adds a new connection to those that wait. At the bound it closes a connection of
// the address that has the most. So silent connections from one address do not keep
// other addresses out. They hardly affect others from the same address either, because
// an honest connection waits only for a moment.
func (p *port) enter(c *conn) {
	c.port, c.host = p, hostOf(c.RemoteAddr())
	p.mu.Lock()
	var evicted *conn
	if p.waiting >= maxWaiting {
		evicted = p.crowded()
	}
	p.wait(c, p.within, "it did not prove who it is in time")
	p.mu.Unlock()
	if evicted != nil {
		p.refused(evicted.RemoteAddr(), "too many connections wait to prove who they are")
		_ = evicted.Close()
	}
}

// crowded removes and returns some connection of the address with the most; mu is held.
func (p *port) crowded() (c *conn) {
	var most map[*conn]bool
	for _, conns := range p.hosts {
		if len(conns) > len(most) {
			most = conns
		}
	}
	for c = range most { // in no particular order
		break
	}
	p.leave(c)
	return c
}

// wait adds a connection to those that wait, and closes it when its time is over. Unless
// reason is "", that is logged; mu is held.
func (p *port) wait(c *conn, within time.Duration, reason string) {
	if p.hosts[c.host] == nil {
		p.hosts[c.host] = make(map[*conn]bool)
	}
	p.hosts[c.host][c] = true
	p.waiting++
	c.place = waits
	c.late = time.AfterFunc(within, func() {
		if reason != "" {
			p.refused(c.RemoteAddr(), reason)
		}
		_ = c.Close()
	})
}

// leave removes a connection from the lists; mu is held.
func (p *port) leave(c *conn) {
	switch c.place {
	case waits:
		p.waiting--
		if delete(p.hosts[c.host], c); len(p.hosts[c.host]) == 0 {
			delete(p.hosts, c.host)
		}
		c.late.Stop()
	case settles:
		p.settled--
	}
	c.place = nowhere
}

// hostOf returns the address by which connections are counted. For IPv6 it is the /64
// network, within which one host can have any number of addresses.
func hostOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := at.Addr().Unmap()
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

// place is the list that a connection is on.
type place uint8

const (
	nowhere place = iota
	waits
	settles
)

// conn is a connection that cannot block this node: a write that the other side does not
// read ends it. Until it is known who is there, at most earlyBytes are read.
type conn struct {
	net.Conn
	secure *tls.Conn     // TLS upon Conn; nil: none. It is set before there are others that use the connection
	begin  *bytes.Reader // bytes that portCredentials has read; nil if none
	stall  time.Duration

	// left and free belong to the reading goroutine: how many bytes it may still read,
	// and whether it may read any number.
	left int
	free bool
	// greeted means that the hello has arrived. From then on the other side may send
	// frames as soon as its proof is on the way.
	greeted  atomic.Bool
	admitted chan struct{}
	admits   sync.Once
	gone     chan struct{}
	closes   sync.Once

	port *port // nil if this node dialled
	host string
	// The port's lock guards the following fields.
	place    place
	sessions int // settled sessions that are not over
	late     *time.Timer
}

func newConn(raw net.Conn, stall time.Duration) *conn {
	return &conn{Conn: raw, stall: stall, left: earlyBytes, admitted: make(chan struct{}), gone: make(chan struct{})}
}

// greet records that the hello has arrived.
func (c *conn) greet() { c.greeted.Store(true) }

// admit removes the bound on reading.
func (c *conn) admit() { c.admits.Do(func() { close(c.admitted) }) }

// settle admits a connection that has proved who is there. It returns an error if the
// connection was closed or there are too many.
func (c *conn) settle() error {
	p := c.port
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.place == nowhere:
		return status.Error(codes.DeadlineExceeded, "the connection was closed")
	case c.place == waits && p.settled >= p.most:
		return status.Errorf(codes.ResourceExhausted, "there are %d connections already, which is the bound", p.most)
	case c.place == waits:
		p.leave(c)
		c.place = settles
		p.settled++
	}
	c.sessions++
	c.admit()
	return nil
}

// retire records that a session is over. The connection stays open for farewellTimeout,
// so that the other side can read the reason.
func (c *conn) retire() {
	p := c.port
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.sessions--; c.sessions == 0 && c.place == settles {
		p.leave(c)
		p.wait(c, farewellTimeout, "")
	}
}

func (c *conn) Read(b []byte) (int, error) {
	if c.begin != nil {
		if c.begin.Len() > 0 {
			return c.begin.Read(b)
		}
		c.begin = nil
	}
	if !c.free {
		n, err := c.early(len(b))
		if err != nil {
			return 0, err
		}
		b = b[:n]
	}
	from := c.Conn
	if c.secure != nil {
		from = c.secure
	}
	n, err := from.Read(b)
	c.left -= n
	return n, err
}

// early returns how many of n bytes may be read now. After the hello it blocks at the
// bound: the other side may send frames while its proof is being checked, and they stay
// in the network.
func (c *conn) early(n int) (int, error) {
	if c.left <= 0 && c.greeted.Load() {
		select {
		case <-c.admitted:
		case <-c.gone:
			return 0, net.ErrClosed
		}
	}
	select {
	case <-c.admitted:
		c.free = true
		return n, nil
	default:
	}
	if c.left > 0 {
		return min(n, c.left), nil
	}
	err := fmt.Errorf("it sent more than %d bytes before its hello", earlyBytes)
	if c.port != nil {
		c.port.refused(c.RemoteAddr(), err.Error())
	}
	return 0, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	if c.secure != nil {
		return c.secure.Write(b)
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.closes.Do(func() { close(c.gone) })
	if p := c.port; p != nil {
		p.mu.Lock()
		p.leave(c)
		p.mu.Unlock()
	}
	return c.Conn.Close()
}
