package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Algorithms returns the names of the algorithms.
func Algorithms() (names []string) {
	for a := limiter.SlidingCounter; a <= limiter.GCRA; a++ {
		names = append(names, a.String())
	}
	return names
}

// AlgorithmOf returns the algorithm of a name.
func AlgorithmOf(name string) (limiter.Algorithm, bool) {
	at := slices.Index(Algorithms(), name)
	return limiter.Algorithm(max(at, 0)), at >= 0
}

// Mode is how the limits of one request are charged.
type Mode uint8

// The modes. The zero value is the default.
const (
	// Compat counts as envoyproxy/ratelimit does: each descriptor by itself, and what is
	// denied as well.
	Compat Mode = iota
	// Atomic charges all descriptors or none. A denial costs nothing.
	Atomic
)

// Options configures a [Service]. Only Decider is required.
type Options struct {
	// Config has the decider and the permissions. AllowRefunds lets descriptors take hits back (is_negative_hits).
	// With an Access each descriptor needs the permission to check, to peek if it only looks, or to refund, and
	// one with a limit of its own the permission limits. What a permission lists are
	// prefixes of domains here. The caller's tenant has counters of its own.
	Config frontend.Config
	// Mode is how limits are charged; default Compat.
	Mode Mode
	// Algorithm decides the limits whose file names none; envoyproxy/ratelimit has
	// fixed_window. With another one, and in Atomic mode, a descriptor that only looks (hits_addend 0) is over its
	// limit when nothing remains.
	Algorithm limiter.Algorithm
	// Shadow answers every request with OK; the statuses stay. Quota makes every limit a
	// quota.
	Shadow, Quota bool
	// Headers adds three fields to responses, about the limit of which the least remains:
	// the limit, what remains and the seconds until its reset. RequestHeaders adds them to
	// the requests that are forwarded. HeaderNames are their names; default RateLimit-Limit,
	// RateLimit-Remaining and RateLimit-Reset.
	Headers, RequestHeaders bool
	HeaderNames             [3]string
	// Metadata adds dynamic metadata to answers: the request, and the metadata of the limits
	// that allow it.
	Metadata bool
	// Body is the body of answers that deny a request; default none.
	Body []byte
	// ID names what has the id of a request: an entry of a descriptor, which is then no part
	// of the descriptor, or else a header of the call. Whoever repeats a request with its id
	// is answered as the first time, and nothing is charged; empty: there are no ids.
	ID string
	// Hold is how long a reservation lasts; default 10 minutes. In a request with an id a
	// descriptor that only looks reserves the estimate of its limit, if a file says one.
	// Another request with the id and with hits settles that with them. It needs AllowRefunds,
	// or the caller's permission to refund.
	Hold time.Duration
	// StopWhenOver makes Compat charge only the descriptors that are over their limit, if the request is
	// denied. Between the question and the charge others may be charged, as there.
	StopWhenOver bool
	// NearLimit is the part of a limit from which hits count as near it in statistics;
	// default 0.8.
	NearLimit float64
	// Overrides are the domains in which limits come with descriptors though no file
	// describes the domain.
	Overrides map[string]bool
	// FastQuotas lets [Quotas] assign what one Envoy leaves to another one at once, see [limiter.Request.Fast].
	FastQuotas bool
	// Now is the clock for the ends of windows; default [time.Now].
	Now func() time.Time
}

// Service is Envoy's rate limit service. It is safe for concurrent use.
type Service struct {
	options  Options
	charger  charger
	front    *frontend.Frontend
	reserver reserver
	config   atomic.Pointer[config.Config] // nil: none is in force
	limits   limits
	stats    stats
	shown    shown
	decoding listen.Room
}

// NewService returns a service without a configuration: it answers UNAVAILABLE until
// [Service.SetConfig] is called, unless Options.Overrides has the request's domain.
func NewService(o Options) (*Service, error) {
	if o.Config.Decider == nil {
		return nil, errors.New("envoy: Options.Config.Decider is nil: set it to a node")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	for i, name := range [...]string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
		o.HeaderNames[i] = cmp.Or(o.HeaderNames[i], name)
	}
	o.NearLimit = cmp.Or(o.NearLimit, 0.8)
	front := frontend.New(o.Config, protocol())
	s := &Service{options: o, charger: charger{o.Mode, o.Quota, o.StopWhenOver}, front: front,
		reserver: newReserver(&o, front), limits: newLimits(o.Algorithm, o.Mode == Compat, o.Now),
		decoding: listen.Room{Most: maxDecoded}}
	s.stats.near = o.NearLimit
	return s, nil
}

// SetConfig puts a configuration into force. It returns an error, and changes nothing, if
// the algorithm of Options cannot have one of the limits, or one has an estimate and Options allow
// no reservations.
func (s *Service) SetConfig(c *config.Config) error {
	err := c.Each(func(l *config.Limit) error {
		if l.Unlimited || l.Requests == 0 {
			return nil
		}
		if l.Form.Estimate > 0 && !s.reserver.allowed {
			return fmt.Errorf("the limit of %s has an estimate, and there are no reservations here: start the node with "+
				"--envoy-id, and with --allow-refunds or --permissions", l.Path)
		}
		if _, err := s.limits.of(l, false); err != nil {
			return fmt.Errorf("the limit of %s cannot have the algorithm %s: %w", l.Path, l.Spec(s.options.Algorithm).Algorithm,
				err)
		}
		return nil
	})
	s.stats.loaded(err == nil)
	if err == nil {
		s.config.Store(c)
	}
	return err
}

// NotLoaded counts a configuration that could not be read.
func (s *Service) NotLoaded() { s.stats.loaded(false) }

// ServiceDesc returns what the service is for gRPC.
func (s *Service) ServiceDesc() (*grpc.ServiceDesc, any) {
	desc := rls.RateLimitService_ServiceDesc
	desc.Methods = []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: s.serve}}
	return &desc, unimplemented{}
}

// unimplemented satisfies the interface that gRPC demands of the service; calls go to serve.
type unimplemented struct {
	rls.UnimplementedRateLimitServiceServer
}

// serve is the gRPC method. A panic ends in the server's interceptor.
//
//nolint:revive // the order of the arguments is gRPC's
func (s *Service) serve(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any,
	error) {
	c := &call{room: listen.Hold{Room: &s.decoding, Context: ctx}}
	defer c.room.Release()
	if err := decode(c); err != nil {
		return nil, err
	}
	answer := func(ctx context.Context, _ any) (any, error) {
		if errors.Is(c.err, errBusy) {
			_ = s.stats.refused(c.err) // it is counted
			return s.overLimit(c.descriptors), nil
		}
		if c.err != nil {
			return nil, s.stats.refused(c.err)
		}
		out, err := s.decideFor(ctx, &c.request, askerOf(ctx, c.room.Bytes))
		if err != nil {
			return nil, statusOf(err)
		}
		return out, nil
	}
	if intercept == nil {
		return answer(ctx, nil)
	}
	return intercept(ctx, nil, &grpc.UnaryServerInfo{Server: s,
		FullMethod: rls.RateLimitService_ShouldRateLimit_FullMethodName}, answer)
}

// decideFor decides a request if who asks may send it, counts the call, and tells the audit. What is beyond
// the budget of who asks is over its limit: how many requests there are is up to Envoy's clients.
func (s *Service) decideFor(ctx context.Context, in *rls.RateLimitRequest, by *asker) (out *rls.RateLimitResponse,
	err error) {
	begin := time.Now()
	if err = by.admit(in, s.front); err == nil {
		spend := by.session.Gather()
		out, err = s.decideAs(ctx, in, by)
		spend()
	}
	s.stats.called(time.Since(begin), err)
	by.account(in, err)
	if errors.Is(err, frontend.ErrBudget) {
		return s.overLimit(len(in.GetDescriptors())), nil
	}
	return out, err
}

// askerOf returns who sends a message of so many bytes over gRPC.
func askerOf(ctx context.Context, bytes int) *asker {
	return &asker{
		from: overgrpc.From(ctx), shown: overgrpc.Credentials(ctx), bytes: bytes,
		header: func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) },
	}
}

// refused counts a call that is refused before it is decided, and returns its gRPC status.
func (s *stats) refused(err error) error {
	s.called(0, err)
	return statusOf(err)
}

// statusOf returns the gRPC status of an error. Envoy lets a request pass, or not, by its
// failure_mode_deny whatever the code is.
func statusOf(err error) error {
	switch {
	case errors.Is(err, limiter.ErrInvalid), errors.Is(err, limiter.ErrSettled):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, frontend.ErrUnauthenticated):
		return status.Error(codes.Unauthenticated, err.Error())
	case errors.Is(err, limiter.ErrForbidden):
		return status.Error(codes.PermissionDenied, err.Error())
	case errors.Is(err, errBusy):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// ShouldRateLimit decides one request: one status for each descriptor, in their order, and
// an overall code. An error means that nothing was decided; with several owners some
// descriptors may have been counted. Whoever calls it may do everything.
func (s *Service) ShouldRateLimit(ctx context.Context, in *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.decideAs(ctx, in, &asker{session: s.front.Anyone(nil)})
}

// decideAs decides a request by the counters of who asks.
func (s *Service) decideAs(ctx context.Context, in *rls.RateLimitRequest, by *asker) (*rls.RateLimitResponse, error) {
	switch {
	case in.GetDomain() == "":
		return nil, invalid("rate limit domain must not be empty")
	case len(in.GetDescriptors()) == 0:
		return nil, invalid("rate limit descriptor list must not be empty")
	}
	c := s.config.Load()
	if c == nil && !s.options.Overrides[in.GetDomain()] {
		return nil, errors.New("no rate limit configuration loaded")
	}
	items, err := s.items(c, in, by)
	if err != nil {
		return nil, err
	}
	if err = s.decideItems(patient(ctx), items); err != nil || s.charger.denies(items) && !s.options.Shadow {
		err = errors.Join(err, s.reserver.cancel(ctx, items))
	}
	if errors.Is(err, table.ErrTooManyLimits) { // Envoy may pass an error, and who asks may choose the limits
		return s.overLimit(len(in.GetDescriptors())), nil
	}
	if err != nil {
		return nil, err
	}
	return s.response(in, items), nil
}

// decideItems decides items. What is settled beyond a limit is not over it: its request has
// passed. What is to be reserved is looked at first, and reserved if nothing denies the
// request: a reservation that is cancelled leaves its id settled for good. So it is cancelled
// only if another request took the room meanwhile.
func (s *Service) decideItems(ctx context.Context, items []item) error {
	settled, err := s.reserver.settle(ctx, items)
	if err == nil {
		err = s.charger.uncredited(ctx, settled)
	}
	if err == nil {
		err = s.charger.decide(ctx, s.reserver.looks(items), (*item).told)
	}
	switch {
	case err != nil:
	case s.options.Mode == Atomic:
		err = s.charger.atomic(ctx, items)
	default:
		err = s.charger.each(ctx, items)
	}
	if err == nil && (!s.charger.denies(items) || s.options.Shadow) {
		err = s.reserver.reserve(ctx, items)
	}
	return err
}

// item is one descriptor of a request and its outcome.
type item struct {
	limit   *config.Limit  // nil: there is none
	counter *limiter.Limit // nil: nothing is counted
	key     string
	by      *asker // whose counters they are
	id      string // by which its hits are charged once; empty: each time
	hits    uint64
	back    bool     // the hits are taken back
	held    held     // what it is about a reservation
	labels  []string // of its statistics

	// measuring: the next answer is about left, what the limit had before several hits in compat mode.
	measuring bool
	left      uint32
	over      bool
	remaining uint32
	reset     time.Duration
	charged   limiter.Receipt
}

// items looks the descriptors of a request up.
func (s *Service) items(c *config.Config, in *rls.RateLimitRequest, by *asker) ([]item, error) {
	known := c != nil && c.Has(in.GetDomain()) || s.options.Overrides[in.GetDomain()]
	if !known {
		s.stats.noDomain.Add(uint64(len(in.GetDescriptors())))
	}
	id := idOf(s.options.ID, in, by)
	items := make([]item, len(in.GetDescriptors()))
	var replaced map[string]bool
	for i := range items {
		it := &items[i]
		it.by, it.id = by, part(id, i)
		if err := s.item(it, c, in, i, known); err != nil {
			return nil, err
		}
		if it.limit == nil || len(it.limit.Replaces) == 0 {
			continue
		}
		if replaced == nil {
			replaced = make(map[string]bool)
		}
		for _, name := range it.limit.Replaces {
			replaced[name] = true
		}
	}
	for i := range items {
		it := &items[i]
		if l := it.limit; l != nil && !l.Unlimited && l.Name != "" && replaced[l.Name] {
			it.limit = nil
		}
		if it.limit == nil || it.limit.Unlimited || it.limit.Requests == 0 {
			continue
		}
		override := in.GetDescriptors()[i].GetLimit() != nil
		if err := s.reserver.concern(it, id, in.GetDomain(), override); err != nil {
			return nil, err
		}
		var err error
		if it.counter, err = s.limits.of(it.limit, override); err != nil {
			return nil, err
		}
		if a := it.counter.Algorithm(); it.back && (a == limiter.SlidingLog || a == limiter.SlidingWindow) {
			return nil, invalid("descriptor %d has is_negative_hits: %s counts each hit by its instant, so hits cannot be "+
				"taken back; give the limit another algorithm, or the node another --envoy-algorithm", i, a)
		}
	}
	return items, nil
}

// item looks descriptor i of a request up.
func (s *Service) item(it *item, c *config.Config, in *rls.RateLimitRequest, i int, known bool) error {
	d := in.GetDescriptors()[i]
	it.hits, it.back = hitsOf(in, i), d.GetIsNegativeHits()
	if it.back {
		if err := s.front.Allows(frontend.ActionRefund); err != nil {
			return err
		}
	}
	var room [8]config.Entry
	entries := room[:0]
	for _, e := range d.GetEntries() {
		if s.options.ID != "" && e.GetKey() == s.options.ID {
			continue
		}
		entries = append(entries, config.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	counted := entries
	switch {
	case !known:
	case d.GetLimit() != nil:
		unit := config.Unit(min(uint32(d.GetLimit().GetUnit()), 255)) // a negative one is not valid either
		if !unit.Valid() {
			return invalid("the limit of descriptor %d has the unit %d: give 1 (second) to 6 (year)", i, d.GetLimit().GetUnit())
		}
		it.limit = &config.Limit{Unit: unit, Requests: d.GetLimit().GetRequestsPerUnit()}
		if n := d.GetLimit().GetUnitMultiplier(); n != nil {
			if most := unit.MaxMultiplier(); n.GetValue() < 1 || n.GetValue() > most {
				return invalid("the limit of descriptor %d has the unit_multiplier %d: give 1 to %d for the unit %s", i,
					n.GetValue(), most, unit)
			}
			it.limit.Form.Multiplier = n.GetValue()
		}
	case c != nil:
		it.limit, counted = c.Lookup(in.GetDomain(), entries, nil)
	}
	if it.limit == nil {
		return nil
	}
	it.labels = it.limit.Labels(in.GetDomain(), entries)
	if !it.limit.Unlimited {
		it.key = keyOf(in.GetDomain(), counted)
	}
	return nil
}

// hitsOf returns the hits of a descriptor. More than a node counts are more than any limit admits.
func hitsOf(in *rls.RateLimitRequest, i int) uint64 {
	if own := in.GetDescriptors()[i].GetHitsAddend(); own != nil {
		return min(own.GetValue(), limiter.MaxUnits)
	}
	return uint64(max(1, in.GetHitsAddend()))
}
