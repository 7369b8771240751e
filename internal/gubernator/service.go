package gubernator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
)

// Observer receives every answered call: its method, its code, and how long it took.
type Observer interface {
	Served(method, code string, d time.Duration)
}

// Peer is a member of the cluster.
type Peer struct {
	// Address is where it serves gRPC. Self: it is the node itself.
	Address string
	Self    bool
}

// Options configures a [Service]. Only Decider is required.
type Options struct {
	// Config has the decider and the permissions. All requests bring limits, so without AllowRequestLimits every
	// one is refused. AllowReset allows RESET_REMAINING, AllowRefunds negative hits.
	Config frontend.Config
	// Zone is the time zone of units of the calendar, an IANA name; default UTC.
	Zone string
	// Name is the name of the node in its cluster; empty outside one.
	Name string
	// Peers are the members for HealthCheck; default none.
	Peers func() []Peer
	// Ready returns why the node is not ready, and Live why it is about to end; nil if it is
	// not so. Default always nil.
	Ready, Live func() error
	// Observer, if not nil, receives every answered call.
	Observer Observer
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
	front    *frontend.Frontend
	limits   limits
	ends     ends
	decoding listen.Room // for messages over gRPC, by estimate
}

// NewService returns a service, or an error for invalid options.
func NewService(o Options) (*Service, error) {
	if o.Config.Decider == nil {
		return nil, errors.New("gubernator: Options.Config.Decider is nil: set it to a node")
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
	o.within = cmp.Or(o.within, callWithin)
	s := &Service{options: o, front: frontend.New(o.Config, protocol()), limits: newLimits(o.Zone, o.Now),
		ends: newEnds(o.Now), decoding: listen.Room{Most: maxDecoded}}
	if _, err := s.limits.of(rate{limit: 1, calendar: limiter.CalendarDay}); err != nil {
		return nil, fmt.Errorf("gubernator: the time zone %q is not known: give an IANA name, such as Europe/Berlin", o.Zone)
	}
	return s, nil
}

// protocol returns what the protocol calls what may not be allowed.
func protocol() frontend.Protocol {
	return frontend.Protocol{
		Over: "gubernator", Limits: "limits that come with a request are", Resets: "RESET_REMAINING is",
		Refunds: "negative hits are",
	}
}

// MaxItems is the most rate limits of a message.
const MaxItems = 1000

// errItems is returned for more. Clients know the text.
func errItems() error {
	return status.Errorf(codes.OutOfRange, "Requests.RateLimits list too large; max size is '%d'", MaxItems)
}

// getRateLimits decides the rate limits of a message, which has so many bytes. The error is
// a gRPC status.
func (s *Service) getRateLimits(ctx context.Context, by *frontend.Session, in *pb.GetRateLimitsReq,
	bytes int) (*pb.GetRateLimitsResp, error) {
	if len(in.GetRequests()) > MaxItems {
		return nil, errItems()
	}
	if err := by.Spend(len(in.GetRequests()), bytes); err != nil {
		return nil, overgrpc.Status(err)
	}
	defer by.Gather()()
	ctx, cancel := context.WithTimeout(ctx, s.options.within)
	defer cancel()
	r := &run{of: s, by: by, now: s.options.Now(), self: s.options.Name}
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

// health answers HealthCheck. Where callers have identities only those see the members, and why the node is not ready.
func (s *Service) health(by *frontend.Session) (*pb.HealthCheckResp, error) {
	stranger := s.front.Access != nil && !by.Identified()
	if err := s.options.Ready(); err != nil {
		if stranger {
			err = frontend.ErrNotReady
		}
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out := &pb.HealthCheckResp{Status: "healthy"}
	if s.options.Peers == nil || stranger {
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
