package httplimit

import "strings"

// maxDecodings bounds how often a path is percent-decoded to see what is hidden in
// it. Nothing honest is encoded so often.
const maxDecodings = 5

// hiddenTrick decodes a path again and again, as proxies and servers in a row may do,
// and says what is wrong with it at any of these steps: a trick, or a slash that shows
// only when decoded twice. It returns an empty string for an honest path.
func hiddenTrick(raw string) string {
	text, slashes := raw, 0
	for n := range maxDecodings + 1 {
		if why := trick(text); why != "" {
			return why
		}
		if now := strings.Count(text, "/"); n >= 2 && now > slashes {
			return "has a slash that is encoded twice"
		}
		slashes = strings.Count(text, "/")
		next := decodeOnce(text)
		if next == text {
			return ""
		}
		text = next
	}
	return "is encoded too often"
}

// trick says what in a path some servers read as another path, or an empty string.
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

// dotSegment reports whether the dot at i begins a segment that is "." or "..",
// parameters and blanks at its end left out.
func dotSegment(path string, i int) bool {
	if i > 0 && path[i-1] != '/' {
		return false
	}
	rest := path[i+1:]
	rest = strings.TrimPrefix(rest, ".")
	rest = strings.TrimLeft(rest, " ")
	return rest == "" || rest[0] == '/' || rest[0] == ';'
}

// overlong reports whether text begins with a character in more bytes of UTF-8 than it
// needs, as in 0xC0 0xAE for a dot. No valid text has these bytes.
func overlong(text string) bool {
	switch c := text[0]; {
	case c <= 0xc1:
		return true
	case c == 0xe0:
		return len(text) > 1 && text[1] >= 0x80 && text[1] < 0xa0
	case c == 0xf0:
		return len(text) > 1 && text[1] >= 0x80 && text[1] < 0x90
	case c >= 0xf8:
		return true // forms of five and six bytes
	}
	return false
}

// decodeOnce decodes %XX, and %uXXXX of an ASCII character, which some servers know.
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

// hexByte reads two hexadecimal digits.
func hexByte(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	hi, lo := unhex(s[0]), unhex(s[1])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}
