package front

import "strings"

// ParseForwarded parses one value of the field Forwarded (RFC 7239) and returns the
// "for" of each element, in their order; empty if an element has none. It reports false
// for a value that does not follow the grammar, since the boundaries of its elements
// are unknown.
func ParseForwarded(value string) ([]string, bool) {
	var out []string
	p := forwardedParser{rest: value}
	for {
		hop, ok := p.element()
		if !ok || len(out) > maxHops {
			return nil, false
		}
		out = append(out, hop)
		p.blanks()
		if p.rest == "" {
			return out, true
		}
		if !p.take(',') {
			return nil, false
		}
	}
}

// forwardedParser parses from the front of the remaining value.
type forwardedParser struct{ rest string }

// element parses pairs separated by semicolons.
func (p *forwardedParser) element() (hop string, ok bool) {
	seen := false
	for {
		p.blanks()
		name := p.token()
		if name == "" || !p.take('=') {
			return "", false
		}
		value, ok := p.value()
		if !ok {
			return "", false
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return "", false // the grammar allows each once
			}
			hop, seen = value, true
		}
		p.blanks()
		if !p.take(';') {
			return hop, true
		}
	}
}

func (p *forwardedParser) value() (string, bool) {
	if p.take('"') {
		return p.quoted()
	}
	v := p.token()
	return v, v != ""
}

// quoted parses up to the closing quote.
func (p *forwardedParser) quoted() (string, bool) {
	var b strings.Builder
	escaped := false
	for i := range len(p.rest) {
		switch c := p.rest[i]; {
		case c < ' ' && c != '\t' || c == 0x7f:
			return "", false
		case escaped:
			b.WriteByte(c)
			escaped = false
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), true
		case c == '\\':
			escaped = true
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

func (p *forwardedParser) token() string {
	n := 0
	for n < len(p.rest) && isTokenByte(p.rest[n]) {
		n++
	}
	t := p.rest[:n]
	p.rest = p.rest[n:]
	return t
}

func (p *forwardedParser) blanks() { p.rest = strings.TrimLeft(p.rest, " \t") }

func (p *forwardedParser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// isTokenByte reports whether c may occur in a token. Colons are accepted, too: some
// proxies omit the quotes around an address with a port.
func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~:", c) >= 0
}
