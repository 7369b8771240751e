package envoy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/internal/envoy/quota/quotatest"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

const quotaFile = `
domain: edge
descriptors:
  - key: class
    descriptors:
      - key: name
        rate_limit: {unit: second, requests_per_unit: 1000}
        metadata: {weir: {algorithm: token_bucket, burst: 4000}}
  - key: free
    rate_limit: {unlimited: true}
  - key: shut
    rate_limit: {unit: second, requests_per_unit: 0}
`

// quotaFixture is a quota service behind gRPC, and a stream to it.
type quotaFixture struct {
	*fixture
	quotas *envoy.Quotas
	conn   *grpc.ClientConn
	client rlqs.RateLimitQuotaServiceClient
	stream rlqs.RateLimitQuotaService_StreamRateLimitQuotasClient
	log    *logText
}

// logText is what was logged.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *logText) has(t *testing.T, want string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.Contains(l.text.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, l.text.String())
	}
}

func newQuotas(t testing.TB, change func(*envoy.Options)) *quotaFixture {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newQuotasAt(t, l, l.Addr().String(), change)
}

// newVirtualQuotas is newQuotas in a bubble of synctest.
func newVirtualQuotas(t testing.TB) *quotaFixture {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	return newQuotasAt(t, l, "passthrough:///", nil, grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
}

func newQuotasAt(t testing.TB, l net.Listener, at string, change func(*envoy.Options),
	dial ...grpc.DialOption) *quotaFixture {
	t.Helper()
	f := newFixture(t, quotaFile, change)
	x := &quotaFixture{fixture: f, log: new(logText)}
	x.quotas = envoy.NewQuotas(f.service, slog.New(slog.NewTextHandler(x.log, nil)))
	server, err := transport.NewServer(transport.Options{
		Decider: f.node, Services: []transport.GRPCService{x.quotas}, MaxMessageBytes: envoy.MaxMessageBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l, nil) }()
	conn, err := grpc.NewClient(at, append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	x.conn, x.client = conn, rlqs.NewRateLimitQuotaServiceClient(conn)
	x.open()
	t.Cleanup(func() {
		_ = conn.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ctx)
		<-served
	})
	return x
}

func (x *quotaFixture) open() {
	x.t.Helper()
	var err error
	if x.stream, err = x.client.StreamRateLimitQuotas(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// usage is what a report says of a bucket: "class=a name=b allowed=1 denied=2 elapsed=3".
func usage(t testing.TB, text string) *rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage {
	t.Helper()
	u := &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: &rlqs.BucketId{Bucket: map[string]string{}},
		TimeElapsed: new(durationpb.Duration)}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		var n uint64
		if _, err := fmt.Sscan(value, &n); err != nil && (key == "allowed" || key == "denied" || key == "elapsed") {
			t.Fatal(err)
		}
		switch key {
		case "allowed":
			u.NumRequestsAllowed = n
		case "denied":
			u.NumRequestsDenied = n
		case "elapsed":
			u.TimeElapsed.Seconds = int64(n)
		default:
			u.BucketId.Bucket[key] = value
		}
	}
	return u
}

func (x *quotaFixture) send(domain string, usages ...string) {
	x.t.Helper()
	m := &rlqs.RateLimitQuotaUsageReports{Domain: domain}
	for _, u := range usages {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, usage(x.t, u))
	}
	if err := x.stream.Send(m); err != nil {
		x.t.Fatal(err)
	}
}

// next returns the next message, an action in a line.
func (x *quotaFixture) next() string {
	x.t.Helper()
	m, err := x.stream.Recv()
	if err != nil {
		return fmt.Sprint(status.Code(err), ": ", status.Convert(err).Message())
	}
	var lines []string
	for _, a := range m.GetBucketAction() {
		var id []string
		for k, v := range a.GetBucketId().GetBucket() {
			id = append(id, k+"="+v)
		}
		slices.Sort(id)
		assigned := a.GetQuotaAssignmentAction()
		what := "abandoned"
		if assigned != nil {
			what = shownStrategy(assigned.GetRateLimitStrategy())
			what += " for " + assigned.GetAssignmentTimeToLive().AsDuration().String()
		}
		lines = append(lines, strings.Join(id, ",")+": "+what)
	}
	return strings.Join(lines, "\n")
}

func shownStrategy(s *typev3.RateLimitStrategy) string {
	switch s.GetStrategy().(type) {
	case *typev3.RateLimitStrategy_TokenBucket:
		b := s.GetTokenBucket()
		return fmt.Sprintf("%d tokens and %d each %v", b.GetMaxTokens(), b.GetTokensPerFill().GetValue(),
			b.GetFillInterval().AsDuration())
	case *typev3.RateLimitStrategy_BlanketRule_:
		return s.GetBlanketRule().String()
	}
	return fmt.Sprint("the strategy ", s)
}

func (x *quotaFixture) wants(want string) {
	x.t.Helper()
	if got := x.next(); got != want {
		x.t.Errorf("Envoy is told %q, want %q", got, want)
	}
}

// The first report of a bucket is answered at once. The bucket shares the counter of the rate limit service, whose
// descriptor has the same entries in the order of the file.
func TestQuotasShareCounters(t *testing.T) {
	x := newQuotas(t, nil)
	x.send("edge", "name=b class=a denied=1")
	x.wants("class=a,name=b: 25 tokens and 62 each 1s for 2s")
	left, err := x.answer(1, "class=a name=b")
	if err != nil {
		t.Fatal(err)
	}
	if n := left.GetStatuses()[0].GetLimitRemaining(); n >= 3999 {
		t.Errorf("the rate limit service sees %d of 4000 left", n)
	}
	if s := x.quotas.Stats(); s.Streams != 1 || s.Buckets != 1 || s.Assigned != 62 || s.Denied != 1 {
		t.Errorf("the statistics are %+v", s)
	}
}

// A bucket without a limit is allowed all, as a descriptor without one is, and one whose limit is 0 nothing.
func TestQuotasWithoutCounters(t *testing.T) {
	x := newQuotas(t, nil)
	x.send("edge", "free=1 allowed=1", "shut=1 denied=1", "other=1 allowed=1", "class=a allowed=1")
	x.wants("free=1: ALLOW_ALL for 2s\nshut=1: DENY_ALL for 2s\nother=1: ALLOW_ALL for 2s\nclass=a: ALLOW_ALL for 2s")
	x = newQuotas(t, nil)
	x.send("elsewhere", "name=b class=a allowed=1")
	x.wants("class=a,name=b: ALLOW_ALL for 2s")
	x.log.has(t, "no limits are configured for a domain of Envoy: all its requests are allowed\" domain=elsewhere")
}

// A report that is larger than a message may be ends its stream, each time that Envoy opens one: the log says why.
func TestQuotasOfTooLargeReports(t *testing.T) {
	x := newQuotas(t, nil)
	x.send("edge", "name=b allowed=1 class="+strings.Repeat("a", envoy.MaxMessageBytes))
	if got := x.next(); !strings.HasPrefix(got, codes.ResourceExhausted.String()) {
		t.Errorf("Envoy is told %q", got)
	}
	x.log.has(t, "a report of Envoy is too large, so its stream ends")
}

// What hostile clients report is bounded, and the log says what is not kept: names of 1 MiB, numbers of 2^64-1, 10^6
// buckets. The node goes on.
func TestQuotasOfHostileReports(t *testing.T) {
	x := newQuotas(t, nil)
	x.send("edge", "class=a name="+strings.Repeat("n", 1<<20)+" allowed=1")
	if got := x.next(); !strings.HasSuffix(got, ": DENY_ALL for 2s") {
		t.Errorf("of a bucket with a name of 1 MiB Envoy is told %q", got[len(got)-100:])
	}
	x.log.has(t, "Envoy reports more buckets or longer ids than are kept: they are denied")
	const most = "18446744073709551615"
	x.send("edge", "class=a name=b allowed="+most+" denied="+most+" elapsed=9223372036854775807")
	x.wants("class=a,name=b: 25 tokens and 1000 each 1s for 2s")
	if s := x.quotas.Stats(); s.Allowed > 1<<54 || s.Denied > 1<<54 || s.Buckets != 1 || s.Refused != 1 {
		t.Errorf("the statistics are %+v", s)
	}

	x.open()
	told := make(chan int)
	go func() {
		n := 0
		for {
			m, err := x.stream.Recv()
			if n += len(m.GetBucketAction()); err != nil || n >= 1_000_000 {
				told <- n
				return
			}
		}
	}()
	const each = 50_000
	for part := range 1_000_000 / each {
		m := &rlqs.RateLimitQuotaUsageReports{Domain: "edge"}
		for i := range each {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
				BucketId: &rlqs.BucketId{Bucket: map[string]string{"free": strconv.Itoa(part*each + i)}}, NumRequestsDenied: 1})
		}
		if err := x.stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if n := <-told; n != 1_000_000 {
		t.Errorf("Envoy is told of %d buckets, of which 16384 are kept", n)
	}
	if s := x.quotas.Stats(); s.Buckets != 1+quota.MaxBuckets || s.Refused != 1_000_000-quota.MaxBuckets+1 {
		t.Errorf("the statistics are %+v", s)
	}
	x.open()
	x.send("edge", "class=a name=c denied=1")
	x.wants("class=a,name=c: 25 tokens and 62 each 1s for 2s")
}

// What Envoy has allowed beyond what it was assigned, by its own configuration, is charged.
func TestQuotasChargeWhatIsBeyond(t *testing.T) { synctest.Test(t, chargeWhatIsBeyond) }

func chargeWhatIsBeyond(t *testing.T) {
	x := newVirtualQuotas(t)
	x.send("edge", "name=b class=a allowed=1")
	x.next()
	x.node.Advance(time.Second)
	before, _ := x.answer(0, "class=a name=b")
	x.send("edge", "name=b class=a allowed=2000 elapsed=1")
	x.next()
	synctest.Wait() // it is charged
	after, _ := x.answer(0, "class=a name=b")
	if s := x.quotas.Stats(); s.Beyond < 1500 || s.Beyond > 2000 {
		t.Errorf("%d of 2001 requests were beyond what was assigned", s.Beyond)
	}
	a, b := before.GetStatuses()[0].GetLimitRemaining(), after.GetStatuses()[0].GetLimitRemaining()
	if b+1500 > a {
		t.Errorf("%d were left before the charge, and %d after it", a, b)
	}
}

// Reports that name a bucket a thousand times, with any number, shut its limit no longer than two full ones take to
// recover: 8,000 units of 1,000 a second.
func TestFalseReportsShutNoLimit(t *testing.T) { synctest.Test(t, falseReports) }

func falseReports(t *testing.T) {
	x := newVirtualQuotas(t)
	x.send("edge", "name=b class=a allowed=1")
	x.next()
	x.node.Advance(time.Second)
	for range 5 {
		x.send("edge", slices.Repeat([]string{"name=b class=a allowed=18446744073709551615"}, 1000)...)
		x.next()
		synctest.Wait()
		x.node.Advance(time.Second)
	}
	x.node.Advance(8 * time.Second)
	if a, err := x.answer(1, "class=a name=b"); err != nil || a.GetOverallCode() != rls.RateLimitResponse_OK {
		t.Errorf("after false reports nothing is allowed, for %v, %v", a.GetStatuses()[0].GetDurationUntilReset(), err)
	}
}

// A stream is for one domain. What is no report of the protocol ends it.
func TestQuotasRefuse(t *testing.T) {
	for _, c := range []struct {
		name    string
		domains []string
		usage   string
		want    string
	}{
		{"no domain", []string{""}, "a=1", "InvalidArgument: rate limit quota domain must not be empty"},
		{"another domain", []string{"edge", "edge2"}, "free=1", "InvalidArgument: the report is for another domain than " +
			"the first one of its stream: open a stream for each domain"},
		{"no id", []string{"edge"}, "", "InvalidArgument: the report has a bucket without an id: each needs at least one " +
			"entry"},
	} {
		x := newQuotas(t, nil)
		for i, domain := range c.domains {
			if i > 0 {
				x.next()
			}
			x.send(domain, c.usage)
		}
		if got := x.next(); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// Three Envoys, over gRPC, and one that asks the rate limit service for each request admit what the limit has and no
// more; one of them has most of the requests.
func TestQuotasOfThreeEnvoys(t *testing.T) { synctest.Test(t, threeEnvoys) }

func threeEnvoys(t *testing.T) {
	x := newVirtualQuotas(t)
	begun := x.node.Now()
	now := func() time.Duration { return x.node.Now().Sub(begun) + time.Hour }
	id := quotatest.NewID(map[string]string{"name": "b", "class": "a"})
	var mu sync.Mutex
	type envoy struct {
		quotatest.Client
		stream rlqs.RateLimitQuotaService_StreamRateLimitQuotasClient
	}
	var envoys []*envoy
	for range 3 {
		x.open()
		e := &envoy{quotatest.Client{Domain: "edge", Deny: true}, x.stream}
		envoys = append(envoys, e)
		go func() {
			for {
				m, err := e.stream.Recv()
				if err != nil {
					return
				}
				mu.Lock()
				e.Receive(now(), m)
				mu.Unlock()
			}
		}()
	}
	admitted, last, asked := 0, 0, 0
	for step := range 1500 {
		for range 10 {
			d, err := x.answer(1, "class=a name=b")
			if err != nil {
				t.Fatal(err)
			}
			if d.GetOverallCode() == rls.RateLimitResponse_OK {
				admitted++
				asked++
			}
		}
		mu.Lock()
		for i, e := range envoys {
			var report *rlqs.RateLimitQuotaUsageReports
			for range []int{15, 1, 1}[i] {
				allowed, first := e.Request(now(), id)
				if first != nil {
					report = first
				}
				if allowed {
					admitted++
					if step >= 1000 {
						last++
					}
				}
			}
			if step > 0 && step%100 == i {
				report = e.Report(now())
			}
			if report != nil {
				if err := e.stream.Send(report); err != nil {
					t.Fatal(err)
				}
			}
		}
		if most := 4000 + 1000*step/100; admitted > most {
			t.Fatalf("after %d0 ms %d are admitted of %d", step, admitted, most)
		}
		mu.Unlock()
		x.node.Advance(10 * time.Millisecond)
		time.Sleep(10 * time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	if last < 2500 || asked < 1000 {
		t.Errorf("in the last 5 s %d of 5000 are admitted by quotas, and %d in all by the rate limit service", last, asked)
	}
	for _, e := range envoys {
		if len(e.Ignored) > 0 {
			t.Errorf("Envoy ignored %q", e.Ignored)
		}
	}
}

// lessor is a caller that may only check.
type lessor struct{ frontend.Caller }

func (lessor) Name() string                                             { return "shop" }
func (lessor) Tenant() string                                           { return "" }
func (l lessor) Identify(frontend.Credentials) (frontend.Caller, error) { return l, nil }
func (lessor) OpenStream() error                                        { return nil }
func (lessor) CloseStream()                                             {}
func (lessor) May(a frontend.Action) (limiter.Scope, error) {
	if a == frontend.ActionCheck {
		return nil, nil
	}
	return nil, frontend.ForbiddenError("only checks")
}

// Who has no permission to borrow is assigned nothing.
func TestQuotasNeedPermission(t *testing.T) {
	x := newQuotas(t, func(o *envoy.Options) { o.Config.Access = lessor{} })
	x.send("edge", "name=b class=a denied=1")
	if got := x.next(); got != codes.PermissionDenied.String()+": only checks" {
		t.Errorf("without the permission: %s", got)
	}
}

// What cannot be assigned is logged when a configuration comes into force.
func TestQuotasWarn(t *testing.T) {
	f := newFixture(t, `
domain: edge
descriptors:
  - {key: a, rate_limit: {unit: month, requests_per_unit: 10000000}, metadata: {weir: {calendar: true}}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 59}}
  - {key: c, rate_limit: {unit: second, requests_per_unit: 19}}
  - {key: d, rate_limit: {unit: minute, requests_per_unit: 6000}}
  - {key: e, rate_limit: {unit: minute, requests_per_unit: 60}}
  - {key: f, rate_limit: {unit: minute, requests_per_unit: 74}}
  - {key: g, rate_limit: {unit: minute, requests_per_unit: 80}}
`, nil)
	var text strings.Builder
	envoy.NewQuotas(f.service, slog.New(slog.NewTextHandler(&text, nil)))
	for _, want := range []string{"edge.a why=\"it has windows of a calendar\"",
		"edge.b why=\"it admits less than one request a second\"", "edge.c why=\"it admits less than 20 requests at once\"",
		"edge.e why=\"beside what an Envoy may use at once it admits less than one request a second\"",
		"edge.f why=\"beside"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, text.String())
		}
	}
	if n := strings.Count(text.String(), "\n"); n != 5 {
		t.Errorf("%d limits are named:\n%s", n, text.String())
	}
}

// The lists of top keys name a key of which Envoys have slices, and say what is assigned.
func TestQuotasInTopKeys(t *testing.T) {
	x := newQuotas(t, nil)
	for range 40 {
		x.send("edge", "name=b class=a allowed=10 elapsed=1")
		x.next()
		x.node.Advance(time.Second)
	}
	hottest, _ := x.node.Top(1)
	if len(hottest) != 1 || !strings.Contains(hottest[0].Name, "edge") || hottest[0].Count < 32 ||
		hottest[0].Lent.Holders != 1 || hottest[0].Lent.Units != 26 || hottest[0].Lent.Rate < 10 {
		t.Errorf("listed are %+v", hottest)
	}
}
