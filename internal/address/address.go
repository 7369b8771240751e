// Package address reads the addresses of callers, and says what of them is counted.
package address

import (
	"net/netip"
	"strings"
)

// IPv6Bits is how many leading bits of an IPv6 address count, unless a network says another
// number. One customer usually has a network of that size, and can use any address in it.
const IPv6Bits = 64

// Parse reads an address with or without a port, with or without the brackets of IPv6, and
// with surrounding blanks: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1] and
// [2001:db8::1]:80. The result has no zone and no IPv4 inside IPv6.
func Parse(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, port, ok := strings.Cut(rest, "]")
		if !ok || port != "" && (port[0] != ':' || !isPort(port[1:])) {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(host)
		return Plain(a), err == nil && a.Is6()
	}
	if host, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") {
		if !isPort(port) {
			return netip.Addr{}, false
		}
		s = host
	}
	a, err := netip.ParseAddr(s)
	return Plain(a), err == nil
}

// Plain unwraps an IPv4 address in IPv6 and removes the zone. A zone is a local name of
// a link, and callers on that link must not be able to choose it.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// translated reports whether a is an IPv4 address as a translator gives it to IPv6: in 64:ff9b::/96 (RFC 6052).
func translated(a netip.Addr) bool {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{1: 0x64, 2: 0xff, 3: 0x9b}), 96).Contains(a)
}

// Counted returns the network by which a plain, valid address is counted: of an IPv6 address so
// many of its leading bits, except ::1, which is this machine and no customer's network, and translated ones.
func Counted(a netip.Addr, bits int) netip.Prefix {
	if a.Is4() || a.IsLoopback() || translated(a) || bits >= a.BitLen() {
		bits = a.BitLen()
	}
	p, _ := a.Prefix(bits) // the number is in range
	return p
}

func isPort(s string) bool {
	if s == "" || len(s) > 5 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
