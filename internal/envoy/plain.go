package envoy

import (
	"context"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/internal/envoy/config"
)

// Decide decides a request of one hit without messages of the protocol, such as in a replay.
// It reports whether the request is denied.
func (s *Service) Decide(ctx context.Context, domain string, descriptors [][]config.Entry) (denied bool, err error) {
	in := &rls.RateLimitRequest{Domain: domain}
	for _, entries := range descriptors {
		d := new(ratelimit.RateLimitDescriptor)
		for _, e := range entries {
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		in.Descriptors = append(in.Descriptors, d)
	}
	out, err := s.ShouldRateLimit(ctx, in)
	return out.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT, err
}
