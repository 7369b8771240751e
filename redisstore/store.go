package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// ErrClosed is returned by the methods of a [Store] after Close.
var ErrClosed = errors.New("redisstore: the store is closed")

// Store decides checks in Redis. It is safe for concurrent use.
type Store struct {
	config   Config
	scripts  *library
	spelled  spellings
	fallback *fallback
	guard    *guard.Guard // of the store's goroutines
	panics   panics       // that it has recovered from

	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server
	single  *lane                // nil for a Cluster
	lanes   sync.Map             // of a Cluster: address -> *lane
	routing health               // of a Cluster: whether it returns the owners of slots

	servers servers // what is known of them

	opened     time.Time
	start      limiter.Tick // opened, as a tick
	skew       skew
	lastLogged [kinds + 1]atomic.Int64 // when an error of a single call was last logged, by kind; the last: damage

	mu      sync.Mutex // held while a goroutine starts or the store closes
	closed  atomic.Bool
	closing chan struct{}
	running sync.WaitGroup
}

// skew is what is known of the server's clock.
type skew struct {
	ahead atomic.Int64 // of it over the local one, in ticks
	timed atomic.Int64 // of a Cluster: when it was last learnt, since the store opened
}

// Open returns a store. For an invalid configuration the error wraps
// [limiter.ErrInvalid], also if it is Redis that refuses it: a password, an authority, a
// database, or a command that the access list does not allow. Otherwise it is the context's. An
// unreachable server is no error: policies decide until it answers, and [Store.ready] returns why.
// Open waits for the server at most [Config.Timeout], so that an outage is logged at once. The
// context is for opening only.
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
	s.skew.timed.Store(-int64(clockEvery)) // never
	s.fallback, s.guard = newFallback(&s.config), guard.New(c.Log, s.panics.count)
	s.client = s.newClient(s.load)
	h := &s.routing
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		s.cluster = client
	case *redis.Client:
		s.single = s.newLane(client, "")
		h = &s.single.health
	}
	route := c.Prefix + "{probe}"
	if err := s.probe(route); err != nil {
		if advice := s.refusal(err); advice != "" {
			return nil, errors.Join(s.refused(err, advice), s.Close())
		}
		s.fail(h, route, err)
	}
	watched := s.lookAtMemory()
	if s.single != nil && s.servers.clustered {
		return nil, errors.Join(s.refused(errClustered, s.refusal(errClustered)), s.Close())
	}
	if watched {
		s.spawn(s.watchMemory)
	}
	return s, nil
}

func (s *Store) refused(why error, advice string) error {
	return fmt.Errorf("%w Redis configuration: %s refuses it: %w: %s",
		limiter.ErrInvalid, strings.Join(s.config.Addrs, ","), why, advice)
}

// ready returns nil once Redis has been usable, and until then why it is not: its address, its name at
// Sentinels or the network may be wrong. A Redis that worked and is gone is an outage, for
// which the rules have policies. It is safe for concurrent use.
func (s *Store) ready() error {
	if s.servers.worked.Load() {
		return nil
	}
	return fmt.Errorf("redis at %s has not been usable since this node started, so the rules' policies answer: see the "+
		"log",
		strings.Join(s.config.Addrs, ","))
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

// Extras returns what the store does beyond the methods of a [weir.Backend], which is all of it.
func (s *Store) Extras() weir.BackendExtras {
	return weir.BackendExtras{Amend: s.amend, UseTable: s.useTable, Ready: s.ready, Warnings: s.warnings,
		ObservePanics: s.observePanics}
}

// useTable makes policies count in a table instead of one of the store's own, which has
// the default bounds. It must be called before the first check. [weir.Open] calls it with
// the node's table, whose bounds and reports then are those of the policies' counters.
func (s *Store) useTable(t *table.Table) { s.fallback.table = t }

// spawn starts a goroutine, unless the store is closed. A panic ends only the goroutine.
func (s *Store) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() {
		s.running.Go(func() {
			defer s.guard.Recover(guard.Redis, nil)
			f()
		})
	}
}

// clockEvery is the age of the estimate of a Cluster's clock from which on round trips ask
// for the clock. Answers to checks of one key have it, too, but there may be none.
const clockEvery = 10 * time.Second

// asksClock reports whether the round trip that is about to be made is to ask for the
// server's clock. All ask until one has the answer, since that of another may be lost.
func (s *Store) asksClock() bool {
	return s.cluster != nil && int64(time.Since(s.opened))-s.skew.timed.Load() >= int64(clockEvery)
}

// clock returns an estimate of the server's clock.
func (s *Store) clock() limiter.Tick {
	return s.start + limiter.Tick(time.Since(s.opened)/limiter.TickDuration) + limiter.Tick(s.skew.ahead.Load())
}

// learn updates that estimate with an instant from the server.
func (s *Store) learn(now limiter.Tick) {
	since := time.Since(s.opened)
	s.skew.ahead.Store(int64(now - s.start - limiter.Tick(since/limiter.TickDuration)))
	if s.cluster != nil {
		s.skew.timed.Store(int64(since))
	}
}

// when returns the instant of a check with so many parts. If the server's clock is to
// be used but several servers are asked, all are given the same estimated instant, so
// that one receipt is valid for all. Where the servers' clocks differ, the estimate is of
// the one that answered last.
func (s *Store) when(now arith.Instant, parts int) when {
	switch {
	case now.Given():
		return when{now.Or(s.clock), callersSlack}
	case parts > 1:
		return when{s.clock(), estimateSlack}
	default:
		return when{serverClock, 0}
	}
}

// lane returns the lane to the server of a key. If the context ends because of errLate,
// Redis is suspected; else its caller has gone.
func (s *Store) lane(ctx context.Context, route string) (*lane, error) {
	if s.single != nil {
		return s.single, nil
	}
	if s.routing.down() {
		return nil, errDown
	}
	client, err := s.cluster.MasterForKey(ctx, route)
	if err != nil {
		if cause := context.Cause(ctx); cause == nil || errors.Is(cause, errLate) {
			s.suspect(&s.routing, &call{route: route}, err)
		}
		return nil, err
	}
	s.routing.worked()
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
			defer s.guard.Recover(guard.Redis, nil)
			old.(*lane).stop()
		})
	}
	return l, nil
}
