package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/limiter"
)

const envoyFile = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3}
`

// envoyConfig is the configuration of the service with one file. A year does not end while a
// test runs, except once a year.
func envoyConfig(t *testing.T, text string) (c *EnvoyConfig, file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &EnvoyConfig{Addr: "127.0.0.1:0", Dir: dir, Options: envoy.Options{Algorithm: limiter.FixedWindow}}, file
}

// askEnvoy asks for a value of the descriptor user and returns the overall code and what
// remains.
func askEnvoy(t *testing.T, conn *grpc.ClientConn, user string) string {
	t.Helper()
	out, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
		Domain: "edge",
		Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user",
			Value: user}}}},
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v %d", out.GetOverallCode(), out.GetStatuses()[0].GetLimitRemaining())
}

// Envoy's service has a listener of its own, with its name of health and nothing else, and
// follows its files. A file that is not valid changes nothing.
func TestEnvoy(t *testing.T) {
	c, log := plain()
	var name string
	c.Envoy, name = envoyConfig(t, envoyFile)
	s := start(t, c)
	conn := dial(t, s.Addresses().Envoy)
	for _, want := range []string{"OK 2", "OK 1", "OK 0", "OVER_LIMIT 0"} {
		if got := askEnvoy(t, conn, "ada"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, service := range []string{"", "ratelimit", rls.RateLimitService_ServiceDesc.ServiceName} {
		if h, err := healthv1.NewHealthClient(conn).Check(t.Context(),
			&healthv1.HealthCheckRequest{Service: service}); err != nil ||
			h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, h, err)
		}
	}
	if err := conn.Invoke(t.Context(), "/weir.v1.Limiter/Check", &rls.RateLimitRequest{},
		&rls.RateLimitResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("checks of Weir's own protocol at Envoy's port: %v", err)
	}
	replace(t, name, strings.Replace(envoyFile, "year", "fortnight", 1))
	eventually(t, "the log has the error", func() bool {
		return strings.Contains(log.String(), "config.yaml: invalid rate limit unit 'fortnight'") &&
			strings.Contains(log.String(), "the old descriptors stay in force")
	})
	if got := askEnvoy(t, conn, "bob"); got != "OK 2" {
		t.Errorf("after a file that is not valid: %s", got)
	}
	replace(t, name, strings.Replace(envoyFile, "3}", "5}", 1))
	eventually(t, "the new file is in force", func() bool {
		return strings.Contains(log.String(), "descriptors are in force")
	})
	if got := askEnvoy(t, conn, "eve"); got != "OK 4" {
		t.Errorf("after a reload: %s", got)
	}
	move(t, filepath.Dir(name), filepath.Dir(name)+".away")
	eventually(t, "the log has that the files are gone", func() bool {
		return strings.Contains(log.String(), "no such file")
	})
	move(t, filepath.Dir(name)+".away", filepath.Dir(name))
	eventually(t, "the log has that the files are back", func() bool {
		return strings.Contains(log.String(), "descriptors can be read again")
	})
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// A call with an id in its header counts once.
func TestEnvoyIDs(t *testing.T) {
	c, _ := plain()
	c.Envoy, _ = envoyConfig(t, envoyFile)
	c.Envoy.Options.ID = "x-request-id"
	client := rls.NewRateLimitServiceClient(dial(t, start(t, c).Addresses().Envoy))
	in := &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}}}}
	for _, x := range []struct {
		id   string
		left uint32
	}{{"7", 2}, {"7", 2}, {"8", 1}, {"", 0}} {
		out, err := client.ShouldRateLimit(metadata.AppendToOutgoingContext(t.Context(), "x-request-id", x.id), in)
		if err != nil || out.GetStatuses()[0].GetLimitRemaining() != x.left {
			t.Errorf("id %q: %v, %v", x.id, out, err)
		}
	}
}

// Bad input gets a clear refusal before much is built, and the node goes on.
func TestEnvoyBadInput(t *testing.T) {
	c, _ := plain()
	c.Envoy, _ = envoyConfig(t, envoyFile)
	s := start(t, c)
	conn := dial(t, s.Addresses().Envoy)
	entry := []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}
	many := make([]*ratelimit.RateLimitDescriptor, 10_000)
	for i := range many {
		many[i] = &ratelimit.RateLimitDescriptor{Entries: entry}
	}
	wide := &ratelimit.RateLimitDescriptor{}
	for range 2000 {
		wide.Entries = append(wide.Entries, &ratelimit.RateLimitDescriptor_Entry{})
	}
	for what, x := range map[string]struct {
		request *rls.RateLimitRequest
		code    codes.Code
		text    string
	}{
		"no domain": {&rls.RateLimitRequest{Descriptors: many[:1]}, codes.InvalidArgument,
			"rate limit domain must not be empty"},
		"no descriptors": {&rls.RateLimitRequest{Domain: "edge"}, codes.InvalidArgument,
			"rate limit descriptor list must not be empty"},
		"10,000 descriptors": {&rls.RateLimitRequest{Domain: "edge", Descriptors: many}, codes.InvalidArgument,
			"more than 128 descriptors"},
		"200 descriptors": {&rls.RateLimitRequest{Domain: "edge", Descriptors: many[:200]}, codes.InvalidArgument,
			"more than 128 descriptors"},
		"2,000 entries": {&rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{wide}},
			codes.InvalidArgument, "more than 1024 entries"},
		"a value of 5 MiB": {&rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: strings.Repeat("x", 5<<20)}}}}},
			codes.ResourceExhausted, "larger than max"},
	} {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), x.request)
		if status.Code(err) != x.code || !strings.Contains(status.Convert(err).Message(), x.text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What the client library does not send: half a message.
	const method = rls.RateLimitService_ShouldRateLimit_FullMethodName
	err := conn.Invoke(t.Context(), method, []byte{0x0a, 0x7f, 'x'}, &rls.RateLimitResponse{},
		grpc.ForceCodec(bytesCodec{}))
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("half a field: %v", err)
	}
	if got := askEnvoy(t, conn, "ada"); got != "OK 2" {
		t.Errorf("afterwards: %s", got)
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return bytes.Clone(v.([]byte)), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }
func (bytesCodec) Name() string                    { return "proto" }

// No value that a client of Envoy can send makes an error, as Envoy would let its request pass: long ones are
// counted by a hash, and bytes that are not UTF-8 as they are.
func TestEnvoyCountsWhatClientsSend(t *testing.T) {
	c, _ := plain()
	const deep = "  - {key: path, descriptors: [{key: agent, rate_limit: {unit: year, requests_per_unit: 1}}]}\n"
	c.Envoy, _ = envoyConfig(t, envoyFile+deep)
	c.Envoy.Options.ID, c.Envoy.Options.Metadata = "x-request-id", true
	conn := dial(t, start(t, c).Addresses().Envoy)
	ask := func(entries ...string) string {
		t.Helper()
		var raw []byte
		for i := 0; i < len(entries); i += 2 { // by hand, as the library refuses what Envoy sends
			var e []byte
			e = protowire.AppendString(protowire.AppendTag(e, 1, protowire.BytesType), entries[i])
			e = protowire.AppendString(protowire.AppendTag(e, 2, protowire.BytesType), entries[i+1])
			raw = protowire.AppendBytes(protowire.AppendTag(raw, 1, protowire.BytesType), e)
		}
		in := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "edge")
		in = protowire.AppendBytes(protowire.AppendTag(in, 2, protowire.BytesType), raw)
		out, method := new(rls.RateLimitResponse), rls.RateLimitService_ShouldRateLimit_FullMethodName
		if err := conn.Invoke(t.Context(), method, in, out, grpc.ForceCodec(bytesCodec{})); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%v %d", out.GetOverallCode(), out.GetStatuses()[0].GetLimitRemaining())
	}
	long := strings.Repeat("x", 33<<10)
	for _, x := range []struct {
		entries []string
		want    string
	}{
		{[]string{"path", long, "agent", long}, "OK 0"},
		{[]string{"path", long, "agent", long}, "OVER_LIMIT 0"},
		{[]string{"path", long, "agent", long + "y"}, "OK 0"},
		{[]string{"user", "\xff"}, "OK 2"},
		{[]string{"user", "\xff"}, "OK 1"},
		{[]string{"user", "\xfe"}, "OK 2"},
		{[]string{"user", "\ufffd"}, "OK 2"},
		{[]string{"user", strings.Repeat("\xff", 3<<20)}, "OK 2"},
		{[]string{"user", strings.Repeat("\xff", 3<<20)}, "OK 1"},
		{[]string{"user", "bob", "x-request-id", long}, "OK 2"},
		{[]string{"user", "bob", "x-request-id", long}, "OK 2"}, // again
		{[]string{"user", "bob", "x-request-id", long + "y"}, "OK 1"},
		{[]string{"user", "bob", "x-request-id", "\xff"}, "OK 0"},
	} {
		if got := ask(x.entries...); got != x.want {
			t.Errorf("%s with a value of %d bytes: %s, want %s", x.entries[0], len(x.entries[1]), got, x.want)
		}
	}
}

// Three members count Envoy's requests together, in both modes.
func TestEnvoyOnThreeMembers(t *testing.T) {
	membersInOneProcess(t)
	for mode, name := range []string{"compat", "atomic"} {
		t.Run(name, func(t *testing.T) {
			var conns []*grpc.ClientConn
			var join []string
			for i := range 3 {
				c, _ := plain()
				c.Envoy, _ = envoyConfig(t, envoyFile)
				c.Envoy.Options.Mode = envoy.Mode(mode)
				c.Cluster = &cluster.Config{Name: fmt.Sprint("node-", i), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
					Join: join}
				s := start(t, c)
				eventually(t, "the member is ready", func() bool { return s.Ready() == nil })
				if i == 0 {
					members := s.Node().Cluster().Members()
					if len(members) != 1 {
						t.Fatal(members)
					}
					join = []string{members[0].Address}
				}
				conns = append(conns, dial(t, s.Addresses().Envoy))
			}
			for user := range 20 {
				for i, want := range []string{"OK 2", "OK 1", "OK 0", "OVER_LIMIT 0", "OVER_LIMIT 0"} {
					if got := askEnvoy(t, conns[i%3], fmt.Sprint("user-", user)); got != want {
						t.Errorf("user %d, request %d: %s, want %s", user, i, got, want)
					}
				}
			}
		})
	}
}

// A node whose first files are not valid does not start, and says why.
func TestEnvoyCannotStart(t *testing.T) {
	c, _ := plain()
	c.Envoy, _ = envoyConfig(t, "domain: edge\ndescriptors: [{value: x}]")
	if s, err := Start(t.Context(), c); err == nil || err.Error() != "config.yaml: descriptor has empty key" {
		t.Errorf("%v, %v", s, err)
	}
}
