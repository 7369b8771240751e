package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/limiter"
)

// Of the values of a key that has more than [limiter.MaxKeyBytes], a name has those of up to
// longValue bytes, and of the others the begin and a hash, in as many bytes: the name stays within
// its bound, and no list shows a token as a whole.
const (
	longValue  = limiter.MaxKeyBytes / maxKeyParts
	digestSize = 8
)

func shortened(v string) string {
	if len(v) <= longValue {
		return v
	}
	sum := sha256.Sum256([]byte(v))
	return v[:longValue-1-2*digestSize] + "~" + hex.EncodeToString(sum[:digestSize])
}

// TenantPrefix returns what names of a tenant's keys begin with, empty for no tenant: see [Set.AppendKeyName].
func TenantPrefix(tenant string) string {
	if tenant == "" {
		return ""
	}
	return string(append(appendEscaped(nil, tenant), ':'))
}

// appendName appends the displayed name of the key: the values, separated by colons.
func (k *key) appendName(dst []byte, rule string, r *limiter.Request) []byte {
	shown := func(v string) string { return v }
	if k.bytes(r) > limiter.MaxKeyBytes {
		shown = shortened
	}
	for i := range k.parts {
		if i > 0 {
			dst = append(dst, ':')
		}
		switch p := &k.parts[i]; p.kind {
		case partRule:
			dst = appendEscaped(dst, rule)
		case partMethod:
			dst = appendEscaped(dst, shown(upper(r.Method)))
		default:
			v := p.value(r)
			dst = appendEscaped(dst, shown(v))
		}
	}
	return dst
}

// appendEscaped appends a value as UTF-8. It percent-escapes what has a meaning in key
// names, what could confuse a terminal, and bytes that are not UTF-8.
func appendEscaped(dst []byte, s string) []byte {
	for i := 0; ; {
		plain := i
		for i < len(s) && isPlain(s[i]) {
			i++
		}
		dst = append(dst, s[plain:i]...)
		if i == len(s) {
			return dst
		}
		if c := s[i]; c < utf8.RuneSelf {
			dst = appendByte(dst, c)
			i++
		} else {
			r, n := utf8.DecodeRuneInString(s[i:])
			// no UTF-8, or not to be seen
			if r == utf8.RuneError && n == 1 || r < 0xa0 || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
				for _, c := range []byte(s[i : i+n]) {
					dst = appendByte(dst, c)
				}
			} else {
				dst = append(dst, s[i:i+n]...)
			}
			i += n
		}
	}
}

// isPlain reports whether appendEscaped copies a byte.
func isPlain(c byte) bool {
	return ' ' <= c && c < 0x7f && c != '%' && c != ':' && c != '{' && c != '}'
}

// appendByte appends a byte in percent-encoding.
func appendByte(dst []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '%', hex[c>>4], hex[c&15])
}
