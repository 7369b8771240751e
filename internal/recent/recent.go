// Package recent keeps what was made for clients lately, such as the limits that they bring:
// in bounded number, and only for as long as it is used.
package recent

import (
	"sync"
	"sync/atomic"
	"time"
)

// Values are values by their keys. It is safe for concurrent use. A value that is not asked
// for within two lives is forgotten, and so is one if as many others as may be were asked
// for since. So at most twice as many are kept.
type Values[K comparable, V any] struct {
	most int64
	life time.Duration
	now  func() time.Time

	latest atomic.Pointer[generation[K, V]]
	mu     sync.Mutex // one writer of latest
}

// generation has values that were asked for since an instant, and those of the generation
// before it.
type generation[K comparable, V any] struct {
	since  time.Time
	kept   sync.Map // of K to V
	count  atomic.Int64
	before atomic.Pointer[generation[K, V]]
}

// New returns no values yet. most and life must be positive.
func New[K comparable, V any](most int, life time.Duration, now func() time.Time) *Values[K, V] {
	return &Values[K, V]{most: int64(most), life: life, now: now}
}

// Get returns the value of a key, and false if there is none.
func (v *Values[K, V]) Get(k K) (value V, ok bool) {
	g := v.generation()
	if found, ok := g.kept.Load(k); ok {
		return found.(V), true
	}
	if old := g.before.Load(); old != nil {
		if found, ok := old.kept.Load(k); ok {
			g.keep(k, found.(V))
			return found.(V), true
		}
	}
	return value, false
}

// Keep keeps a value. If its key has one already, that one stays.
func (v *Values[K, V]) Keep(k K, value V) { v.generation().keep(k, value) }

// Len returns how many values are kept. One that was asked for lately may count twice.
func (v *Values[K, V]) Len() (n int) {
	for g := v.latest.Load(); g != nil; g = g.before.Load() {
		n += int(g.count.Load())
	}
	return n
}

// generation returns the latest generation. It begins another one if that is full or old.
func (v *Values[K, V]) generation() *generation[K, V] {
	now := v.now()
	fresh := func(g *generation[K, V]) bool {
		return g != nil && g.count.Load() < v.most && now.Sub(g.since) < v.life
	}
	g := v.latest.Load()
	if fresh(g) {
		return g
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if g = v.latest.Load(); fresh(g) {
		return g
	}
	next := &generation[K, V]{since: now}
	if g != nil {
		g.before.Store(nil)
		next.before.Store(g)
	}
	v.latest.Store(next)
	return next
}

func (g *generation[K, V]) keep(k K, value V) {
	if _, had := g.kept.LoadOrStore(k, value); !had {
		g.count.Add(1)
	}
}
