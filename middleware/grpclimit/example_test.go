package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

// frozen is a clock that stands still, so that examples print the same.
func frozen() time.Time { return time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC) }

// A server whose calls are limited for each user, and what its client sees.
func Example() {
	ctx := context.Background()
	node, err := weir.Open(ctx, weir.Config{Now: frozen, Rules: []byte(`
version: 1
defaults: {algorithm: fixed_window}
rules:
  - name: calls
    match: {path: "^/grpc.testing.TestService/"}
    key: [user]
    limits: [1/minute]
`)})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	limit, err := grpclimit.New(node, grpclimit.User(grpclimit.FromMetadata("x-user")))
	if err != nil {
		panic(err)
	}

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.UnaryServer()),
		grpc.ChainStreamInterceptor(limit.StreamServer()))
	testpb.RegisterTestServiceServer(server, new(service))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener)
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	client := testpb.NewTestServiceClient(conn)
	ctx = metadata.AppendToOutgoingContext(ctx, "x-user", "ada")
	for range 2 {
		var header metadata.MD
		_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header))
		s := status.Convert(err)
		fmt.Println(s.Code(), header["ratelimit"])
		for _, d := range s.Details() {
			if retry, ok := d.(*errdetails.RetryInfo); ok {
				fmt.Println(s.Message(), retry.GetRetryDelay().AsDuration())
			}
		}
	}
	// Output:
	// OK ["calls/minute";r=0;t=60]
	// ResourceExhausted ["calls/minute";r=0;t=60]
	// calls/minute (1/minute) is exceeded; try again in 60 s. 1m0s
}

// A client that keeps to a limit: what is above it is not sent.
func ExampleLimiter_UnaryClient() {
	node, err := weir.Open(context.Background(), weir.Config{Now: frozen, Rules: []byte(`
version: 1
rules: [{name: outgoing, key: [path], limits: [100/second]}]
`)})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	limit, err := grpclimit.New(node)
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient("api.example:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(limit.UnaryClient()),
		grpc.WithChainStreamInterceptor(limit.StreamClient()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	// Output:
}
