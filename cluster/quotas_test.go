//go:build !race

// See expect_test.go for why the race detector does not run these.

package cluster

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/quota/quotatest"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	grpcwire "github.com/weirlimit/weir/transport"
)

const (
	quotasRate   = 1000
	quotasBefore = 8 * time.Second // the fault comes then
	quotasEnd    = 24 * time.Second
)

// quotaCell is a cluster of three members with Envoy's quota service, and Envoys, in virtual time.
type quotaCell struct {
	*crew
	mu       sync.Mutex
	begun    time.Time
	r        *rand.Rand
	services []*envoy.Quotas // of each member
	gone     []bool          // no Envoy opens a stream to it
	envoys   []*quotaEnvoy
	judge    quotatest.Judge
	asked    weir.Request // for a slice
}

// quotaEnvoy is an Envoy, and the stream that it has.
type quotaEnvoy struct {
	quotatest.Client
	load   float64
	home   int
	stream *quotaPipe
}

// quotaPipe is a stream of an Envoy to a member. Messages take up to 20 ms.
type quotaPipe struct {
	grpc.ServerStream
	ctx     context.Context
	end     context.CancelFunc
	of      *quotaCell
	envoy   *quotaEnvoy
	reports chan []byte
}

func (p *quotaPipe) Context() context.Context { return p.ctx }

func (p *quotaPipe) RecvMsg(m any) error {
	select {
	case data := <-p.reports:
		return m.(grpcwire.WireMessage).UnmarshalWire(data)
	case <-p.ctx.Done():
		return io.EOF
	}
}

func (p *quotaPipe) SendMsg(m any) error {
	out := new(rlqs.RateLimitQuotaResponse)
	if err := proto.Unmarshal(m.(grpcwire.WireReply).MarshalWire(), out); err != nil {
		return err
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	time.AfterFunc(time.Duration(p.of.r.Int64N(int64(20*time.Millisecond))), func() {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		if p.ctx.Err() == nil {
			p.envoy.Receive(p.of.passed(), out)
		}
	})
	return nil
}

func (c *quotaCell) passed() time.Duration { return time.Since(c.begun) }

// noted notes what is asked for.
type noted struct {
	*weir.Node
	of *quotaCell
}

func (n noted) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	n.of.mu.Lock()
	n.of.asked = rs[0]
	n.of.mu.Unlock()
	return n.Node.CheckBatchInto(ctx, rs, ds)
}

// newQuotaCell opens the members, and their services.
func newQuotaCell(t *testing.T, envoys int, fast bool) *quotaCell {
	capacity := max(240, 32*envoys)
	c := &quotaCell{crew: newCrew(t, 3), r: rand.New(rand.NewPCG(55, uint64(envoys))), gone: make([]bool, 3),
		judge: quotatest.Judge{Rate: quotasRate, Capacity: float64(capacity)}}
	c.start(troubles[3])
	limits, err := config.Parse([]config.File{{Name: "f", Data: fmt.Appendf(nil, `
domain: edge
descriptors:
  - key: class
    rate_limit: {unit: second, requests_per_unit: %d}
    metadata: {weir: {algorithm: token_bucket, burst: %d}}
`, quotasRate, capacity)}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		s, err := envoy.NewService(envoy.Options{Config: frontend.Config{Decider: noted{n, c}}, FastQuotas: fast})
		if err == nil {
			err = s.SetConfig(limits)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.services = append(c.services, envoy.NewQuotas(s, nil))
	}
	for i := range envoys {
		c.envoys = append(c.envoys, &quotaEnvoy{Client: quotatest.Client{Domain: "edge", Deny: true}, home: i % 3})
	}
	c.loads(1/float64(envoys), 0)
	c.begun = time.Now()
	return c
}

// loads sets how many requests the Envoys have, 1.5 times the limit together: a part of them at one Envoy.
func (c *quotaCell) loads(part float64, at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.envoys {
		switch n := float64(len(c.envoys)); {
		case n == 1:
			e.load = 1.5 * quotasRate
		case i == at:
			e.load = 1.5 * quotasRate * part
		default:
			e.load = 1.5 * quotasRate * (1 - part) / (n - 1)
		}
	}
}

// send sends a report, on a new stream if there is none.
func (c *quotaCell) send(e *quotaEnvoy, m *rlqs.RateLimitQuotaUsageReports) {
	data, err := proto.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	if e.stream == nil {
		for c.gone[e.home] {
			e.home = (e.home + 1) % len(c.gone)
		}
		p := &quotaPipe{of: c, envoy: e, reports: make(chan []byte, 16)}
		p.ctx, p.end = context.WithCancel(context.Background())
		e.stream = p
		desc, of := c.services[e.home].ServiceDesc()
		go func() {
			if err := desc.Streams[0].Handler(of, p); err != nil && p.ctx.Err() == nil {
				c.t.Errorf("a stream ended: %v", err)
			}
		}()
	}
	p := e.stream
	time.AfterFunc(time.Duration(1+c.r.Int64N(int64(20*time.Millisecond))), func() {
		select {
		case p.reports <- data:
		case <-p.ctx.Done():
		}
	})
}

// drop ends the streams to a member, to which no Envoy opens one again.
func (c *quotaCell) drop(member int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[member] = true
	for _, e := range c.envoys {
		if e.home == member && e.stream != nil {
			e.stream.end()
			e.stream = nil
		}
	}
}

// run lets time pass, until an instant.
func (c *quotaCell) run(until time.Duration) {
	const step = 5 * time.Millisecond
	id := quotatest.NewID(map[string]string{"class": "a"})
	for ; c.passed() < until; time.Sleep(step) {
		c.mu.Lock()
		now := c.passed()
		for i, e := range c.envoys {
			for range int(e.load*step.Seconds() + c.r.Float64()) {
				allowed, first := e.Request(now, id)
				c.judge.See(now, allowed)
				if first != nil {
					c.send(e, first)
				}
			}
			if int(now/step)%200 == i%200 && e.Buckets() > 0 { // each second
				c.send(e, e.Report(now))
			}
		}
		c.mu.Unlock()
	}
}

// owner returns the member that owns the counter.
func (c *quotaCell) owner() int {
	c.mu.Lock()
	asked := c.asked
	c.mu.Unlock()
	e, err := c.nodes[slices.Index(c.gone, false)].Explain(context.Background(), asked)
	if err != nil || len(e.Limits) == 0 {
		c.t.Fatal(e, err)
	}
	for i := range c.nodes {
		if e.Limits[0].Owner == fmt.Sprint("node-", i+1) {
			return i
		}
	}
	c.t.Fatalf("nobody owns the counter: %+v", e)
	return 0
}

// Three members divide a limit among Envoys, one of which has nearly all requests. The member that owns the counter and
// serves that Envoy dies, or leaves, and all Envoys have requests then: what is admitted stays within the limit, and
// within three reports it is used again.
func TestQuotasOfMembersThatEnd(t *testing.T) {
	ends := map[string]func(c *quotaCell, owner int){
		"dies": func(c *quotaCell, owner int) {
			c.drop(owner)
			if err := c.nodes[owner].Close(); err != nil {
				c.t.Error(err)
			}
		},
		"drains": func(c *quotaCell, owner int) {
			go func() {
				if err := c.nodes[owner].Cluster().HandOver(context.Background()); err != nil {
					c.t.Error(err)
				}
				c.drop(owner) // servers stop then
				if err := c.nodes[owner].Cluster().Leave(context.Background()); err != nil {
					c.t.Error(err)
				}
			}()
		},
	}
	for name, end := range ends {
		for _, envoys := range []int{1, 3, 50} {
			for _, fast := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", envoys, " fast ", fast), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newQuotaCell(t, envoys, fast)
						c.run(quotasBefore / 4)
						owner := c.owner()
						c.loads(0.9, owner) // of an Envoy that reports to it
						c.run(quotasBefore)
						end(c, owner)
						c.loads(1/float64(envoys), 0)
						c.run(quotasEnd)
						if c.owner() == owner {
							t.Errorf("premise: node %d owns the counter no more", owner+1)
						}
						for i := range c.gone {
							c.drop(i)
						}
						used := c.judge.Used(quotasBefore+3*time.Second, quotasEnd)
						t.Logf("%.1f%% of the limit is used", 100*used)
						if c.judge.Over > 0 || used < 0.95 {
							t.Errorf("%.1f are admitted beyond the limit, of which %.1f%% is used", c.judge.Over, 100*used)
						}
					})
				})
			}
		}
	}
}
