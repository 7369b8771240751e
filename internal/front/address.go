package front

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/address"
)

// Chain is the form in which proxies pass on the caller's address.
type Chain uint8

// The forms of a chain. The zero value is the default.
const (
	// ForwardedFor is X-Forwarded-For: addresses, to which each proxy appends on the
	// right the one that connected to it.
	ForwardedFor Chain = iota
	// Forwarded is the field of RFC 7239, in the same order.
	Forwarded
	// Single is a field with only the caller's address, which the proxy overwrites,
	// such as X-Real-IP or CF-Connecting-IP.
	Single
)

// maxHops bounds how many proxies are followed. Beyond it the last proxy reached counts
// as the caller.
const maxHops = 32

// Addresses finds the address by which a request is counted. The zero value trusts no
// proxy. Once set up it is only read, and is safe for concurrent use.
type Addresses struct {
	// Trusted are the networks of the trusted proxies; see [Trust].
	Trusted []netip.Prefix
	// Chain is the form that they use.
	Chain Chain
	// IPv6Bits is how many leading bits of an IPv6 address count, 1 to 128; 0 means
	// [address.IPv6Bits], as rules count.
	IPv6Bits int
}

// Trust returns networks in the form in which addresses are compared with them, or an
// error for an invalid network.
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

// Client returns the caller's address. That is remote itself, unless remote is a
// trusted proxy; then it is the first address in the chain, followed from the near end,
// that is not a trusted proxy. If the chain ends or cannot be parsed, it is the last
// address reached: a chain that cannot be understood is counted by the proxy that sent
// it, and not by what a stranger wrote. values are the values of the field, in the
// order of arrival.
func (a *Addresses) Client(remote netip.Addr, values []string) netip.Addr {
	at := address.Plain(remote)
	if !a.trusts(at) {
		return at
	}
	return a.walk(at, values)
}

// Behind is Client for a trusted connection without an address, such as one over a Unix
// socket. The result is invalid if the chain has no address.
func (a *Addresses) Behind(values []string) netip.Addr { return a.walk(netip.Addr{}, values) }

func (a *Addresses) walk(at netip.Addr, values []string) netip.Addr {
	if a.Chain == Single {
		if len(values) != 1 {
			return at
		}
		if next, ok := address.Parse(values[0]); ok {
			return next
		}
		return at
	}
	hops := 0
	for _, value := range slices.Backward(values) {
		for hop := range a.hops(value) {
			next, ok := address.Parse(hop)
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

// hops yields the addresses in one value, the nearest first, and an empty string where
// the value cannot be parsed.
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

// Text returns an address as a request names it, empty for an invalid one. Rules match the address
// itself, and count an IPv6 address as its network of [address.IPv6Bits]. Where another number of
// bits counts, the result is that network, such as 2001:db8::/48; rules then match only what
// contains all of it.
func (a *Addresses) Text(at netip.Addr) string {
	if !at.IsValid() {
		return ""
	}
	at = address.Plain(at)
	if at.Is4() || at.IsLoopback() || cmp.Or(a.IPv6Bits, address.IPv6Bits) == address.IPv6Bits {
		return at.String()
	}
	// also of one address: without its length it would count as its network
	return address.Counted(at, a.IPv6Bits).String()
}
