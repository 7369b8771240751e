package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/limiter"
)

// errStopping is why a server does not answer.
var errStopping = errors.New("the node is stopping: ask another one, or again in a moment")

// internalError is the error of a request that panicked, or whose reply cannot be
// encoded. It is not known whether it was decided.
type internalError struct{ error }

// GRPCCode is for [overgrpc.Code].
func (internalError) GRPCCode() codes.Code { return codes.Internal }

// errUndecodable is wrapped by the error of a message that cannot be decoded.
var errUndecodable = errors.New("the message cannot be decoded")

// undecodable returns such an error, nil for nil.
func undecodable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w: %w", limiter.ErrInvalid, errUndecodable, err)
}

// invalid returns an error that wraps ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{limiter.ErrInvalid}, args...)...)
}
