package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/certs/certstest"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
)

// gubernatorNodes starts nodes with Gubernator's protocol: one by itself, or several that are
// members.
func gubernatorNodes(t *testing.T, n int) (servers []*Server) {
	t.Helper()
	var join []string
	for i := range n {
		c, _ := plain()
		c.Gubernator = GubernatorConfig{Addr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0"}
		c.AllowRequestLimits, c.AllowReset, c.AllowRefunds = true, true, true
		if n > 1 {
			c.Cluster = &cluster.Config{Name: fmt.Sprint("node-", i), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
				Join: join, Deadline: time.Second}
		}
		s := start(t, c)
		eventually(t, "the member is ready", func() bool { return s.Ready() == nil })
		if n > 1 && i == 0 {
			join = []string{s.Node().Cluster().Members()[0].Address}
		}
		servers = append(servers, s)
	}
	return servers
}

// door asks one node for rate limits, by one of its ways.
type door func(t *testing.T, in *pb.GetRateLimitsReq) *pb.GetRateLimitsResp

// doors are gRPC and JSON at each node.
func doors(t *testing.T, servers []*Server) (out []door) {
	t.Helper()
	for _, s := range servers {
		grpcAddr, httpAddr := s.Addresses().Gubernator, s.Addresses().GubernatorHTTP
		client := pb.NewV1Client(dial(t, grpcAddr))
		out = append(out, func(t *testing.T, in *pb.GetRateLimitsReq) *pb.GetRateLimitsResp {
			t.Helper()
			out, err := client.GetRateLimits(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}, func(t *testing.T, in *pb.GetRateLimitsReq) *pb.GetRateLimitsResp {
			t.Helper()
			body, err := protojson.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			code, text := postJSON(t, "http://"+httpAddr+"/v1/GetRateLimits", string(body))
			if code != 200 {
				t.Fatalf("%d: %s", code, text)
			}
			out := new(pb.GetRateLimitsResp)
			if err := protojson.Unmarshal([]byte(text), out); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return out
		})
	}
	return out
}

// postJSON posts JSON on a connection of its own.
func postJSON(t *testing.T, url, body string) (int, string) {
	t.Helper()
	return answerTo(t, http.MethodPost, url, body, "Content-Type", "application/json")
}

// want is an answer: its status, what remains and in which time its reset is, or a part of its
// error. A reset of -1 is none.
type want struct {
	over  bool
	left  int64
	reset time.Duration
	err   string
}

// differs returns how an answer, which was asked for between two instants, is another one; ""
// if it is not.
func (w want) differs(in *pb.RateLimitReq, out *pb.RateLimitResp, begin, end time.Time) string {
	if w.err != "" {
		if !strings.Contains(out.GetError(), w.err) || out.GetStatus() != pb.Status_UNDER_LIMIT {
			return fmt.Sprintf("%v, want the error %s", out, w.err)
		}
		return ""
	}
	least, most := begin.Add(w.reset).UnixMilli(), end.Add(w.reset).UnixMilli()+1
	if w.reset < 0 {
		least, most = 0, 0
	}
	if out.GetError() != "" || (out.GetStatus() == pb.Status_OVER_LIMIT) != w.over || out.GetRemaining() != w.left ||
		out.GetLimit() != in.GetLimit() {
		return fmt.Sprintf("%v, want %+v", out, w)
	}
	if at := out.GetResetTime(); at < least || at > most {
		return fmt.Sprintf("%v, want a reset from %d to %d", out, least, most)
	}
	return ""
}

const (
	token = pb.Algorithm_TOKEN_BUCKET
	leaky = pb.Algorithm_LEAKY_BUCKET
	day   = 24 * time.Hour
)

// contractStep is one rate limit and its answer. Steps of one key are sent in turn to all doors.
type contractStep struct {
	hits, limit, burst int64
	algorithm          pb.Algorithm
	behavior           pb.Behavior
	want               want
}

// gubernatorContract is the table of the protocol: each row of its documentation, with windows
// of a day, of which no more than the time of a test passes.
func gubernatorContract() map[string][]contractStep {
	const (
		none   = pb.Behavior_BATCHING
		reset  = pb.Behavior_RESET_REMAINING
		drain  = pb.Behavior_DRAIN_OVER_LIMIT
		global = pb.Behavior_GLOBAL
	)
	return map[string][]contractStep{
		"token": {
			{0, 5, 0, token, none, want{false, 5, day, ""}},
			{1, 5, 0, token, none, want{false, 4, day, ""}},
			{5, 5, 0, token, none, want{true, 4, day, ""}},
			{4, 5, 0, token, none, want{false, 0, day, ""}},
			{1, 5, 0, token, none, want{true, 0, day, ""}},
			{0, 5, 0, token, none, want{false, 0, day, ""}},
		},
		"token-first-over": {{6, 5, 0, token, none, want{true, 5, day, ""}},
			{5, 5, 0, token, none, want{false, 0, day, ""}}},
		"token-limit-change": {{1, 100, 0, token, none, want{false, 99, day, ""}},
			{1, 10, 0, token, none, want{false, 8, day, ""}}, {1, 100, 0, token, none, want{false, 97, day, ""}}},
		"token-raised": {{1, 1, 0, token, none, want{false, 0, day, ""}},
			{1, 1, 0, token, none, want{true, 0, day, ""}}, {1, 100, 0, token, none, want{false, 98, day, ""}}},
		"token-negative": {{2, 2, 0, token, none, want{false, 0, day, ""}},
			{-1, 2, 0, token, none, want{false, 1, day, ""}}, {-9, 2, 0, token, none, want{false, 2, day, ""}}},
		"token-reset": {{5, 5, 0, token, none, want{false, 0, day, ""}},
			{3, 5, 0, token, reset, want{false, 5, -1, ""}}, {5, 5, 0, token, none, want{false, 0, day, ""}}},
		"token-drain": {{3, 5, 0, token, none, want{false, 2, day, ""}},
			{4, 5, 0, token, drain, want{true, 0, day, ""}}, {0, 5, 0, token, none, want{false, 0, day, ""}}},
		"token-burst": {{1, 5, 50, token, none, want{false, 4, day, ""}}},
		"token-limit-0": {{1, 0, 0, token, none, want{true, 0, day, ""}},
			{0, 0, 0, token, none, want{false, 0, day, ""}}},
		"global": {{2, 5, 0, token, global, want{false, 3, day, ""}},
			{4, 5, 0, token, global, want{true, 3, day, ""}}, {3, 5, 0, token, global | drain, want{false, 0, day, ""}}},
		"no-batching": {{2, 5, 0, token, pb.Behavior_NO_BATCHING, want{false, 3, day, ""}},
			{3, 5, 0, token, pb.Behavior_MULTI_REGION, want{false, 0, day, ""}}},
		"leaky": {
			{1, 10, 0, leaky, none, want{false, 9, day / 10, ""}},
			{0, 10, 0, leaky, none, want{false, 9, day / 10, ""}},
			{9, 10, 0, leaky, none, want{false, 0, day, ""}},
			{1, 10, 0, leaky, none, want{true, 0, day, ""}},
			{-4, 10, 0, leaky, none, want{false, 4, day * 6 / 10, ""}},
			{5, 10, 0, leaky, none, want{true, 4, day * 6 / 10, ""}},
			{5, 10, 0, leaky, drain, want{true, 0, day, ""}},
			{3, 10, 0, leaky, reset, want{false, 10, 0, ""}},
		},
		"leaky-burst": {{1, 10, 20, leaky, none, want{false, 19, day / 10, ""}},
			{20, 10, 20, leaky, none, want{true, 19, day / 10, ""}}, {19, 10, 20, leaky, none, want{false, 0, 2 * day, ""}}},
		"leaky-first-over": {{11, 10, 0, leaky, none, want{true, 10, 0, ""}}},
		"switched": {{5, 5, 0, token, none, want{false, 0, day, ""}},
			{1, 5, 0, leaky, none, want{false, 4, day / 5, ""}}},
		"algorithm":      {{1, 5, 0, 7, none, want{err: "Invalid rate limit algorithm '7'"}}},
		"negative-limit": {{1, -5, 0, token, none, want{err: "limit -5 is out of range"}}},
	}
}

// Every row of the contract, over gRPC and as JSON, through one node and through three that
// count together.
func TestGubernatorContract(t *testing.T) {
	sizes := []int{1, 3}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, nodes := range sizes {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			all := doors(t, gubernatorNodes(t, nodes))
			for name, steps := range gubernatorContract() {
				begin := time.Now()
				for i, s := range steps {
					in := &pb.RateLimitReq{
						Name: "contract", UniqueKey: name, Hits: s.hits, Limit: s.limit, Burst: s.burst, Duration: day.Milliseconds(),
						Algorithm: s.algorithm, Behavior: s.behavior,
					}
					out := all[i%len(all)](t, &pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{in}}).GetResponses()
					if len(out) != 1 {
						t.Fatalf("%s: %v", name, out)
					}
					if bad := s.want.differs(in, out[0], begin, time.Now()); bad != "" {
						t.Errorf("%s, step %d: %s", name, i, bad)
					}
				}
			}
		})
	}
}

// A message of many rate limits is answered in its order, by whichever members own them; those
// that another member decided name it, and health lists all.
func TestGubernatorOnThreeMembers(t *testing.T) {
	membersInOneProcess(t)
	servers := gubernatorNodes(t, 3)
	all := doors(t, servers)
	in := new(pb.GetRateLimitsReq)
	for i := range 100 {
		in.Requests = append(in.Requests, &pb.RateLimitReq{Name: "many", UniqueKey: fmt.Sprint(i % 50), Hits: 1, Limit: 12,
			Duration: day.Milliseconds()})
	}
	in.Requests = append(in.Requests, &pb.RateLimitReq{Name: "many", Hits: 1})
	owners := map[string]int{}
	for at, ask := range all { // each key is hit twice at each of six doors
		out := ask(t, in).GetResponses()
		if len(out) != 101 || out[100].GetError() != "field 'unique_key' cannot be empty" {
			t.Fatalf("%d answers, the last is %v", len(out), out[len(out)-1])
		}
		for i, r := range out[:100] {
			if want := int64(12 - 2*at - i/50 - 1); r.GetRemaining() != want || r.GetError() != "" ||
				r.GetStatus() != pb.Status_UNDER_LIMIT {
				t.Errorf("door %d, item %d: %v, want %d left", at, i, r, want)
			}
			owner := r.GetMetadata()["owner"]
			if owner == fmt.Sprint("node-", at/2) || len(r.GetMetadata()) > 1 {
				t.Errorf("door %d, item %d: %v", at, i, r.GetMetadata())
			}
			owners[owner]++
		}
	}
	for _, owner := range []string{"", "node-0", "node-1", "node-2"} {
		if owners[owner] == 0 {
			t.Errorf("none was decided by %q: %v", owner, owners)
		}
	}
	if out := all[0](t, in).GetResponses(); out[0].GetStatus() != pb.Status_OVER_LIMIT ||
		out[99].GetStatus() != pb.Status_OVER_LIMIT {
		t.Errorf("the 13th hit: %v", out[0])
	}
	for i, s := range servers {
		grpcAddr, httpAddr := s.Addresses().Gubernator, s.Addresses().GubernatorHTTP
		h, err := pb.NewV1Client(dial(t, grpcAddr)).HealthCheck(t.Context(), &pb.HealthCheckReq{})
		if err != nil || h.GetStatus() != "healthy" || h.GetPeerCount() != 3 || len(h.GetLocalPeers()) != 3 ||
			h.GetAdvertiseAddress() != s.Addresses().GRPC {
			t.Errorf("member %d: %v, %v", i, h, err)
		}
		if code, text := get(t, "http://"+httpAddr+"/v1/HealthCheck"); code != 200 ||
			!strings.HasPrefix(text, `{"status":"healthy","message":"","peer_count":3,`) {
			t.Errorf("member %d: %d, %s", i, code, text)
		}
		_, text := get(t, "http://"+s.Addresses().Admin+"/metrics")
		for _, name := range []string{`method="Gubernator GetRateLimits",code="OK"`,
			`method="POST /v1/GetRateLimits",code="200"`} {
			if parts := strings.Split(name, ","); !strings.Contains(text, parts[0]) || !strings.Contains(text, parts[1]) {
				t.Errorf("member %d has no metric with %s", i, name)
			}
		}
	}
}

// Bad input is refused in the door's form, and others are answered.
func TestGubernatorBadInput(t *testing.T) {
	s := gubernatorNodes(t, 1)[0]
	grpcAddr, httpAddr := s.Addresses().Gubernator, s.Addresses().GubernatorHTTP
	client := pb.NewV1Client(dial(t, grpcAddr))
	many := new(pb.GetRateLimitsReq)
	for range 1001 {
		many.Requests = append(many.Requests, &pb.RateLimitReq{Name: "n", UniqueKey: "k", Hits: 1, Limit: 1_000_000,
			Duration: day.Milliseconds()})
	}
	large := &pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{{Name: "n", UniqueKey: strings.Repeat("x", 1<<20), Hits: 1,
		Limit: 5, Duration: 1000}}}
	for name, x := range map[string]struct {
		in   *pb.GetRateLimitsReq
		code codes.Code
	}{"1001 items": {many, codes.OutOfRange}, "1 MiB": {large, codes.ResourceExhausted},
		"nothing": {&pb.GetRateLimitsReq{}, codes.OK}} {
		if _, err := client.GetRateLimits(t.Context(), x.in); status.Code(err) != x.code {
			t.Errorf("%s: %v, want %v", name, err, x.code)
		}
		body, err := protojson.Marshal(x.in)
		if err != nil {
			t.Fatal(err)
		}
		code, text := postJSON(t, "http://"+httpAddr+"/v1/GetRateLimits", string(body))
		if want := map[codes.Code]int{codes.OutOfRange: 400, codes.ResourceExhausted: 413,
			codes.OK: 200}[x.code]; code != want || !json.Valid([]byte(text)) {
			t.Errorf("%s as JSON: %d, %.300s", name, code, text)
		}
	}
	if code, text := postJSON(t, "http://"+httpAddr+"/v1/GetRateLimits", "{"); code != 400 ||
		!strings.Contains(text, `"code":3`) {
		t.Errorf("no JSON: %d, %s", code, text)
	}
	for path, want := range map[string]int{"/v1/GetRateLimits": 405, "/v1/check": 404, "/v1/GetPeerRateLimits": 404,
		"/v1/LiveCheck": 200} {
		if code, text := get(t, "http://"+httpAddr+path); code != want {
			t.Errorf("%s: %d, %s", path, code, text)
		}
	}
	long := metadata.AppendToOutgoingContext(t.Context(), "tracestate", strings.Repeat("a=b,", 15<<10))
	if _, err := client.GetRateLimits(long, &pb.GetRateLimitsReq{}); err != nil {
		t.Errorf("60 KiB of metadata: %v", err)
	}
	conn := dial(t, grpcAddr)
	for _, method := range []string{"/weir.v1.Limiter/Check", "/pb.gubernator.PeersV1/GetPeerRateLimits"} {
		if err := conn.Invoke(t.Context(), method, &pb.LiveCheckReq{},
			&pb.LiveCheckResp{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, service := range []string{"", "pb.gubernator.V1"} {
		if h, err := healthv1.NewHealthClient(conn).Check(t.Context(),
			&healthv1.HealthCheckRequest{Service: service}); err != nil ||
			h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, h, err)
		}
	}
	if out, err := client.GetRateLimits(t.Context(),
		&pb.GetRateLimitsReq{Requests: many.GetRequests()[:1000]}); err != nil ||
		out.GetResponses()[999].GetRemaining() != 999_000 {
		t.Errorf("1000 items after that: %v", err)
	}
}

// While a node stops, LiveCheck says so in the words that clients know, and the node outside a
// cluster is a member by itself.
func TestGubernatorHealth(t *testing.T) {
	c, _ := plain()
	c.Gubernator, c.AllowRequestLimits = GubernatorConfig{Addr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0"}, true
	s := start(t, c)
	grpcAddr, httpAddr := s.Addresses().Gubernator, s.Addresses().GubernatorHTTP
	whole := `{"status":"healthy","message":"","peer_count":1,"advertise_address":"` + grpcAddr +
		`","local_peers":[{"grpc_address":"` + grpcAddr + `","data_center":""}],"region_peers":[]}`
	if code, text := get(t, "http://"+httpAddr+"/v1/HealthCheck"); code != 200 || text != whole {
		t.Errorf("%d: %s, want %s", code, text, whole)
	}
	client := pb.NewV1Client(dial(t, grpcAddr))
	if _, err := client.LiveCheck(t.Context(), &pb.LiveCheckReq{}); err != nil {
		t.Error(err)
	}
	s.stopping.Store(true)
	if _, err := client.LiveCheck(t.Context(), &pb.LiveCheckReq{}); status.Code(err) != codes.Unavailable ||
		status.Convert(err).Message() != "server is shutting down" {
		t.Error(err)
	}
	if _, err := client.HealthCheck(t.Context(), &pb.HealthCheckReq{}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	s.stopping.Store(false)
}

// With TLS and permissions a client shows a certificate, and its tenant has keys of its own.
// What it may not do is refused, over gRPC and as JSON, and is in the audit.
func TestGubernatorWithTLS(t *testing.T) {
	authority := certstest.New(t, "clients")
	paths := authority.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	c, _ := plain()
	c.Gubernator = GubernatorConfig{Addr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0"}
	c.TLS = &TLSConfig{CertFile: paths.Cert, KeyFile: paths.Key, ClientCAFile: paths.CA,
		ClientCert: tls.VerifyClientCertIfGiven}
	c.Audit = file(t, "")
	c.Permissions = file(t, `
identities:
  - {name: shop, certificate: {cn: shop}, tenant: shop, may: {check: true, peek: true, limits: true, reset: true, refund: true}}
  - {name: bank, certificate: {cn: bank}, tenant: bank, may: {check: true, limits: true}}
  - {name: poor, certificate: {cn: poor}, may: {check: true}}
`)
	s := start(t, c)
	grpcAddr, httpAddr := s.Addresses().Gubernator, s.Addresses().GubernatorHTTP
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	body, err := protojson.Marshal(&pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{
		{Name: "n", UniqueKey: "k", Hits: 1, Limit: 4, Duration: day.Milliseconds()},
		{Name: "n", UniqueKey: "k", Hits: 0, Limit: 4, Duration: day.Milliseconds()},
		{Name: "n", UniqueKey: "other", Hits: -1, Limit: 4, Duration: day.Milliseconds()},
		{Name: "n", UniqueKey: "other", Limit: 4, Duration: day.Milliseconds(), Behavior: pb.Behavior_RESET_REMAINING},
	}})
	if err != nil {
		t.Fatal(err)
	}
	in := new(pb.GetRateLimitsReq)
	if err := protojson.Unmarshal(body, in); err != nil {
		t.Fatal(err)
	}
	shown := func(out *pb.GetRateLimitsResp) string {
		var all []string
		for _, r := range out.GetResponses() {
			if all = append(all, fmt.Sprint(r.GetRemaining())); r.GetError() != "" {
				all[len(all)-1] = "no"
			}
		}
		return strings.Join(all, " ")
	}
	for _, x := range []struct {
		name, grpc, json string
		code             int
	}{
		{"shop", "3 3 4 4", "2 2 4 4", 200}, {"bank", "3 no no no", "2 no no no", 200},
		{"poor", "no no no no", "no no no no", 200},
		{"", "Unauthenticated", "", 401}, {"nobody", "PermissionDenied", "", 403},
	} {
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
		if x.name != "" {
			cert, key := authority.Issue(t, certstest.Leaf{Name: x.name})
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		out, err := pb.NewV1Client(conn).GetRateLimits(t.Context(), in)
		if got := shown(out); err == nil && got != x.grpc || err != nil && status.Code(err).String() != x.grpc {
			t.Errorf("%q over gRPC: %s, %v, want %s", x.name, got, err, x.grpc)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		transport := &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+httpAddr+"/v1/GetRateLimits",
			bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		transport.CloseIdleConnections()
		if err != nil || resp.StatusCode != x.code {
			t.Errorf("%q as JSON: %d, %s, %v", x.name, resp.StatusCode, text, err)
		}
		if x.code == 200 {
			out := new(pb.GetRateLimitsResp)
			if err := protojson.Unmarshal(text, out); err != nil || shown(out) != x.json {
				t.Errorf("%q as JSON: %s, %v, want %s", x.name, shown(out), err, x.json)
			}
		}
	}
	eventually(t, "the audit has what was refused and what was done", func() bool {
		text, err := os.ReadFile(c.Audit)
		return err == nil && strings.Contains(string(text), `"bank"`) && strings.Contains(string(text), `"gubernator"`) &&
			strings.Contains(string(text), `"reset"`) && strings.Contains(string(text), `"refund"`)
	})
}
