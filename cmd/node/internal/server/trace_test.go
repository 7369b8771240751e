package server

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// spans is a collector of OTLP that keeps what it is sent.
type spans struct {
	collector.UnimplementedTraceServiceServer

	mu  sync.Mutex
	all []recorded
}

// recorded is a span, and the node that recorded it.
type recorded struct{ node, name, trace, span, parent string }

// Export implements the service.
func (s *spans) Export(_ context.Context,
	r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		node := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				node = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, x := range scope.GetSpans() {
				s.all = append(s.all, recorded{node, x.GetName(), hex.EncodeToString(x.GetTraceId()),
					hex.EncodeToString(x.GetSpanId()), hex.EncodeToString(x.GetParentSpanId())})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// of returns the spans of a trace.
func (s *spans) of(trace string) (out []recorded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.trace == trace {
			out = append(out, x)
		}
	}
	return out
}

// collect starts a collector. Nodes that start after it send each span within milliseconds.
func collect(t *testing.T) (s *spans, endpoint string) {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	s, l, g := new(spans), listener(t), grpc.NewServer()
	collector.RegisterTraceServiceServer(g, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); serving.Wait() })
	return s, "http://" + l.Addr().String()
}

// tracedNodes starts a cluster of three nodes that send their spans to a collector. change is for
// the configuration of each.
func tracedNodes(t *testing.T, endpoint string, change func(*Config)) (nodes []*Server) {
	t.Helper()
	var join []string
	for i := range 3 {
		c, _ := plain()
		c.Rules = []byte("version: 1\nrules:\n  - {name: towns, match: {path: ^/}, key: [path, user], limits: [100/hour], " +
			"replication: strict}\n")
		c.Trace = &TraceConfig{Endpoint: endpoint}
		c.Cluster = &cluster.Config{Name: fmt.Sprint("node-", i), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
			Join: join}
		change(&c)
		s := start(t, c)
		eventually(t, "the member is ready", func() bool { return s.Ready() == nil })
		if i == 0 {
			join = []string{s.Node().Cluster().Members()[0].Address}
		}
		nodes = append(nodes, s)
	}
	for _, s := range nodes {
		eventually(t, "all partitions are settled", func() bool {
			st, _ := s.Node().Cluster().Stats()
			return st.Members["active"] == 3 && st.Unsettled == 0
		})
	}
	return nodes
}

// A check that is asked at a member that does not own the key makes spans at both members, in the
// client's trace and one below the other: served and forwarded at the first, decided at the owner,
// and waiting for the heir where each reply does. So over both protocols, and in a batch. The
// answer names the trace.
func TestTraces(t *testing.T) {
	membersInOneProcess(t)
	all, endpoint := collect(t)
	nodes := tracedNodes(t, endpoint, func(*Config) {})
	user := ownedBy(t, nodes[0], "node-1")

	conn := dial(t, nodes[0].Addresses().GRPC)
	var header metadata.MD
	ask := &weirv1.CheckRequest{Path: "/towns", User: user}
	asking := func(trace string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	}
	const overGRPC, overHTTP, asBatch, asColumns, excluded = "0af7651916cd43dd8448eb211c80319c",
		"1af7651916cd43dd8448eb211c80319c", "2af7651916cd43dd8448eb211c80319c", "4af7651916cd43dd8448eb211c80319c",
		"00-3af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	if _, err := weirv1.NewLimiterClient(conn).Check(asking(overGRPC), ask, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get("traceparent"); len(got) != 1 || got[0][:36] != "00-"+overGRPC+"-" {
		t.Errorf("the answer's traceparent is %q", got)
	}
	if _, err := weirv1.NewLimiterClient(conn).CheckBatch(asking(asBatch),
		&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{ask, ask}}); err != nil {
		t.Fatal(err)
	}
	stream, err := weirv1.NewLimiterClient(conn).CheckStream(asking(asColumns))
	if err != nil {
		t.Fatal(err)
	}
	columns := &weirv1.CheckColumns{Keys: []byte("/towns" + user), PathLengths: []uint32{6},
		UserLengths: []uint32{uint32(len(user))}}
	if err := stream.Send(columns); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	for _, traceparent := range []string{"00-" + overHTTP + "-b7ad6b7169203331-01", excluded, ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+nodes[0].Addresses().HTTP+"/v1/check?path=/towns&user="+user, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Traceparent", traceparent)
		r.Close = true
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Traceparent"); (got != "") != (traceparent != "" && traceparent != excluded) {
			t.Errorf("asked with %q, answered with %q", traceparent, got)
		}
	}
	for _, c := range []struct{ trace, served, forwarded string }{
		{overGRPC, "Check", "weir.forward"}, {overHTTP, "GET /v1/check", "weir.forward"},
		{asBatch, "CheckBatch", "weir.batch"}, {asColumns, "CheckStream", "weir.batch"},
	} {
		eventually(t, "all spans of "+c.served+" have come", func() bool {
			got := all.of(c.trace)
			return has(got, "weir.wait_for_heir") && has(got, "weir.decide") && has(got, c.forwarded) && has(got, c.served)
		})
		below := "b7ad6b7169203331"
		for _, want := range []recorded{{node: "node-0", name: c.served}, {node: "node-0", name: c.forwarded},
			{node: "node-1", name: "weir.decide"}, {node: "node-1", name: "weir.wait_for_heir"}} {
			got := all.of(c.trace)
			at := slices.IndexFunc(got, func(x recorded) bool {
				return x.node == want.node && x.name == want.name && x.parent == below
			})
			if at < 0 {
				t.Fatalf("no %s of %s below %s in %+v", want.name, want.node, below, got)
			}
			below = got[at].span
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, x := range all.all {
		if !slices.Contains([]string{overGRPC, overHTTP, asBatch, asColumns}, x.trace) {
			t.Errorf("what no client asked for is traced, or what it excludes: %+v", x)
		}
	}
}

func has(all []recorded, name string) bool {
	return slices.ContainsFunc(all, func(x recorded) bool { return x.name == name })
}

// ownedBy returns a user whose key a member owns.
func ownedBy(t *testing.T, s *Server, owner string) string {
	t.Helper()
	for n := range 1000 {
		user := fmt.Sprint("user-", n)
		var d limiter.Decision
		if err := s.Node().PeekInto(t.Context(), &limiter.Request{Path: "/towns", User: user}, &d); err != nil {
			t.Fatal(err)
		}
		if d.Len() == 1 && d.Limit(0).Owner == owner {
			return user
		}
	}
	t.Fatalf("%s owns nothing", owner)
	return ""
}

// A node without a collector does not know what tracing is: nothing is traced, and nothing fails.
func TestNoTraces(t *testing.T) {
	c, _ := plain()
	s := start(t, c)
	if s.forRequests() != nil {
		t.Error("there is a tracer")
	}
	c.Trace = &TraceConfig{Endpoint: "collector:4317"}
	if s, err := Start(t.Context(), c); err == nil {
		t.Errorf("%v starts with a collector whose address is not valid", s)
	}
}
