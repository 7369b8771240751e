package spoe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// The types of frames.
const (
	typeHello           = 1
	typeDisconnect      = 2
	typeNotify          = 3
	typeAgentHello      = 101
	typeAgentDisconnect = 102
	typeAck             = 103
)

// flagFin marks the last part of a frame. A frame in parts is refused, as the agent does not
// offer them.
const flagFin = 1

// maxFrame is the longest frame in bytes, without its length, that the agent takes; HAProxy
// uses no longer ones by default. The two agree on the smaller bound of theirs.
const (
	maxFrame = 16380
	minFrame = 256
)

// maxValues bounds the values of a frame, and so what is built of it.
const maxValues = 128

// The types of values, in the lower half of a byte. The upper half has flags: of a boolean its
// value.
const (
	valueNull = iota
	valueBool
	valueInt32
	valueUint32
	valueInt64
	valueUint64
	valueIPv4
	valueIPv6
	valueString
	valueBinary
)

const flagTrue = 0x10

// The scopes of variables, and the actions of an ACK.
const (
	scopeTransaction = 2
	actionSetVar     = 1
)

// The codes with which an agent ends a connection.
const (
	codeNone       = 0
	codeTooBig     = 3
	codeInvalid    = 4
	codeNoVersion  = 5
	codeNoSize     = 6
	codeUnknown    = 99
	codeNoFragment = 10
)

var errShort = errors.New("a frame ends within a value")

// header is what each frame begins with.
type header struct {
	kind          byte
	flags         uint32
	stream, frame uint64
}

// value is a value of a frame: text, or a number.
type value struct {
	kind   byte
	text   string
	number uint64
}

// String returns a value as text: of an address and a number as people write them.
func (v value) String() string {
	switch v.kind {
	case valueString, valueBinary, valueIPv4, valueIPv6:
		return v.text
	case valueInt32, valueInt64:
		return strconv.FormatInt(int64(v.number), 10)
	case valueUint32, valueUint64, valueBool:
		return strconv.FormatUint(v.number, 10)
	}
	return ""
}

// reader takes a frame apart. After its first error it returns zero values.
type reader struct {
	left   []byte
	values int
	err    error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err, r.left = err, nil
	}
}

func (r *reader) byte() byte {
	if len(r.left) == 0 {
		r.fail(errShort)
		return 0
	}
	b := r.left[0]
	r.left = r.left[1:]
	return b
}

// varint reads a number in HAProxy's own encoding: of one byte below 240, else with four bits
// in the first byte and seven in each other.
func (r *reader) varint() uint64 {
	n := uint64(r.byte())
	if n < 240 {
		return n
	}
	for shift := 4; ; shift += 7 {
		if shift > 60 {
			r.fail(errors.New("a number of a frame is too long"))
			return 0
		}
		b := r.byte()
		if r.err != nil {
			return 0
		}
		n += uint64(b) << shift
		if b < 128 {
			return n
		}
	}
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.left)) {
		r.fail(errShort)
		return nil
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) text() string { return string(r.bytes(r.varint())) }

func (r *reader) value() value {
	if r.values++; r.values > maxValues {
		r.fail(fmt.Errorf("a frame has more than %d values", maxValues))
		return value{}
	}
	kind := r.byte()
	v := value{kind: kind & 0x0f}
	switch v.kind {
	case valueNull:
	case valueBool:
		v.number = uint64(kind & flagTrue >> 4)
	case valueInt32, valueUint32, valueInt64, valueUint64:
		v.number = r.varint()
	case valueIPv4, valueIPv6:
		size := uint64(4)
		if v.kind == valueIPv6 {
			size = 16
		}
		if a, ok := netip.AddrFromSlice(r.bytes(size)); ok {
			v.text = a.Unmap().String()
		}
	case valueString, valueBinary:
		v.text = r.text()
	default:
		r.fail(fmt.Errorf("a frame has a value of the unknown type %d", v.kind))
	}
	return v
}

func (r *reader) header() header {
	h := header{kind: r.byte()}
	if flags := r.bytes(4); len(flags) == 4 {
		h.flags = binary.BigEndian.Uint32(flags)
	}
	h.stream, h.frame = r.varint(), r.varint()
	return h
}

// pairs reads names with values to the end of the frame. Of a name that comes twice the last
// value counts.
func (r *reader) pairs() map[string]value {
	out := map[string]value{}
	for len(r.left) > 0 && r.err == nil {
		name := r.text()
		out[name] = r.value()
	}
	return out
}

// writer puts a frame together, after room for its length.
type writer []byte

func begin(h header) writer {
	w := make(writer, 4, 256)
	w = append(w, h.kind)
	w = binary.BigEndian.AppendUint32(w, h.flags)
	w.varint(h.stream)
	w.varint(h.frame)
	return w
}

func (w *writer) varint(n uint64) {
	if n < 240 {
		*w = append(*w, byte(n))
		return
	}
	*w = append(*w, byte(n)|0xf0)
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		*w = append(*w, byte(n)|0x80)
	}
	*w = append(*w, byte(n))
}

func (w *writer) text(s string) {
	w.varint(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *writer) stringValue(s string) {
	*w = append(*w, valueString)
	w.text(s)
}

func (w *writer) uint32Value(n uint64) {
	*w = append(*w, valueUint32)
	w.varint(n)
}

// set adds the action that sets a variable of the transaction to a text.
func (w *writer) set(name, text string) {
	*w = append(*w, actionSetVar, 3, scopeTransaction)
	w.text(name)
	w.stringValue(text)
}

// end returns the frame with its length.
func (w writer) end() []byte {
	binary.BigEndian.PutUint32(w, uint32(len(w)-4))
	return w
}
