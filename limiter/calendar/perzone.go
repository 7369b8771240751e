package calendar

import "sync/atomic"

// PerZone holds one value for each time zone of the database. A value is made when it is
// first asked for, and kept. There are as many zones as the database has, a few hundred:
// names that it lacks take no memory. It is safe for concurrent use.
type PerZone[T any] struct {
	make func(zone string) *T
	of   []atomic.Pointer[T] // by the zone's number
}

// NewPerZone returns an empty PerZone. newValue makes the value of a zone; several
// goroutines may call it for one zone at the same time, and the first result is kept. A
// nil result is not kept.
func NewPerZone[T any](newValue func(zone string) *T) *PerZone[T] {
	return &PerZone[T]{make: newValue, of: make([]atomic.Pointer[T], len(index()))}
}

// Get returns the value of the zone with an IANA name, nil if there is no such zone. It
// returns the same pointer at each call, and allocates only at a zone's first.
func (p *PerZone[T]) Get(zone string) *T {
	e := index()[zone]
	if e == nil {
		return nil
	}
	at := &p.of[e.number]
	if v := at.Load(); v != nil {
		return v
	}
	v := p.make(zone)
	if v == nil || at.CompareAndSwap(nil, v) {
		return v
	}
	return at.Load()
}
