package front

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Chain says in which form proxies pass on where a request came from.
type Chain uint8

// The forms. The zero value is the default.
const (
	// ForwardedFor is X-Forwarded-For: addresses, each proxy adding on the right
	// the one that it was connected to by.
	ForwardedFor Chain = iota
	// Forwarded is the field of RFC 7239, with the same order.
	Forwarded
	// Single is a field with the caller's address alone, which the proxy
	// overwrites, such as X-Real-IP or CF-Connecting-IP.
	Single
)

// DefaultIPv6Bits is how many leading bits of an IPv6 address count: a network
// of that size is what one customer is given, who can take any address in it.
const DefaultIPv6Bits = 64

// maxHops bounds how many proxies are walked past. What lies beyond is not
// believed: the last proxy that was reached counts as the caller.
const maxHops = 32

// Addresses finds the address that a request is counted by. The zero value
// trusts nobody. It is read only once set up, and then safe for concurrent use.
type Addresses struct {
	// Trusted are the networks of the proxies whose word is taken; see [Trust].
	Trusted []netip.Prefix
	// Chain is the form in which they give it.
	Chain Chain
	// IPv6Bits is how many leading bits of an IPv6 address count, 1 to 128; 0
	// means [DefaultIPv6Bits].
	IPv6Bits int
}

// Trust returns networks in the form in which addresses are compared with them,
// or an error for one that is no network.
func Trust(networks []netip.Prefix) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(networks))
	for _, p := range networks {
		if !p.IsValid() {
			return nil, fmt.Errorf("a trusted proxy's network is not valid; make it with netip.ParsePrefix, such as 10.0.0.0/8")
		}
		a := p.Addr().WithZone("")
		switch {
		case !a.Is4In6():
			p = netip.PrefixFrom(a, p.Bits())
		case p.Bits() >= 96:
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		default:
			return nil, fmt.Errorf("the trusted network %v contains all of IPv4; name the proxies' own networks", p)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// Client returns who is at the far end: remote itself, unless that is a trusted
// proxy; then the first in the chain, walked from the near end, that is none.
// Where the chain cannot be read, or ends, it is the last address reached, so
// that what cannot be understood is counted by the proxy that passed it on and
// not by what a stranger wrote. The values are those of the field, in the order
// in which they came.
func (a *Addresses) Client(remote netip.Addr, values []string) netip.Addr {
	at := plain(remote)
	if !a.trusts(at) {
		return at
	}
	return a.walk(at, values)
}

// Behind is Client for a connection that is trusted and has no address, such as
// one over a Unix socket. The address is invalid if the chain gives none.
func (a *Addresses) Behind(values []string) netip.Addr { return a.walk(netip.Addr{}, values) }

func (a *Addresses) walk(at netip.Addr, values []string) netip.Addr {
	if a.Chain == Single {
		if len(values) != 1 {
			return at
		}
		if next, ok := ParseAddr(values[0]); ok {
			return next
		}
		return at
	}
	hops := 0
	for _, value := range slices.Backward(values) {
		for hop := range a.hops(value) {
			next, ok := ParseAddr(hop)
			if hops++; !ok || hops > maxHops {
				return at
			}
			if at = next; !a.trusts(at) {
				return at
			}
		}
	}
	return at
}

// hops yields the addresses in one value, the nearest first, and an empty one
// where the value cannot be read.
func (a *Addresses) hops(value string) func(yield func(string) bool) {
	if a.Chain == Forwarded {
		return func(yield func(string) bool) {
			list, ok := ParseForwarded(value)
			if !ok {
				yield("")
				return
			}
			for _, hop := range slices.Backward(list) {
				if !yield(hop) {
					return
				}
			}
		}
	}
	return func(yield func(string) bool) {
		for more := true; more; {
			i := strings.LastIndexByte(value, ',')
			if more = i >= 0; !yield(value[i+1:]) {
				return
			}
			value = value[:max(i, 0)]
		}
	}
}

func (a *Addresses) trusts(at netip.Addr) bool {
	for _, p := range a.Trusted {
		if p.Contains(at) {
			return true
		}
	}
	return false
}

// Text returns an address as limits count it: an IPv6 address as its network,
// such as 2001:db8::/64, and the empty string for no address at all.
func (a *Addresses) Text(at netip.Addr) string {
	at = plain(at)
	bits := a.IPv6Bits
	if bits == 0 {
		bits = DefaultIPv6Bits
	}
	if !at.IsValid() || at.Is4() || bits >= 128 {
		if !at.IsValid() {
			return ""
		}
		return at.String()
	}
	p, err := at.Prefix(bits)
	if err != nil {
		return at.String()
	}
	return p.String()
}

// plain takes an IPv4 address out of IPv6, and the zone off: a zone is this
// machine's name for a link, and the caller's neighbours must not choose it.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// ParseAddr reads an address with or without a port and with or without the
// brackets of IPv6, with blanks around it: 192.0.2.1, 192.0.2.1:80, 2001:db8::1,
// [2001:db8::1] and [2001:db8::1]:80. The address is plain: no zone, and no IPv4
// inside IPv6.
func ParseAddr(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, port, ok := strings.Cut(rest, "]")
		if !ok || port != "" && (port[0] != ':' || !isPort(port[1:])) {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(host)
		return plain(a), err == nil && a.Is6()
	}
	if host, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") {
		if !isPort(port) {
			return netip.Addr{}, false
		}
		s = host
	}
	a, err := netip.ParseAddr(s)
	return plain(a), err == nil
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
