package transport

import (
	"encoding/binary"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
)

// Messages are counted before they are decoded, because two bytes on the wire may
// become an object of hundreds of bytes. A message with too many parts is refused
// without decoding it.

// The repeated fields of CheckRequest, ResetRequest and CheckColumns.
const (
	requestAttributes = 6
	requestLimits     = 9
	requestActual     = 18 // of a SettleRequest
	limitKeyPart      = 20

	columnsID           = 1
	columnsPathLengths  = 3
	columnsMethodLength = 7 // those between are columns of lengths, too
	columnsAttributes   = 8
	columnsCosts        = 9
	columnsRuleCosts    = 10
	columnsIDLengths    = 15

	attributeLengths = 2
)

// parts is the number of repeated parts of a request on the wire.
type parts struct{ attributes, limits, keyParts, actual int }

// tooMany reports whether a request has more parts than allowed.
func (p parts) tooMany() bool {
	return max(p.attributes, p.actual) > MaxAttributes || p.limits > limiter.MaxLimits ||
		p.keyParts > limiter.MaxLimits*limiter.MaxKeyParts
}

// weight returns the weight of the decoded parts, see weightOf.
func (p parts) weight() int64 {
	if p.tooMany() {
		return 0
	}
	return weightOf(0, 0, p.attributes+p.limits+p.keyParts+p.actual)
}

// countParts counts the parts of a CheckRequest or a ResetRequest.
func countParts(data []byte) (p parts, err error) {
	err = eachWireField(data, func(field protowire.Number, kind protowire.Type, value []byte) error {
		switch {
		case field == requestAttributes:
			p.attributes++
		case field == requestActual:
			p.actual++
		case field == requestLimits && kind == protowire.BytesType:
			p.limits++
			limit, _ := protowire.ConsumeBytes(value)
			return eachWireField(limit, func(field protowire.Number, _ protowire.Type, _ []byte) error {
				if field == limitKeyPart {
					p.keyParts++
				}
				return nil
			})
		}
		return nil
	})
	return p, err
}

// eachWireField calls f with each field of a message and its encoded value.
func eachWireField(data []byte, f func(field protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || field > protowire.MaxValidNumber {
			return errWire
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
			return errWire
		}
		if err := f(field, kind, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// columnsCount is the size of a CheckColumns on the wire.
type columnsCount struct {
	id         uint64
	checks     int // elements of the longest column
	attributes int // number of columns of attributes
	values     int // elements of these columns
}

// countColumns counts the columns of a message and their elements. The error is
// errWire, or wraps ErrInvalid if there are more than allowed.
func countColumns(data []byte) (c columnsCount, err error) {
	var seen [columnsIDLengths + 1]int
	err = eachWireField(data, func(field protowire.Number, kind protowire.Type, value []byte) error {
		switch {
		case field == columnsID && kind == protowire.VarintType:
			c.id, _ = protowire.ConsumeVarint(value)
		case field >= columnsPathLengths && field <= columnsMethodLength, field == columnsCosts, field == columnsRuleCosts,
			field == columnsIDLengths:
			seen[field] += elements(kind, value)
			c.checks = max(c.checks, seen[field])
			if c.checks > MaxBatch {
				return tooLarge(c.checks)
			}
		case field == columnsAttributes && kind == protowire.BytesType:
			if c.attributes++; c.attributes > MaxAttributes {
				return tooManyColumns(c.attributes)
			}
			n, err := countLengths(value)
			c.values += n
			c.checks = max(c.checks, n)
			return err
		}
		return nil
	})
	return c, err
}

// countLengths counts the elements of an AttributeColumn.
func countLengths(value []byte) (n int, err error) {
	column, _ := protowire.ConsumeBytes(value)
	err = eachWireField(column, func(field protowire.Number, kind protowire.Type, value []byte) error {
		if field == attributeLengths {
			n += elements(kind, value)
		}
		if n > MaxBatch {
			return tooLarge(n)
		}
		return nil
	})
	return n, err
}

// elements returns how many numbers a field of a repeated number carries: one, or, if
// packed, one for each final byte of a varint.
func elements(kind protowire.Type, value []byte) (n int) {
	if kind != protowire.BytesType {
		return 1
	}
	packed, _ := protowire.ConsumeBytes(value)
	for ; len(packed) >= 8; packed = packed[8:] {
		n += bits.OnesCount64(^binary.LittleEndian.Uint64(packed) & 0x8080808080808080)
	}
	for _, b := range packed {
		n += int(^b >> 7)
	}
	return n
}

// tooManyColumns returns the error for a message with n columns of attributes.
func tooManyColumns(n int) error {
	return invalid("the message has %d columns of attributes; at most %d are allowed", n, MaxAttributes)
}

// unmarshal decodes a message with the protobuf library. Unknown fields, of a newer
// protocol, are dropped to save memory.
func unmarshal(data []byte, m proto.Message) error {
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}
