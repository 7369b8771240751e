package gossip

import "encoding/binary"

// soundPacket reports whether a packet consists of messages whose parts all lie within
// it. Memberlist checks their contents.
func soundPacket(b []byte) bool {
	if len(b) >= 5 && b[0] == msgCRC {
		b = b[5:]
	}
	if len(b) < 2 || b[0] != msgCompound {
		return soundMessage(b)
	}
	count, b := int(b[1]), b[2:]
	if len(b) < 2*count {
		return false
	}
	sizes, b := b[:2*count], b[2*count:]
	for ; len(sizes) > 0; sizes = sizes[2:] {
		n := int(binary.BigEndian.Uint16(sizes))
		if n > len(b) || !soundMessage(b[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// soundMessage reports the same of one message. A compound within a compound, and a
// compressed message, are refused, since no node sends them.
func soundMessage(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	switch b[0] {
	case msgUser:
		return true
	case msgPing, msgIndirectPing, msgAck, msgNack, msgSuspect, msgAlive, msgDead:
		_, ok := skip(b[1:], maxDepth)
		return ok
	default:
		return false
	}
}

// maxDepth is the depth of a message: an object of fields, one of which is a list.
const maxDepth = 2

// skip returns what follows a MessagePack value. It reports false if the value does not
// lie within b, is too deep, or has a type that memberlist does not use.
func skip(b []byte, depth int) ([]byte, bool) {
	kind, size, values := shape(b)
	switch {
	case kind == 0 || size > uint64(len(b)):
		return nil, false
	case values == 0:
		return b[size:], true
	case depth == 0 || values > uint64(len(b)): // each value takes at least a byte
		return nil, false
	}
	b = b[size:]
	for range values {
		var ok bool
		if b, ok = skip(b, depth-1); !ok {
			return nil, false
		}
	}
	return b, true
}

// The kinds that shape returns.
const (
	kindPlain = iota + 1 // a number, a boolean, or nil
	kindText             // a string, or bytes
	kindList
	kindObject
)

// shape returns the kind of the value that b begins with, its size in bytes without the
// values within it, and the number of those values. kind is 0 if it is not valid or not
// complete.
func shape(b []byte) (kind int, size, values uint64) {
	length := func(n int) (uint64, bool) { // the length in the n bytes after the first
		if len(b) < 1+n {
			return 0, false
		}
		var v uint64
		for _, x := range b[1 : 1+n] {
			v = v<<8 | uint64(x)
		}
		return v, true
	}
	sized := func(kind, n int) (int, uint64, uint64) {
		v, ok := length(n)
		switch {
		case !ok:
			return 0, 0, 0
		case kind == kindText:
			return kind, 1 + uint64(n) + v, 0
		case kind == kindObject:
			v *= 2
		}
		return kind, 1 + uint64(n), v
	}
	if len(b) == 0 {
		return 0, 0, 0
	}
	switch c := b[0]; {
	case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
		return kindPlain, 1, 0
	case c <= 0x8f:
		return kindObject, 1, 2 * uint64(c&0xf)
	case c <= 0x9f:
		return kindList, 1, uint64(c & 0xf)
	case c <= 0xbf:
		return kindText, 1 + uint64(c&0x1f), 0
	case c == 0xc4 || c == 0xd9:
		return sized(kindText, 1)
	case c == 0xc5 || c == 0xda:
		return sized(kindText, 2)
	case c == 0xc6 || c == 0xdb:
		return sized(kindText, 4)
	case c == 0xcc || c == 0xd0:
		return kindPlain, 2, 0
	case c == 0xcd || c == 0xd1:
		return kindPlain, 3, 0
	case c == 0xca || c == 0xce || c == 0xd2:
		return kindPlain, 5, 0
	case c == 0xcb || c == 0xcf || c == 0xd3:
		return kindPlain, 9, 0
	case c == 0xdc:
		return sized(kindList, 2)
	case c == 0xdd:
		return sized(kindList, 4)
	case c == 0xde:
		return sized(kindObject, 2)
	case c == 0xdf:
		return sized(kindObject, 4)
	default:
		return 0, 0, 0
	}
}

// readHeader reads the header of a stream: an object whose values are numbers or
// booleans. It returns the values of the given names. ok is false if it is no such
// object, enough is false if b does not contain all of it.
func readHeader(b []byte, names ...string) (values []uint64, ok, enough bool) {
	values = make([]uint64, len(names))
	if len(b) == 0 {
		return values, true, false
	}
	if b[0]&0xf0 != 0x80 {
		return values, false, true
	}
	fields := int(b[0] & 0xf)
	b = b[1:]
	for range fields {
		kind, size, _ := shape(b)
		if kind == 0 || size > uint64(len(b)) {
			return values, true, false
		}
		if kind != kindText || b[0]&0xe0 != 0xa0 {
			return values, false, true
		}
		name := string(b[1:size])
		b = b[size:]
		kind, size, _ = shape(b)
		if kind == 0 || size > uint64(len(b)) {
			return values, true, false
		}
		n, number := unsigned(b[:size])
		if kind != kindPlain {
			return values, false, true
		}
		b = b[size:]
		for i, want := range names {
			if name == want {
				if !number {
					return values, false, true
				}
				values[i] = max(values[i], n)
			}
		}
	}
	return values, true, true
}

// unsigned returns the number in a value; ok is false if it is negative or no number.
func unsigned(b []byte) (n uint64, ok bool) {
	switch c := b[0]; {
	case c <= 0x7f:
		return uint64(c), true
	case c >= 0xcc && c <= 0xcf:
	case c >= 0xd0 && c <= 0xd3 && b[1] < 0x80:
	default:
		return 0, false
	}
	for _, x := range b[1:] {
		n = n<<8 | uint64(x)
	}
	return n, true
}
