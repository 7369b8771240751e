package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	maxPacket = 64 << 10
	// packetBacklog is how many bytes of datagrams the kernel is asked to keep, or half as many, and so on.
	packetBacklog = 2 << 20
	// acceptAgain is the pause after a connection could not be accepted, such as without a file descriptor.
	acceptAgain = 50 * time.Millisecond
)

// network is memberlist's transport over the machine's network. It does what memberlist's own does, but for what a
// datagram costs: that one allocates 64 KiB for each, so whoever sends a million datagrams of a byte has the node clear
// and collect 64 GB. Here they are read into one buffer, and what came is copied.
type network struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	wg      sync.WaitGroup
	failed  func(what string, err error)
	// everywhere reports that it listens on all addresses.
	everywhere bool
}

// listenOn listens on a port, over TCP and UDP. Port 0 takes a free one. failed receives what cannot be read.
func listenOn(at netip.AddrPort, failed func(what string, err error)) (*network, error) {
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	n := &network{
		tcp: tcp, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), done: make(chan struct{}),
		failed:     failed,
		everywhere: at.Addr() == netip.IPv4Unspecified(),
	}
	at = netip.AddrPortFrom(at.Addr(), uint16(n.port()))
	if n.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
		_ = tcp.Close() // nothing came of it
		return nil, err
	}
	for size := packetBacklog; size > 0 && n.udp.SetReadBuffer(size) != nil; size /= 2 {
	}
	n.wg.Go(n.accept)
	n.wg.Go(n.receive)
	return n, nil
}

func (n *network) port() int { return n.tcp.Addr().(*net.TCPAddr).Port }

// accept accepts connections until Shutdown.
func (n *network) accept() {
	for {
		c, err := n.tcp.AcceptTCP()
		if err != nil {
			select {
			case <-n.done:
				return
			case <-time.After(acceptAgain):
			}
			n.failed("a connection cannot be accepted", err)
			continue
		}
		select {
		case n.streams <- c:
		case <-n.done:
			_ = c.Close() // nobody reads it
			return
		}
	}
}

// receive reads datagrams until Shutdown.
func (n *network) receive() {
	buf := make([]byte, maxPacket)
	for {
		size, from, err := n.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			select {
			case <-n.done:
				return
			default:
			}
			n.failed("a datagram cannot be read", err)
			continue
		}
		if size == 0 {
			continue
		}
		p := &memberlist.Packet{
			Buf: append([]byte(nil), buf[:size]...), From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now(),
		}
		select {
		case n.packets <- p:
		case <-n.done:
			return
		}
	}
}

// FinalAdvertiseAddr implements memberlist.Transport: what was given, or else the address that is listened on, or for
// all addresses what memberlist's own transport finds.
func (n *network) FinalAdvertiseAddr(given string, port int) (net.IP, int, error) {
	if given != "" {
		ip := net.ParseIP(given)
		if ip == nil {
			return nil, 0, fmt.Errorf("the address %q to advertise is not valid", given)
		}
		if four := ip.To4(); four != nil {
			ip = four
		}
		return ip, port, nil
	}
	ip := n.tcp.Addr().(*net.TCPAddr).IP
	if !n.everywhere {
		return ip, n.port(), nil
	}
	t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{"0.0.0.0"}, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	})
	if err != nil {
		return nil, 0, err
	}
	ip, _, err = t.FinalAdvertiseAddr("", 0)
	return ip, n.port(), errors.Join(err, abandon(t))
}

func (n *network) PacketCh() <-chan *memberlist.Packet { return n.packets }

func (n *network) StreamCh() <-chan net.Conn { return n.streams }

func (n *network) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = n.udp.WriteTo(b, to)
	return time.Now(), err
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (n *network) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return n.WriteTo(b, to.Addr)
}

func (*network) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.DialContext(context.Background(), "tcp", addr) // memberlist gives none
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (n *network) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return n.DialTimeout(to.Addr, timeout)
}

// Shutdown implements memberlist.Transport. It waits until nothing is read any more.
func (n *network) Shutdown() error {
	close(n.done)
	err := errors.Join(n.tcp.Close(), n.udp.Close())
	n.wg.Wait()
	return err
}
