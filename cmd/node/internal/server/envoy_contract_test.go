package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/envoy"
)

// contract is one example of envoyproxy/ratelimit's README, or one rule of its behaviour. All
// windows are years, so that none ends while a test runs.
type contract struct {
	name string
	file string // without its domain, which is the name
	asks []asked
}

// asked is a request and its answer. Descriptors are separated by semicolons. In atomic mode
// the answer is atomic, if that is not empty.
type asked struct{ descriptors, want, atomic string }

// contracts returns the table.
func contracts() []contract {
	const y = "rate_limit: {unit: year, requests_per_unit: "
	repeated := func(n int, a asked) (out []asked) {
		for range n {
			out = append(out, a)
		}
		return out
	}
	return []contract{
		{"readme-1-two-values", "[{key: database, value: users, " + y + "500}}, {key: database, value: default, " + y +
			"500}}]", []asked{
			{"database=users hits=500", "ok: ok 500 left 0", ""},
			{"database=users", "over: over 500 left 0", ""},
			{"database=default", "ok: ok 500 left 499", ""},
			{"database=other", "ok: ok", ""},
		}},
		{"readme-2-nested-and-flat", "[{key: kind, value: ad, descriptors: [{key: to, " + y + "5}}]}, {key: to, " + y +
			"100}}]", append(
			repeated(5, asked{"kind=ad to=1; to=1", "ok", ""}),
			asked{"kind=ad to=1; to=1", "over: over 5 left 0; ok 100 left 94", "over: over 5 left 0; ok 100 left 95"},
			asked{"kind=ad to=2; to=2", "ok: ok 5 left 4; ok 100 left 99", ""},
			asked{"kind=ad", "ok: ok", ""},
		)},
		{"readme-3-value-before-key", "[{key: remote_address, " + y + "10}}, {key: remote_address, value: 50.0.0.5, " + y +
			"0}}]", []asked{
			{"remote_address=50.0.0.1", "ok: ok 10 left 9", ""},
			{"remote_address=50.0.0.2", "ok: ok 10 left 9", ""},
			{"remote_address=50.0.0.5", "over: over 0 left 0", ""},
		}},
		{"readme-4-depth", "[{key: key, value: value, " + y +
			"300}}, {key: deep, value: value, descriptors: [{key: subkey, " + y + "300}}]}]", []asked{
			{"key=value", "ok: ok 300 left 299", ""},
			{"key=value subkey=subvalue", "ok: ok", ""},
			{"deep=value subkey=subvalue", "ok: ok 300 left 299", ""},
			{"deep=value", "ok: ok", ""},
		}},
		{"readme-5-unlimited", "[{key: ldap, rate_limit: {unlimited: true}}, {key: azure, " + y + "100}}]", []asked{
			{"ldap=x hits=1000", "ok: ok left 4294967295", ""},
			{"azure=x; ldap=x", "ok: ok 100 left 99; ok left 4294967295", ""},
		}},
		{"readme-6-shadow", "[{key: service, descriptors: [{key: user, value: a, shadow_mode: true, " + y +
			"10}}, {key: user, value: b, " + y + "20}}]}]", []asked{
			{"service=auth user=a hits=10", "ok: ok 10 left 0", ""},
			{"service=auth user=a", "ok: ok 10 left 0", ""},
			{"service=auth user=b hits=20", "ok: ok 20 left 0", ""},
			{"service=auth user=b", "over: over 20 left 0", ""},
			{"service=auth user=c", "ok: ok", ""},
		}},
		{"readme-7-replaces",
			"[{key: k1, value: v1, descriptors: [{key: user, value: bo, rate_limit: {name: special, unit: year, " +
				"requests_per_unit: 5}}]}, " +
				"{key: k2, value: v2, descriptors: [{key: user, value: bo, rate_limit: {replaces: [{name: special}], unit: year, " +
				"requests_per_unit: 10}}]}]", []asked{
				{"k1=v1 user=bo", "ok: ok 5 special left 4", ""},
				{"k2=v2 user=bo", "ok: ok 10 left 9", ""},
				{"k1=v1 user=bo; k2=v2 user=bo", "ok: ok; ok 10 left 8", ""},
				{"k1=v1 user=bo", "ok: ok 5 special left 3", ""},
			}},
		{"readme-8-detailed-metric", "[{key: key1, detailed_metric: true, " + y + "10}}, {key: key1, value: value1, " + y +
			"20}}]", []asked{
			{"key1=one", "ok: ok 10 left 9", ""},
			{"key1=two", "ok: ok 10 left 9", ""},
			{"key1=value1", "ok: ok 20 left 19", ""},
		}},
		{"readme-9-wildcard", "[{key: key1, value: value*, " + y + "20}}]", []asked{
			{"key1=value1", "ok: ok 20 left 19", ""},
			{"key1=value2", "ok: ok 20 left 19", ""},
			{"key1=value", "ok: ok 20 left 19", ""},
			{"key1=valu", "ok: ok", ""},
		}},
		{"exact-wildcard-bare", "[{key: a, " + y + "1}}, {key: a, value: x*, " + y + "2}}, {key: a, value: '*z', " + y +
			"3}}, {key: a, value: xyz, " + y + "4}}]", []asked{
			{"a=xyz", "ok: ok 4", ""},
			{"a=xz", "ok: ok 2", ""},
			{"a=yz", "ok: ok 3", ""},
			{"a=y", "ok: ok 1", ""},
		}},
		{"no-backtracking", "[{key: a, value: b, descriptors: [{key: c, " + y + "1}}]}, {key: a, descriptors: [{key: d, " +
			y + "2}}]}]", []asked{
			{"a=b d=1", "ok: ok", ""},
			{"a=x d=1", "ok: ok 2", ""},
			{"a=b c=1", "ok: ok 1", ""},
		}},
		{"algorithms-by-metadata", "[{key: bucket, " + y +
			"100}, metadata: {weir: {algorithm: token_bucket, burst: 2}}}, {key: zoned, " + y +
			"1}, metadata: {weir: {calendar: true, zone: Asia/Tokyo}}}]", []asked{
			{"bucket=a hits=2; zoned=a", "ok: ok 100 left 0; ok 1 left 0", ""},
			{"bucket=a", "over: over 100 left 0", ""},
			{"zoned=a", "over: over 1 left 0", ""},
			{"bucket=b hits=2", "ok: ok 100 left 0", ""},
		}},
		{"wildcard-in-key-and-all-values", "[{key: 'p*', " + y + "7}}, {key: q, value: '*', " + y + "8}}]", []asked{
			{"path=x", "ok: ok 7", ""},
			{"q=", "ok: ok 8", ""},
			{"q=x", "ok: ok 8", ""},
		}},
		{"a-limit-and-children", "[{key: a, " + y + "5}, descriptors: [{key: b, " + y + "6}}]}]", []asked{
			{"a=1", "ok: ok 5", ""},
			{"a=1 b=2", "ok: ok 6", ""},
			{"a=1 b=2 c=3", "ok: ok", ""},
		}},
		{"whitelist", "[{key: a, value: ok}, {key: a, " + y + "1}}]", []asked{
			{"a=ok hits=100", "ok: ok", ""},
			{"a=no hits=2", "over: over 1", ""},
		}},
		{"hits", "[{key: a, " + y + "10}}]", []asked{
			{"a=1 hits=0", "ok: ok 10 left 10", ""},
			{"request=3; a=1", "ok: ok 10 left 7", ""},
			{"request=3; a=1 hits=2", "ok: ok 10 left 5", ""},
			{"a=1 hits=5", "ok: ok 10 left 0", ""},
			{"a=1 hits=0", "ok: ok 10 left 0", "over: over 10 left 0"},
			{"a=1", "over: over 10 left 0", ""},
			{"a=1 hits=0", "over: over 10 left 0", ""},
			{"a=2 hits=11", "over: over 10 left 0", "over: over 10 left 10"},
			{"a=2 hits=1", "over: over 10 left 0", "ok: ok 10 left 9"},
		}},
		{"joined-text-is-not-the-counter", "[{key: a, value: b_c, descriptors: [{key: d, " + y +
			"1}}]}, {key: a_b, descriptors: [{key: d, " + y + "1}}]}]", []asked{
			{"a=b_c d=1", "ok: ok 1 left 0", ""},
			{"a_b=x d=1", "ok: ok 1 left 0", ""},
		}},
		{"quotas", "[{key: q, value: 1, quota_mode: true, " + y + "1}}, {key: q, value: 2, quota_mode: true, " + y + "2}}]",
			[]asked{
				{"q=1; q=2", "ok: ok 1 left 0; ok 2 left 1", ""},
				{"q=1; q=2", "ok: over 1 left 0; ok 2 left 0", ""},
				{"q=1; q=2", "over: over 1 left 0; over 2 left 0", ""},
			}},
		{"shared-threshold", "[{key: p, value: a/*, share_threshold: true, " + y + "2}}]", []asked{
			{"p=a/1", "ok: ok 2 left 1", ""},
			{"p=a/2", "ok: ok 2 left 0", ""},
			{"p=a/3", "over: over 2 left 0", ""},
		}},
		{"overrides", "[{key: a, " + y + "9}}]", []asked{
			{"a=1 limit=2/YEAR", "ok: ok 2 left 1", ""},
			{"a=1 limit=2/YEAR", "ok: ok 2 left 0", ""},
			{"a=1 limit=2/YEAR", "over: over 2 left 0", ""},
			{"a=1 limit=3/YEAR", "ok: ok 3 left 2", ""},
			{"b=1 limit=1/MONTH", "ok: ok 1 left 0", ""},
			{"a=1", "ok: ok 9 left 8", ""},
			{"a=1 limit=1/UNKNOWN", "the limit of descriptor 0 has the unit 0: give 1 (second) to 6 (year)", ""},
			{"a=1 back", "is_negative_hits is not allowed here", ""},
		}},
	}
}

// askContract asks for the descriptors of a line.
func askContract(t *testing.T, conn *grpc.ClientConn, domain, line string) string {
	t.Helper()
	in := &rls.RateLimitRequest{Domain: domain}
	for part := range strings.SplitSeq(line, ";") {
		d := new(ratelimit.RateLimitDescriptor)
		for f := range strings.FieldsSeq(part) {
			key, value, _ := strings.Cut(f, "=")
			switch key {
			case "request", "hits":
				n, err := strconv.ParseUint(value, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				if key == "hits" {
					d.HitsAddend = wrapperspb.UInt64(n)
				} else {
					in.HitsAddend = uint32(n)
				}
			case "back":
				d.IsNegativeHits = true
			case "limit":
				n, unit, _ := strings.Cut(value, "/")
				m, err := strconv.ParseUint(n, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(m),
					Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit])}
			default:
				d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		if len(d.GetEntries()) > 0 {
			in.Descriptors = append(in.Descriptors, d)
		}
	}
	out, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in)
	if err != nil {
		return err.Error()
	}
	return told(t, out)
}

// told shows an answer: its code, and for each status its code, its limit and what is left.
func told(t *testing.T, out *rls.RateLimitResponse) string {
	t.Helper()
	name := map[rls.RateLimitResponse_Code]string{1: "ok", 2: "over"}
	var all []string
	for _, s := range out.GetStatuses() {
		text := name[s.GetCode()]
		if l := s.GetCurrentLimit(); l != nil {
			text += " " + strings.TrimSpace(fmt.Sprint(l.GetRequestsPerUnit(), " ", l.GetName()))
			if r := s.GetDurationUntilReset(); r.GetSeconds() <= 0 || r.GetNanos() != 0 {
				t.Errorf("a reset of %v", r)
			}
			text += fmt.Sprint(" left ", s.GetLimitRemaining())
		} else if s.GetLimitRemaining() > 0 {
			text += fmt.Sprint(" left ", s.GetLimitRemaining())
		}
		all = append(all, text)
	}
	return name[out.GetOverallCode()] + ": " + strings.Join(all, "; ")
}

// members starts nodes with one configuration: one by itself, or several that are members.
func members(t *testing.T, n int, c *EnvoyConfig) (conns []*grpc.ClientConn) {
	t.Helper()
	var join []string
	for i := range n {
		p, _ := plain()
		own := *c
		p.Envoy = &own
		if n > 1 {
			p.Cluster = &cluster.Config{Name: fmt.Sprint("node-", i), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
				Join: join}
		}
		s := start(t, p)
		eventually(t, "the member is ready", func() bool { return s.Ready() == nil })
		if n > 1 && i == 0 {
			join = []string{s.Node().Cluster().Members()[0].Address}
		}
		conns = append(conns, dial(t, s.Addresses().Envoy))
	}
	return conns
}

// Every example of the README of envoyproxy/ratelimit, and its rules, through one node and
// through three, in both modes.
func TestEnvoyContract(t *testing.T) {
	dir := t.TempDir()
	for _, c := range contracts() {
		if err := os.WriteFile(filepath.Join(dir, c.name+".yaml"), []byte("domain: "+c.name+"\ndescriptors: "+c.file),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	sizes := []int{1, 3}
	if testing.Short() {
		sizes = sizes[:1] // TestEnvoyOnThreeMembers has three
	}
	for _, nodes := range sizes {
		for mode, name := range []string{"compat", "atomic"} {
			t.Run(fmt.Sprint(nodes, " ", name), func(t *testing.T) {
				e, _ := envoyConfig(t, envoyFile)
				e.Dir, e.Options.Mode = dir, envoy.Mode(mode)
				conns := members(t, nodes, e)
				for _, c := range contracts() {
					for i, a := range c.asks {
						want := a.want
						if a.atomic != "" && mode == int(envoy.Atomic) {
							want = a.atomic
						}
						if got := askContract(t, conns[i%nodes], c.name, a.descriptors); !strings.Contains(got, want) {
							t.Errorf("%s, request %d, %s: %s, want %s", c.name, i, a.descriptors, got, want)
						}
					}
				}
				if got := askContract(t, conns[0], "unknown", "a=1 limit=1/YEAR"); got != "ok: ok" {
					t.Errorf("a domain without a file: %s", got)
				}
			})
		}
	}
}

// What Envoy's filter makes of the answers: fields, retries, and what passes when the service
// does not answer.
func TestEnvoyFilter(t *testing.T) {
	c, _ := plain()
	c.Envoy, _ = envoyConfig(t, `
domain: edge
descriptors:
  - {key: generic_key, value: page, descriptors: [{key: remote_address, rate_limit: {unit: year, requests_per_unit: 2, name: pages}}]}
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 100}}
`)
	c.Envoy.Options.Headers, c.Envoy.Options.RequestHeaders, c.Envoy.Options.Body = true, true, []byte("too much")
	s := start(t, c)
	ten := uint64(10)
	f := &filter{
		service: rls.NewRateLimitServiceClient(dial(t, s.Addresses().Envoy)), domain: "edge", headers: true,
		timeout: 10 * time.Second,
		limits: []routeLimit{
			{actions: []action{genericKey("", "page"), remoteAddress}},
			{actions: []action{requestHeader("x-user", "user", false)}},
			{actions: []action{genericKey("tokens", "all")}, hits: &ten, done: true},
			{actions: []action{headerMatch("", "debug", "x-debug", "1", true), sourceCluster, destinationCluster,
				maskedAddress(24)}},
		},
	}
	r := &visit{address: "192.0.2.1", fields: map[string]string{"x-user": "ada"}}
	is := func(status int, want map[string]string) outcome {
		t.Helper()
		out := f.serve(t.Context(), r)
		if out.status != status || out.failed != nil {
			t.Fatalf("%+v", out)
		}
		for k, v := range want {
			if out.fields[k] != v {
				t.Errorf("%s: %q, want %q", k, out.fields[k], v)
			}
		}
		return out
	}
	const policy = `, 2;w=31536000;name="pages", 5;w=31536000`
	out := is(200, map[string]string{"x-ratelimit-limit": "2" + policy, "x-ratelimit-remaining": "1",
		"ratelimit-limit": "2", "ratelimit-remaining": "1"})
	if out.upstream["ratelimit-remaining"] != "1" {
		t.Errorf("the upstream got %v", out.upstream)
	}
	is(200, map[string]string{"x-ratelimit-remaining": "0"})
	out = is(429, map[string]string{"x-ratelimit-limit": "2" + policy, "x-envoy-ratelimited": "true"})
	if wait, err := strconv.Atoi(out.fields["retry-after"]); err != nil || wait < 1 ||
		out.fields["retry-after"] != out.fields["ratelimit-reset"] || out.body != "too much" || out.upstream != nil {
		t.Errorf("%+v", out)
	}
	// What two streams used is counted when they have ended.
	if got := askContract(t, dial(t, s.Addresses().Envoy), "edge", "tokens=all hits=0"); got != "ok: ok 100 left 80" {
		t.Error(got)
	}
	if ds := f.descriptors(&visit{address: "192.0.2.1"}, false); len(ds) != 1 {
		t.Errorf("without a user: %v", ds)
	}

	// A service that hangs: the filter waits 20 ms.
	f.service, f.timeout = hanging{}, 0
	for deny, status := range map[bool]int{false: 200, true: 500} {
		f.deny = deny
		begin := time.Now()
		if out := f.serve(t.Context(), r); out.status != status || out.failed == nil ||
			time.Since(begin) < 20*time.Millisecond {
			t.Errorf("deny %t: %+v after %v", deny, out, time.Since(begin))
		}
	}
}

// hanging is a service that does not answer.
type hanging struct{ rls.RateLimitServiceClient }

func (hanging) ShouldRateLimit(ctx context.Context, _ *rls.RateLimitRequest,
	_ ...grpc.CallOption) (*rls.RateLimitResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Over HTTP there are /healthcheck, /json, /rlconfig and the statistics, under their names, and
// nothing else.
func TestEnvoyOverHTTP(t *testing.T) {
	c, _ := plain()
	c.Envoy, _ = envoyConfig(t, envoyFile+`
  - {key: path, value: /a, descriptors: [{key: who, detailed_metric: true, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}]}
`)
	c.Envoy.HTTPAddrs = []string{"127.0.0.1:0", "127.0.0.1:0"}
	s := start(t, c)
	urls := s.Addresses().EnvoyHTTP
	ask := func(body string) (int, string) {
		t.Helper()
		return postJSON(t, "http://"+urls[0]+"/json", body)
	}
	for _, x := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"domain":"edge","hitsAddend":3,"descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}`, 200,
			`"overallCode":"OK"`},
		{`{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}`, 429, `"OVER_LIMIT"`},
		{`{"domain":"edge","hits_addend":4,"descriptors":[{"entries":[{"key":"path","value":"/a"},{"key":"who",` +
			`"value":"10.0.0.1:80"}]}]}`, 200, `"OK"`},
		{`{"domain":"none","descriptors":[{}]}`, 200, `"OK"`},
		{`{"domain":"edge"}`, 400, "Bad Request: rate limit descriptor list must not be empty"},
		{`{"domain":"\ud800","descriptors":[{}]}`, 400, "Bad Request: "},
		{"{\"domain\":\"\xff\",\"descriptors\":[{}]}", 400, "Bad Request: "},
		{`{"domain":"edge","descriptors":[{"limit":{"unit":9}}]}`, 400, "has the unit 9"},
		{`{"domain":`, 400, "Bad Request: "},
		{`{"domain":"edge","descriptors":[{}` + strings.Repeat(",{}", 10_000) + `]}`, 400, "more than 128 descriptors"},
		{`{"domain":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "the body has more than 64 KiB"},
	} {
		if status, text := ask(x.body); status != x.status ||
			!strings.Contains(strings.ReplaceAll(text, ": ", ":"), strings.ReplaceAll(x.want, ": ", ":")) {
			t.Errorf("%.80s: %d, %s", x.body, status, text)
		}
	}
	for _, x := range []struct {
		path   string
		status int
		want   string
	}{
		{"/healthcheck", 200, "OK"},
		{"/rlconfig", 200, "edge.user: unit=YEAR requests_per_unit=3, shadow_mode: false, quota_mode: false\n"},
		{"/json", 405, "POST"},
		{"/v1/check", 404, ""},
		{"/metrics", 200, `ratelimit_service_rate_limit_over_limit{domain="edge",key1="user",key2=""} 1`},
		{"/metrics", 200, `ratelimit_service_rate_limit_total_hits{domain="edge",key1="user",key2=""} 4`},
		{"/metrics", 200, `ratelimit_service_rate_limit_near_limit{domain="edge",key1="user",key2=""} 1`},
		{"/metrics", 200, `ratelimit_service_rate_limit_shadow_mode{domain="edge",key1="path_/a",key2="who_10.0.0.1_80"} 3`},
		{"/metrics", 200, `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 11`},
		{"/metrics", 200, `ratelimit_service_should_rate_limit_error{err_type="invalid"} 7`},
		{"/metrics", 200, "ratelimit_service_config_load_success 1\n"},
		{"/metrics", 200, "ratelimit_service_domain_not_found 1\n"},
		{"/metrics", 200, "weir_checks_total"},
	} {
		for _, at := range urls {
			if status, text := get(t, "http://"+at+x.path); status != x.status || !strings.Contains(text, x.want) {
				t.Errorf("%s: %d, no %s in %.3000s", x.path, status, x.want, text)
			}
		}
	}
}

// The statistics are bounded, whatever values requests bring.
func TestEnvoyStatisticsAreBounded(t *testing.T) {
	c, _ := plain()
	c.MaxKeys = 10_000
	c.Envoy, _ = envoyConfig(t,
		"domain: edge\ndescriptors: [{key: user, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 3}}]")
	c.Envoy.HTTPAddrs = []string{"127.0.0.1:0"}
	s := start(t, c)
	conn := dial(t, s.Addresses().Envoy)
	for i := range 2500 {
		askEnvoy(t, conn, fmt.Sprint("user-", i, strings.Repeat("x", 300)))
	}
	_, text := get(t, "http://"+s.Addresses().EnvoyHTTP[0]+"/metrics")
	if n := strings.Count(text, "ratelimit_service_rate_limit_total_hits{"); n < 1900 || n > 2001 {
		t.Errorf("%d series", n)
	}
	if !strings.Contains(text, `total_hits{domain="other",key1="other",key2="other"} `) ||
		strings.Contains(text, strings.Repeat("x", 200)) {
		t.Error("those beyond the bound are not counted together, or a label is long")
	}
}

// A health check may depend on a configuration.
func TestEnvoyHealthNeedsConfig(t *testing.T) {
	c, _ := plain()
	c.Envoy = &EnvoyConfig{Addr: "127.0.0.1:0", HTTPAddrs: []string{"127.0.0.1:0"}, NeedsConfig: true,
		XDS: &EnvoyXDS{Addr: "127.0.0.1:1"}}
	s := start(t, c)
	if status, text := get(t, "http://"+s.Addresses().EnvoyHTTP[0]+"/healthcheck"); status != 500 ||
		!strings.Contains(text, "no rate limit configuration loaded") {
		t.Error(status, text)
	}
	if status, _ := get(t, "http://"+s.Addresses().EnvoyHTTP[0]+"/rlconfig"); status != 503 {
		t.Error(status)
	}
}
