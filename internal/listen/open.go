package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// Open opens a listener for a server at host:port, or at a Unix socket if the address
// is "unix:" and a path. If it fails, the error names flag, such as "--grpc-addr", as
// the setting to change.
func Open(ctx context.Context, flag, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listenSocket(ctx, flag, path)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on %s: another program has that port; stop it, or choose another address "+
			"with %s: %w", address, flag, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("cannot listen on %s: this user may not have that port; choose one above 1023 with %s: %w",
			address, flag, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("cannot listen on %s: this machine does not have that address; choose another with %s: %w",
			address, flag, err)
	default:
		return nil, fmt.Errorf("cannot listen on %s; choose another address with %s: %w", address, flag, err)
	}
}

// Origin returns what identifies the connections of one client: the IPv4 address or the
// IPv6 /64 network, which one site has. It is the zero value for connections without an
// address, such as those of Unix sockets.
func Origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return OriginOf(tcp.AddrPort().Addr())
}

// OriginOf returns the origin of connections from an address.
func OriginOf(ip netip.Addr) netip.Prefix {
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

// siteOf returns the network that an origin belongs to and that one customer of a
// provider may have: of IPv6 its 48 bits, of IPv4 the origin itself.
func siteOf(from netip.Prefix) netip.Prefix {
	if !from.Addr().Is6() {
		return from
	}
	return netip.PrefixFrom(from.Addr(), 48).Masked()
}
