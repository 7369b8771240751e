// Package weirwire is the codec of weir.v1: its messages become requests, and decisions become its messages. The
// messages of the hot paths are decoded and encoded here to the same bytes as by the protobuf library, without an
// allocation for each check.
package weirwire

import (
	"errors"
	"fmt"
	"strings"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

const (
	// MaxBatch is the most checks in one message.
	MaxBatch = 1000
	// MaxAttributes is the most attributes of a request, and the most columns of
	// attributes in a message of a stream.
	MaxAttributes = limiter.MaxAttributes
)

var (
	// ErrWire is the error of bytes that are not a protobuf message.
	ErrWire = errors.New("it is not a valid protobuf message")
	errUTF8 = errors.New("a string is not valid UTF-8")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{limiter.ErrInvalid}, args...)...)
}

// TooLarge returns the error of a batch of n checks, which are more than [MaxBatch].
func TooLarge(n int) error {
	return invalid("the batch has %d checks; at most %d are allowed", n, MaxBatch)
}

// TooMany returns the error of a request with n of something.
func TooMany(what string, n, most int) error {
	return invalid("the request has %d %s; at most %d are allowed", n, what, most)
}

// CheckError returns an error as a message.
func CheckError(err error) *weirv1.CheckError {
	return &weirv1.CheckError{Code: uint32(overgrpc.Code(err)), Message: errorText(err),
		RetryAfterUs: int64(limiter.Span(fields.RetryAfter(err)))}
}

// errorText returns the text of an error as UTF-8: protobuf encodes no other text, and
// the text of an error may have parts of a request.
func errorText(err error) string { return strings.ToValidUTF8(err.Error(), "\ufffd") }
