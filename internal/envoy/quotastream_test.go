package envoy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// lender lends all slices after a time, but none of keys that contain silent: it waits for these until the caller does
// not. It notes when it first lent.
type lender struct {
	frontend.Decider
	after  time.Duration
	silent string
	from   time.Time // before, it lends nothing

	mu    sync.Mutex
	lent  map[string]time.Time // by key
	asked int
}

func (l *lender) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	begin := time.Now()
	time.Sleep(l.after)
	var none limiter.BatchError
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked += len(rs)
	for i := range rs {
		key := slices.Collect(maps.Values(rs[i].Attributes))[0]
		if l.silent != "" && strings.Contains(key, l.silent) {
			none.Index, none.Errs = append(none.Index, i), append(none.Errs, context.DeadlineExceeded)
			continue
		}
		if begin.Before(l.from) {
			continue
		}
		ds[i].Allowed = true
		r := ds[i].Remarks()
		r.Assigned = 10
		ds[i].SetRemarks(r)
		if _, had := l.lent[key]; !had {
			l.lent[key] = begin
		}
	}
	if len(none.Index) > 0 {
		<-ctx.Done()
		time.Sleep(5 * time.Millisecond)
		return &none
	}
	return nil
}

// spender is a caller with a budget of checks.
type spender struct {
	left, spent int
}

func (s *spender) Name() string                                           { return "edge" }
func (s *spender) Tenant() string                                         { return "" }
func (s *spender) Identify(frontend.Credentials) (frontend.Caller, error) { return s, nil }
func (s *spender) May(frontend.Action) (limiter.Scope, error)             { return nil, nil }
func (s *spender) OpenStream() error                                      { return nil }
func (s *spender) CloseStream()                                           {}
func (s *spender) Spend(checks, _ int) error {
	if checks > s.left {
		return frontend.ErrBudget
	}
	s.left -= checks
	s.spent += checks
	return nil
}

// pipe is a stream of gRPC in a test.
type pipe struct {
	grpc.ServerStream
	ctx     context.Context
	reports chan []byte
	stuck   bool // the client does not read
	mu      sync.Mutex
	told    []*rlqs.RateLimitQuotaResponse_BucketAction
	at      []time.Time
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) RecvMsg(m any) error {
	select {
	case data := <-p.reports:
		return m.(transport.WireMessage).UnmarshalWire(data)
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) SendMsg(m any) error {
	if p.stuck {
		<-p.ctx.Done()
		return p.ctx.Err()
	}
	var out rlqs.RateLimitQuotaResponse
	if err := proto.Unmarshal(m.(transport.WireReply).MarshalWire(), &out); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range out.GetBucketAction() {
		p.told, p.at = append(p.told, a), append(p.at, time.Now())
	}
	return nil
}

// kinds counts what was told.
func (p *pipe) kinds() (tokens, denied, others int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.told {
		switch s := a.GetQuotaAssignmentAction().GetRateLimitStrategy(); {
		case s.GetTokenBucket() != nil:
			tokens++
		case s.GetBlanketRule() == 1:
			denied++
		default:
			others++
		}
	}
	return tokens, denied, others
}

// serving is a quota service whose only stream is a pipe.
type serving struct {
	*pipe
	quotas *Quotas
	lender *lender
	ended  chan error
	cancel context.CancelFunc
}

const streamFile = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1000}}]"

func serveQuotas(t *testing.T, l *lender, access *spender) *serving {
	t.Helper()
	c, err := config.Parse([]config.File{{Name: "f", Data: []byte(streamFile)}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.lent = make(map[string]time.Time)
	f := frontend.Config{Decider: l}
	if access != nil {
		f.Access = access
	}
	s, err := NewService(Options{Config: f, Algorithm: limiter.TokenBucket})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetConfig(c); err != nil {
		t.Fatal(err)
	}
	x := &serving{pipe: &pipe{reports: make(chan []byte)}, quotas: NewQuotas(s, nil), lender: l,
		ended: make(chan error, 1)}
	x.ctx, x.cancel = context.WithCancel(t.Context())
	go func() { x.ended <- x.quotas.serve(x.pipe) }()
	return x
}

// report sends a report of n buckets, each with some requests.
func (x *serving) report(t *testing.T, n int, allowed uint64) {
	t.Helper()
	m := &rlqs.RateLimitQuotaUsageReports{Domain: "d"}
	for i := range n {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId:           &rlqs.BucketId{Bucket: map[string]string{"k": fmt.Sprintf("v%d.", i)}},
			NumRequestsAllowed: allowed, NumRequestsDenied: 1})
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	x.reports <- data
}

func (x *serving) end() {
	x.cancel()
	<-x.ended
}

// A node asks owners in parts, and tells Envoy of each part at once: an assignment that comes later than what it is
// lent for allows lasts too long.
func TestQuotasAreToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{after: 60 * time.Millisecond, from: time.Now().Add(time.Second)}, nil)
		x.report(t, 2048, 0) // asked for again without a report, all at once
		time.Sleep(6 * time.Second)
		x.end()
		if tokens, _, _ := x.kinds(); tokens < 2048 {
			t.Errorf("%d assignments of 2048 buckets", tokens)
		}
		first := make(map[string]bool)
		for i, a := range x.told {
			v := a.GetBucketId().GetBucket()["k"]
			if a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket() == nil {
				continue
			}
			lent, was := x.lender.lent[keyOf("d", []config.Entry{{Key: "k", Value: v}})]
			if !was {
				t.Fatalf("bucket %s is told %v, and nobody was asked", v, a)
			}
			if late := x.at[i].Sub(lent); !first[v] && late > quota.Slack.Duration() {
				t.Fatalf("bucket %s is told %v after its slice was lent", v, late)
			}
			first[v] = true
		}
	})
}

// What a client does not read within the time that a slice is lent longer ends its stream.
func TestQuotasAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{}, nil)
		x.stuck = true
		x.report(t, 1, 0)
		time.Sleep(quota.Slack.Duration() + time.Millisecond)
		select {
		case err := <-x.ended:
			if !errors.Is(err, errLate) {
				t.Errorf("the stream ended with %v", err)
			}
			x.cancel()
		default:
			t.Error("the stream goes on")
			x.end()
		}
		if n := x.quotas.decoding.InUse(); n != 0 {
			t.Errorf("%d bytes of reports are kept", n)
		}
	})
}

// The answers of some owners are used although another one is silent.
func TestQuotasOfSilentOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{silent: "v0."}, nil)
		x.report(t, 100, 0)
		time.Sleep(200 * time.Millisecond)
		x.end()
		if tokens, denied, others := x.kinds(); tokens != 99 || denied != 1 || others != 0 {
			t.Errorf("%d assignments, %d are denied all, and %d others", tokens, denied, others)
		}
	})
}

// A caller beyond its budget asks no owner and charges nothing. Questions without a report are part of the budget.
func TestQuotasAreBudgeted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{}, &spender{})
		for range 3 {
			x.report(t, 10, 1000)
			time.Sleep(3 * time.Second)
		}
		x.end()
		if tokens, denied, _ := x.kinds(); tokens > 0 || denied == 0 || x.lender.asked > 0 {
			t.Errorf("%d assignments, %d are denied all, %d questions", tokens, denied, x.lender.asked)
		}
		if n := x.quotas.Stats().Beyond; n != 0 {
			t.Errorf("%d requests are charged", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		by := &spender{left: 1 << 20}
		x := serveQuotas(t, &lender{}, by)
		x.report(t, 10, 0)
		time.Sleep(3 * time.Second) // renewed without a report
		x.end()
		if x.lender.asked <= 10 || by.spent < x.lender.asked {
			t.Errorf("%d questions, and %d checks are spent", x.lender.asked, by.spent)
		}
	})
}

// Of a report with more buckets than a stream keeps the rest is denied and asks nobody. Reports have memory of their
// own, so that one service does not keep the other from its requests.
func TestQuotasOfLargeReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{}, nil)
		if err := x.quotas.of.decoding.Take(netip.Prefix{}, maxDecoded); err != nil {
			t.Fatal(err)
		}
		x.report(t, quota.MaxBuckets+1000, 0)
		synctest.Wait()
		x.end()
		if n := x.lender.asked; n > quota.MaxBuckets || n < quota.MaxBuckets-quotasAtOnce {
			t.Errorf("%d questions", n)
		}
		if _, denied, _ := x.kinds(); denied < 1000 {
			t.Errorf("%d buckets are denied", denied)
		}
	})
	synctest.Test(t, func(t *testing.T) { // owners are silent
		x := serveQuotas(t, &lender{silent: "v"}, nil)
		begun := time.Now()
		x.report(t, quota.MaxBuckets, 0)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if x.quotas.decoding.InUse() == 0 {
				break
			}
		}
		x.end()
		if took := time.Since(begun); took > reportWithin+time.Second {
			t.Errorf("the report was kept for %v", took)
		}
	})
}

// A stream has a domain of at most 1 KiB.
func TestQuotasOfLongDomains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{}, nil)
		data, _ := proto.Marshal(&rlqs.RateLimitQuotaUsageReports{Domain: strings.Repeat("d", quotaDomain+1)})
		x.reports <- data
		if err := <-x.ended; err == nil || !strings.Contains(err.Error(), "the domain has 1025 bytes: give at most 1024") {
			t.Error(err)
		}
		x.cancel()
	})
}

// A caller that sends all that it can leaves room for the buckets of others: 17 streams with names of 4 KiB, in a
// domain that need not exist.
func TestQuotasLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40001}})
		ended := make(chan error)
		const streams = quota.MaxRoom / quota.MaxBytes
		var pipes [streams]*pipe
		for i := range pipes {
			pipes[i] = &pipe{ctx: ctx, reports: make(chan []byte)}
			go func() { ended <- x.quotas.serve(pipes[i]) }()
		}
		synctest.Wait() // or one without room for it would not begin
		for _, p := range pipes {
			for part := range 8 {
				m := &rlqs.RateLimitQuotaUsageReports{Domain: "other"}
				for i := range 255 {
					m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
						BucketId:          &rlqs.BucketId{Bucket: map[string]string{"k": fmt.Sprintf("%03d %03d %4000d", part, i, 0)}},
						NumRequestsDenied: 1})
				}
				data, err := proto.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				p.reports <- data
			}
		}
		synctest.Wait()
		if n := x.quotas.Stats().Refused; n == 0 {
			t.Error("the caller finds room for all that it sends")
		}
		x.report(t, 100, 0)
		synctest.Wait()
		if tokens, denied, _ := x.kinds(); tokens != 100 || denied > 0 {
			t.Errorf("another one has %d buckets of tokens, and %d are denied", tokens, denied)
		}
		cancel()
		for range streams {
			<-ended
		}
		x.end()
	})
}

// A caller has a bounded number of streams, which leaves room for those of others.
func TestQuotaStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40001}})
		const most = 5000
		ended := make(chan error, most)
		for range most {
			go func() { ended <- x.quotas.serve(&pipe{ctx: ctx, reports: make(chan []byte)}) }()
		}
		synctest.Wait()
		refused := len(ended)
		for range refused {
			if err := <-ended; status.Code(statusOf(err)) != codes.ResourceExhausted {
				t.Fatal(err)
			}
		}
		if open := most - refused; open < 3000 || open > 4500 {
			t.Errorf("a caller has %d streams", open)
		}
		x.report(t, 100, 0)
		synctest.Wait()
		if tokens, denied, _ := x.kinds(); tokens != 100 || denied > 0 {
			t.Errorf("another one has %d buckets of tokens, and %d are denied", tokens, denied)
		}
		cancel()
		for range most - refused {
			<-ended
		}
		x.end()
		if share := x.quotas.room.Of("address 192.0.2.1/32"); !share.Open() {
			t.Error("streams that have ended keep their room")
		}
	})
}

// Statistics never fall, whatever is reported.
func TestQuotaStatisticsNeverFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveQuotas(t, &lender{}, nil)
		for _, most := range []uint64{0, math.MaxUint64 - 1<<40} {
			x.quotas.allowed.Store(most)
			x.quotas.beyond.Store(most)
			for range 10 {
				was := x.quotas.Stats()
				x.report(t, 2048, math.MaxUint64)
				time.Sleep(time.Second)
				if s := x.quotas.Stats(); s.Allowed < was.Allowed || s.Beyond < was.Beyond {
					t.Fatalf("%+v after %+v", s, was)
				}
			}
		}
		if n := x.quotas.Stats().Denied; n != 20*2048 {
			t.Errorf("%d are denied", n)
		}
		x.end()
	})
}

// Callers that share what all may take are known by their tenants, their names or their addresses.
func TestSharesOfCallers(t *testing.T) {
	at := func(a string) fmt.Stringer { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a)) }
	for _, c := range []struct {
		by   asker
		want string
	}{
		{asker{from: at("192.0.2.1:40001")}, "address 192.0.2.1/32"},
		{asker{from: at("[2001:db8::1:2]:40001")}, "address 2001:db8::/64"},
		{asker{from: at("192.0.2.1:40001"), session: sessionOf(t, "edge", "")}, "caller edge"},
		{asker{from: at("192.0.2.1:40001"), session: sessionOf(t, "edge", "shop")}, "tenant shop"},
		{asker{from: at("192.0.2.1:40001"), session: sessionOf(t, "anonymous", "")}, "address 192.0.2.1/32"},
		{asker{}, ""},
	} {
		if got := c.by.share(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// named is a caller with a name and a tenant.
type named struct {
	spender
	name, tenant string
}

func (n *named) Name() string                                           { return n.name }
func (n *named) Tenant() string                                         { return n.tenant }
func (n *named) Identify(frontend.Credentials) (frontend.Caller, error) { return n, nil }

func sessionOf(t *testing.T, name, tenant string) frontend.Session {
	t.Helper()
	f := frontend.New(frontend.Config{Access: &named{name: name, tenant: tenant}}, protocol())
	s, err := f.Identify(nil, frontend.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
