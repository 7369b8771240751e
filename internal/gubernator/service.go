package gubernator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
	"github.com/weirlimit/weir/transport"
)

// Decider decides requests: a node. Its methods are called from many goroutines.
type Decider interface {
	// PeekBatchInto decides requests in order and only peeks where peeks says so.
	PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error
	Reset(ctx context.Context, r limiter.Request) (int, error)
	Refund(ctx context.Context, r limiter.Request, receipt limiter.Receipt) error
}

// Peer is a member of the cluster.
type Peer struct {
	// Address is where it serves gRPC. Self: it is the node itself.
	Address string
	Self    bool
}

// Options configures a [Service]. Only Decider is required.
type Options struct {
	// Decider decides.
	Decider Decider
	// Access, if not nil, identifies callers, and decides in place of AllowRequestLimits,
	// AllowReset and AllowRefunds.
	Access transport.Access
	// AllowRequestLimits allows limits that come with requests. All do, so without it every
	// one is refused.
	AllowRequestLimits bool
	// AllowReset allows RESET_REMAINING, AllowRefunds negative hits.
	AllowReset, AllowRefunds bool
	// Zone is the time zone of units of the calendar, an IANA name; default UTC.
	Zone string
	// Name is the name of the node in its cluster; empty outside one.
	Name string
	// Peers are the members for HealthCheck; default none.
	Peers func() []Peer
	// Ready returns why the node is not ready, and Live why it is about to end; nil if it is
	// not so. Default always nil.
	Ready, Live func() error
	// Audit, if not nil, is told of resets and negative hits, and of what callers may not do.
	Audit transport.Auditor
	// Observer, if not nil, receives every answered call.
	Observer transport.Observer
	// Now is the clock for reset times; default [time.Now].
	Now func() time.Time

	within time.Duration // for tests; default callWithin
}

// callWithin is the most time that a call may take, whatever its client's deadline is: with
// 1000 resets, each of which may wait for a member that does not answer.
const callWithin = 10 * time.Second

// Service is the protocol's service. It is safe for concurrent use.
type Service struct {
	options  Options
	limits   limits
	ends     ends
	decoding atomic.Int64 // bytes of messages over gRPC, by estimate
}

// NewService returns a service, or an error for invalid options.
func NewService(o Options) (*Service, error) {
	if o.Decider == nil {
		return nil, errors.New("gubernator: Options.Decider is nil: set it to a node")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	none := func() error { return nil }
	if o.Ready == nil {
		o.Ready = none
	}
	if o.Live == nil {
		o.Live = none
	}
	if o.within == 0 {
		o.within = callWithin
	}
	s := &Service{options: o, limits: newLimits(o.Zone, o.Now), ends: newEnds(o.Now)}
	if _, err := s.limits.of(rate{limit: 1, calendar: limiter.CalendarDay}); err != nil {
		return nil, fmt.Errorf("gubernator: the time zone %q is not known: give an IANA name, such as Europe/Berlin", o.Zone)
	}
	return s, nil
}

// caller is who sends a message.
type caller struct {
	by   transport.Caller // nil: all are alike
	from string
}

// identify returns the caller of a message from an address.
func (s *Service) identify(from string, shown transport.Credentials) (c caller, err error) {
	c.from = from
	if s.options.Access != nil {
		c.by, err = s.options.Access.Identify(shown)
	}
	return c, err
}

// spend charges the caller's budget.
func (c caller) spend(checks, bytes int) error {
	if c.by == nil {
		return nil
	}
	return c.by.Spend(checks, bytes)
}

// admit returns why the caller may not do something with a request. The request then has
// the caller's tenant and scope. Without an Access the options decide.
func (s *Service) admit(c caller, r *limiter.Request, a transport.Action) error {
	o := &s.options
	if o.Access != nil {
		return transport.Admit(c.by, r, a)
	}
	switch {
	case !o.AllowRequestLimits:
		return errLimits
	case a == transport.ActionReset && !o.AllowReset:
		return errReset
	case a == transport.ActionRefund && !o.AllowRefunds:
		return errRefunds
	}
	return nil
}

const (
	errLimits  forbidden = "limits that come with a request are not allowed here: the operator must start the node with --allow-request-limits"
	errReset   forbidden = "RESET_REMAINING is not allowed here: the operator must start the node with --allow-reset"
	errRefunds forbidden = "negative hits are not allowed here: the operator must start the node with --allow-refunds"
)

// forbidden is why something is not allowed.
type forbidden string

func (e forbidden) Error() string { return string(e) }

// Unwrap returns [limiter.ErrForbidden].
func (forbidden) Unwrap() error { return limiter.ErrForbidden }

// MaxItems is the most rate limits of a message.
const MaxItems = 1000

// errItems is returned for more. Clients know the text.
func errItems() error {
	return status.Errorf(codes.OutOfRange, "Requests.RateLimits list too large; max size is '%d'", MaxItems)
}

// getRateLimits decides the rate limits of a message, which has so many bytes. The error is
// a gRPC status.
func (s *Service) getRateLimits(ctx context.Context, c caller, in *pb.GetRateLimitsReq, bytes int) (*pb.GetRateLimitsResp, error) {
	if len(in.GetRequests()) > MaxItems {
		return nil, errItems()
	}
	if err := c.spend(len(in.GetRequests()), bytes); err != nil {
		return nil, transport.Status(err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.within)
	defer cancel()
	r := &run{of: s, caller: c, now: s.options.Now(), self: s.options.Name}
	out := &pb.GetRateLimitsResp{Responses: make([]*pb.RateLimitResp, len(in.GetRequests()))}
	answers := make([]pb.RateLimitResp, len(in.GetRequests()))
	for i, q := range in.GetRequests() {
		out.Responses[i] = &answers[i]
		r.add(ctx, q, out.Responses[i])
	}
	r.decide(ctx)
	r.account()
	return out, nil
}

// health answers HealthCheck. Where callers have identities only those see the members.
func (s *Service) health(c caller) (*pb.HealthCheckResp, error) {
	if err := s.options.Ready(); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out := &pb.HealthCheckResp{Status: "healthy"}
	if s.options.Peers == nil || s.options.Access != nil && c.by == nil {
		return out, nil
	}
	for _, p := range s.options.Peers() {
		out.LocalPeers = append(out.LocalPeers, &pb.PeerHealthResp{GrpcAddress: p.Address})
		if p.Self {
			out.AdvertiseAddress = p.Address
		}
	}
	out.PeerCount = int32(len(out.GetLocalPeers()))
	return out, nil
}

// live answers LiveCheck.
func (s *Service) live() (*pb.LiveCheckResp, error) {
	if err := s.options.Live(); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &pb.LiveCheckResp{}, nil
}

// audited tells the audit of what became of a message, or of so many parts of it.
func (s *Service) audited(c caller, a transport.Action, outcome string, parts int, why string) {
	if s.options.Audit == nil {
		return
	}
	e := transport.AuditEvent{Action: a.String(), Outcome: outcome, From: c.from, Over: "gubernator", Count: parts, Why: why}
	if c.by != nil {
		e.Caller, e.Tenant = c.by.Name(), c.by.Tenant()
	}
	s.options.Audit.Audited(e)
}
