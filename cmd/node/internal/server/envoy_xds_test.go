package server

import (
	"net"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/xds"
	"github.com/weirlimit/weir/limiter"
)

// management is a management server that sends one configuration on each stream, once it is there.
type management struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	there    chan struct{} // closed when resource may be read
	resource []byte
}

func (m *management) StreamAggregatedResources(
	s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	select {
	case <-s.Context().Done():
		return nil
	case <-m.there:
	}
	r := []*anypb.Any{{TypeUrl: xds.TypeURL, Value: m.resource}}
	answer := &discovery.DiscoveryResponse{TypeUrl: xds.TypeURL, VersionInfo: "1", Nonce: "1", Resources: r}
	if err := s.Send(answer); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// Without a first configuration of its management server a node is not ready and takes no connections of Envoy, unless
// it is told to.
func TestEnvoyWaitsForItsFirstConfiguration(t *testing.T) {
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, of := &management{there: make(chan struct{})}, grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(of, m)
	go func() { _ = of.Serve(l) }()
	t.Cleanup(of.Stop)
	node := func(eager bool) *Server {
		c, _ := plain()
		c.Envoy = &EnvoyConfig{
			Addr: "127.0.0.1:0", HTTPAddrs: []string{"127.0.0.1:0"}, XDS: &EnvoyXDS{Addr: l.Addr().String()},
			StartWithoutConfig: eager,
			Options:            envoy.Options{Algorithm: limiter.FixedWindow},
		}
		return start(t, c)
	}
	eager, s := node(true), node(false)
	if err := eager.Ready(); err != nil {
		t.Error(err)
	}
	if got := askEnvoy(t, dial(t, eager.Addresses().Envoy), "ada"); !strings.Contains(got,
		"no rate limit configuration loaded") {
		t.Error(got)
	}
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "no rate limit configuration loaded") {
		t.Errorf("ready: %v", err)
	}
	if status, text := get(t, "http://"+s.Addresses().EnvoyHTTP[0]+"/healthcheck"); status != 500 ||
		!strings.Contains(text, "no rate limit configuration loaded") {
		t.Error(status, text)
	}
	conn := dial(t, s.Addresses().Envoy)
	if got := askEnvoy(t, conn, "ada"); !strings.Contains(got, "Unavailable") || strings.Contains(got, "no rate limit") {
		t.Errorf("without a configuration: %s", got)
	}
	text := func(id protowire.Number, v string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, id, protowire.BytesType), v)
	}
	limit := []byte{1 << 3, 6, 2 << 3, 3} // 3 in a year
	m.resource = append(text(2, "edge"), text(3, string(append(text(1, "user"), text(3, string(limit))...)))...)
	close(m.there)
	eventually(t, "the nodes are ready", func() bool { return s.Ready() == nil && eager.envoy.service.Configured() })
	eventually(t, "the connection is there", func() bool {
		conn.ResetConnectBackoff()
		return strings.HasPrefix(askEnvoy(t, conn, "ada"), "OK")
	})
}
