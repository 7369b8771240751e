package peerlink

import (
	"bytes"
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
	// earlyBytes is how much is read of a connection, all of HTTP/2 included, before it
	// is known who is there. A hello of the longest names takes a quarter of it.
	earlyBytes = 4 << 10
	// maxWaiting bounds the connections that have no session: those that have not proved
	// yet who they are, and those whose session has ended.
	maxWaiting = 256
)

// port knows the connections that others have opened. Each waits until it has proved
// who is there, for a short time only; then it is settled, while its session lasts.
type port struct {
	most    int // settled connections
	stall   time.Duration
	within  time.Duration // a connection may wait
	refused func(from net.Addr, reason string)
	notice  string // what port this is
	links   *Links

	mu      sync.Mutex
	settled int
	waiting int
	hosts   map[string]map[*conn]bool // those that wait, by address
}

func newPort(c Config) *port {
	return &port{most: c.MaxConnections, stall: c.StallTimeout, within: 2 * c.ConnectTimeout, hosts: make(map[string]map[*conn]bool)}
}

// enter has a new connection wait. At the bound another one makes room, of the address
// that has the most: so silence from one address keeps nobody else out, and from the
// same address hardly anybody, for whoever speaks is done in a moment.
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

// crowded returns any connection of the address with the most, which waits no longer;
// mu is held.
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

// wait notes that a connection waits, and closes it if it does so for too long, for that
// reason, if it is to be told; mu is held.
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

// leave takes a connection off the lists; mu is held.
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

// hostOf returns the address that connections are counted by: of IPv6 the network, in
// which one host has as many as it likes.
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

// place is where a connection is listed.
type place uint8

const (
	nowhere place = iota
	waits
	settles
)

// conn is a connection that nobody can hold up: a write that the other side does
// not take ends it. Until it is known who is there, hardly anything is read.
type conn struct {
	net.Conn
	begin *bytes.Reader // was read by the door; nil if nothing was
	stall time.Duration

	// Of the one that reads: how much it may still read, and that it may read all.
	left int
	free bool
	// greeted: the hello has come, and the other side may send what it likes as soon as
	// its proof is on the way.
	greeted  atomic.Bool
	admitted chan struct{}
	admits   sync.Once
	gone     chan struct{}
	closes   sync.Once

	port *port // nil of one that was dialled
	host string
	// The next are under the port's lock.
	place    place
	sessions int // that were settled and are not over
	late     *time.Timer
}

func newConn(raw net.Conn, stall time.Duration) *conn {
	return &conn{Conn: raw, stall: stall, left: earlyBytes, admitted: make(chan struct{}), gone: make(chan struct{})}
}

// greet notes that the hello has come.
func (c *conn) greet() { c.greeted.Store(true) }

// admit has everything be read from now on.
func (c *conn) admit() { c.admits.Do(func() { close(c.admitted) }) }

// settle admits a connection that has proved who is there. The error says why it is
// refused all the same.
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

// retire notes that a session is over. The other side has a moment to read why.
func (c *conn) retire() {
	p := c.port
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.sessions--; c.sessions == 0 && c.place == settles {
		p.leave(c)
		p.wait(c, farewellTimeout, "")
	}
}

// Read implements net.Conn.
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
	n, err := c.Conn.Read(b)
	c.left -= n
	return n, err
}

// early returns how much of n bytes may be read now. After the hello it waits: the other
// side may send frames while its proof is being looked at, and they stay where they are.
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
	err := fmt.Errorf("it sent more than %d bytes before it said who it is", earlyBytes)
	if c.port != nil {
		c.port.refused(c.RemoteAddr(), err.Error())
	}
	return 0, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closes.Do(func() { close(c.gone) })
	if p := c.port; p != nil {
		p.mu.Lock()
		p.leave(c)
		p.mu.Unlock()
	}
	return c.Conn.Close()
}
