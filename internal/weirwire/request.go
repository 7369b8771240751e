package weirwire

import (
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// The fields of CheckRequest that are decoded here. The protobuf library decodes
// requests with other fields, such as attributes.
const (
	requestPath   = 1
	requestMethod = 2
	requestUser   = 3
	requestIP     = 4
	requestGroup  = 5
	requestCost   = 7
	requestRule   = 8
	requestPeek   = 10
	requestID     = 12
	requestIDTTL  = 13
	requestIDFree = 14

	batchChecks = 1
)

// ReadCheck decodes a CheckRequest. Its strings are parts of text. If the message has
// fields that are not decoded here, full is set and r is not filled.
func ReadCheck(text string, r *limiter.Request) (peek bool, full *Full, err error) {
	*r = limiter.Request{}
	for data := Bytes(text); len(data) > 0; {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || field > protowire.MaxValidNumber {
			return false, nil, ErrWire
		}
		data = data[n:]
		var to *string
		switch field {
		case requestPath:
			to = &r.Path
		case requestMethod:
			to = &r.Method
		case requestUser:
			to = &r.User
		case requestIP:
			to = &r.IP
		case requestGroup:
			to = &r.Group
		case requestRule:
			to = &r.Rule
		case requestID:
			to = &r.ID
		case requestCost, requestPeek, requestIDTTL, requestIDFree:
			v, n := protowire.ConsumeVarint(data)
			if kind != protowire.VarintType || n < 0 {
				return readFull(text)
			}
			data = data[n:]
			switch field {
			case requestPeek:
				peek = protowire.DecodeBool(v)
			case requestIDFree:
				r.IDOptional = protowire.DecodeBool(v)
			case requestIDTTL:
				r.IDTTL = IDTime(int64(v))
			default:
				r.Cost = limiter.Units(int64(v))
			}
			continue
		default:
			return readFull(text)
		}
		v, n := protowire.ConsumeBytes(data)
		if kind != protowire.BytesType || n < 0 {
			return readFull(text)
		}
		data = data[n:]
		if !utf8.Valid(v) {
			return false, nil, errUTF8
		}
		*to = stringOf(v)
	}
	return peek, nil, nil
}

// Full is a request that the protobuf library has decoded. Its message is nil if
// it has too many parts to be decoded.
type Full struct {
	Message *weirv1.CheckRequest
	Parts   Parts
}

// Receipt reports whether the answer is to have a receipt.
func (f *Full) Receipt() bool { return f != nil && f.Message.GetReceipt() }

// Tenant returns whose counters are asked about, empty if the request does not say so.
func (f *Full) Tenant() string {
	if f == nil {
		return ""
	}
	return f.Message.GetTenant()
}

func readFull(text string) (peek bool, full *Full, err error) {
	full = new(Full)
	if full.Parts, err = CountParts(Bytes(text)); err != nil || full.Parts.TooMany() {
		return false, full, err
	}
	full.Message = new(weirv1.CheckRequest)
	if err := Unmarshal(Bytes(text), full.Message); err != nil {
		return false, nil, err
	}
	return full.Message.GetPeek(), full, nil
}

// Bytes returns the bytes of a text without copying it, because protowire reads bytes and
// requests consist of strings. They must not be written to.
func Bytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// EachCheck calls f with each check of a CheckBatchRequest.
func EachCheck(text string, f func(one string) error) error {
	for data := Bytes(text); len(data) > 0; {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || field > protowire.MaxValidNumber {
			return ErrWire
		}
		data = data[n:]
		if field != batchChecks || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return ErrWire
			}
			data = data[n:] // a field of a newer protocol
			continue
		}
		one, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return ErrWire
		}
		data = data[n:]
		if err := f(stringOf(one)); err != nil {
			return err
		}
	}
	return nil
}
