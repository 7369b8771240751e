package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// rivals are what Go programs use today. Each reads its own clock, and is set
// up as its documentation shows, with no more locks or copies than it needs.
func rivals() []Contender {
	return []Contender{
		{Name: "x-time-rate/one-map", What: "golang.org/x/time/rate, in one map under a RWMutex: token bucket",
			New: func(k *Keys) (Limiter, error) { return &rateInMap{keys: k, m: make(map[string]*rate.Limiter)}, nil }},
		{Name: "x-time-rate/sharded", What: "golang.org/x/time/rate, in 256 maps, each under a mutex: token bucket",
			New: func(k *Keys) (Limiter, error) { return &rateInShards{k, newSharded[*rate.Limiter]()}, nil }},
		{Name: "go-limiter", What: "github.com/sethvargo/go-limiter, memorystore: fixed window from the first hit",
			New: newGoLimiter},
		{Name: "throttled/map", What: "github.com/throttled/throttled/v2, memstore without a bound: GCRA",
			New: func(k *Keys) (Limiter, error) { return newThrottled(k, 0) }},
		{Name: "throttled/lru", What: "github.com/throttled/throttled/v2, memstore bounded to twice the keys (an LRU): GCRA",
			New: func(k *Keys) (Limiter, error) { return newThrottled(k, 2*k.Len()) }},
		{Name: "ulule", What: "github.com/ulule/limiter/v3, memory store: fixed window from the first hit, denials counted",
			New: newUlule},
	}
}

func newRate() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(Limit/Window.Seconds()), Limit)
}

// leftOf is what a token bucket has left, in whole units.
func leftOf(l *rate.Limiter) (int, bool, error) {
	if l == nil {
		return 0, false, nil
	}
	return int(l.Tokens()), true, nil
}

func exhaustRate(l *rate.Limiter) error {
	if !l.AllowN(time.Now(), Limit) {
		return errors.New("x/time/rate denies the whole burst")
	}
	return nil
}

type rateInMap struct {
	keys *Keys
	mu   sync.RWMutex
	m    map[string]*rate.Limiter
}

func (r *rateInMap) get(key string) *rate.Limiter {
	r.mu.RLock()
	l := r.m[key]
	r.mu.RUnlock()
	if l != nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l = r.m[key]; l == nil {
		l = newRate()
		r.m[key] = l
	}
	return l
}

func (r *rateInMap) Worker(j *Joiner) Check {
	return func(n int) (bool, error) { return r.get(j.Join(n)).Allow(), nil }
}
func (r *rateInMap) Exhaust(n int) error           { return exhaustRate(r.get(r.keys.Owned().Join(n))) }
func (r *rateInMap) Left(n int) (int, bool, error) { return leftOf(r.m[r.keys.Owned().Join(n)]) }
func (r *rateInMap) Close() error                  { return nil }

type rateInShards struct {
	keys *Keys
	m    *sharded[*rate.Limiter]
}

func (r *rateInShards) get(key string) *rate.Limiter {
	p := r.m.part(key)
	p.mu.Lock()
	l := p.m[key]
	if l == nil {
		l = newRate()
		p.m[key] = l
	}
	p.mu.Unlock()
	return l
}

func (r *rateInShards) Worker(j *Joiner) Check {
	return func(n int) (bool, error) { return r.get(j.Join(n)).Allow(), nil }
}
func (r *rateInShards) Exhaust(n int) error { return exhaustRate(r.get(r.keys.Owned().Join(n))) }
func (r *rateInShards) Left(n int) (int, bool, error) {
	key := r.keys.Owned().Join(n)
	return leftOf(r.m.part(key).m[key])
}
func (r *rateInShards) Close() error { return nil }

// goLimiter takes one unit at a time, so an exhausted key is one whose limit is
// 1: it is denied by the same few lines as one whose limit is a million.
type goLimiter struct {
	keys  *Keys
	store golimiter.Store
}

func newGoLimiter(k *Keys) (Limiter, error) {
	store, err := memorystore.New(&memorystore.Config{
		Tokens: Limit, Interval: Window, SweepInterval: Window, SweepMinTTL: 2 * Window,
	})
	if err != nil {
		return nil, fmt.Errorf("go-limiter: %w", err)
	}
	return &goLimiter{k, store}, nil
}

func (g *goLimiter) Worker(j *Joiner) Check {
	ctx := context.Background()
	return func(n int) (bool, error) {
		_, _, _, ok, err := g.store.Take(ctx, j.Join(n))
		return ok, err
	}
}

func (g *goLimiter) Exhaust(n int) error {
	key := g.keys.Owned().Join(n)
	if err := g.store.Set(context.Background(), key, 1, Window); err != nil {
		return err
	}
	_, _, _, ok, err := g.store.Take(context.Background(), key)
	if err == nil && !ok {
		err = errors.New("go-limiter denies the only unit")
	}
	return err
}

func (g *goLimiter) Left(n int) (int, bool, error) {
	tokens, left, err := g.store.Get(context.Background(), g.keys.Owned().Join(n))
	return int(left), tokens > 0, err
}

func (g *goLimiter) Close() error { return g.store.Close(context.Background()) }

type gcraOfThrottled struct {
	keys    *Keys
	store   throttled.GCRAStoreCtx
	limiter *throttled.GCRARateLimiterCtx
}

func newThrottled(k *Keys, bound int) (Limiter, error) {
	store, err := memstore.NewCtx(bound)
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(Limit, Window), MaxBurst: Limit - 1,
	})
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	return &gcraOfThrottled{k, store, l}, nil
}

func (t *gcraOfThrottled) Worker(j *Joiner) Check {
	ctx := context.Background()
	return func(n int) (bool, error) {
		limited, _, err := t.limiter.RateLimitCtx(ctx, j.Join(n), 1)
		return !limited, err
	}
}

func (t *gcraOfThrottled) Exhaust(n int) error {
	limited, _, err := t.limiter.RateLimitCtx(context.Background(), t.keys.Owned().Join(n), Limit)
	if err == nil && limited {
		err = errors.New("throttled denies the whole burst")
	}
	return err
}

func (t *gcraOfThrottled) Left(n int) (int, bool, error) {
	key := t.keys.Owned().Join(n)
	value, _, err := t.store.GetWithTime(context.Background(), key)
	if err != nil || value == -1 {
		return 0, false, err
	}
	_, result, err := t.limiter.RateLimitCtx(context.Background(), key, 0)
	return result.Remaining, true, err
}

func (t *gcraOfThrottled) Close() error { return nil }

type ofUlule struct {
	keys    *Keys
	limiter *ulule.Limiter
}

func newUlule(k *Keys) (Limiter, error) {
	store := memory.NewStoreWithOptions(ulule.StoreOptions{Prefix: "limiter", CleanUpInterval: Window})
	return &ofUlule{k, ulule.New(store, ulule.Rate{Period: Window, Limit: Limit})}, nil
}

func (u *ofUlule) Worker(j *Joiner) Check {
	ctx := context.Background()
	return func(n int) (bool, error) {
		c, err := u.limiter.Get(ctx, j.Join(n))
		return !c.Reached, err
	}
}

func (u *ofUlule) Exhaust(n int) error {
	c, err := u.limiter.Increment(context.Background(), u.keys.Owned().Join(n), Limit)
	if err == nil && c.Reached {
		err = errors.New("ulule denies the whole limit")
	}
	return err
}

// Left takes a key with the whole limit left for one that is not there, since
// the store does not tell.
func (u *ofUlule) Left(n int) (int, bool, error) {
	c, err := u.limiter.Peek(context.Background(), u.keys.Owned().Join(n))
	return int(c.Remaining), c.Remaining < Limit, err
}

func (u *ofUlule) Close() error { return nil }
