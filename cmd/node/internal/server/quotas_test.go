package server

import (
	"errors"
	"io"
	"testing"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The quota service has a listener of its own, with TLS and the permissions of the rate limit service: who may check
// and borrow in a domain is assigned something, and the audit hears of others.
func TestQuotas(t *testing.T) {
	g := newEnvoyGate(t, 0)
	for name, want := range map[string]codes.Code{"lends": codes.OK, "bank": codes.PermissionDenied,
		"": codes.Unauthenticated} {
		stream, err := rlqs.NewRateLimitQuotaServiceClient(g.dial(g.Server.Addresses().Quotas, name)).
			StreamRateLimitQuotas(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&rlqs.RateLimitQuotaUsageReports{Domain: "edge",
			BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{
				BucketId: &rlqs.BucketId{Bucket: map[string]string{"pool": "a"}}, NumRequestsDenied: 1}}}); err != nil &&
			!errors.Is(err, io.EOF) { // the stream is refused already, and Recv says why
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if status.Code(err) != want {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
		if err != nil {
			if line := g.line(); line["outcome"] != "refused" || line["over"] != "envoy" || line["action"] != "lease" {
				t.Errorf("%q: the audit has %v", name, line)
			}
			continue
		}
		tokens := m.GetBucketAction()[0].GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket()
		if tokens.GetTokensPerFill().GetValue() == 0 {
			t.Errorf("%q is told %v", name, m)
		}
	}
}
