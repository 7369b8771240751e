package quota_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/internal/envoy/quota/quotatest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// event is something that happens at an instant.
type event struct {
	at time.Duration
	n  int // events of one instant happen in the order in which they were planned
	do func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(e any)   { *q = append(*q, e.(event)) }
func (q *events) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}

// owner owns the counter. It divides as the owner of a key does, with its table.
type owner struct {
	fast     bool
	capacity uint64
	rule     *limiter.Rule
	node     *engine.Node
	away     bool
}

func newOwner(t testing.TB, fast bool, envoys int) owner {
	o := owner{fast: fast, capacity: quotatest.Capacity(envoys), node: &engine.Node{Table: table.New(table.Config{})}}
	o.load(t, quotatest.Rate)
	return o
}

// load puts a rule with another rate into force.
func (o *owner) load(t testing.TB, rate float64) {
	l := limitertest.Limit(t, limiter.Spec{Algorithm: limiter.TokenBucket, Limit: int64(rate), Window: time.Second,
		Burst: int64(o.capacity)})
	o.rule = &limiter.Rule{Name: "shop", Limits: []*limiter.Limit{l}}
}

// moves lets another member own the counter: it has the table and knows nothing else.
func (o *owner) moves() { o.node = &engine.Node{Table: o.node.Table} }

func (o *owner) ask(t testing.TB, now limiter.Tick, name string, a *quota.Ask) quota.Grant {
	size := a.Size
	if size == 0 {
		size = quota.Size(o.capacity, o.capacity, a.Smaller)
	}
	assigned := uint64(0)
	if !o.away {
		var c arith.Charge
		c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 1}, Rule: o.rule, Cost: uint64(size)})
		c.ID = &arith.Idempotency{ID: hashOf(fmt.Sprint(name, "/", a.Slice)), Life: limiter.DefaultIDTTL,
			Hold: a.Hold.Duration(), Keep: true, Lent: true, Rate: max(1, a.Demand), Fast: o.fast}
		var d limiter.Decision
		if err := engine.Decide(o.node.Table, &o.node.Slices, now, &c, &d); err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			assigned = d.Remarks().Assigned
		}
	}
	if assigned == 0 {
		return quota.Grant{Kind: quota.DenyAll}
	}
	return quota.Grant{Kind: quota.Tokens, Size: size, Rate: uint32(assigned)}
}

func hashOf(name string) (h uint64) {
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// sim is Envoys, the nodes that they report to, and the owner of their bucket's counter.
type sim struct {
	t       *testing.T
	rnd     *rand.Rand
	now     time.Duration
	queue   events
	n       int
	owner   owner
	nodes   []*node
	envoys  []*envoy
	judge   quotatest.Judge
	streams []*stream     // also those that have ended
	lag     time.Duration // most of the time of a message
	beyond  uint64
	lost    func(*envoy) bool // a message that lowers a rate is lost, and its stream breaks
	bound   float64           // what fast slices may admit beyond the limit, see [quotatest.Slices]
}

// node is a node that Envoys report to.
type node struct {
	down     bool
	silent   time.Duration // until when it does nothing
	draining bool
}

// stream is a stream of an Envoy to a node.
type stream struct {
	sim    *sim
	name   string
	at     *node
	of     *envoy
	quota  *quota.Stream
	closed bool
	timer  int
	slices quotatest.Slices
}

// hears notes that Envoy has what was sent at an instant.
func (s *stream) hears(sent, now time.Duration) { s.sim.bound += s.slices.Heard(sent, now) }

// falls reports whether a message lowers what Envoy has.
func (s *stream) falls(actions []quota.Action) bool {
	return s.slices.Lowered() > 0 &&
		slices.ContainsFunc(actions, func(a quota.Action) bool { return a.Kind == quota.Tokens })
}

// envoy is an Envoy and its load.
type envoy struct {
	client quotatest.Client
	home   int
	stream *stream
	load   float64 // requests a second
	began  bool
	dead   bool
	every  time.Duration
	random time.Duration // most by which a report is late
}

func (x *sim) after(d time.Duration, do func()) {
	x.n++
	heap.Push(&x.queue, event{x.now + d, x.n, do})
}

func (x *sim) run(until time.Duration) {
	for len(x.queue) > 0 && x.queue[0].at <= until {
		e := heap.Pop(&x.queue).(event)
		x.now = e.at
		e.do()
	}
	x.now = until
}

// delay is how long a message takes.
func (x *sim) delay() time.Duration {
	return time.Millisecond + time.Duration(x.rnd.Int64N(int64(x.lag)))
}

const quarter = 250 * time.Millisecond

func tick(d time.Duration) limiter.Tick { return limiter.Hour + limiter.Span(d) }

func newSim(t *testing.T, seed uint64, envoys int, fast bool) *sim {
	x := &sim{t: t, rnd: rand.New(rand.NewPCG(seed, 55)), lag: 20 * time.Millisecond}
	x.owner = newOwner(t, fast, envoys)
	x.judge = quotatest.NewJudge(envoys)
	for range 3 {
		x.nodes = append(x.nodes, &node{})
	}
	for i := range envoys {
		e := &envoy{client: quotatest.Client{Domain: "edge", Deny: true}, home: i % len(x.nodes), every: time.Second}
		x.envoys = append(x.envoys, e)
	}
	return x
}

// Envoys, and the methods below, implement [quotatest.Stage].
func (x *sim) Envoys() int { return len(x.envoys) }

func (x *sim) Load(at int, load float64) {
	e := x.envoys[at]
	e.load = load
	if !e.began {
		e.began = true
		x.after(time.Duration(x.rnd.Int64N(int64(quarter))), func() { x.request(e) })
		x.after(time.Duration(x.rnd.Int64N(int64(e.every))), func() { x.report(e) })
	}
}

func (x *sim) Kill(at int) {
	x.envoys[at].dead = true
	x.after(x.delay(), func() { x.Break(at) })
}

func (x *sim) Restart(at int) {
	x.Break(at)
	x.envoys[at].client = quotatest.Client{Domain: "edge", Deny: true}
}

func (x *sim) Break(at int) {
	if e := x.envoys[at]; e.stream != nil {
		e.stream.closed = true
		e.stream = nil
	}
}

func (x *sim) EndNode(drains bool) {
	x.nodes[0].draining, x.nodes[0].down = drains, !drains
	x.owner.moves()
	if !drains {
		x.owner.away = true
		x.after(300*time.Millisecond, func() { x.owner.away = false })
	}
	for i, e := range x.envoys {
		if e.home == 0 {
			x.Break(i)
		}
	}
}

func (x *sim) Limit(rate float64) {
	x.owner.load(x.t, rate)
	x.judge.Limit(x.now, rate)
}

func (x *sim) Silence(d time.Duration) {
	for _, n := range x.nodes {
		n.silent = x.now + d
	}
}

func (x *sim) After(d time.Duration, do func()) { x.after(d, do) }

var bucketID = quotatest.NewID(map[string]string{"name": "shop", "class": "a"})

func (x *sim) request(e *envoy) {
	if e.dead {
		return
	}
	wait := quarter
	if e.load > 0 {
		wait = time.Duration(x.rnd.ExpFloat64() / e.load * float64(time.Second))
	}
	if e.load > 0 && wait < 10*time.Second {
		allowed, first := e.client.Request(x.now, bucketID)
		x.judge.See(x.now, allowed)
		if first != nil {
			x.send(e, first)
		}
	}
	x.after(min(wait, 10*time.Second), func() { x.request(e) })
}

func (x *sim) report(e *envoy) {
	if e.dead {
		return
	}
	if e.client.Buckets() > 0 {
		x.send(e, e.client.Report(x.now))
	}
	every := e.every
	if e.random > 0 {
		every += time.Duration(x.rnd.Int64N(int64(e.random)))
	}
	x.after(every, func() { x.report(e) })
}

// send sends a report on the stream of an Envoy, and opens one if there is none.
func (x *sim) send(e *envoy, m *rlqs.RateLimitQuotaUsageReports) {
	if e.stream == nil {
		for range x.nodes {
			if n := x.nodes[e.home]; !n.down && !n.draining {
				break
			}
			e.home = (e.home + 1) % len(x.nodes)
		}
		n := x.nodes[e.home]
		if n.down || n.draining {
			return
		}
		x.n++
		e.stream = &stream{sim: x, name: fmt.Sprint("s", x.n), at: n, of: e, quota: quota.NewStream(nil)}
		x.streams = append(x.streams, e.stream)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		x.t.Fatal(err)
	}
	s := e.stream
	x.after(x.delay(), func() { s.receive(data) })
}

// busy runs something when the node of the stream is not silent, unless it has ended.
func (s *stream) busy(do func()) {
	switch {
	case s.closed || s.at.down:
	case s.sim.now < s.at.silent:
		s.sim.after(s.at.silent-s.sim.now, func() { s.busy(do) })
	default:
		do()
	}
}

func (s *stream) receive(data []byte) {
	s.busy(func() {
		r, err := quota.Read(data)
		if err != nil {
			s.sim.t.Fatal(err)
		}
		for {
			us, err := r.Next(64, nil)
			if err != nil {
				s.sim.t.Fatal(err)
			}
			if len(us) == 0 {
				break
			}
			var out quota.Out
			s.quota.Report(tick(s.sim.now), us, &out)
			s.handle(&out)
		}
		s.due()
	})
}

// due does what is due, and comes again when something is.
func (s *stream) due() {
	var out quota.Out
	next := s.quota.Due(tick(s.sim.now), &out)
	s.handle(&out)
	s.timer++
	timer := s.timer
	s.sim.after(max(time.Millisecond, (next-tick(s.sim.now)).Duration()), func() {
		if timer == s.timer {
			s.busy(s.due)
		}
	})
}

func (s *stream) handle(out *quota.Out) {
	x := s.sim
	for _, b := range out.Beyond {
		x.beyond += b.Units
	}
	var message []byte
	for i := range out.Actions {
		message = quota.AppendAction(message, &out.Actions[i])
	}
	if len(message) > 0 && x.lost != nil && s.falls(out.Actions) && x.lost(s.of) {
		if s.of.stream == s {
			x.Break(slices.Index(x.envoys, s.of))
		}
	} else if len(message) > 0 {
		sent := x.now
		x.after(x.delay(), func() {
			if s.of.dead || s.of.stream != s {
				return
			}
			s.hears(sent, x.now)
			m := new(rlqs.RateLimitQuotaResponse)
			if err := proto.Unmarshal(message, m); err != nil {
				x.t.Fatal(err)
			}
			s.of.client.Receive(x.now, m)
		})
	}
	for _, a := range out.Asks {
		x.after(x.delay()/4, func() {
			g := x.owner.ask(x.t, tick(x.now), s.name, &a)
			if g.Kind == quota.Tokens {
				s.slices.Lent(x.now, float64(g.Rate), a.Hold.Duration())
			}
			x.after(x.delay()/4, func() {
				s.busy(func() {
					var out quota.Out
					s.quota.Answered(tick(x.now), &a, g, &out)
					s.handle(&out)
					s.due()
				})
			})
		})
	}
}

// result is what a cell has shown.
type result struct{ used, over, beyond, bound float64 }

func run(t *testing.T, c *quotatest.Cell, seed uint64, envoys int, fast bool) result {
	x := newSim(t, seed, envoys, fast)
	c.Begin(x)
	x.run(quotatest.Change)
	c.Change(x)
	x.run(quotatest.End)
	for _, e := range x.envoys {
		for _, text := range e.client.Ignored {
			t.Errorf("%s: Envoy ignored %s", c.Name, text)
		}
	}
	for _, s := range x.streams {
		s.hears(x.now, x.now)
	}
	return result{x.judge.Used(c.Settled, quotatest.End), x.judge.Over, float64(x.beyond), x.bound}
}

// Of the cells, without gRPC: no strict division admits more than the limit, and it uses what it has.
func TestCells(t *testing.T) {
	for _, envoys := range []int{1, 3, 50} {
		for _, c := range quotatest.Cells() {
			t.Run(fmt.Sprint(envoys, " ", c.Name), func(t *testing.T) {
				if testing.Short() && envoys != 3 {
					t.Skip("long")
				}
				r := run(t, &c, 1, envoys, false)
				if r.over > 0 || r.used < c.Least || r.beyond > 1 {
					t.Errorf("%.1f%% of the limit is used, %.1f are beyond it, %.0f were beyond what is assigned", 100*r.used,
						r.over, r.beyond)
				}
				if r := run(t, &c, 1, envoys, true); r.used < c.Least || r.over > r.bound {
					t.Errorf("fast: %.1f%% of the limit is used, %.1f are beyond it, and at most %.1f may be", 100*r.used,
						r.over, r.bound)
				}
			})
		}
	}
}

// A client that only obeys the protocol reports when it likes, and messages take longer. Nothing is admitted beyond the
// limit.
func TestLateAndRandomReports(t *testing.T) {
	for seed := range uint64(5) {
		for _, envoys := range []int{1, 3} {
			c := quotatest.Cells()[2]
			begin := c.Begin
			c.Begin = func(s quotatest.Stage) {
				x := s.(*sim)
				x.lag = 80 * time.Millisecond
				for _, e := range x.envoys {
					e.every, e.random = 100*time.Millisecond, 3*time.Second
				}
				begin(x)
			}
			if r := run(t, &c, seed, envoys, false); r.over > 0 || r.used < 0.2 {
				t.Errorf("seed %d, %d clients: %.1f are beyond the limit, of which %.1f%% is used", seed, envoys, r.over,
					100*r.used)
			}
		}
	}
}

// The share of an Envoy that is dead is used by others once its time to live is over. A stream that stays, as nobody
// ends it, is renewed until its report is overdue by a half.
func TestTheShareOfADeadEnvoy(t *testing.T) {
	const ttl, report, asked = 2*time.Second + 200*time.Millisecond, time.Second, 300 * time.Millisecond
	for _, fast := range []bool{false, true} {
		for _, stays := range []bool{false, true} {
			x := newSim(t, 1, 3, fast)
			quotatest.Loads(x, 0.9, 0)
			x.run(quotatest.Change)
			x.envoys[0].dead = true
			back := quotatest.Change + ttl + asked
			if stays {
				back += report + report/2
			} else {
				x.Break(0)
			}
			quotatest.Loads(x, 0, 0) // all of the others
			x.run(quotatest.End)
			if used := x.judge.Used(back, back+report); used < 0.95 || x.judge.Over > 0 {
				t.Errorf("its stream stays %v: %.1f%% of the limit is used, %.1f are beyond it", stays, 100*used, x.judge.Over)
			}
			if before := x.judge.Used(quotatest.Change+report/2, quotatest.Change+report); before > 0.5 {
				t.Errorf("premise: %.1f%% is used before", 100*before)
			}
		}
	}
}

// An Envoy whose stream breaks as its rate falls has load again, before the old rate is over. Strict slices admit
// nothing beyond the limit. Fast ones do, and at most what that Envoy has not heard of: the difference of the two
// rates, until the old one is over.
func TestFastSlicesAreBounded(t *testing.T) {
	beyond, most := 0.0, 0.0
	for seed := range uint64(10) {
		for _, fast := range []bool{false, true} {
			c := quotatest.Cell{Name: "load returns", Begin: func(s quotatest.Stage) { quotatest.Loads(s, 0.9, 0) },
				Change: func(s quotatest.Stage) {
					quotatest.Loads(s, 0.98, 1)
					x := s.(*sim)
					x.lost = func(e *envoy) bool {
						if e != x.envoys[0] || e.stream.slices.Lowered() < quotatest.Rate/2 {
							return false
						}
						x.lost = func(*envoy) bool { return false }
						x.Load(0, 1.5*quotatest.Rate)
						return true
					}
				}}
			switch r := run(t, &c, seed, 3, fast); {
			case !fast && r.over > 0:
				t.Errorf("strict: %.1f are beyond the limit", r.over)
			case r.over > r.bound:
				t.Errorf("fast: %.1f are beyond the limit, and at most %.1f may be", r.over, r.bound)
			case fast:
				beyond, most = max(beyond, r.over), max(most, r.bound)
			}
		}
	}
	t.Logf("fast: %.0f are beyond the limit, of at most %.0f", beyond, most)
	if beyond < quotatest.Rate/4 || most > 4*quotatest.Rate {
		t.Errorf("fast slices admit %.0f beyond the limit, and the bound is %.0f: there is little to judge", beyond, most)
	}
}
