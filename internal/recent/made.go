package recent

import (
	"hash/maphash"
	"sync/atomic"
)

// Made keeps some of the values that it made last, at most 256. A value is at the place that its key names, and gives
// way to another. It is safe for concurrent use.
type Made[K comparable, V any] struct {
	seed maphash.Seed
	of   func(K) V
	at   [256]atomic.Pointer[made[K, V]]
}

type made[K comparable, V any] struct {
	key   K
	value V
}

// NewMade returns no values yet. of makes the value of a key; it may be called by several goroutines at once.
func NewMade[K comparable, V any](of func(K) V) *Made[K, V] {
	return &Made[K, V]{seed: maphash.MakeSeed(), of: of}
}

// Of returns the value of a key, which is made if it is not kept.
func (m *Made[K, V]) Of(k K) V {
	at := &m.at[uint8(maphash.Comparable(m.seed, k))]
	have := at.Load()
	if have == nil || have.key != k {
		have = &made[K, V]{k, m.of(k)}
		at.Store(have)
	}
	return have.value
}
