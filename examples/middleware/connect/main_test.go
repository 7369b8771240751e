package main

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/examples/middleware/internal/askall"
)

// A1: the middleware around a service of connect-go, asked by its three protocols, each of
// which gets the denial in its form.
func TestService(t *testing.T) {
	app, err := routes(askall.Node(t, Rules))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(app)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
	} {
		client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](s.Client(), s.URL+procedure, protocol)
		for i := range 3 {
			r := connect.NewRequest(wrapperspb.String("ulm"))
			r.Header().Set("X-User", name)
			out, err := client.CallUnary(t.Context(), r)
			if i < 2 {
				if err != nil || out.Msg.GetValue() != "a fine town: ulm" || out.Header().Get("RateLimit") == "" {
					t.Errorf("%s, call %d: %v, %v", name, i, out, err)
				}
				continue
			}
			var denied *connect.Error
			if !errors.As(err, &denied) || denied.Code() != connect.CodeResourceExhausted ||
				denied.Meta().Get("Retry-After") != "60" {
				t.Fatalf("%s: %v", name, err)
			}
			if wait := retryOf(t, denied); wait != time.Minute {
				t.Errorf("%s: to be tried again in %v", name, wait)
			}
		}
	}
}

// retryOf returns the time of a denial's RetryInfo.
func retryOf(t *testing.T, denied *connect.Error) time.Duration {
	t.Helper()
	for _, detail := range denied.Details() {
		value, err := detail.Value()
		if err != nil {
			t.Fatal(err)
		}
		if retry, ok := value.(*errdetails.RetryInfo); ok {
			return retry.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
