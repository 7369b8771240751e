package bench

import (
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

// floors are what every limiter has to do and cannot do without.
func floors() []Contender {
	return []Contender{
		{Name: "floor/loop", What: "the key is put together, and nothing is done with it", Free: true, Floor: true,
			Keyless: true,
			New:     func(*Keys) (Limiter, error) { return loopFloor{}, nil }},
		{Name: "floor/clock", What: "time.Now, and nothing else", Free: true, Floor: true, Keyless: true,
			New: func(*Keys) (Limiter, error) { return clockFloor{}, nil }},
		{Name: "floor/counter", What: "256 maps of counters, each under a mutex; no clock, no limit", Free: true, Floor: true,
			New: func(k *Keys) (Limiter, error) { return newCounterFloor(k), nil }},
	}
}

var errFloor = errors.New("a floor has no limit that could be exhausted")

type loopFloor struct{}

func (loopFloor) Worker(j *Joiner) Check {
	return func(n int) (bool, error) { return len(j.Join(n)) == KeyBytes, nil }
}
func (loopFloor) Exhaust(int) error           { return errFloor }
func (loopFloor) Left(int) (int, bool, error) { return 0, false, nil }
func (loopFloor) Close() error                { return nil }

type clockFloor struct{ loopFloor }

func (clockFloor) Worker(*Joiner) Check {
	return func(int) (bool, error) { return !time.Now().IsZero(), nil }
}

// shards is how many maps a sharded map has: enough that two cores hardly ever
// meet.
const shards = 256

// shard is one map and its lock, on cache lines of its own.
type shard[V any] struct {
	mu sync.Mutex
	m  map[string]V
	_  [112]byte
}

// sharded is a map in many parts, each under its own lock.
type sharded[V any] struct {
	seed  maphash.Seed
	parts [shards]shard[V]
}

func newSharded[V any]() *sharded[V] {
	s := &sharded[V]{seed: maphash.MakeSeed()}
	for i := range s.parts {
		s.parts[i].m = make(map[string]V)
	}
	return s
}

func (s *sharded[V]) part(key string) *shard[V] {
	return &s.parts[maphash.String(s.seed, key)%shards]
}

type counterFloor struct {
	keys *Keys
	m    *sharded[*int]
}

func newCounterFloor(k *Keys) *counterFloor { return &counterFloor{k, newSharded[*int]()} }

func (f *counterFloor) Worker(j *Joiner) Check {
	return func(n int) (bool, error) {
		key := j.Join(n)
		p := f.m.part(key)
		p.mu.Lock()
		c := p.m[key]
		if c == nil {
			c = new(int)
			p.m[key] = c
		}
		*c++
		p.mu.Unlock()
		return true, nil
	}
}

func (f *counterFloor) Exhaust(int) error { return errFloor }

func (f *counterFloor) Left(n int) (int, bool, error) {
	key := f.keys.Owned().Join(n)
	p := f.m.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.m[key]
	if c == nil {
		return 0, false, nil
	}
	return Limit - *c, true, nil
}

func (f *counterFloor) Close() error { return nil }
