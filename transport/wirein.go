package transport

import (
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/internal/listen"
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

// readCheck decodes a CheckRequest. Its strings are parts of text. If the message has
// fields that are not decoded here, full is set and r is not filled.
func readCheck(text string, r *limiter.Request) (peek bool, full *fullRequest, err error) {
	*r = limiter.Request{}
	for data := bytesOf(text); len(data) > 0; {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || field > protowire.MaxValidNumber {
			return false, nil, errWire
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
				r.IDTTL = idTime(int64(v))
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

func readFull(text string) (peek bool, full *fullRequest, err error) {
	full = new(fullRequest)
	if full.parts, err = countParts(bytesOf(text)); err != nil || full.parts.tooMany() {
		return false, full, err
	}
	full.message = new(weirv1.CheckRequest)
	if err := unmarshal(bytesOf(text), full.message); err != nil {
		return false, nil, err
	}
	return full.message.GetPeek(), full, nil
}

// bytesOf and stringOf convert without copying, because protowire reads bytes and
// requests consist of strings. The result must not be written to.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// readBatch decodes a CheckBatchRequest into the requests of a turn. It returns ErrRoom
// if there is no room for it. n is the number of checks; above MaxBatch none is
// decoded.
func (t *turn) readBatch(text string, h *listen.Hold) (n int, err error) {
	t.peeks, t.fulls = t.peeks[:0], t.fulls[:0]
	if err := eachCheck(text, func(string) error { n++; return nil }); err != nil || n > MaxBatch {
		return n, err
	}
	if err := h.Add(weightOf(len(text), n, 0)); err != nil {
		return n, err
	}
	t.grow(n)
	at := 0
	return n, eachCheck(text, func(one string) error {
		peek, full, err := readCheck(one, &t.requests[at])
		if peek {
			t.peeks = append(t.peeks, at)
		}
		if full != nil {
			t.fulls = append(t.fulls, fullCheck{at, full})
			if err == nil {
				err = h.Add(full.parts.weight())
			}
		}
		at++
		return err
	})
}

// eachCheck calls f with each check of a CheckBatchRequest.
func eachCheck(text string, f func(one string) error) error {
	for data := bytesOf(text); len(data) > 0; {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || field > protowire.MaxValidNumber {
			return errWire
		}
		data = data[n:]
		if field != batchChecks || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return errWire
			}
			data = data[n:] // a field of a newer protocol
			continue
		}
		one, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		if err := f(stringOf(one)); err != nil {
			return err
		}
	}
	return nil
}
