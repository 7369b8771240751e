package rules

import (
	"fmt"
	"net/netip"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
)

// wantPrefix ends the errors of addresses for which there is no likelier line to write.
const wantPrefix = "; write an address such as 192.0.2.1 or a prefix such as 10.0.0.0/8 or \"2001:db8::/32\""

// isNetwork reports whether a text is an address, and whether it is a prefix.
func isNetwork(text string) (address, prefix bool) {
	if strings.Contains(text, "/") {
		_, err := netip.ParsePrefix(text)
		return false, err == nil
	}
	_, err := netip.ParseAddr(text)
	return err == nil, false
}

// networkText returns an address or a prefix as a file has it.
func networkText(text string) string {
	if strings.Contains(text, ":") {
		return `"` + text + `"`
	}
	return text
}

// networks decodes the addresses and prefixes of a condition.
func (d matching) networks(n *node, what string) []netip.Prefix {
	if n.Kind == yamltree.Mapping {
		switch not := n.At("not"); {
		case not != nil && what == "ip":
			d.add(n, "ip has no \"not\": write not_ip: %s in its place", d.example(not, "10.0.0.0/8"))
		default:
			d.add(n, "%s is an address, a prefix or a list of these, not a mapping: write %s: 10.0.0.0/8, for example", what,
				what)
		}
		return nil
	}
	before := d.found()
	out := normalized(d, n, what, maxPrefixes, prefix, netip.Prefix.Compare)
	if d.found() > before {
		return out
	}
	d.oneFamily(n, what, out)
	for _, v := range d.list(n, what, maxPrefixes) {
		network, bare := bareNetwork(v.Text)
		reason, other := "and its end is that of a network", ", or another length,"
		if !bare {
			if network, bare = lostSlash(v.Text); !bare {
				continue
			}
			reason, other = "and ends in what is the length of its network", ""
		}
		instead := networkText(network)
		if n.Kind == yamltree.Scalar {
			instead = what + ": " + instead
		}
		addr, _ := netip.ParseAddr(v.Text)
		d.decoder.doubt(v, instead, "%s: %s is one address, %s: write %s%s for the network, or %s/%d for this address",
			what, v.Text, reason, instead, other, v.Text, addr.BitLen())
	}
	return out
}

// oneFamily notes a condition that has all addresses of IPv4 and not those of IPv6, or the
// reverse. A list with both is taken as meant, and so is one with two halves, 0.0.0.0/1.
func (d matching) oneFamily(n *node, what string, networks []netip.Prefix) {
	all := func(text string) bool { return slices.Contains(networks, netip.MustParsePrefix(text)) }
	const v4, v6 = "0.0.0.0/0", "::/0"
	if all(v4) == all(v6) {
		return
	}
	has, lacks := "IPv4", "IPv6"
	if all(v6) {
		has, lacks = lacks, has
	}
	instead := what + ": [" + v4 + ", \"" + v6 + "\"]"
	d.decoder.doubt(n, instead,
		"%s has all addresses of %s and none of %s: write %s for every address, or its two halves, such as [0.0.0.0/1, "+
			"128.0.0.0/1], if that is meant", what, has, lacks, instead)
}

// example returns the first value of a node as a file has it, or else another text.
func (d matching) example(n *node, other string) string {
	if n.Kind == yamltree.List && len(n.Items) > 0 {
		n = n.Items[0]
	}
	if n.Kind != yamltree.Scalar || n.Text == "" {
		return other
	}
	if address, prefix := isNetwork(n.Text); address || prefix {
		return networkText(n.Text)
	}
	return plainText(clip(n.Text))
}

// bareNetwork returns the prefix that is probably meant by an address whose end is 0, which
// hardly any caller has: 10.0.0.0/8 for 10.0.0.0.
func bareNetwork(text string) (string, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Is4In6() {
		return "", false
	}
	b := addr.AsSlice()
	unit, least := 1, 1 // bytes of a group, and zeros at the end of a network
	if addr.Is6() {
		unit, least = 2, 8
	}
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	n = (n + unit - 1) / unit * unit
	if len(b)-n < least {
		return "", false
	}
	return addr.String() + "/" + strconv.Itoa(8*n), true
}

// lostSlash returns the IPv6 prefix that is probably meant by an address that ends in its
// length: fd00::/8 for fd00::8.
func lostSlash(text string) (string, bool) {
	begin, length, ok := strings.Cut(text, "::")
	bits, err := strconv.Atoi(length)
	if !ok || err != nil || begin == "" {
		return "", false
	}
	addr, err := netip.ParseAddr(begin + "::")
	if err != nil {
		return "", false
	}
	switch { // blocks with a length of their own, and groups that are written to their end
	case addr.IsPrivate() && (bits == 7 || bits == 8), addr.IsLinkLocalUnicast() && bits == 10,
		addr.IsMulticast() && bits == 8,
		bits > 16 && bits == 16*(strings.Count(begin, ":")+1):
		return netip.PrefixFrom(addr, bits).Masked().String(), true
	}
	return "", false
}

// notNetwork returns what is wrong with a text that is no address and no prefix.
func notNetwork(text string) string {
	if host, err := netip.ParseAddrPort(text); err == nil {
		return fmt.Sprintf("%s has a port: write %s, since the ports of requests are ignored", quote(text),
			networkText(host.Addr().String()))
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if address, _ := isNetwork(strings.TrimSuffix(inner, "]")); address {
			return fmt.Sprintf("%s has brackets: write %s", quote(text), networkText(strings.TrimSuffix(inner, "]")))
		}
	}
	if list := strings.FieldsFunc(text, func(r rune) bool {
		return r == ',' || r == ' ' || r == ';' || r == '|'
	}); len(list) > 1 {
		return fmt.Sprintf("%s is several values in one: write a list, as in [%s]", quote(text), strings.Join(list[:2], ", "))
	}
	if rest, ok := strings.CutPrefix(text, "!"); ok {
		return fmt.Sprintf("%s is not an address or a prefix: for the opposite write %s under not_ip", quote(text),
			networkText(strings.TrimSpace(clip(rest))))
	}
	if whole := wholePrefix(text); whole != "" {
		return fmt.Sprintf("%s is not an address or a prefix: write %s for the network", quote(text), whole)
	}
	switch {
	case strings.HasPrefix(text, "/"), strings.HasPrefix(text, "^/"):
		return fmt.Sprintf("%s is not an address or a prefix: for a path write path: '^%s'", quote(text),
			strings.ReplaceAll(strings.TrimPrefix(clip(text), "^"), "'", "''"))
	case strings.Contains(text, "-"):
		return quote(text) +
			" is not an address; a range is written as a list of prefixes, such as [10.0.0.0/30, 10.0.0.4/31]"
	case strings.Contains(text, "/"):
		return quote(text) + " is not a prefix" + wantPrefix
	}
	return quote(text) + " is not an address" + wantPrefix
}

// wholePrefix returns the IPv4 prefix that is meant by 10, 10.0, 10.*, 10/8 or
// 10.0.0.0/255.0.0.0; empty if none is.
func wholePrefix(text string) string {
	name, length, sized := strings.Cut(text, "/")
	parts := strings.Split(strings.TrimSuffix(name, "."), ".")
	for len(parts) > 1 && (parts[len(parts)-1] == "*" || parts[len(parts)-1] == "x") {
		parts = parts[:len(parts)-1]
	}
	given := len(parts)
	for len(parts) < 4 {
		parts = append(parts, "0")
	}
	addr, err := netip.ParseAddr(strings.Join(parts, "."))
	if err != nil || !addr.Is4() {
		return ""
	}
	bits := 8 * given
	if sized {
		if bits, err = strconv.Atoi(length); err != nil {
			if bits = maskBits(length); bits < 0 {
				return ""
			}
		}
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.String()
}

// maskBits returns the length of a network with a mask such as 255.0.0.0, -1 if it is none.
func maskBits(text string) int {
	mask, err := netip.ParseAddr(text)
	if err != nil || !mask.Is4() {
		return -1
	}
	bits, ended := 0, false
	for _, b := range mask.AsSlice() {
		for i := 7; i >= 0; i-- {
			one := b>>i&1 == 1
			if one && ended {
				return -1
			}
			if ended = !one; one {
				bits++
			}
		}
	}
	return bits
}

// networkElsewhere notes an address or a prefix in a condition that is not about addresses.
// what is that condition, and text is what it compares.
func (d matching) networkElsewhere(v *node, what, text string) {
	address, prefix := isNetwork(text)
	if !address && !prefix {
		return
	}
	field := "ip"
	if strings.HasPrefix(what, "not_") {
		field = "not_ip"
	}
	instead := field + ": " + networkText(text)
	d.decoder.doubt(v, instead,
		"%s: %s seems to be the address of a caller, and is compared with the %s of a request: write %s",
		what, quote(v.Text), strings.TrimPrefix(what, "not_"), instead)
}

// networkPath notes a pattern of paths that is an address or a prefix.
func (d matching) networkPath(v *node, what string, p *pattern) {
	if p == nil {
		return
	}
	text := strings.TrimSuffix(strings.TrimPrefix(p.text, "^"), "$")
	if re, err := syntax.Parse(text, syntax.Perl); err == nil && re.Op == syntax.OpLiteral {
		text = string(re.Rune) // 10\.0\.0\.1
	}
	d.networkElsewhere(v, what, text)
}

// networkValue notes a value of an attribute that is a prefix, or is an address if the
// attribute's name says that it is one of a caller. It is compared as it stands.
func (d matching) networkValue(v *node, name string) {
	address, prefix := isNetwork(v.Text)
	if address {
		words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("-_. ", r) })
		address = slices.ContainsFunc(words, func(w string) bool {
			return slices.Contains([]string{"ip", "addr", "address", "cidr", "forwarded"}, w)
		})
	}
	if !address && !prefix || conditionName(name) { // misplaced says the latter
		return
	}
	instead := "ip: " + networkText(v.Text)
	d.decoder.doubt(v, instead,
		"attribute %s is compared with %s as it stands, and not with the request's address: write %q in match, beside "+
			"attributes",
		quote(name), quote(v.Text), instead)
}

func isPrefix(text string) bool {
	_, prefix := isNetwork(text)
	return prefix
}
