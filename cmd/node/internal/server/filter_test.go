package server

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// filter does what Envoy's HTTP filter for global rate limits does, as the comments of its
// protocol buffers say: actions make descriptors of a request, and the answer is enforced. It
// stands for Envoy, which these tests do not have.
type filter struct {
	service rls.RateLimitServiceClient
	domain  string
	// timeout bounds the call; default 20 ms, as in Envoy. deny answers with 500 if the
	// service does not answer; by default the request passes.
	timeout time.Duration
	deny    bool
	// headers adds X-RateLimit-Limit, -Remaining and -Reset (draft 03) to responses.
	headers bool
	// cluster is the service that Envoy stands before, routed where the request goes.
	cluster, routed string
	// limits are the rate_limits of the route.
	limits []routeLimit
}

// routeLimit is one rate limit of a route: a descriptor, if every action makes an entry.
type routeLimit struct {
	actions []action
	hits    *uint64
	back    bool // is_negative_hits
	// done is apply_on_stream_done: it is asked about when the response has ended.
	done bool
}

// action makes one entry of a descriptor. ok is false if it cannot, so that there is no
// descriptor. Without a key there is a descriptor without the entry.
type action func(f *filter, r *visit) (key, value string, ok bool)

// visit is a request to Envoy.
type visit struct {
	address string
	fields  map[string]string
}

// outcome is what the client of Envoy gets, and what the upstream got.
type outcome struct {
	status   int
	fields   map[string]string
	body     string
	upstream map[string]string // nil: it was not asked
	failed   error             // of the service
}

func remoteAddress(_ *filter, r *visit) (string, string, bool) {
	return "remote_address", r.address, r.address != ""
}

// maskedAddress is masked_remote_address.
func maskedAddress(bits int) action {
	return func(_ *filter, r *visit) (string, string, bool) {
		ip, err := netip.ParseAddr(r.address)
		if err != nil {
			return "", "", false
		}
		p, err := ip.Prefix(bits)
		return "masked_remote_address", p.String(), err == nil
	}
}

func genericKey(key, value string) action {
	return func(*filter, *visit) (string, string, bool) {
		if key == "" {
			key = "generic_key"
		}
		return key, value, true
	}
}

// requestHeader is request_headers. skip is skip_if_absent.
func requestHeader(name, key string, skip bool) action {
	return func(_ *filter, r *visit) (string, string, bool) {
		v, has := r.fields[name]
		if !has {
			return "", "", skip
		}
		return key, v, true
	}
}

// headerMatch is header_value_match of a field that must have a value.
func headerMatch(key, value, name, want string, expect bool) action {
	return func(_ *filter, r *visit) (string, string, bool) {
		if key == "" {
			key = "header_match"
		}
		return key, value, (r.fields[name] == want) == expect
	}
}

func sourceCluster(f *filter, _ *visit) (string, string, bool) {
	return "source_cluster", f.cluster, f.cluster != ""
}

func destinationCluster(f *filter, _ *visit) (string, string, bool) {
	return "destination_cluster", f.routed, f.routed != ""
}

// descriptors makes the descriptors of a request, of the limits for its begin or its end.
func (f *filter) descriptors(r *visit, done bool) (out []*ratelimit.RateLimitDescriptor) {
	for _, l := range f.limits {
		if l.done != done {
			continue
		}
		d, whole := &ratelimit.RateLimitDescriptor{IsNegativeHits: l.back}, true
		if l.hits != nil {
			d.HitsAddend = wrapperspb.UInt64(*l.hits)
		}
		for _, entry := range l.actions {
			key, value, ok := entry(f, r)
			if whole = whole && ok; key != "" {
				d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		if whole && len(d.GetEntries()) > 0 {
			out = append(out, d)
		}
	}
	return out
}

// ask asks the service within the timeout; it asks nothing about no descriptors.
func (f *filter) ask(ctx context.Context, ds []*ratelimit.RateLimitDescriptor) (*rls.RateLimitResponse, error) {
	if len(ds) == 0 {
		return nil, nil //nolint:nilnil // there is nothing to be asked
	}
	timeout := f.timeout
	if timeout == 0 {
		timeout = 20 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f.service.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: f.domain, Descriptors: ds})
}

// serve serves a request.
func (f *filter) serve(ctx context.Context, r *visit) (out outcome) {
	out = outcome{status: 200, fields: make(map[string]string)}
	answer, err := f.ask(ctx, f.descriptors(r, false))
	if err != nil {
		if out.failed = err; f.deny {
			out.status = 500
			return out
		}
	}
	for _, h := range answer.GetResponseHeadersToAdd() {
		out.fields[strings.ToLower(h.GetKey())] = h.GetValue()
	}
	if f.headers {
		limitFields(answer, out.fields)
	}
	if answer.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		out.status, out.body, out.fields["x-envoy-ratelimited"] = 429, string(answer.GetRawBody()), "true"
		if wait := retryAfter(answer); wait > 0 {
			out.fields["retry-after"] = strconv.FormatInt(wait, 10)
		}
		return out
	}
	out.upstream = make(map[string]string)
	for _, h := range answer.GetRequestHeadersToAdd() {
		out.upstream[strings.ToLower(h.GetKey())] = h.GetValue()
	}
	_, _ = f.ask(ctx, f.descriptors(r, true)) // at the end of the stream nothing is enforced
	return out
}

// limitFields sets the fields of draft 03, of the status of which the least remains.
func limitFields(answer *rls.RateLimitResponse, fields map[string]string) {
	var least *rls.RateLimitResponse_DescriptorStatus
	policies := ""
	for _, s := range answer.GetStatuses() {
		l := s.GetCurrentLimit()
		if l == nil {
			continue
		}
		if least == nil || s.GetLimitRemaining() < least.GetLimitRemaining() {
			least = s
		}
		window := map[rls.RateLimitResponse_RateLimit_Unit]int{1: 1, 2: 60, 3: 3600, 4: 86400, 5: 30 * 86400, 6: 365 * 86400,
			7: 7 * 86400}[l.GetUnit()]
		policies += fmt.Sprintf(", %d;w=%d", l.GetRequestsPerUnit(), window)
		if l.GetName() != "" {
			policies += fmt.Sprintf(";name=%q", l.GetName())
		}
	}
	if least == nil {
		return
	}
	fields["x-ratelimit-limit"] = fmt.Sprint(least.GetCurrentLimit().GetRequestsPerUnit()) + policies
	fields["x-ratelimit-remaining"] = fmt.Sprint(least.GetLimitRemaining())
	fields["x-ratelimit-reset"] = fmt.Sprint(least.GetDurationUntilReset().GetSeconds())
}

// retryAfter returns the longest time until the reset of a limit that is over.
func retryAfter(answer *rls.RateLimitResponse) (seconds int64) {
	for _, s := range answer.GetStatuses() {
		if s.GetCode() == rls.RateLimitResponse_OVER_LIMIT {
			seconds = max(seconds, s.GetDurationUntilReset().GetSeconds())
		}
	}
	return seconds
}
