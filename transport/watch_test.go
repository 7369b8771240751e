package transport_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestWatchedNames: a Watch keeps its name while it is open, so a long name ends the call.
// A short one that is unknown is answered as the protocol of health says.
func TestWatchedNames(t *testing.T) {
	s := newServer(t, fixed, nil)
	for _, c := range []struct {
		service string
		code    codes.Code
		status  healthv1.HealthCheckResponse_ServingStatus
	}{
		{"", codes.OK, healthv1.HealthCheckResponse_SERVING},
		{weirv1.Limiter_ServiceDesc.ServiceName, codes.OK, healthv1.HealthCheckResponse_SERVING},
		{strings.Repeat("x", 128), codes.OK, healthv1.HealthCheckResponse_SERVICE_UNKNOWN},
		{strings.Repeat("x", 129), codes.InvalidArgument, 0},
		{strings.Repeat("x", 1<<19), codes.Internal, 0}, // it is not decoded
	} {
		watch, err := healthv1.NewHealthClient(s.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: c.service})
		if err != nil {
			t.Fatal(err)
		}
		got, err := watch.Recv()
		if status.Code(err) != c.code || got.GetStatus() != c.status {
			t.Errorf("a name of %d bytes: %v, %v", len(c.service), got, err)
		}
	}
}
