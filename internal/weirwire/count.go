package weirwire

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

// Parts is the number of repeated parts of a request on the wire.
type Parts struct{ Attributes, Limits, KeyParts, Actual int }

// TooMany reports whether a request has more parts than allowed.
func (p Parts) TooMany() bool {
	return max(p.Attributes, p.Actual) > MaxAttributes || p.Limits > limiter.MaxLimits ||
		p.KeyParts > limiter.MaxLimits*limiter.MaxKeyParts
}

// Sum returns how many parts there are.
func (p Parts) Sum() int { return p.Attributes + p.Limits + p.KeyParts + p.Actual }

// CountParts counts the parts of a CheckRequest or a ResetRequest.
func CountParts(data []byte) (p Parts, err error) {
	err = EachField(data, func(field protowire.Number, kind protowire.Type, value []byte) error {
		switch {
		case field == requestAttributes:
			p.Attributes++
		case field == requestActual:
			p.Actual++
		case field == requestLimits && kind == protowire.BytesType:
			p.Limits++
			limit, _ := protowire.ConsumeBytes(value)
			return EachField(limit, func(field protowire.Number, _ protowire.Type, _ []byte) error {
				if field == limitKeyPart {
					p.KeyParts++
				}
				return nil
			})
		}
		return nil
	})
	return p, err
}

// EachField calls f with each field of a message and its encoded value.
func EachField(data []byte, f func(field protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || field > protowire.MaxValidNumber {
			return ErrWire
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
			return ErrWire
		}
		if err := f(field, kind, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// ColumnsCount is the size of a CheckColumns on the wire.
type ColumnsCount struct {
	ID         uint64
	Checks     int // elements of the longest column
	Attributes int // number of columns of attributes
	Values     int // elements of these columns
}

// CountColumns counts the columns of a message and their elements. The error is
// ErrWire, or wraps ErrInvalid if there are more than allowed.
func CountColumns(data []byte) (c ColumnsCount, err error) {
	var seen [columnsIDLengths + 1]int
	err = EachField(data, func(field protowire.Number, kind protowire.Type, value []byte) error {
		switch {
		case field == columnsID && kind == protowire.VarintType:
			c.ID, _ = protowire.ConsumeVarint(value)
		case field >= columnsPathLengths && field <= columnsMethodLength, field == columnsCosts, field == columnsRuleCosts,
			field == columnsIDLengths:
			seen[field] += elements(kind, value)
			c.Checks = max(c.Checks, seen[field])
			if c.Checks > MaxBatch {
				return TooLarge(c.Checks)
			}
		case field == columnsAttributes && kind == protowire.BytesType:
			if c.Attributes++; c.Attributes > MaxAttributes {
				return tooManyColumns(c.Attributes)
			}
			n, err := countLengths(value)
			c.Values += n
			c.Checks = max(c.Checks, n)
			return err
		}
		return nil
	})
	return c, err
}

// countLengths counts the elements of an AttributeColumn.
func countLengths(value []byte) (n int, err error) {
	column, _ := protowire.ConsumeBytes(value)
	err = EachField(column, func(field protowire.Number, kind protowire.Type, value []byte) error {
		if field == attributeLengths {
			n += elements(kind, value)
		}
		if n > MaxBatch {
			return TooLarge(n)
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

// Unmarshal decodes a message with the protobuf library. Unknown fields, of a newer
// protocol, are dropped to save memory.
func Unmarshal(data []byte, m proto.Message) error {
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}
