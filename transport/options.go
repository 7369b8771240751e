package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
)

// Decider is what answers: a node, or anything that decides as one does. One that has
// a method Explain, as a node does, is asked for its reasons too. Its
// methods are called from many goroutines. A refusal is a decision; an error
// means that nothing was decided or counted. An error that wraps
// [limiter.ErrInvalid] is the asker's to mend, and any other says that the decider
// cannot serve now, but for two after which it may be done all the same: the
// context's own, and one that wraps [limiter.ErrUnanswered]. One that wraps
// [limiter.ErrForbidden] is for an operator to allow.
type Decider interface {
	// Check decides a request and charges it if it is allowed.
	Check(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// Peek tells what Check would answer, and charges nothing.
	Peek(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// CheckBatch decides requests in turn, at one instant. Where only some could
	// not be decided, the error has a method Failed() ([]int, []error) that tells
	// which, by index, ascending, and why.
	CheckBatch(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error
	// Reset forgets the counters of a request, and returns how many there were.
	Reset(ctx context.Context, r *limiter.Request) (int, error)
	// Answer returns the decision of a request in the form of its JSON.
	Answer(r *limiter.Request, d *limiter.Decision) limiter.Answer
	// KeyName returns the name of the counter that a limit of a request's
	// decision is about.
	KeyName(r *limiter.Request, l *limiter.LimitDecision) string
}

// keyNamer is a [Decider] that appends the name of a counter, as KeyName returns
// it, to a slice.
type keyNamer interface {
	AppendKeyName(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte
}

// Observer is told of every request that was answered: which method ("Check",
// "CheckBatch", "CheckStream" for each message of a stream, "Explain", "Reset",
// "Ring", or an HTTP one such as "POST /v1/check"), with which code ("OK" and the other names of
// gRPC, or an HTTP status such as "429"), and how long it took. Both come from
// short lists. It is called from many goroutines and must be quick. One that has a method
// Panicked(place string) is told of each panic that ended a request, of "grpc" or "http".
type Observer interface {
	Served(method, code string, d time.Duration)
}

// guard returns what records panics for the observer and the log.
func (o *Options) guard() *guard.Guard {
	count := func(string) {}
	if p, ok := o.Observer.(interface{ Panicked(place string) }); ok {
		count = p.Panicked
	}
	return guard.New(o.Logger, count)
}

// Options configures a [Server]. Only Decider is needed.
type Options struct {
	// Decider answers.
	Decider Decider
	// AllowRequestLimits lets requests bring their own limits; default false:
	// they are refused. Whoever may set limits can lift them, so allow it only
	// where all who reach the server are trusted.
	AllowRequestLimits bool
	// AllowReset lets counters be reset; default false: refused. Whoever may
	// reset can pass any limit.
	AllowReset bool
	// Ring tells clients which node to ask for which counter; default nil: it is not
	// told. With it goes what keys the hash of counters, and the rules, so tell it only
	// where all who reach the server are trusted.
	Ring Ring
	// Ready says why the node is not ready to be asked, nil if it is; default
	// always ready. It is what /readyz answers, and is called for each request
	// of it. While the server is shutting down it is not ready, whatever this
	// says.
	Ready func() error
	// Observer is told of every request; default nobody, which costs nothing.
	Observer Observer
	// Logger gets what the HTTP server has to say of broken connections;
	// default nowhere.
	Logger *slog.Logger
	// MaxConnections bounds the open connections of each listener; default
	// 16384, or less where the process may have fewer files open; negative for no bound. One more is closed as soon as it is
	// accepted. An idle connection takes up to 80 KiB and a file descriptor.
	MaxConnections int
	// MaxConnectionsPerAddress bounds those of each listener that come from one address,
	// of IPv6 from one network of 64 bits; default 4096, negative for no bound. Clients
	// behind a proxy share its address.
	MaxConnectionsPerAddress int
	// MaxConnectionAge is how long a gRPC connection takes new calls, up to a tenth more
	// or less; then its client is told to open another one, and after as long again it
	// is closed. Streams end between two messages when they are so old or half as old,
	// and say that what is not answered is not decided. Default 30 minutes.
	MaxConnectionAge time.Duration
	// ClientTimeout is how long a client may take to send the rest of a message, or to
	// read an answer; default 30 s, at least 1 s. A stream that takes longer is reset, and
	// a connection on which nothing moves is closed. HTTP has a shorter bound of its own.
	ClientTimeout time.Duration
	// MaxStreams bounds the calls that one gRPC connection may have open at
	// once; default 100. More wait at the client.
	MaxStreams int
	// MaxMessageBytes bounds a message that is received over gRPC, after it is
	// decompressed; default 1 MiB. A larger one is refused with RESOURCE_EXHAUSTED
	// before it is read.
	MaxMessageBytes int
	// MaxDecodingBytes bounds what messages of more than a few checks take together,
	// by estimate, from when they are decoded until they are answered; default 256
	// MiB. Beyond it they are refused at once, with RESOURCE_EXHAUSTED or 503, and
	// nothing of them is decided.
	MaxDecodingBytes int64
}

// Bounds that are not for the operator to choose.
const (
	// MaxBatch is how many checks one message may have.
	MaxBatch = 1000
	// MaxBodyBytes is how large the body of an HTTP request may be.
	MaxBodyBytes = 1 << 20
	// MaxAttributes is how many attributes a request may have, and how many
	// columns of them a message.
	MaxAttributes = limiter.MaxAttributes

	defaultConnections  = 16384
	defaultFromAddress  = 4096
	defaultAge          = 30 * time.Minute
	defaultPatience     = 30 * time.Second
	defaultStreams      = 100
	defaultMessageBytes = 1 << 20
	defaultDecoding     = 256 << 20
)

// withDefaults fills in what was left out, and says what cannot be.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Decider == nil:
		return o, errors.New("transport: Options.Decider is nil: give the node that is to be asked")
	case o.MaxStreams < 0:
		return o, fmt.Errorf("transport: MaxStreams %d is negative: give the number of calls, or 0 for %d", o.MaxStreams, defaultStreams)
	case o.MaxMessageBytes < 0:
		return o, fmt.Errorf("transport: MaxMessageBytes %d is negative: give the number of bytes, or 0 for %d", o.MaxMessageBytes, defaultMessageBytes)
	}
	if o.MaxConnectionAge < 0 || o.ClientTimeout < 0 || o.ClientTimeout > 0 && o.ClientTimeout < time.Second {
		return o, fmt.Errorf("transport: MaxConnectionAge %v or ClientTimeout %v is out of range: give 1s or more, or 0 for %v and %v",
			o.MaxConnectionAge, o.ClientTimeout, defaultAge, defaultPatience)
	}
	o.MaxConnectionsPerAddress = cmp.Or(o.MaxConnectionsPerAddress, defaultFromAddress)
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, defaultAge)
	o.ClientTimeout = cmp.Or(o.ClientTimeout, defaultPatience)
	if o.MaxDecodingBytes < 0 {
		return o, fmt.Errorf("transport: MaxDecodingBytes %d is negative: give the number of bytes, or 0 for %d", o.MaxDecodingBytes, defaultDecoding)
	}
	if o.MaxDecodingBytes == 0 {
		o.MaxDecodingBytes = defaultDecoding
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = connectionsWithin(openFiles())
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = defaultStreams
	}
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = defaultMessageBytes
	}
	return o, nil
}
