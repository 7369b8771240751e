package transport

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestStreamsPerConnection: a connection has as many open calls as it may. A further one
// is refused, and nothing of the others ends.
func TestStreamsPerConnection(t *testing.T) {
	s := newTicking(t, func(o *Options) { o.MaxStreams = 2 })
	conn := s.dial(someWindow)
	for _, id := range []uint32{1, 3} {
		conn.send(headersOf(id, "CheckStream"), columnsOf(t, id))
		conn.wants("an open call", frameData, id)
	}
	conn.send(headersOf(5, "CheckStream"), columnsOf(t, 5))
	conn.wants("one call too many", frameReset, 5)
	conn.send(columnsOf(t, 1))
	conn.wants("an open call afterwards", frameData, 1)
}

// TestConnectionsAge: a connection is told to go when it has its age, whether or not
// anything is called on it, so that clients spread over nodes that were added.
func TestConnectionsAge(t *testing.T) {
	s := newTicking(t, func(o *Options) { o.MaxConnectionAge = 100 * time.Millisecond })
	conn, err := grpc.NewClient("passthrough:///"+s.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := weirv1.NewLimiterClient(conn).Check(t.Context(), &weirv1.CheckRequest{User: "ada"}); err != nil ||
		!got.Allowed {
		t.Fatal(got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), watchdog)
	defer cancel()
	for state := connectivity.Ready; state == connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatal("the connection stays")
		}
	}
}
