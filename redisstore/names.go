package redisstore

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/weirlimit/weir/limiter"
)

// The name of a counter in Redis is
//
//	weir:{towns:/towns:ada:q83vEjRWeJASNFZ4kKvN7w}:minute
//
// prefix, rule, values of the key, the hash of both, and the limit. What is in
// braces chooses the slot in Redis Cluster, so that all limits of one key are in
// one place. People read the first part; the hash keeps apart what people would
// write alike, other secrets and other clusters.

// appendTag appends the name of a key up to the closing brace.
func appendTag(dst []byte, prefix string, k *limiter.Key, i, n int, name limiter.KeyNamer) []byte {
	dst = append(dst, prefix...)
	dst = append(dst, '{')
	dst = appendEscaped(dst, k.Rule.Name)
	dst = append(dst, ':')
	if name != nil {
		dst = name(dst, i, n)
		dst = append(dst, ':')
	}
	var hash [16]byte
	binary.BigEndian.PutUint64(hash[:8], k.Hash.Hi)
	binary.BigEndian.PutUint64(hash[8:], k.Hash.Lo)
	dst = base64.RawURLEncoding.AppendEncode(dst, hash[:])
	return append(dst, '}')
}

// markSuffix ends the name of what tells of a key's latest reset. No counter ends
// so: a colon comes first there.
const markSuffix = "!reset"

// appendEscaped appends a name in which what means something in a key's, or could
// confuse a terminal, is percent-escaped.
func appendEscaped(dst []byte, s string) []byte {
	const hexDigits = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case c == '%', c == ':', c == '{', c == '}', c < ' ', c == 0x7f:
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
