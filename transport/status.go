package transport

import (
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
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

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{limiter.ErrInvalid}, args...)...)
}

// refusal is a check of a batch that is invalid.
type refusal struct {
	at  int
	err error
}

// undecided returns the trailer of a stream or of a call that ends with an error: it
// states that the messages without a reply were not decided.
func undecided() metadata.MD { return metadata.Pairs(weirv1.TrailerUndecided, "1") }

// Errors about the form of an HTTP request, which have a status of their own.
var (
	errMediaType = errors.New("the body must be JSON, not compressed, with the header Content-Type: application/json")
	errBodySize  = errors.New("the body is larger than 1 MiB: send smaller batches")
)

// wrap adds the protocol to an error. It returns nil for the error of a server that was
// stopped.
func wrap(protocol string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", protocol, err)
}

// errRing is why a client gets no ring.
const errRing = frontend.ForbiddenError("this node does not publish the ring: the operator must start it with " +
	"--share-ring")

var errNoRing = errors.New("this node has no ring now: it is not in a cluster, or is still joining one")
