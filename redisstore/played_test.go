package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// played is a store of a Redis Cluster of two masters, which the test plays: nothing is
// sent, and time is that of the test's bubble.
type played struct {
	*Store
	t       *testing.T
	masters [2]*master
	rule    *limiter.Rule
	next    uint64

	mu  sync.Mutex
	log bytes.Buffer
	got []string // the jobs that were answered, as "kind@master*calls"
}

// master is a master that the test plays.
type master struct {
	lane   *lane
	answer func(j *job) bool // false: there is no answer
}

func (p *played) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// logged returns how many records have a text in them.
func (p *played) logged(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.log.String(), text)
}

// play runs a test with a store. Each check may wait for a second.
func play(t *testing.T, test func(p *played)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &played{t: t, rule: &limiter.Rule{
			Name: "r", Limits: []*limiter.Limit{mustLimit(t, limiter.Spec{Limit: 10, Window: time.Hour})},
			OnUnreachable: limiter.UnreachableOpen,
		}}
		cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot,
			error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:1"}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "10.0.0.2:1"}}},
			}, nil
		}})
		p.Store = newLanes(cluster)
		p.config.Log = slog.New(slog.NewTextHandler(p, nil))
		p.failures.log, p.guard = p.config.Log, guard.New(p.config.Log, nil)
		var err error
		if p.calls.scripts, err = newLibrary(); err != nil {
			t.Fatal(err)
		}
		for i := range p.masters {
			k := p.on(i)
			client, err := cluster.MasterForKey(t.Context(), p.route(k))
			if err != nil {
				t.Fatal(err)
			}
			p.masters[i] = &master{answer: p.allow}
			p.replace(i, client)
		}
		test(p)
		p.closed.Store(true)
		close(p.closing)
		p.running.Wait()
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
}

// replace gives a master another lane. What waits in the old one is left there.
func (p *played) replace(i int, client *redis.Client) {
	l := &lane{store: p.Store, health: health{store: p.Store}, client: client, addr: client.Options().Addr,
		queue: make(chan *job, 100), stopped: make(chan struct{})}
	p.masters[i].lane = l
	p.lanes.Store(l.addr, l)
	p.running.Go(func() {
		for {
			select {
			case <-p.closing:
				return
			case <-l.stopped:
				return
			case j := <-l.queue:
				if p.masters[i].answer(j) {
					p.mu.Lock()
					p.got = append(p.got, fmt.Sprintf("%d@%d*%d", j.calls[0].kind, i, len(j.calls)))
					p.mu.Unlock()
					close(j.done)
				}
			}
		}
	})
}

func (p *played) route(k arith.Key) string {
	return string(appendTag(nil, defaultPrefix, &k, 0, 0, nil)) + ":" + k.Rule.Limits[0].Name()
}

// on returns a new key of a master.
func (p *played) on(master int) arith.Key {
	p.t.Helper()
	for {
		p.next++
		k := arith.Key{Hash: arith.Hash{Hi: p.next}, Rule: p.rule, Cost: 1}
		client, err := p.cluster.MasterForKey(p.t.Context(), p.route(k))
		if err != nil {
			p.t.Fatal(err)
		}
		if client.Options().Addr == fmt.Sprintf("10.0.0.%d:1", master+1) {
			return k
		}
	}
}

// answers gives each call of a job an answer with the same flags.
func (p *played) answers(j *job, flags int64) bool {
	for _, c := range j.calls {
		c.reply, c.err = []int64{int64(p.clock.now())}, nil
		for range c.keys {
			c.reply = append(c.reply, 9<<flagBits|flags, 0, 0)
		}
	}
	return true
}

func (p *played) allow(j *job) bool { return p.answers(j, flagAllowed|flagCharged) }
func (p *played) deny(j *job) bool  { return p.answers(j, 0) }

// never does not answer checks.
func (p *played) never(*job) bool { return false }

// decide decides charges of some keys each as one batch, and returns the decisions and how
// long that took.
func (p *played) decide(charges ...[]arith.Key) ([]*limiter.Decision, time.Duration) {
	p.t.Helper()
	var cs []*arith.Charge
	var ds []*limiter.Decision
	for _, keys := range charges {
		c := new(arith.Charge)
		for _, k := range keys {
			c.Add(k)
		}
		cs, ds = append(cs, c), append(ds, new(limiter.Decision))
	}
	began := time.Now()
	if err := p.Decide(p.t.Context(), arith.Instant{}, cs, ds, nil); err != nil {
		p.t.Fatal(err)
	}
	return ds, time.Since(began)
}

// jobs returns the jobs that were answered since the last call of jobs.
func (p *played) jobs() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := strings.Join(p.got, " ")
	p.got = nil
	return out
}

// When the time of a batch is used up, no later round is asked: reservations of the round
// before may not be cancelled yet. They still will be.
func TestNoRoundBeforeTheReservationsOfAnother(t *testing.T) {
	play(t, func(p *played) {
		a, b := p.on(0), p.on(1)
		shut := *p.rule
		shut.OnUnreachable = limiter.UnreachableClosed
		b.Rule = &shut
		p.masters[1].answer = p.never
		refunds := make(chan struct{})
		p.masters[0].answer = func(j *job) bool {
			if j.calls[0].kind == kindCancel {
				<-refunds
			}
			return p.allow(j)
		}
		ds, took := p.decide([]arith.Key{a, b}, []arith.Key{a})
		if took != p.config.Timeout {
			t.Errorf("a batch waits %v, want %v", took, p.config.Timeout)
		}
		if ds[0].Allowed || ds[0].Source != limiter.SourceFallbackClosed || ds[1].Source != limiter.SourceFallbackOpen {
			t.Errorf("allowed %v by %s, then %v by %s", ds[0].Allowed, ds[0].Source, ds[1].Allowed, ds[1].Source)
		}
		close(refunds)
		synctest.Wait()
		if got, want := p.jobs(), fmt.Sprintf("%d@0*1 %d@0*1", kindCheck, kindCancel); got != want {
			t.Errorf("the master was asked %q, want %q", got, want)
		}
		if p.logged("not decided by redis") != 1 || p.logged(errRounds.Error()) != 1 {
			t.Errorf("the log has %s", &p.log)
		}
	})
}

// All refunds of a round are one call to each master, and so is what remains after them.
func TestRefundsOfARoundAreOneAsk(t *testing.T) {
	play(t, func(p *played) {
		p.masters[1].answer = p.deny
		var batch [][]arith.Key
		for range 5 {
			batch = append(batch, []arith.Key{p.on(0), p.on(1)})
		}
		slow := p.masters[0].answer
		p.masters[0].answer = func(j *job) bool {
			time.Sleep(p.config.Timeout / 4)
			return slow(j)
		}
		ds, took := p.decide(batch...)
		if took != p.config.Timeout/4*3 {
			t.Errorf("took %v, want three waits", took)
		}
		for i, d := range ds {
			if d.Allowed || d.Source != limiter.SourceRedis || arith.Fields(&d.Receipt).Charged != 0 {
				t.Errorf("charge %d: allowed %v by %s, charged %b", i, d.Allowed, d.Source, arith.Fields(&d.Receipt).Charged)
			}
		}
		got := strings.Fields(p.jobs())
		if want := fmt.Sprint(map[string]int{"0@0*5": 1, "0@1*5": 1, "1@0*5": 1, "2@0*5": 1,
			"2@1*5": 1}); fmt.Sprint(tally(got)) != want {
			t.Errorf("the jobs are %v, want %s", got, want)
		}
	})
}

func tally(of []string) map[string]int {
	m := map[string]int{}
	for _, s := range of {
		m[s]++
	}
	return m
}

// A batch of many rounds ends in the time of one check. Policies decide what is left.
func TestManyRoundsHaveOneDeadline(t *testing.T) {
	play(t, func(p *played) {
		a, b := p.on(0), p.on(1)
		for i := range p.masters {
			p.masters[i].answer = func(j *job) bool {
				time.Sleep(p.config.Timeout * 2 / 5)
				return p.allow(j)
			}
		}
		var batch [][]arith.Key
		for range 9 {
			batch = append(batch, []arith.Key{a, b})
		}
		ds, took := p.decide(batch...)
		if took != p.config.Timeout {
			t.Errorf("a batch waits %v, want %v", took, p.config.Timeout)
		}
		for i, d := range ds {
			want := limiter.SourceRedis
			if i > 1 {
				want = limiter.SourceFallbackOpen
			}
			if !d.Allowed || d.Source != want {
				t.Errorf("charge %d: allowed %v by %s, want %s", i, d.Allowed, d.Source, want)
			}
		}
		time.Sleep(p.config.Timeout)
	})
}

// A check of which no part was reserved is not asked again: nothing has changed since.
func TestNothingIsAskedAgainWithoutReservations(t *testing.T) {
	play(t, func(p *played) {
		p.masters[0].answer, p.masters[1].answer = p.deny, p.deny
		if ds, _ := p.decide([]arith.Key{p.on(0), p.on(1)}); ds[0].Allowed || ds[0].Source != limiter.SourceRedis {
			t.Errorf("allowed %v by %s", ds[0].Allowed, ds[0].Source)
		}
		if got := strings.Fields(p.jobs()); len(got) != 2 {
			t.Errorf("the jobs are %v, want one to each master", got)
		}
	})
}

// A call whose lane ends before it is made is submitted to the next lane.
func TestCallOfALaneThatEndsIsSubmittedAgain(t *testing.T) {
	play(t, func(p *played) {
		a, old := p.on(0), p.masters[0].lane
		p.masters[0].answer = func(j *job) bool {
			p.masters[0].answer = p.allow
			p.replace(0, old.client)
			old.queue <- j // it was not taken yet
			old.stop()
			return false
		}
		if ds, _ := p.decide([]arith.Key{a}); !ds[0].Allowed || ds[0].Source != limiter.SourceRedis {
			t.Errorf("allowed %v by %s", ds[0].Allowed, ds[0].Source)
		}
		if p.log.Len() != 0 {
			t.Errorf("the log has %s", &p.log)
		}
	})
}

// A call is submitted three times at most.
func TestCallOfLanesThatEndIsGivenUp(t *testing.T) {
	play(t, func(p *played) {
		tries, client := 0, p.masters[0].lane.client
		p.masters[0].answer = func(j *job) bool {
			tries++
			l := p.masters[0].lane
			p.replace(0, client)
			l.queue <- j
			l.stop()
			return false
		}
		if ds, took := p.decide([]arith.Key{p.on(0)}); ds[0].Source != limiter.SourceFallbackOpen || took != 0 ||
			tries != maxTries {
			t.Errorf("%s decides after %v and %d tries", ds[0].Source, took, tries)
		}
		if p.logged(errStopped.Error()) != 1 {
			t.Errorf("the log has %s", &p.log)
		}
	})
}

// The log says of a cancellation that was lost what it is. No policy decides it.
func TestLostCancellationIsLogged(t *testing.T) {
	for name, lose := range map[string]func(p *played, first *lane){
		"the server is down": func(_ *played, l *lane) { l.health.outage.Store(&outage{since: time.Now()}) },
		"the queue is full":  func(_ *played, l *lane) { l.queue = nil },
		"the caller has gone, and the lane ends": func(p *played, l *lane) {
			p.masters[0].answer = func(j *job) bool {
				time.Sleep(2 * p.config.Timeout)
				l.queue <- j
				l.stop()
				return false
			}
		},
		"the caller has gone, and the server is late": func(p *played, l *lane) {
			p.masters[0].answer = func(j *job) bool {
				time.Sleep(2 * p.config.Timeout)
				l.run([]*job{j})
				return false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(p *played) {
				l := p.masters[0].lane
				p.masters[0].answer = func(j *job) bool {
					lose(p, l)
					return p.allow(j)
				}
				p.masters[1].answer = func(j *job) bool {
					time.Sleep(p.config.Timeout / 10)
					return p.deny(j)
				}
				if ds, _ := p.decide([]arith.Key{p.on(0), p.on(1)}); ds[0].Allowed || ds[0].Source != limiter.SourceRedis {
					t.Errorf("allowed %v by %s", ds[0].Allowed, ds[0].Source)
				}
				time.Sleep(3 * p.config.Timeout)
				if p.logged("was not cancelled in redis") != 1 || p.logged("not decided by redis") != 0 {
					t.Errorf("the log has %q", p.log.String())
				}
			})
		})
	}
}

// What is logged of a call says what the call was for.
func TestEachKindOfCallHasItsMessage(t *testing.T) {
	play(t, func(p *played) {
		for k := range kindAmend + 1 {
			for range 3 { // at most once a minute
				p.failures.call(&call{kind: k, route: "k"}, errBusy)
			}
		}
		for _, text := range []string{"not decided by redis", "was not cancelled", "what remains", "confirm a refund",
			"confirm a reset"} {
			if p.logged(text) != 1 {
				t.Errorf("%q is logged %d times in %s", text, p.logged(text), &p.log)
			}
		}
	})
}

// A Cluster that does not say in time who has a slot is suspected, unless only the caller
// was in a hurry.
func TestRoutingThatHangsIsSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true,
			ClusterSlots: func(ctx context.Context) ([]redis.ClusterSlot, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
		defer cluster.Close()
		s := newLanes(cluster)
		s.closed.Store(true) // no probe follows
		ask := func(ctx context.Context) {
			t.Helper()
			if calls, err := s.ask(ctx, s.config.deadline(), []*call{{route: "k"}}); err != nil || calls[0].err == nil {
				t.Errorf("%v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), s.config.Timeout/2)
		defer cancel()
		if ask(ctx); s.routing.suspected.Load() {
			t.Error("suspected because a caller went")
		}
		if ask(t.Context()); !s.routing.suspected.Load() {
			t.Error("not suspected")
		}
	})
}

// The server's clock is asked for until it has answered, and again when that is long ago.
func TestClockIsAskedForUntilItAnswers(t *testing.T) {
	play(t, func(p *played) {
		p.clock.ages = true
		for range 3 {
			if !p.clock.due() {
				t.Error("a lost answer ends the asking")
			}
		}
		if p.clock.learn(p.clock.now() + limiter.Hour); p.clock.due() {
			t.Error("asked again although it is known")
		}
		if time.Sleep(clockEvery); !p.clock.due() {
			t.Error("not asked again")
		}
		if now := time.Now().Add(time.Hour); p.clock.now().Time().Sub(now).Abs() > time.Minute {
			t.Errorf("the clock is %v, want %v", p.clock.now().Time(), now)
		}
	})
}

// An outage has the decisions by policy since its server last answered: with the one that found it, without one
// before, and without those of another outage.
func TestOutageHasItsOwnDecisions(t *testing.T) {
	play(t, func(p *played) {
		h := &health{store: p.Store}
		h.policy()
		h.worked()
		for n := 3; n > 0; n-- {
			h.policy() // that of the call that finds it
			o := &outage{since: time.Now(), because: errLate, logged: true}
			h.outage.Store(o)
			for range n - 1 {
				h.policy()
			}
			h.worked() // an answer that was under way
			h.end(o)
			if p.logged(fmt.Sprintf("decided_by_policy=%d\n", n)) != 1 {
				t.Errorf("%d decisions are by policy: %s", n, &p.log)
			}
		}
	})
}

// A server that comes and goes ten times a second takes two lines of the log a minute. An outage that lasts is
// logged, also after such ones.
func TestLogOfAServerThatComesAndGoes(t *testing.T) {
	play(t, func(p *played) {
		h, o := &health{store: p.Store}, (*outage)(nil)
		begin := func() {
			o = &outage{since: time.Now(), because: errLate}
			if h.worthLogging(o, o.since) {
				h.log(o)
			}
		}
		goOn := func() {
			if !o.logged && h.worthLogging(o, time.Now()) {
				h.log(o)
			}
		}
		const minutes = 3
		for range minutes * 60 * 10 {
			begin()
			time.Sleep(probeEvery / 2)
			goOn()
			h.end(o)
			time.Sleep(probeEvery / 2)
		}
		if n, again := p.logged("redis is unavailable"), p.logged("available again"); n != minutes || again != n {
			t.Errorf("in %d minutes the log says %d times that redis is unavailable, and %d times that it is back", minutes, n,
				again)
		}
		if p.logged("short_outages_before=") != minutes-1 {
			t.Errorf("the log has %s", &p.log)
		}
		begin()
		for range 20 {
			time.Sleep(probeEvery)
			goOn()
		}
		h.end(o)
		if n, again := p.logged("redis is unavailable"), p.logged("available again"); n != minutes+1 || again != n {
			t.Errorf("an outage that lasts: %d and %d", n, again)
		}
	})
}
