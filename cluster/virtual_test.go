package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine"
)

// virtual is a network within the process. In a bubble of testing/synctest its time is
// virtual, and whole members run in it. Nothing is lost, and everything arrives after a
// millisecond. Where nobody listens, nobody answers.
type virtual struct {
	mu      sync.Mutex
	streams map[string]*port      // listeners for streams, by address
	packets map[string]*transport // gossip, by address
}

func newVirtual() *virtual {
	return &virtual{streams: map[string]*port{}, packets: map[string]*transport{}}
}

const latency = time.Millisecond

// settled opens a member in a network of its own.
type settled struct {
	Config
	network network
}

// OpenMember implements [weir.Clustering].
func (c *settled) OpenMember(ctx context.Context, n *engine.Node) (engine.Decider, weir.Cluster, error) {
	m, err := c.open(ctx, n, c.network)
	if err != nil {
		return nil, nil, err
	}
	return m.decider, m, nil
}

// port is a listener for streams.
type port struct {
	net    *virtual
	at     net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (v *virtual) listen(_ context.Context, addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.streams[addr] != nil {
		return nil, errors.New("the address is in use")
	}
	p := &port{net: v, at: net.TCPAddrFromAddrPort(at), conns: make(chan net.Conn), closed: make(chan struct{})}
	v.streams[addr] = p
	return p, nil
}

func (p *port) Addr() net.Addr { return p.at }

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() {
		p.net.mu.Lock()
		defer p.net.mu.Unlock()
		delete(p.net.streams, p.at.String())
		close(p.closed)
	})
	return nil
}

// dialer returns what connects from a host.
func (v *virtual) dialer(host string) func(context.Context, string) (net.Conn, error) {
	from := &net.TCPAddr{IP: net.ParseIP(host), Port: 40000}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		v.mu.Lock()
		p := v.streams[addr]
		v.mu.Unlock()
		if p == nil {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		near, far := net.Pipe()
		select {
		case p.conns <- &end{far, p.at, from}:
			return &end{near, from, p.at}, nil
		case <-p.closed:
		case <-ctx.Done():
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
}

// end is one end of a connection, with addresses.
type end struct {
	net.Conn
	local, remote net.Addr
}

func (e *end) LocalAddr() net.Addr  { return e.local }
func (e *end) RemoteAddr() net.Addr { return e.remote }

// transport is memberlist's transport of one node.
type transport struct {
	*port
	dial    func(context.Context, string) (net.Conn, error)
	packets chan *memberlist.Packet
}

// gossip makes memberlist's transport.
func (v *virtual) gossip(addr netip.AddrPort) (memberlist.NodeAwareTransport, error) {
	l, err := v.listen(context.Background(), addr.String())
	if err != nil {
		return nil, err
	}
	t := &transport{l.(*port), v.dialer(addr.Addr().String()), make(chan *memberlist.Packet)}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.packets[addr.String()] = t
	return t, nil
}

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	at := t.at.(*net.TCPAddr)
	return at.IP, at.Port, nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	t.net.mu.Lock()
	to := t.net.packets[addr]
	t.net.mu.Unlock()
	if to != nil {
		p := &memberlist.Packet{Buf: append([]byte(nil), b...),
			From: &net.UDPAddr{IP: t.at.(*net.TCPAddr).IP, Port: t.at.(*net.TCPAddr).Port}}
		time.AfterFunc(latency, func() {
			p.Timestamp = time.Now()
			select {
			case to.packets <- p:
			case <-to.closed:
			}
		})
	}
	return time.Now(), nil
}

func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *transport) StreamCh() <-chan net.Conn           { return t.conns }

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.dial(ctx, addr)
}

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

func (t *transport) Shutdown() error {
	t.net.mu.Lock()
	if t.net.packets[t.at.String()] == t {
		delete(t.net.packets, t.at.String())
	}
	t.net.mu.Unlock()
	return t.Close()
}
