package peerlink

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// A section is written as columns: one packed array for each field of the items. So a
// thousand checks take a dozen loops over memory, instead of a thousand messages. The
// field numbers are those of peer.proto; a test compares the two by the generated code.

// column is one field of the items of a section.
type column[T any] interface {
	// number returns the field number, below maxFields.
	number() protowire.Number
	// write appends the column; nothing if it is zero for every item.
	write(e *encoder, items []T)
	// zeros appends the column for so many items that are zero.
	zeros(e *encoder, items int)
	// read fills in the field of every item. Errors are recorded in d.
	read(r *reader, data []byte, items []T)
}

// maxFields is greater than every field number of a section.
const maxFields = 20

// integer is a type that a varint can hold.
type integer interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

// varints is a column of small unsigned numbers.
type varints[T any, V integer] struct {
	field protowire.Number
	at    func(*T) *V
}

func (c varints[T, V]) number() protowire.Number { return c.field }

func (c varints[T, V]) write(e *encoder, items []T) {
	mark := e.open(c.field)
	b, any := e.b, V(0)
	for i := range items {
		v := *c.at(&items[i])
		any |= v
		b = appendVarint(b, uint64(v))
	}
	e.b = b
	e.close(mark, any != 0)
}

func (c varints[T, V]) zeros(e *encoder, items int) { e.extend(c.field, items) }

func (c varints[T, V]) read(r *reader, data []byte, items []T) {
	for i := range items {
		v, n := consumeVarint(data)
		if n == 0 || v > uint64(^V(0)) {
			r.badColumn(c.field)
			return
		}
		*c.at(&items[i]) = V(v)
		data = data[n:]
	}
	r.atEnd(c.field, data)
}

// maxUnits bounds the units in frames: costs, and what is left of limits.
const maxUnits = 1<<53 - 1

// units is a column of numbers of units, up to maxUnits.
type units[T any] struct {
	field protowire.Number
	at    func(*T) *uint64
}

func (c units[T]) number() protowire.Number { return c.field }

func (c units[T]) write(e *encoder, items []T) { varints[T, uint64](c).write(e, items) }

func (c units[T]) zeros(e *encoder, items int) { e.extend(c.field, items) }

func (c units[T]) read(r *reader, data []byte, items []T) {
	varints[T, uint64](c).read(r, data, items)
	for i := range items {
		if *c.at(&items[i]) > maxUnits {
			r.badColumn(c.field)
			return
		}
	}
}

// zigzags is a column of signed numbers. Without zigzag they are written as plain
// varints, which is shorter for numbers that are hardly ever negative.
type zigzags[T any] struct {
	field  protowire.Number
	zigzag bool
	at     func(*T) *int64
}

func (c zigzags[T]) number() protowire.Number { return c.field }

func (c zigzags[T]) write(e *encoder, items []T) {
	mark := e.open(c.field)
	b, any := e.b, int64(0)
	for i := range items {
		v := *c.at(&items[i])
		any |= v
		u := uint64(v)
		if c.zigzag {
			u = protowire.EncodeZigZag(v)
		}
		b = appendVarint(b, u)
	}
	e.b = b
	e.close(mark, any != 0)
}

func (c zigzags[T]) zeros(e *encoder, items int) { e.extend(c.field, items) }

func (c zigzags[T]) read(r *reader, data []byte, items []T) {
	for i := range items {
		u, n := consumeVarint(data)
		if n == 0 {
			r.badColumn(c.field)
			return
		}
		v := int64(u)
		if c.zigzag {
			v = protowire.DecodeZigZag(u)
		}
		*c.at(&items[i]) = v
		data = data[n:]
	}
	r.atEnd(c.field, data)
}

// fixed is a column of 64-bit numbers that use all bits, such as hashes.
type fixed[T any, V ~uint64 | ~int64] struct {
	field protowire.Number
	at    func(*T) *V
}

func (c fixed[T, V]) number() protowire.Number { return c.field }

func (c fixed[T, V]) write(e *encoder, items []T) {
	start := len(e.b)
	b := e.extend(c.field, 8*len(items))
	any := V(0)
	for i := range items {
		v := *c.at(&items[i])
		any |= v
		binary.LittleEndian.PutUint64(b[8*i:], uint64(v))
	}
	if any == 0 {
		e.b = e.b[:start]
	}
}

func (c fixed[T, V]) zeros(e *encoder, items int) { e.extend(c.field, 8*items) }

func (c fixed[T, V]) read(r *reader, data []byte, items []T) {
	if len(data) != 8*len(items) {
		r.badColumn(c.field)
		return
	}
	for i := range items {
		*c.at(&items[i]) = V(binary.LittleEndian.Uint64(data[8*i:]))
	}
}

type octets[T any, V ~uint8] struct {
	field protowire.Number
	at    func(*T) *V
}

func (c octets[T, V]) number() protowire.Number { return c.field }

func (c octets[T, V]) write(e *encoder, items []T) {
	start := len(e.b)
	b := e.extend(c.field, len(items))
	any := V(0)
	for i := range items {
		v := *c.at(&items[i])
		any |= v
		b[i] = byte(v)
	}
	if any == 0 {
		e.b = e.b[:start]
	}
}

func (c octets[T, V]) zeros(e *encoder, items int) { e.extend(c.field, items) }

func (c octets[T, V]) read(r *reader, data []byte, items []T) {
	if len(data) != len(items) {
		r.badColumn(c.field)
		return
	}
	for i := range items {
		*c.at(&items[i]) = V(data[i])
	}
}

// flags is a column of bytes in which each bit is a field.
type flags[T any] struct {
	field protowire.Number
	get   func(*T) byte
	set   func(*T, byte)
}

func (c flags[T]) number() protowire.Number { return c.field }

func (c flags[T]) write(e *encoder, items []T) {
	start := len(e.b)
	b := e.extend(c.field, len(items))
	any := byte(0)
	for i := range items {
		v := c.get(&items[i])
		any |= v
		b[i] = v
	}
	if any == 0 {
		e.b = e.b[:start]
	}
}

func (c flags[T]) zeros(e *encoder, items int) { e.extend(c.field, items) }

func (c flags[T]) read(r *reader, data []byte, items []T) {
	if len(data) != len(items) {
		r.badColumn(c.field)
		return
	}
	for i := range items {
		c.set(&items[i], data[i])
	}
}

// bit returns value if set, otherwise 0.
func bit(set bool, value byte) byte {
	if set {
		return value
	}
	return 0
}

// appendVarint is protowire.AppendVarint with the commonest case inlined.
func appendVarint(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	return protowire.AppendVarint(b, v)
}

// consumeVarint returns a number and how many bytes it takes; n is 0 if b does not begin
// with a varint.
func consumeVarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	v, n = protowire.ConsumeVarint(b)
	return v, max(n, 0)
}
