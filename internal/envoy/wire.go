package envoy

import (
	"errors"
	"fmt"
	"sync/atomic"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Bounds of a request. MaxMessageBytes is for the server's option of that name.
const (
	MaxMessageBytes = 64 << 10
	maxDescriptors  = 128
	maxEntries      = 1024 // of all descriptors together

	// maxDecoded bounds what is decoded at a time, in estimated bytes, and a message is
	// estimated to become weight times as large.
	maxDecoded = 128 << 20
	weight     = 8
)

// errBusy is returned when the requests being decided take too much memory.
var errBusy = errors.New("too many requests are being decided: try again later")

// call is one call of ShouldRateLimit. It counts the parts of its request before any are
// built.
type call struct {
	decoding *atomic.Int64 // bytes of all calls under way
	taken    int64
	size     int // of the message, in bytes
	request  rls.RateLimitRequest
	err      error // the request is not valid
}

// UnmarshalWire implements [transport.WireMessage]. It keeps the error for the answer,
// since gRPC would answer that the server is broken.
func (c *call) UnmarshalWire(data []byte) error {
	taken := weight * int64(len(data))
	c.size = len(data)
	if c.decoding.Add(taken) > maxDecoded {
		c.decoding.Add(-taken)
		c.err = errBusy
		return nil
	}
	c.taken = taken
	if c.err = count(data); c.err == nil {
		if err := proto.Unmarshal(data, &c.request); err != nil {
			c.err = invalid("the request is not valid: %v", err)
		}
	}
	return nil
}

// release gives back the room of the request.
func (c *call) release() {
	c.decoding.Add(-c.taken)
	c.taken = 0
}

// Fields of RateLimitRequest and RateLimitDescriptor.
const (
	fieldDescriptors = 2
	fieldEntries     = 1
)

// count returns an error for a request with too many parts, or that is malformed.
func count(data []byte) error {
	descriptors, entries := 0, 0
	err := each(data, fieldDescriptors, func(d []byte) error {
		if descriptors++; descriptors > maxDescriptors {
			return errDescriptors()
		}
		return each(d, fieldEntries, func([]byte) error {
			if entries++; entries > maxEntries {
				return errEntries()
			}
			return nil
		})
	})
	return err
}

func errDescriptors() error {
	return invalid("the request has more than %d descriptors", maxDescriptors)
}

func errEntries() error {
	return invalid("the descriptors of the request have more than %d entries", maxEntries)
}

// each calls f with every value of a field that holds messages.
func each(data []byte, of protowire.Number, f func([]byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return malformed(n)
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
			return malformed(n)
		}
		if field == of && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data)
			if err := f(value); err != nil {
				return err
			}
		}
		data = data[n:]
	}
	return nil
}

func malformed(n int) error {
	return invalid("the request is not valid: %v", protowire.ParseError(n))
}

// invalidError is an error that the caller must correct.
type invalidError struct{ text string }

func (e invalidError) Error() string { return e.text }

func invalid(format string, args ...any) error { return invalidError{fmt.Sprintf(format, args...)} }
