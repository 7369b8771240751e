package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Decider decides requests: a node, or anything with its methods. They are called from
// many goroutines. It may also be an [Explainer], a [KeyAppender] and a
// [BatchPeeker].
//
// A denial is a decision. An error means that nothing was decided or counted. If it
// wraps [limiter.ErrInvalid], the client must correct the request. If it wraps
// [limiter.ErrForbidden], an operator must allow the request first. Any other error
// means that the decider cannot serve at present. There are two exceptions: after the
// context's error, and after an error that wraps [limiter.ErrUnanswered], the request
// may have been carried out all the same.
//
// A decider reads requests and does not change them.
type Decider interface {
	// CheckInto decides a request and charges it if it is allowed.
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// PeekInto returns what CheckInto would answer, and charges nothing.
	PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// CheckBatchInto decides requests in order, at one instant. If only some could not
	// be decided, the error wraps a [*limiter.BatchError].
	CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error
	// Reset deletes the counters of a request and returns how many there were.
	Reset(ctx context.Context, r limiter.Request) (int, error)
	// Answer returns the decision of a request in its JSON form.
	Answer(r *limiter.Request, d *limiter.Decision) limiter.Answer
	// KeyName returns the name of the counter that a limit of a request's
	// decision is about.
	KeyName(r *limiter.Request, l *limiter.LimitDecision) string
}

// KeyAppender is a [Decider] that can append the name of a counter to a slice, which
// saves the server an allocation for each limit of a decision.
type KeyAppender interface {
	Decider
	// AppendKeyName appends the result of KeyName to dst and returns the extended slice.
	AppendKeyName(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte
}

// BatchPeeker is a [Decider] that decides the peeks of a batch together with its checks, so
// that in a cluster they share messages. With any other decider the requests of a batch with
// peeks are decided one after the other.
type BatchPeeker interface {
	Decider
	// PeekBatchInto is CheckBatchInto, but request i is only peeked, as by PeekInto, if
	// peeks[i] is true. If peeks is nil, all requests are. peeks must not be kept.
	PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error
}

// GRPCService is a service of another protocol, with the bounds and the protection that
// all services of a [Server] have.
type GRPCService interface {
	// ServiceDesc returns the description and the implementation, for gRPC. The messages
	// that its handlers decode must be a [WireMessage], unless they are below 4 KiB.
	ServiceDesc() (*grpc.ServiceDesc, any)
}

// WireMessage is a message of a [GRPCService] that decodes itself. So it can count what a
// message has before anything is built.
type WireMessage interface {
	// UnmarshalWire decodes data, and must not keep any part of it. An error is reported to
	// the caller as a failure of the server. So if the caller must correct the message, store
	// the error in the message and return nil.
	UnmarshalWire(data []byte) error
}

// WireReply is an answer of a [GRPCService] that encodes itself. gRPC keeps what it returns until it is sent.
type WireReply interface {
	MarshalWire() []byte
}

// Observer receives every answered request: its method, its code, and how long it took.
// The method is "Check", "CheckBatch", "CheckStream" (once for each message of a
// stream), "Explain", "Reset" or "Ring", or one of HTTP such as "POST /v1/check". The
// code is "OK" or another code name of gRPC, or an HTTP status such as "429". Both come
// from short lists. Served is called from many goroutines and must be quick.
type Observer interface {
	Served(method, code string, d time.Duration)
}

// PanicObserver is an [Observer] that also receives panics. A panic is a defect of this
// module.
type PanicObserver interface {
	Observer
	// Panicked is called after a panic ended a request. place is "grpc" or "http".
	Panicked(place string)
}

// ConnectionObserver is an [Observer] that also learns of clients' connections. listener is the
// address of a listener.
type ConnectionObserver interface {
	Observer
	listen.Observer
}

// guard returns the recorder of panics, which reports to the observer and the log.
func (o *Options) guard() *guard.Guard {
	count := func(string) {}
	if p, ok := o.Observer.(PanicObserver); ok {
		count = p.Panicked
	}
	return guard.New(o.Logger, count)
}

// Options configures a [Server]. Only Decider is required.
type Options struct {
	// Decider decides the requests.
	Decider Decider
	// Auth, if not nil, answers the sub-requests of web proxies at /v1/auth. It decides by
	// [Admitting].
	Auth http.Handler
	// AllowRequestLimits lets requests bring their own limits; default false: such
	// requests are refused. A client that may set limits can evade them, so allow it
	// only if all clients that reach the server are trusted.
	AllowRequestLimits bool
	// AllowReset lets clients reset counters; default false: resets are refused. A
	// client that may reset can pass any limit.
	AllowReset bool
	// AllowRefunds lets clients ask for receipts and take charges back with them; default
	// false: both are refused. A client that may do that can take back each of its
	// charges, and so pass any limit, but no charges of others. The decider must be a
	// [Refunder].
	AllowRefunds bool
	// Services are served over gRPC in place of weir.v1.Limiter; default none. Over HTTP only
	// Routes are served then.
	Services []GRPCService
	// Routes are what Services serve over HTTP, by path; default none. Callers are not
	// identified before: see [overhttp.Credentials].
	Routes map[string]overhttp.Route
	// HealthNames are further names by which the health of Services can be asked for.
	HealthNames []string
	// Access decides who callers are and what they may do; default nil: all callers are
	// alike, and AllowRequestLimits, AllowReset and AllowRefunds decide. With an Access these
	// are ignored.
	Access Access
	// Audit receives resets, refunds and refusals; default nil: none does.
	Audit Auditor
	// Denials receives denials; default nil: nothing does.
	Denials DenialRecorder
	// TLS serves with TLS; default nil: without it. Handshakes have a bound of time, and
	// their connections count as others do. The client's certificate is in the AuthInfo of
	// the peer of a call over gRPC, and in the TLS of a request over HTTP.
	TLS *TLS
	// Hosts are further names by which browsers may address the server over HTTP, besides
	// localhost, loopback addresses and the address that was connected to; default none.
	// A request that a browser may have sent to any other name is refused: that name may
	// be an attacker's, who lets it resolve to this machine. Requests of other clients
	// are not concerned. Name the hosts of a proxy that hands on requests of browsers.
	Hosts []string
	// Ring publishes to clients which node to ask for which counter; default nil: not
	// published. The answer contains the rules and the key of the hash of counters, so
	// publish it only if all clients that reach the server are trusted.
	Ring Ring
	// Ready returns why the node is not ready, nil if it is; default always nil. It is
	// called for each request of /readyz. During Shutdown the server is not ready,
	// whatever Ready returns.
	Ready func() error
	// Stopping reports whether the node will stop soon; default never. HTTP answers then say that their
	// connection closes, so that clients connect to another node before it does. It is called for
	// each request.
	Stopping func() bool
	// Warnings returns the reasons why a ready node does not decide as its rules say; default
	// nil: there are none. Each is a line in the answer of /readyz; with an Access in that of [Server.Health] alone.
	Warnings func() []string
	// Observer receives every request; default nil, which costs nothing.
	Observer Observer
	// Tracer traces calls, each message of a stream, and requests over HTTP; default nil,
	// which costs nothing.
	Tracer Tracer
	// Logger receives the HTTP server's messages about broken connections, refused
	// connections and panics; default none.
	Logger *slog.Logger
	// MaxConnections bounds the open connections of each listener; default 16384, or
	// less if the process may open fewer files; negative for no bound. At the bound a
	// new connection replaces an idle one of an address that has more: without calls, or
	// with streams that have carried nothing for ClientTimeout. If there is none, the new
	// one is closed as soon as it is accepted. An idle connection takes
	// up to 80 KiB and a file descriptor.
	MaxConnections int
	// MaxConnectionsPerAddress bounds the open connections of each listener from one
	// address, or for IPv6 from one /64 network; default 4096, negative for no bound.
	// Clients behind a proxy share its address.
	MaxConnectionsPerAddress int
	// MaxConnectionAge is how long a gRPC connection accepts new calls, plus or minus a
	// tenth; default 30 minutes. Then its client is told to open another connection.
	// The old one is closed after the same time again. A stream ends between two
	// messages at a random age between half of it and all of it, and its trailer states
	// that messages without a reply were not decided.
	MaxConnectionAge time.Duration
	// ClientTimeout is how long a client may take to send the rest of a message, or to
	// read an answer; default 30 s, at least 1 s. A stream that takes longer is reset.
	// A connection on which nothing moves is closed. HTTP has shorter bounds of its
	// own.
	ClientTimeout time.Duration
	// MaxStreams bounds the open calls of one gRPC connection; default 100. Further
	// calls wait at the client.
	MaxStreams int
	// MaxMessageBytes bounds a message received over gRPC, after decompression; default
	// 1 MiB. A larger message is refused with RESOURCE_EXHAUSTED before it is read.
	MaxMessageBytes int
	// MaxHeaderBytes bounds the header fields of a call over gRPC, with 32 bytes more for each; default 16 KiB. gRPC
	// closes the connection of a larger call, and so ends all calls on it. Above the default a call may have 256 fields.
	MaxHeaderBytes int
	// MaxDecodingBytes bounds the estimated memory of all messages of more than a few
	// checks, from decoding until their answers; default 256 MiB. At the bound such a
	// message is refused at once, with RESOURCE_EXHAUSTED or 503, and none of it is
	// decided.
	MaxDecodingBytes int64
}

// Bounds that operators cannot change.
const (
	// MaxBatch is the most checks in one message.
	MaxBatch = weirwire.MaxBatch
	// MaxBodyBytes is the largest body of an HTTP request.
	MaxBodyBytes = 1 << 20
	// MaxAttributes is the most attributes of a request, and the most columns of
	// attributes in a message.
	MaxAttributes = weirwire.MaxAttributes

	defaultAge          = 30 * time.Minute
	defaultPatience     = 30 * time.Second
	defaultStreams      = 100
	defaultMessageBytes = 1 << 20
	defaultDecoding     = 256 << 20
)

// withDefaults fills in defaults and returns an error for values out of range.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Decider == nil:
		return o, errors.New("transport: Options.Decider is nil: set it to a node")
	case o.TLS != nil && o.TLS.Config == nil:
		return o, errors.New("transport: Options.TLS has no Config: set it, or leave out TLS")
	case o.MaxStreams < 0:
		return o, fmt.Errorf("transport: MaxStreams %d is negative: give the number of calls, or 0 for %d", o.MaxStreams,
			defaultStreams)
	case o.MaxMessageBytes < 0:
		return o, fmt.Errorf("transport: MaxMessageBytes %d is negative: give the number of bytes, or 0 for %d",
			o.MaxMessageBytes, defaultMessageBytes)
	}
	if o.MaxConnectionAge < 0 || o.ClientTimeout < 0 || o.ClientTimeout > 0 && o.ClientTimeout < time.Second {
		return o, fmt.Errorf("transport: MaxConnectionAge %v or ClientTimeout %v is out of range: give 1s or more, or 0 "+
			"for %v and %v",
			o.MaxConnectionAge, o.ClientTimeout, defaultAge, defaultPatience)
	}
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, defaultAge)
	o.ClientTimeout = cmp.Or(o.ClientTimeout, defaultPatience)
	if o.MaxDecodingBytes < 0 {
		return o, fmt.Errorf("transport: MaxDecodingBytes %d is negative: give the number of bytes, or 0 for %d",
			o.MaxDecodingBytes, defaultDecoding)
	}
	o.MaxDecodingBytes = cmp.Or(o.MaxDecodingBytes, defaultDecoding)
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MaxStreams = cmp.Or(o.MaxStreams, defaultStreams)
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, defaultMessageBytes)
	if o.MaxHeaderBytes < 0 {
		return o, fmt.Errorf("transport: MaxHeaderBytes %d is negative: give the number of bytes, or 0 for %d",
			o.MaxHeaderBytes, maxHeaderBytes)
	}
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, maxHeaderBytes)
	return o, nil
}

// Ring publishes which node to ask for which counter. Its methods are called from many
// goroutines; View is called for each message of a stream.
type Ring interface {
	// View identifies the present result of Placement; 0 while that is nil.
	View() uint64
	// Placement returns the response to the method Ring, nil if there is none yet. The
	// response is not changed later.
	Placement() *weirv1.RingResponse
}

// Refunder is a [Decider] that gives receipts to clients and takes charges back by them.
type Refunder interface {
	Decider
	// SealReceipt returns the receipt of a decision as a text, see Sealed. Clients can neither make
	// nor change such a receipt, nor use it for another request. It is empty if there is none.
	SealReceipt(r *limiter.Request, d *limiter.Decision) limiter.Receipt
	// Refund takes back the charge that a receipt names, if that is its first use. For a
	// receipt that SealReceipt did not return for such a request, the error wraps
	// [limiter.ErrInvalid].
	Refund(ctx context.Context, r limiter.Request, rc limiter.Receipt) error
}

// Reserver is a [Decider] with reservations. The errors of its methods wrap
// [limiter.ErrSettled] for a request that is final, and [limiter.ErrNoRoom] if there is no room
// for the charge.
type Reserver interface {
	Decider
	// Settle ends the reservation with the request's id: the request has used actual units. If
	// the id is not known, they are charged, unless an option says otherwise.
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
	// Extend lets the reservation last for the request's Hold from now on. If the request's cost
	// is higher than the estimate, it becomes the estimate.
	Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error)
}

// Explainer is a [Decider] that can explain. A server with any other decider answers
// Explain with UNIMPLEMENTED, over HTTP with 404.
type Explainer interface {
	Decider
	// Explain returns what Check would answer, and why, without charging anything. The
	// explanation has its Decision set.
	Explain(ctx context.Context, r limiter.Request) (*limiter.Explanation, error)
}

// Bounds of time and size for clients that send slowly, nothing or too much.
const (
	handshakeTimeout = listen.HandshakeTimeout // from a connection to its first request's header
	readTimeout      = 10 * time.Second        // for a whole HTTP request, and at most ClientTimeout
	writeTimeout     = 20 * time.Second        // for an HTTP answer, and at most ClientTimeout
	idleTimeout      = 2 * time.Minute         // between two HTTP requests
	maxHeaderBytes   = 16 << 10

	keepaliveIdle    = 15 * time.Minute // a gRPC connection without calls is closed
	keepaliveTime    = time.Minute      // a silent connection is pinged
	keepaliveTimeout = 20 * time.Second // and closed without an answer
	keepaliveMinTime = 10 * time.Second // clients that ping more often are disconnected

	// securedReadBuffer is how much gRPC reads ahead of a connection with TLS, which reads
	// ahead itself: what is longer is copied once less, and a connection takes 28 KiB less.
	securedReadBuffer = 4 << 10

	// streamWorkers is how many goroutines are kept for calls. Their stacks have grown
	// already, which costs a new goroutine a tenth of a unary call. While all of them
	// have calls, further calls get goroutines of their own.
	streamWorkers = 32
)
