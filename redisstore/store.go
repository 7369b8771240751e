package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// ErrClosed is returned by the methods of a [Store] after Close.
var ErrClosed = errors.New("redisstore: the store is closed")

// guardPlace is the place of panics in the log.
const guardPlace = "redis"

// Store decides checks in Redis. It is safe for concurrent use.
type Store struct {
	config   Config
	scripts  *library
	spelled  spellings
	fallback *fallback
	guard    *guard.Guard // of the store's goroutines

	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server
	single  *lane                // nil for a Cluster
	lanes   sync.Map             // of a Cluster: address -> *lane
	routing health               // of a Cluster: whether it returns the owners of slots

	opened     time.Time
	start      limiter.Tick // opened, as a tick
	ahead      atomic.Int64 // of the server's clock over the local one, in ticks
	timed      atomic.Int64 // of a Cluster: when a round trip last asked for the server's clock, since opened
	complained atomic.Int64 // when an error of a single call was last logged

	mu      sync.Mutex // held while a goroutine starts or the store closes
	closed  atomic.Bool
	closing chan struct{}
	running sync.WaitGroup
}

// Open returns a store. For an invalid configuration the error wraps
// [limiter.ErrInvalid]; otherwise it is the context's. An unreachable server is no
// error: policies decide until it answers. Open waits for the server at most
// [Config.Timeout], so that an outage is logged at once. The context is for opening
// only.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	scripts, err := newLibrary()
	if err != nil {
		return nil, err
	}
	s := &Store{config: c, scripts: scripts, opened: time.Now(), closing: make(chan struct{})}
	s.start = limiter.TickOf(s.opened)
	s.fallback, s.guard = newFallback(&s.config), guard.New(c.Log, nil)
	s.client = redis.NewUniversalClient(s.options())
	h := &s.routing
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		s.cluster = client
	case *redis.Client:
		s.single = s.newLane(client, "")
		h = &s.single.health
	}
	route := c.Prefix + "{}"
	if err := s.probe(route); err != nil {
		s.fail(h, route, err)
	}
	return s, nil
}

// Close closes the store. The policies decide checks that are waiting. A second call
// does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	already := s.closed.Swap(true)
	s.mu.Unlock()
	if already {
		return nil
	}
	close(s.closing)
	if s.single != nil {
		s.single.stop()
	}
	s.lanes.Range(func(_, l any) bool {
		l.(*lane).stop()
		return true
	})
	err := s.client.Close()
	s.running.Wait()
	return err
}

// UseTable makes policies count in a table instead of one of the store's own, which has
// the default bounds. It must be called before the first check. [weir.Open] calls it with
// the node's table, whose bounds and reports then are those of the policies' counters.
func (s *Store) UseTable(t *table.Table) { s.fallback.table = t }

// spawn starts a goroutine, unless the store is closed. A panic ends only the goroutine.
func (s *Store) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() {
		s.running.Go(func() {
			defer s.guard.Recover(guardPlace, nil)
			f()
		})
	}
}

// clockEvery is the interval at which a store asks a Cluster for its clock. Answers to
// checks of one key have the server's clock, too, but there may be none.
const clockEvery = 10 * time.Second

// asksClock reports whether the round trip that is about to be made is to ask for the
// server's clock.
func (s *Store) asksClock() bool {
	last, now := s.timed.Load(), int64(time.Since(s.opened))
	return s.cluster != nil && now-last >= int64(clockEvery) && s.timed.CompareAndSwap(last, now)
}

// clock returns an estimate of the server's clock.
func (s *Store) clock() limiter.Tick {
	return s.start + limiter.Tick(time.Since(s.opened)/limiter.TickDuration) + limiter.Tick(s.ahead.Load())
}

// learn updates that estimate with an instant from the server.
func (s *Store) learn(now limiter.Tick) {
	s.ahead.Store(int64(now - s.start - limiter.Tick(time.Since(s.opened)/limiter.TickDuration)))
}

// when returns the instant of a check with so many parts. If the server's clock is to
// be used but several servers are asked, all are given the same estimated instant, so
// that one receipt is valid for all. Where the servers' clocks differ, the estimate is of
// the one that answered last.
func (s *Store) when(now limiter.Instant, parts int) when {
	switch {
	case now.Given():
		return when{now.Or(s.clock), callersSlack}
	case parts > 1:
		return when{s.clock(), estimateSlack}
	default:
		return when{serverClock, 0}
	}
}

// lane returns the lane to the server of a key.
func (s *Store) lane(ctx context.Context, route string) (*lane, error) {
	if s.single != nil {
		return s.single, nil
	}
	if s.routing.down() {
		return nil, errDown
	}
	client, err := s.cluster.MasterForKey(ctx, route)
	if err != nil {
		if ctx.Err() == nil {
			s.suspect(&s.routing, route, err)
		}
		return nil, err
	}
	addr := client.Options().Addr
	if l, ok := s.lanes.Load(addr); ok && l.(*lane).client == client {
		return l.(*lane), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.lanes.Load(addr); ok && l.(*lane).client == client {
		return l.(*lane), nil
	}
	if s.closed.Load() {
		return nil, ErrClosed
	}
	l := s.newLane(client, addr)
	if old, had := s.lanes.Swap(addr, l); had {
		s.running.Go(func() { // not here: what it logs may take time
			defer s.guard.Recover(guardPlace, nil)
			old.(*lane).stop()
		})
	}
	return l, nil
}

// ask makes calls and waits for their answers, until the given instant at most. Calls
// to one server keep their order. It returns the calls in their order. Calls without an
// answer are replaced by others with an error, since a worker may still write to the
// original; they may have been executed.
func (s *Store) ask(ctx context.Context, until time.Time, calls []*call) ([]*call, error) {
	for i, c := range calls {
		c.at = i
	}
	var inline [4]*job
	jobs := inline[:0]
	if s.single != nil {
		jobs = append(jobs, s.single.submit(calls))
	} else {
		jobs = s.split(ctx, jobs, calls)
	}
	timeout := time.NewTimer(time.Until(until))
	defer timeout.Stop()
	for i, j := range jobs {
		select {
		case <-j.done:
			continue
		default:
		}
		select {
		case <-j.done:
		case <-timeout.C:
			return abandon(calls, jobs[i:]), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return calls, nil
}

// deadline returns the instant until which a check that starts now waits.
func (s *Store) deadline() time.Time { return time.Now().Add(s.config.Timeout) }

// split submits calls to the servers of their keys.
func (s *Store) split(ctx context.Context, jobs []*job, calls []*call) []*job {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var lanes []*lane
	byLane := map[*lane][]*call{}
	for _, c := range calls {
		l, err := s.lane(ctx, c.route)
		if err != nil {
			c.err = err
			continue
		}
		if byLane[l] == nil {
			lanes = append(lanes, l)
		}
		c.lane = l
		byLane[l] = append(byLane[l], c)
	}
	for _, l := range lanes {
		jobs = append(jobs, l.submit(byLane[l]))
	}
	return jobs
}

// abandon returns calls, with those in unfinished jobs replaced.
func abandon(calls []*call, jobs []*job) []*call {
	out := slices.Clone(calls) // a job may use the slice itself
	for _, j := range jobs {
		select {
		case <-j.done:
			continue
		default:
		}
		for _, c := range j.calls {
			out[c.at] = &call{err: errLate, route: c.route, part: c.part, lane: c.lane}
		}
	}
	return out
}
