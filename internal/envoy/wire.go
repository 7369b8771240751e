package envoy

import (
	"errors"
	"fmt"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

// Bounds of a request. MaxMessageBytes is for the server's option of that name, and what gRPC and
// envoyproxy/ratelimit take.
const (
	MaxMessageBytes = 4 << 20
	// MaxHeaderBytes is for the server's option of that name. Envoy sends on what its clients choose: a field that is
	// the id, and tracestate. It takes 60 KiB of header fields from them unless told otherwise.
	MaxHeaderBytes = 96 << 10
	maxDescriptors = 128
	maxEntries     = 1024 // of all descriptors together

	// maxDecoded bounds what is decoded at a time, in estimated bytes. A message is estimated to
	// become weight times as large, and each of its parts to take weightPart besides.
	maxDecoded = 128 << 20
	weight     = 4
	weightPart = 256
)

// errBusy is returned when the requests being decided take too much memory.
var errBusy = errors.New("too many requests are being decided: try again later")

// call is one call of ShouldRateLimit. It counts the parts of its request before any are
// built.
type call struct {
	room listen.Hold // of all calls under way; an address has a share of it

	descriptors, entries int // that the message has
	request              rls.RateLimitRequest
	err                  error // the request is not valid, or there is no room for it
}

// UnmarshalWire implements [transport.WireMessage]. It keeps the error for the answer,
// since gRPC would answer that the server is broken.
func (c *call) UnmarshalWire(data []byte) error {
	c.room.Bytes = len(data)
	c.err = c.read(data)
	return nil
}

// read reads a message, if there is room for it.
func (c *call) read(data []byte) error {
	if err := c.count(data); err != nil {
		return err
	}
	estimate := weight*int64(len(data)) + weightPart*int64(c.descriptors+c.entries)
	if c.room.Add(estimate) != nil {
		return errBusy
	}
	return decodeRequest(data, &c.request)
}

// Fields of RateLimitRequest, RateLimitDescriptor and its Entry.
const (
	fieldDomain      = 1
	fieldDescriptors = 2
	fieldHitsAddend  = 3

	fieldEntries    = 1
	fieldLimit      = 2
	fieldOwnHits    = 3
	fieldIsNegative = 4
)

// count returns an error for a request with too many parts, or that is malformed.
func (c *call) count(data []byte) error {
	return each(data, func(f protowire.Number, d []byte, _ uint64) error {
		if f != fieldDescriptors || d == nil {
			return nil
		}
		if c.descriptors++; c.descriptors > maxDescriptors {
			return errDescriptors()
		}
		return each(d, func(f protowire.Number, e []byte, _ uint64) error {
			if f != fieldEntries || e == nil {
				return nil
			}
			if c.entries++; c.entries > maxEntries {
				return errEntries()
			}
			return nil
		})
	})
}

// decodeRequest reads a message. What its strings have may be any bytes: they come from clients of
// Envoy, and a decoder that refuses them would let those clients pass all limits.
func decodeRequest(data []byte, to *rls.RateLimitRequest) error {
	return each(data, func(f protowire.Number, value []byte, n uint64) error {
		switch {
		case f == fieldDomain && value != nil:
			to.Domain = string(value)
		case f == fieldDescriptors && value != nil:
			d := new(ratelimit.RateLimitDescriptor)
			to.Descriptors = append(to.Descriptors, d)
			return decodeDescriptor(value, d)
		case f == fieldHitsAddend && value == nil:
			to.HitsAddend = uint32(n)
		}
		return nil
	})
}

func decodeDescriptor(data []byte, to *ratelimit.RateLimitDescriptor) error {
	return each(data, func(f protowire.Number, value []byte, n uint64) error {
		switch {
		case f == fieldEntries && value != nil:
			e, err := quota.ReadEntry(value, malformed)
			to.Entries = append(to.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
			return err
		case f == fieldLimit && value != nil:
			if to.Limit == nil {
				to.Limit = new(ratelimit.RateLimitDescriptor_RateLimitOverride)
			}
			return decodeNumbers(value, to.Limit)
		case f == fieldOwnHits && value != nil:
			if to.HitsAddend == nil {
				to.HitsAddend = new(wrapperspb.UInt64Value)
			}
			return decodeNumbers(value, to.HitsAddend)
		case f == fieldIsNegative && value == nil:
			to.IsNegativeHits = protowire.DecodeBool(n)
		}
		return nil
	})
}

// decodeNumbers reads a message without strings. What was read of it before stays.
func decodeNumbers(data []byte, to proto.Message) error {
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(data, to); err != nil {
		return invalid("the request is not valid: %v", err)
	}
	return nil
}

func errDescriptors() error {
	return invalid("the request has more than %d descriptors", maxDescriptors)
}

func errEntries() error {
	return invalid("the descriptors of the request have more than %d entries", maxEntries)
}

func each(data []byte, f func(field protowire.Number, value []byte, n uint64) error) error {
	return quota.Each(data, malformed, f)
}

func malformed(err error) error { return invalid("the request is not valid: %v", err) }

// invalidError is an error that the caller must correct.
type invalidError struct{ text string }

func (e invalidError) Error() string { return e.text }

func (invalidError) Unwrap() error { return limiter.ErrInvalid }

func invalid(format string, args ...any) error { return invalidError{fmt.Sprintf(format, args...)} }
