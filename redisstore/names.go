package redisstore

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/weirlimit/weir/limiter/arith"
)

// The name of a counter in Redis is
//
//	weir:{towns:/towns:ada:q83vEjRWeJASNFZ4kKvN7w}:minute
//
// It consists of prefix, rule, values of the key, the hash of rule and values, and
// limit. The part in braces determines the slot in Redis Cluster, so all limits of one
// key are in one slot. The readable part is for people. The hash separates keys with
// the same readable part, other secrets and other clusters.

// appendTag appends the name of a key up to and including the closing brace.
func appendTag(dst []byte, prefix string, k *arith.Key, i, n int, name arith.KeyNamer) []byte {
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

// markSuffix ends the name of the entry for a key's latest reset. No counter's name
// ends so, since a colon would follow the brace.
const markSuffix = "!reset"

// leftSuffix ends the name of the entry for when limits of a key were last left for others that
// count otherwise. adopt.lua writes it.
const leftSuffix = "!left"

// holdsSuffix ends the name of the set of a key's open holds, see lua/holds.lua.
const holdsSuffix = "!holds"

// pastSuffix ends the name of the hash with what became of the units that open holds have charged, see
// lua/since.lua.
const pastSuffix = "!past"

// idSuffix comes before the hash of an id, in the name of the entry that remembers it.
const idSuffix = "!id:"

// onceSuffix comes before the number of a receipt that was used, in the name of the entry
// that remembers it.
const onceSuffix = "!refund:"

// appendEscaped appends a name, with characters percent-escaped that have a meaning in
// key names or could confuse a terminal.
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
