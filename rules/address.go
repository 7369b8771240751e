package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// HostAttribute is the name of the attribute that "host" and "not_host" match on. A
// service sets it to the host that a request is sent to.
const HostAttribute = "host"

const (
	maxPrefixes = 256 // addresses and prefixes of one condition
	maxHostName = 253 // bytes
	maxIPText   = 64  // bytes of an address with a zone; a longer text is no address
)

// requestAddress is the address of a request, read when a condition first asks for it. It may be
// a network: the middlewares count an IPv6 address as its /64.
type requestAddress struct {
	read bool
	net  netip.Prefix // the zero value: the request has no address
}

// in reports whether the address, or all of the network, is in one of the prefixes. text
// is the request's.
func (a *requestAddress) in(prefixes []netip.Prefix, text string) bool {
	if !a.read {
		a.read = true
		a.net, _ = readIP(text)
	}
	for i := range prefixes {
		if prefixes[i].Contains(a.net.Addr()) && prefixes[i].Bits() <= a.net.Bits() {
			return true
		}
	}
	return false
}

// readIP reads the address, or the network, of a request: all of its spellings become one. A
// port, a zone, and the bits of a network beyond its length are ignored, and an IPv4 address in
// IPv6 form (::ffff:10.0.0.1) is the IPv4 address.
func readIP(text string) (netip.Prefix, bool) {
	if len(text) > maxIPText {
		return netip.Prefix{}, false
	}
	if strings.IndexByte(text, '/') < 0 {
		a, ok := address.Parse(text)
		return netip.PrefixFrom(a, a.BitLen()), ok
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

// checkIP returns an error for a text that is neither an address nor a network: as a key it would
// be a counter of its own, and it would be in no network of a condition.
func checkIP(text string) error {
	if isIPv4(text) {
		return nil
	}
	if _, ok := readIP(text); !ok {
		return fmt.Errorf("%w: the ip is %s, which is neither an address nor a network: give the caller's address alone, "+
			"or none if it is not known", limiter.ErrInvalid, quote(text))
	}
	return nil
}

// isIPv4 reports whether a text is an IPv4 address in its only form. It is quicker than parsing.
func isIPv4(text string) bool {
	dots, digits, n := 0, 0, 0
	for i := range len(text) {
		switch c := text[i]; {
		case '0' <= c && c <= '9':
			if n = 10*n + int(c-'0'); digits > 0 && n < 10 || n > 255 {
				return false
			}
			digits++
		case c == '.' && digits > 0 && dots < 3:
			dots, digits, n = dots+1, 0, 0
		default:
			return false
		}
	}
	return dots == 3 && digits > 0
}

// appendIP appends an address, or a network, in the form in which it is counted: 9.9.9.9 for
// ::ffff:9.9.9.9 and for 9.9.9.9:80, and 2001:db8::/64 for 2001:DB8::1, as an address of IPv6 counts
// as its network of [address.IPv6Bits]. A network counts as it is given. A text that is neither is
// appended as it is; [checkIP] refuses requests with one.
func appendIP(dst []byte, text string) []byte {
	if text == "" || isIPv4(text) {
		return append(dst, text...)
	}
	p, ok := readIP(text)
	if !ok {
		return append(dst, text...)
	}
	if strings.IndexByte(text, '/') < 0 {
		p = address.Counted(p.Addr(), address.IPv6Bits)
	}
	if p.IsSingleIP() {
		return p.Addr().AppendTo(dst)
	}
	return p.AppendTo(dst)
}

// countedIP returns what appendIP appends.
func countedIP(text string) string {
	if text == "" || isIPv4(text) {
		return text
	}
	return string(appendIP(nil, text))
}

// normalized decodes a list of what parse reads, sorts it, and drops what is in it twice.
// parse returns a normal form, or what is wrong with a text.
func normalized[T comparable](d matching, n *node, what string, most int, parse func(string) (T, string),
	order func(a, b T) int) (out []T) {
	for _, v := range d.list(n, what, most) {
		if !d.scalar(v, what) {
			continue
		}
		one, bad := parse(v.Text)
		if bad != "" {
			d.add(v, "%s: %s", what, bad)
			continue
		}
		out = append(out, one)
	}
	if n.Kind == yamltree.List && len(n.Items) == 0 {
		d.add(n, "the list of %s is empty; remove it to match any", what)
	}
	slices.SortFunc(out, order)
	return slices.Compact(out)
}

// prefix parses an address or a prefix, and returns what is wrong with it.
func prefix(text string) (netip.Prefix, string) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			return netip.Prefix{}, notNetwork(text)
		case addr.Zone() != "":
			return netip.Prefix{}, quote(text) + " has a zone; leave it out, since the zones of requests are ignored"
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), ""
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, notNetwork(text)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, quote(text) + " contains all IPv4 addresses and more; write 0.0.0.0/0 for all IPv4 addresses"
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, quote(text) + " is an address within a network: write " + p.Masked().String() +
			" for the network or " + p.Addr().String() + " for the address"
	}
	return p, ""
}

// hostPattern returns the normal form of a host in a file: in lower case, without a dot
// at the end. A host that begins with "*." stands for all names below it. An IPv6 address
// stands in brackets, in its shortest form.
func hostPattern(text string) (host, bad string) {
	const want = "; write a name such as api.example.com, or *.example.com for all names below it"
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	below := strings.TrimPrefix(name, "*.")
	if inner, ok := strings.CutPrefix(name, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !addr.Is6() || addr.Zone() != "" || !strings.HasSuffix(inner, "]") {
			return "", quote(text) +
				" is not an IPv6 address in brackets, such as [::1]; leave a port out, since the ports of requests are ignored"
		}
		return "[" + addr.String() + "]", ""
	}
	switch {
	case isPrefix(name):
		return "", quote(text) + " is not a host; for the address of a caller write ip: " + networkText(text)
	case strings.Contains(name, "://"), strings.Contains(name, "/"):
		return "", quote(text) + " is not a host" + want
	case below == "":
		return "", "a host is empty" + want
	case len(name) > maxHostName:
		return "", quote(text) + " is longer than a host's name can be"
	case strings.Contains(name, ":"):
		return "", quote(text) + " has a port; leave it out, since the ports of requests are ignored"
	case strings.Trim(below, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "", below[0] == '.':
		return "", quote(text) + " is not a host" + want
	}
	return name, ""
}

// withoutPort returns a request's host without a port: what is before the first colon, or
// up to the bracket that ends an address. A name has no colons, so whatever follows the
// first one, the name before it is the one for which a server answers.
func withoutPort(host string) string {
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end >= 0 {
			return host[:end+1]
		}
		return host
	}
	name, _, _ := strings.Cut(host, ":")
	return name
}

// hostIn reports whether a request's host is one of a list. Case, a port, and a dot at
// the end are ignored. An empty host is in none.
func hostIn(list []string, host string) bool {
	host = strings.TrimSuffix(withoutPort(host), ".")
	for _, h := range list {
		if h[0] != '*' {
			if equalLower(h, host) {
				return true
			}
			continue
		}
		if n := len(host) - len(h) + 1; n > 0 && equalLower(h[1:], host[n:]) {
			return true
		}
	}
	return false
}

// equalLower reports whether s in lower case is w. Only ASCII letters are converted.
func equalLower(w, s string) bool {
	if len(w) != len(s) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if w[i] != c {
			return false
		}
	}
	return true
}
