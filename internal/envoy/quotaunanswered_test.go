package envoy

import (
	"net"
	"runtime"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
)

// wireCodec reads and writes the messages of the service as a server of package transport does.
type wireCodec struct{}

func (wireCodec) Name() string                  { return "proto" }
func (wireCodec) Marshal(m any) ([]byte, error) { return m.(*assignments).MarshalWire(), nil }
func (wireCodec) Unmarshal(data []byte, m any) error {
	return m.(*usageReport).UnmarshalWire(data)
}

// Most reports of a short interval get no answer, as Envoy has been told. Their room is given back when they are
// handled, and the client does not count as one that does not read.
func TestReportsNeedNoAnswer(t *testing.T) {
	s, err := NewService(Options{Config: frontend.Config{Decider: &lender{}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(nil, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetConfig(c); err != nil {
		t.Fatal(err)
	}
	q := NewQuotas(s, nil)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	room := &listen.Room{Most: 64 << 20}
	watcher := listen.NewWatcher(l, listen.WatchOptions{Room: room, Patience: time.Second, Streams: 10, Most: 64 << 20})
	server := grpc.NewServer(grpc.ForceServerCodec(wireCodec{}))
	server.RegisterService(q.ServiceDesc())
	go func() { _ = server.Serve(watcher) }()
	defer server.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := rlqs.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const reports = 200
	value := string(make([]byte, 1000))
	for n := range uint64(reports + 1) {
		if n == reports { // all were handled, and the client sends nothing for a while
			// Its system confirms what it was sent within 40 ms. Until then that is unread.
			for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; runtime.Gosched() {
			}
			for range 3 {
				watcher.Tick()
			}
		}
		if err := stream.Send(&rlqs.RateLimitQuotaUsageReports{Domain: "d",
			BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{
				BucketId: &rlqs.BucketId{Bucket: map[string]string{"k": value}}, NumRequestsAllowed: 1}}}); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); q.Stats().Allowed <= n || room.InUse() > 0; runtime.Gosched() {
			if time.Since(begun) > 10*time.Second {
				t.Fatalf("after %d reports: %d were taken in, and %d bytes are unread", n+1, q.Stats().Allowed, room.InUse())
			}
		}
	}
}
