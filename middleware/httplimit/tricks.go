package httplimit

import (
	"math/bits"
	"strings"
)

// maxDecodings bounds how often a path is percent-decoded in search of hidden tricks.
// Legitimate clients do not encode so often.
const maxDecodings = 5

// hiddenTrick decodes a path repeatedly, as a chain of proxies and servers may do. It
// returns what is wrong with the path at any step: a trick, an encoded slash that a proxy
// merges with another or drops, or a delimiter that appears only after decoding twice. It
// returns an empty string for a harmless path.
func hiddenTrick(raw string) string {
	if mergedSlash(raw) {
		return "has an encoded slash at its beginning, at its end, beside another slash or among parameters"
	}
	text, slashes, ends := raw, 0, 0
	for n := range maxDecodings + 1 {
		if why := trick(text); why != "" {
			return why
		}
		if now := strings.Count(text, "/"); n >= 2 && now > slashes {
			return "has a slash that is encoded twice"
		}
		slashes = strings.Count(text, "/")
		now := strings.Count(text, "#") + strings.Count(text, "?")
		if n >= 2 && now > ends {
			return "has a \"#\" or \"?\" that is encoded twice"
		}
		ends = now
		next := decodeOnce(text)
		if next == text {
			return ""
		}
		text = next
	}
	return "is encoded too often"
}

// trick returns what makes some servers read the path as another path, or an empty
// string.
func trick(path string) string {
	for i := range len(path) {
		switch c := path[i]; {
		case c < ' ' || c == 0x7f:
			return "has a control character"
		case c == '\\':
			return "has a backslash"
		case c >= 0xc0 && overlong(path[i:]):
			return "has a character in an overlong encoding"
		case c == '.' && dotSegment(path, i):
			return "has \".\" or \"..\" segments"
		}
	}
	return ""
}

// mergedSlash reports whether an encoded slash of the path makes an empty segment, or one
// with only parameters, once it is decoded, or ends a parameter. Proxies such as nginx
// decode it and then merge it with the slash beside it, so "/%2Flogin" is served as
// "/login".
func mergedSlash(raw string) bool {
	if !strings.Contains(raw, "%2F") && !strings.Contains(raw, "%2f") {
		return false
	}
	empty, parameter := false, false // of the segment so far, with encoded slashes as slashes
	for i := 0; i < len(raw); i++ {
		switch {
		case strings.HasPrefix(raw[i:], "%2F"), strings.HasPrefix(raw[i:], "%2f"):
			rest := raw[i+3:]
			if i == 0 || empty || parameter || rest == "" || rest[0] == '/' || rest[0] == ';' {
				return true
			}
			empty = true
			i += 2
		case raw[i] == '/':
			empty, parameter = true, false
		case raw[i] == ';':
			parameter = true
		default:
			empty = false
		}
	}
	return false
}

// dotSegment reports whether the dot at i begins a segment "." or "..", ignoring
// parameters and blanks at its end.
func dotSegment(path string, i int) bool {
	if i > 0 && path[i-1] != '/' {
		return false
	}
	rest := path[i+1:]
	rest = strings.TrimPrefix(rest, ".")
	rest = strings.TrimLeft(rest, " ")
	return rest == "" || rest[0] == '/' || rest[0] == ';'
}

// overlong reports whether a lenient decoder may read an ASCII character where text begins: in more
// bytes of UTF-8 than it needs, such as 0xC0 0xAE or 0xE0 0x80 0xAE for a dot, or with a dot or a slash in place
// of the last of two, which some decoders do not look at. Valid text never has such bytes. Names in
// Latin-1 have others, such as 0xFC.
func overlong(text string) bool {
	n := bits.LeadingZeros8(^text[0]) // the bytes of the character, as the first one says
	if n == 2 && text[0] <= 0xc1 {
		return len(text) > 1 && (continues(text[1]) || text[1] == '.' || text[1] == '/')
	}
	if n < 3 || len(text) < n || text[0] != byte(0xff<<(8-n)) {
		return false // it is ASCII only if the first byte has none of its bits
	}
	for i := 1; i < n; i++ {
		if !continues(text[i]) || i < n-2 && text[i] != 0x80 || i == n-2 && text[i] > 0x81 {
			return false
		}
	}
	return true
}

// continues reports whether a byte can follow the first one of a character.
func continues(c byte) bool { return c&0xc0 == 0x80 }

// decodeOnce decodes %XX, and %uXXXX of ASCII characters, which some servers support.
func decodeOnce(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			if c, ok := hexByte(s[i+1:]); ok {
				b = append(b, c)
				i += 2
				continue
			}
			if rest := s[i+1:]; len(rest) >= 5 && (rest[0] == 'u' || rest[0] == 'U') && rest[1:3] == "00" {
				if c, ok := hexByte(rest[3:]); ok {
					b = append(b, c)
					i += 5
					continue
				}
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// hexByte parses two hexadecimal digits.
func hexByte(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	hi, lo := unhex(s[0]), unhex(s[1])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}
