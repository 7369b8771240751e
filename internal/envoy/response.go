package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// response returns the answer for decided items, and counts them.
func (s *Service) response(in *rls.RateLimitRequest, items []item) *rls.RateLimitResponse {
	out := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK,
		Statuses: make([]*rls.RateLimitResponse_DescriptorStatus, len(items))}
	over := s.charger.denies(items)
	now := s.options.Now()
	for i := range items {
		it := &items[i]
		out.Statuses[i] = s.status(it, now)
		s.stats.decided(it)
	}
	switch {
	case over && s.options.Shadow:
		s.stats.shadowed.Add(1)
	case over:
		out.OverallCode, out.RawBody = rls.RateLimitResponse_OVER_LIMIT, s.options.Body
	}
	if s.options.Headers || s.options.RequestHeaders {
		fields := s.headers(items, out.Statuses)
		if s.options.Headers {
			out.ResponseHeadersToAdd = fields
		}
		if s.options.RequestHeaders {
			out.RequestHeadersToAdd = fields
		}
	}
	if s.options.Metadata {
		out.DynamicMetadata = metadataOf(in, items)
	}
	return out
}

// overLimit returns the answer for a request of n descriptors that was not counted because of what
// clients of Envoy did. For an error Envoy would let their requests pass.
func (s *Service) overLimit(n int) *rls.RateLimitResponse {
	out := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OVER_LIMIT, RawBody: s.options.Body}
	for range n {
		out.Statuses = append(out.Statuses, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OVER_LIMIT})
	}
	if s.options.Shadow {
		s.stats.shadowed.Add(1)
		out.OverallCode, out.RawBody = rls.RateLimitResponse_OK, nil
	}
	return out
}

func (s *Service) status(it *item, now time.Time) *rls.RateLimitResponse_DescriptorStatus {
	out := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	switch {
	case it.limit == nil:
		return out
	case it.limit.Unlimited:
		out.LimitRemaining = math.MaxUint32
		return out
	}
	if it.over && !it.limit.Shadow {
		out.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	out.CurrentLimit = &rls.RateLimitResponse_RateLimit{
		RequestsPerUnit: it.limit.Requests, Unit: rls.RateLimitResponse_RateLimit_Unit(it.limit.Unit), Name: it.limit.Name,
	}
	if n := it.limit.Form.Multiplier; n > 1 {
		out.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(n)
	}
	out.LimitRemaining = it.remaining
	out.DurationUntilReset = durationpb.New(s.untilReset(it, now))
	return out
}

// Periods of several units that are whole weeks begin on a Monday, as all such windows of Weir
// do; the epoch was a Thursday.
const (
	week     = 7 * 24 * time.Hour
	toMonday = 4 * 24 * time.Hour
)

// untilReset returns when a limit has recovered, in whole seconds, rounded up: Envoy drops
// the rest. Windows of fixed_window end with their unit, or that of the calendar, also before
// anything was counted.
func (s *Service) untilReset(it *item, now time.Time) time.Duration {
	d := it.reset
	if it.counter == nil || it.counter.Algorithm() == limiter.FixedWindow {
		period := it.limit.Period()
		d = period - time.Duration(now.UnixNano())%period
		if it.limit.Form.Multiplier > 1 && period%week == 0 {
			d = period - time.Duration(now.UnixNano()-int64(toMonday))%period
		}
	}
	if it.counter != nil {
		if bounds, ok := arith.CalendarBounds(it.counter, limiter.TickOf(now)); ok {
			d = bounds[2].Time().Sub(now)
		}
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

// headers returns the fields of a response about the last limit that denies the request by itself, or else
// the first one of which the least remains.
func (s *Service) headers(items []item, statuses []*rls.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	var least, denies *rls.RateLimitResponse_DescriptorStatus
	for i, st := range statuses {
		if st.GetCurrentLimit() == nil {
			continue
		}
		if least == nil || st.GetLimitRemaining() < least.GetLimitRemaining() {
			least = st
		}
		if st.GetCode() == rls.RateLimitResponse_OVER_LIMIT && !s.charger.quota(&items[i]) {
			denies = st
		}
	}
	if denies != nil {
		least = denies
	}
	if least == nil {
		return nil
	}
	field := func(name string, value int64) *core.HeaderValue {
		return &core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)}
	}
	return []*core.HeaderValue{
		field(s.options.HeaderNames[0], int64(least.GetCurrentLimit().GetRequestsPerUnit())),
		field(s.options.HeaderNames[1], int64(least.GetLimitRemaining())),
		field(s.options.HeaderNames[2], least.GetDurationUntilReset().GetSeconds()),
	}
}

// The units of a configuration have the numbers of the protocol.
var _ = [1]struct{}{}[config.Week-config.Unit(rls.RateLimitResponse_RateLimit_WEEK)]
