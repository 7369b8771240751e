//go:build !race

// See expect_test.go for why the race detector does not run these.

package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/quota/quotatest"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	grpcwire "github.com/weirlimit/weir/transport"
)

// way is how a limit is divided among Envoys.
type way int

const (
	strictSlices way = iota
	fastSlices
	wholeToAll // each Envoy is assigned the whole limit
	equalParts
)

// quotaCell is a stage of three members with Envoy's quota service, and of Envoys that have gRPC with them, in virtual
// time.
type quotaCell struct {
	*crew
	way      way
	limit    string // metadata of the limit in its file
	mu       sync.Mutex
	begun    time.Time
	r        *rand.Rand
	services []*envoy.Service
	quotas   []*envoy.Quotas
	servers  []*grpcwire.Server
	gone     []bool // no Envoy opens a stream to it
	owner    int    // of the counter, at first
	envoys   []*quotaEnvoy
	links    []*quotaLink // all that there were
	judge    quotatest.Judge
	bound    float64      // what may be admitted beyond the limit, see [quotatest.Slices]
	rate     float64      // of the limit in force
	asked    weir.Request // for a slice, or for nothing
	silent   time.Time    // until when members stand still
	over     bool
}

// quotaEnvoy is an Envoy, and the stream that it has.
type quotaEnvoy struct {
	quotatest.Client
	load float64
	dead bool
	home int
	link *quotaLink
}

// quotaLink is a connection of an Envoy to a member with one stream. Messages take up to 20 ms.
type quotaLink struct {
	of      *quotaCell
	number  int
	envoy   *quotaEnvoy
	reports chan *rlqs.RateLimitQuotaUsageReports
	ctx     context.Context
	end     context.CancelFunc // of the stream
	conn    *grpc.ClientConn
	slices  quotatest.Slices // that the server was lent for it
	sent    []time.Duration  // when the messages were that have not come yet
}

const quotaLinkHeader = "link"

var quotaID = quotatest.NewID(map[string]string{"class": "a"})

// open has a stream until its context or the server ends it.
func (l *quotaLink) open() {
	defer l.conn.Close()
	defer l.end()
	stream, err := rlqs.NewRateLimitQuotaServiceClient(l.conn).StreamRateLimitQuotas(
		metadata.AppendToOutgoingContext(l.ctx, quotaLinkHeader, strconv.Itoa(l.number)))
	if err != nil {
		l.ended()
		return
	}
	go func() {
		defer l.end()
		defer l.ended()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			time.Sleep(l.delay())
			l.receive(m)
		}
	}()
	for {
		select {
		case m := <-l.reports:
			time.Sleep(l.delay())
			if stream.Send(m) != nil {
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

func (l *quotaLink) delay() time.Duration {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	return time.Duration(1 + l.of.r.Int64N(int64(20*time.Millisecond)))
}

func (l *quotaLink) ended() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.envoy.link == l {
		l.envoy.link = nil
	}
}

func (l *quotaLink) receive(m *rlqs.RateLimitQuotaResponse) {
	c := l.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.envoy.link == l && !l.envoy.dead {
		l.envoy.Receive(c.passed(), m)
		c.bound += l.slices.Heard(l.sent[0], c.passed())
	}
	l.sent = l.sent[1:]
}

// standing is the service of a member, which may stand still.
type standing struct {
	*envoy.Quotas
	of *quotaCell
}

func (s standing) ServiceDesc() (*grpc.ServiceDesc, any) {
	desc, of := s.Quotas.ServiceDesc()
	handle := desc.Streams[0].Handler
	desc.Streams[0].Handler = func(of any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		n, err := strconv.Atoi(md.Get(quotaLinkHeader)[0])
		if err != nil {
			return err
		}
		s.of.mu.Lock()
		l := s.of.links[n]
		s.of.mu.Unlock()
		return handle(of, &standingStream{stream, l})
	}
	return desc, of
}

// standingStream is the server's end of a link.
type standingStream struct {
	grpc.ServerStream
	link *quotaLink
}

type linkKey struct{}

func (s *standingStream) Context() context.Context {
	return context.WithValue(s.ServerStream.Context(), linkKey{}, s.link)
}

func (s *standingStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	s.link.of.stand()
	return err
}

func (s *standingStream) SendMsg(m any) error {
	c := s.link.of
	c.stand()
	c.mu.Lock()
	s.link.sent = append(s.link.sent, c.passed())
	c.mu.Unlock()
	return s.ServerStream.SendMsg(m)
}

// stand waits while members stand still.
func (c *quotaCell) stand() {
	c.mu.Lock()
	d := time.Until(c.silent)
	c.mu.Unlock()
	time.Sleep(d)
}

func (c *quotaCell) passed() time.Duration { return time.Since(c.begun) }

// noted notes what is asked for and lent. It divides where the way is not Weir's.
type noted struct {
	*weir.Node
	of *quotaCell
}

func (n noted) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	c := n.of
	c.stand()
	c.mu.Lock()
	c.asked = rs[0]
	assigned := c.rate
	c.mu.Unlock()
	switch c.way {
	case equalParts:
		assigned /= float64(len(c.envoys))
		fallthrough
	case wholeToAll:
		for i := range ds {
			ds[i].Allowed = true
			ds[i].SetRemarks(limiter.Remarks{Assigned: uint64(assigned)})
		}
		return nil
	}
	err := n.Node.CheckBatchInto(ctx, rs, ds)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, _ := ctx.Value(linkKey{}).(*quotaLink); l != nil {
		for i := range ds {
			if rate := ds[i].Remarks().Assigned; ds[i].Allowed && rate > 0 {
				l.slices.Lent(c.passed(), float64(rate), rs[i].Hold)
			}
		}
	}
	return err
}

// newQuotaCell opens the members, and their services.
func newQuotaCell(t *testing.T, envoys int, w way, limit string) *quotaCell {
	c := &quotaCell{crew: newCrew(t, 3), way: w, limit: limit,
		r: rand.New(rand.NewPCG(55, uint64(envoys))), gone: make([]bool, 3), judge: quotatest.NewJudge(envoys)}
	t.Cleanup(c.close)
	c.start(troubles[3])
	for i, n := range c.nodes {
		s, err := envoy.NewService(envoy.Options{Config: frontend.Config{Decider: noted{n, c}}, FastQuotas: w == fastSlices})
		if err != nil {
			t.Fatal(err)
		}
		q := envoy.NewQuotas(s, nil)
		server, err := grpcwire.NewServer(grpcwire.Options{Decider: n, Services: []grpcwire.GRPCService{standing{q, c}},
			MaxMessageBytes: envoy.MaxMessageBytes})
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.net.listen(t.Context(), c.address(i))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := server.Serve(l, nil); err != nil {
				t.Errorf("a server ended: %v", err)
			}
		}()
		c.services, c.quotas, c.servers = append(c.services, s), append(c.quotas, q), append(c.servers, server)
	}
	for range envoys {
		c.envoys = append(c.envoys, &quotaEnvoy{Client: quotatest.Client{Domain: "edge", Deny: true}})
	}
	c.Limit(quotatest.Rate)
	c.begun = time.Now()
	c.mu.Lock()
	first := &quotaEnvoy{Client: quotatest.Client{Domain: "edge"}}
	_, report := first.Request(0, quotaID)
	c.send(first, report)
	c.mu.Unlock()
	time.Sleep(time.Second)
	c.owner = c.owns()
	c.mu.Lock()
	first.unlink()
	c.mu.Unlock()
	for i, e := range c.envoys {
		e.home = (c.owner + i) % 3
	}
	time.Sleep(2 * quotatest.TTL) // the first one's slice is over
	c.begun = time.Now()
	return c
}

func (c *quotaCell) address(i int) string { return c.host[i] + ":8086" }

// close ends all connections and servers.
func (c *quotaCell) close() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	for i, s := range c.servers {
		c.drop(i)
		cut(s)
	}
	time.Sleep(time.Second)
}

// cut ends a server and its connections at once.
func cut(s *grpcwire.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx) // says that it was cut
}

// send sends a report, on a new stream if there is none.
func (c *quotaCell) send(e *quotaEnvoy, m *rlqs.RateLimitQuotaUsageReports) {
	if e.link == nil {
		for c.gone[e.home] {
			e.home = (e.home + 1) % len(c.gone)
		}
		at := c.address(e.home)
		dial := c.net.dialer(fmt.Sprintf("127.9.%d.%d", len(c.links)/250, len(c.links)%250+1))
		conn, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, at) }))
		if err != nil {
			c.t.Error(err)
			return
		}
		l := &quotaLink{of: c, number: len(c.links), envoy: e, conn: conn,
			reports: make(chan *rlqs.RateLimitQuotaUsageReports, 64)}
		l.ctx, l.end = context.WithCancel(context.Background())
		c.links = append(c.links, l)
		e.link = l
		go l.open()
	}
	select {
	case e.link.reports <- m:
	default:
		c.t.Error("an Envoy waits for its stream")
	}
}

// drop ends the streams to a member, to which no Envoy opens one again.
func (c *quotaCell) drop(member int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[member] = true
	for _, e := range c.envoys {
		if e.home == member {
			e.unlink()
		}
	}
}

func (e *quotaEnvoy) unlink() {
	if e.link != nil {
		e.link.end()
		e.link = nil
	}
}

// run lets time pass, until an instant.
func (c *quotaCell) run(until time.Duration) {
	const step = 5 * time.Millisecond
	for ; c.passed() < until; time.Sleep(step) {
		c.mu.Lock()
		now := c.passed()
		for i, e := range c.envoys {
			if e.dead {
				continue
			}
			for range int(e.load*step.Seconds() + c.r.Float64()) {
				allowed, first := e.Request(now, quotaID)
				c.judge.See(now, allowed)
				if first != nil {
					c.send(e, first)
				}
			}
			if int(now/step)%200 == i*29%200 && e.Buckets() > 0 { // each second
				c.send(e, e.Report(now))
			}
		}
		c.mu.Unlock()
	}
}

// owns returns the member that owns the counter.
func (c *quotaCell) owns() int {
	c.mu.Lock()
	asked, gone := c.asked, c.gone
	c.mu.Unlock()
	for i := range c.nodes {
		if gone[i] {
			continue
		}
		e, err := c.nodes[i].Explain(context.Background(), asked)
		if err != nil || len(e.Limits) == 0 {
			c.t.Fatal(e, err)
		}
		for i := range c.nodes {
			if e.Limits[0].Owner == fmt.Sprint("node-", i+1) {
				return i
			}
		}
	}
	c.t.Fatal("nobody owns the counter")
	return 0
}

// Envoys, and the methods below, implement [quotatest.Stage].
func (c *quotaCell) Envoys() int { return len(c.envoys) }

func (c *quotaCell) Load(at int, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.envoys[at].load = rate
}

func (c *quotaCell) Kill(at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.envoys[at]
	e.dead = true
	if l := e.link; l != nil {
		go l.conn.Close()
	}
}

func (c *quotaCell) Restart(at int) {
	c.Kill(at)
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.envoys[at]
	e.Client, e.dead, e.link = quotatest.Client{Domain: "edge", Deny: true}, false, nil
}

func (c *quotaCell) Break(at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.envoys[at].unlink()
}

func (c *quotaCell) EndNode(drains bool) {
	n := c.nodes[c.owner]
	if !drains {
		c.mu.Lock()
		c.gone[c.owner] = true
		c.mu.Unlock()
		cut(c.servers[c.owner])
		if err := n.Close(); err != nil {
			c.t.Error(err)
		}
		return
	}
	go func() { // as `node` does
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := n.Cluster().HandOver(ctx)
		c.mu.Lock()
		c.gone[c.owner] = true
		c.mu.Unlock()
		if err = errors.Join(err, c.servers[c.owner].Shutdown(ctx), n.Cluster().Leave(ctx)); err != nil {
			c.t.Errorf("a member drains: %v", err)
		}
	}()
}

func (c *quotaCell) Limit(rate float64) {
	limits, err := config.Parse([]config.File{{Name: "f", Data: fmt.Appendf(nil, `
domain: edge
descriptors:
  - key: class
    rate_limit: {unit: second, requests_per_unit: %.0f}
    metadata: {weir: %s}
`, rate, c.limit)}}, config.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range c.services {
		if err := s.SetConfig(limits); err != nil {
			c.t.Fatal(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rate = rate; !c.begun.IsZero() {
		c.judge.Limit(c.passed(), rate)
	}
}

func (c *quotaCell) Silence(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = time.Now().Add(d)
}

func (c *quotaCell) After(d time.Duration, do func()) {
	time.AfterFunc(d, func() {
		c.mu.Lock()
		over := c.over
		c.mu.Unlock()
		if !over {
			do()
		}
	})
}

// quotaResult is what a cell has shown.
type quotaResult struct{ used, over, bound, beyond float64 }

// runQuotas has a cell happen, on a bucket or, if there is an algorithm, on a window of a second.
func runQuotas(t *testing.T, cell *quotatest.Cell, envoys int, w way, algorithm string) (r quotaResult) {
	synctest.Test(t, func(t *testing.T) {
		limit, window := fmt.Sprintf("{algorithm: token_bucket, burst: %d}", quotatest.Capacity(envoys)), time.Duration(0)
		if algorithm != "" {
			limit, window = "{algorithm: "+algorithm+"}", time.Second
		}
		c := newQuotaCell(t, envoys, w, limit)
		c.judge.Window = window
		cell.Begin(c)
		c.run(quotatest.Change)
		cell.Change(c)
		c.run(quotatest.End)
		if moved := c.owns() != c.owner; moved != c.gone[c.owner] {
			t.Errorf("premise: that node %d owns the counter no more is %v", c.owner+1, moved)
		}
		r = quotaResult{used: c.judge.Used(cell.Settled, quotatest.End), over: c.judge.Over, bound: c.bound}
		for _, l := range c.links {
			r.bound += l.slices.Heard(quotatest.End, quotatest.End)
		}
		for _, q := range c.quotas {
			r.beyond += float64(q.Stats().Beyond)
		}
		for _, e := range c.envoys {
			for _, text := range e.Ignored {
				t.Errorf("Envoy ignored %s", text)
			}
		}
	})
	return r
}

// Three members divide a limit among Envoys over gRPC, in each of the cells: what is admitted stays within the limit,
// and within three reports it is used again. With fast slices what is beyond is bounded.
func TestQuotas(t *testing.T) {
	for i, cell := range quotatest.Cells() {
		for _, envoys := range []int{1, 3, 50} {
			for w := strictSlices; w <= fastSlices; w++ {
				t.Run(fmt.Sprint(cell.Name, " ", envoys, " fast ", w == fastSlices), func(t *testing.T) {
					if sampled := w == strictSlices && envoys == 3 || w == fastSlices && envoys == []int{1, 3, 50}[i%3]; !sampled &&
						os.Getenv("WEIR_SEEDS") == "" {
						t.Skip("long; make test-long runs it")
					}
					r := runQuotas(t, &cell, envoys, w, "")
					t.Logf("%.1f%% of the limit is used", 100*r.used)
					if w == strictSlices {
						r.bound = 0
					}
					if r.over > r.bound || r.used < cell.Least || r.beyond > 1 {
						t.Errorf("%.1f are admitted beyond the limit, of which %.1f%% is used; %.1f may be, and %.0f were beyond "+
							"what is assigned", r.over, 100*r.used, r.bound, r.beyond)
					}
				})
			}
		}
	}
}

// Of a limit on windows no interval as long as a window has more than the limit, in each of the cells with strict
// slices. If each Envoy is assigned the whole limit, it has.
func TestQuotasOfWindows(t *testing.T) {
	if r := runQuotas(t, &quotatest.Cells()[0], 3, wholeToAll, "sliding_log"); r.over < 0.4*quotatest.Rate {
		t.Errorf("premise: only %.1f are admitted beyond a limit that each Envoy has", r.over)
	}
	for i, cell := range quotatest.Cells() {
		for a, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window", "sliding_counter"} {
			t.Run(cell.Name+" "+algorithm, func(t *testing.T) {
				if (i+a)%4 != 0 && os.Getenv("WEIR_SEEDS") == "" {
					t.Skip("long; make test-long runs it")
				}
				r := runQuotas(t, &cell, 3, strictSlices, algorithm)
				t.Logf("%.1f%% of the limit is used", 100*r.used)
				const bursts = 3 * 20 / (0.6 * quotatest.Rate) // are taken off the rate, which is lowered to that at least
				if r.over > 0 || r.used < cell.Least-bursts || r.beyond > 1 {
					t.Errorf("%.1f are admitted beyond the limit, of which %.1f%% is used, and %.0f beyond what is assigned",
						r.over, 100*r.used, r.beyond)
				}
			})
		}
	}
}

var showsQuotas = flag.Bool("quotas", false, "print the table of docs/envoy.md")

// TestQuotasTable prints the table of docs/envoy.md: what TestQuotas has measured, and the known ways beside it.
func TestQuotasTable(t *testing.T) {
	if !*showsQuotas {
		t.Skip("for the table of docs/envoy.md; give -quotas")
	}
	for _, cell := range quotatest.Cells() {
		line := "| " + cell.Name
		for w := strictSlices; w <= equalParts; w++ {
			line += " |"
			for _, envoys := range []int{1, 3, 50} {
				r := runQuotas(t, &cell, envoys, w, "")
				line += fmt.Sprintf(" %.0f", 100*r.used)
				if r.over > 0 && w <= fastSlices {
					line += fmt.Sprintf(" (%.0f beyond)", r.over)
				}
			}
		}
		t.Log(line + " |")
	}
}
