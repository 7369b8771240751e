package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
)

// ErrClosed is returned by the methods of a [Store] after Close.
var ErrClosed = errors.New("redisstore: the store is closed")

// Store decides checks in Redis. It is safe for concurrent use.
type Store struct {
	config   Config
	calls    *composer
	clock    *clock
	fallback *fallback
	guard    *guard.Guard // of the store's goroutines
	panics   panics       // that it has recovered from

	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server
	single  *lane                // nil for a Cluster
	lanes   sync.Map             // of a Cluster: address -> *lane
	routing health               // of a Cluster: whether it returns the owners of slots

	servers  servers // what is known of them
	failures failures

	mu      sync.Mutex // held while a goroutine starts or the store closes
	closed  atomic.Bool
	closing chan struct{}
	running sync.WaitGroup
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
	s := newStore(c, scripts)
	s.client = s.config.newClient(scripts.load)
	h := &s.routing
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		s.cluster, s.clock.ages = client, true
	case *redis.Client:
		s.single = s.newLane(client, "")
		h = &s.single.health
	}
	route := c.Prefix + "{probe}"
	if err := s.probe(route); err != nil {
		if advice := s.refusal(err); advice != "" {
			return nil, errors.Join(s.refused(err, advice), s.Close())
		}
		h.fail(route, err)
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

// newStore returns a store that has no client yet.
func newStore(c Config, scripts *library) *Store {
	s := &Store{config: c, clock: newClock(), servers: servers{log: c.Log}, failures: failures{log: c.Log},
		closing: make(chan struct{})}
	s.calls, s.routing.store = &composer{prefix: c.Prefix, clock: s.clock, scripts: scripts}, s
	s.fallback, s.guard = newFallback(&s.config), guard.New(c.Log, s.panics.count)
	return s
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
	return weir.BackendExtras{Amend: s.amend, UseTable: s.fallback.use, Ready: s.ready,
		Warnings: s.servers.warnings, ObservePanics: s.panics.watch}
}

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
			s.routing.suspect(&call{route: route}, err)
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
