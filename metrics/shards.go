package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimit/weir/limiter"
)

// Bounds on the number of time series.
const (
	maxRules = 1000
	// maxRequests is how many pairs of method and code are distinguished.
	maxRequests = 256
	// other is the label of everything beyond a bound.
	other = "other"
)

// A counter is split into shards so that concurrent goroutines usually add to different
// cache lines.
const (
	minShards = 8
	maxShards = 64 // hint returns no more
)

// shardCount returns the number of shards for a number of threads: four times as many,
// rounded to a power of two, so that two goroutines rarely share one.
func shardCount(threads int) int {
	n := minShards
	for n < 4*threads && n < maxShards {
		n *= 2
	}
	return n
}

// hint returns a number below shards, a power of two. It is derived from the address of
// the goroutine's stack, so it is usually the same for one goroutine and different for
// two. A random number would cost 5 ns more, and would move every cache line to every
// core. Any result is correct, since it only selects one of several counters that are
// summed.
func hint(shards int) uint64 {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here)) >> 11) // stacks are 2 KiB or more
	return page * 0x9E3779B97F4A7C15 >> 58 & uint64(shards-1)
}

// bounded maps labels to counters. Readers take no lock; a new label copies the map.
// All labels beyond the bound share one counter.
type bounded[K comparable, V any] struct {
	all  atomic.Pointer[map[K]*V]
	mu   sync.Mutex // one writer
	most int
	rest *V             // for labels beyond the bound
	gone map[K]struct{} // labels that were dropped: what is counted late goes to rest
	// clean returns the label to show, which is kept. make returns its counters.
	clean func(K) K
	make  func(K) *V
}

func (b *bounded[K, V]) init(most int, rest K, clean func(K) K, make func(K) *V) {
	b.most, b.clean, b.make, b.rest = most, clean, make, make(rest)
	b.all.Store(&map[K]*V{rest: b.rest})
}

func (b *bounded[K, V]) of(k K) *V {
	if v := (*b.all.Load())[k]; v != nil {
		return v
	}
	return b.add(k)
}

// add handles labels that are new or beyond the bound.
func (b *bounded[K, V]) add(k K) *V {
	if len(*b.all.Load()) > b.most { // rest is one more
		return b.rest
	}
	k = b.clean(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	old := *b.all.Load()
	if v := old[k]; v != nil {
		return v
	}
	if _, gone := b.gone[k]; gone || len(old) > b.most {
		return b.rest
	}
	next := make(map[K]*V, len(old)+1)
	maps.Copy(next, old)
	v := b.make(k)
	next[k] = v
	b.all.Store(&next)
	return v
}

// keep drops labels that are gone, with their counters, and takes others as new again.
// Labels of neither kind stay as they are.
func (b *bounded[K, V]) keep(here, gone []K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.gone)+len(gone) > 2*b.most || b.gone == nil {
		b.gone = make(map[K]struct{}, len(gone)) // of those before nothing is under way any more
	}
	next := maps.Clone(*b.all.Load())
	for _, k := range gone {
		if k = b.clean(k); next[k] != b.rest {
			delete(next, k)
			b.gone[k] = struct{}{}
		}
	}
	for _, k := range here {
		delete(b.gone, b.clean(k))
	}
	b.all.Store(&next)
}

// label returns text as a valid label. It is a copy, so that a rules file is not kept
// in memory because of one name.
func label(s string) string { return strings.Clone(strings.ToValidUTF8(s, "\uFFFD")) }

// Results of a check, as indexes.
const (
	resultAllowed = iota
	resultDenied
	resultShadowDenied
	results
)

func resultName(i int) string {
	switch i {
	case resultDenied:
		return "denied"
	case resultShadowDenied:
		return "shadow_denied"
	}
	return "allowed"
}

// sources is above all values of limiter.Source.
const sources = 11

type checkCounters struct {
	rule   string
	shards []checkShard
}

type checkShard struct {
	n [sources * results]atomic.Uint64
	_ [320 - 8*sources*results]byte // pads to the end of a cache line
}

func checkCell(source limiter.Source, allowed, shadowDenied bool) int {
	result := resultAllowed
	switch {
	case !allowed:
		result = resultDenied
	case shadowDenied:
		result = resultShadowDenied
	}
	return int(min(source, sources-1))*results + result
}

// pairCounters count the checks of one rule that are of two kinds: by its default zone
// (an unknown zone, none) or in shadow (allowed, denied).
type pairCounters struct {
	rule   string
	shards []pairShard
}

type pairShard struct {
	n [2]atomic.Uint64
	_ [64 - 8*2]byte // pads to the end of the cache line
}

func newPairs(shards int) func(rule string) *pairCounters {
	return func(rule string) *pairCounters { return &pairCounters{rule: rule, shards: make([]pairShard, shards)} }
}

// count adds one to the second kind, or to the first.
func (p *pairCounters) count(second bool) {
	i := 0
	if second {
		i = 1
	}
	p.shards[hint(len(p.shards))].n[i].Add(1)
}

func (p *pairCounters) sums() (sum [2]uint64) {
	for i := range p.shards {
		for j := range sum {
			sum[j] += p.shards[i].n[j].Load()
		}
	}
	return sum
}

// settlements are the results of settlements: those of limiter.AmendState, and one more.
const (
	settlementExtended = int(limiter.AmendLacks) + 1
	settlements        = settlementExtended + 1
)

// settleCounters count what was done with the reservations of one rule. They have no shards: a
// settlement takes far longer than a check.
type settleCounters struct {
	rule string
	n    [settlements]atomic.Uint64
}

func settlementOf(extended bool, state limiter.AmendState) int {
	if extended && state == limiter.AmendDone {
		return settlementExtended
	}
	return min(int(state), settlementExtended-1)
}

func settlementName(i int) string {
	switch i {
	case settlementExtended:
		return "extended"
	case int(limiter.AmendDone):
		return "settled"
	case int(limiter.AmendSettled):
		return "final"
	}
	return limiter.AmendState(i).String()
}

type refusedShard struct {
	n [reasons]atomic.Uint64
	_ [64 - 8*reasons]byte // pads to the end of the cache line
}

type request struct{ method, code string }

func (r request) clean() request { return request{label(r.method), label(r.code)} }

type latency struct {
	request
	shards []latencyShard
}

// buckets is the number of buckets of a histogram; the last has no upper bound.
const buckets = 16

type latencyShard struct {
	buckets     [buckets]atomic.Uint64
	nanoseconds atomic.Uint64
	_           [192 - 8*(buckets+1)]byte // pads to the end of the cache line
}

// bounds returns the upper bounds of all buckets but the last. A check decided by this
// node takes some tens of microseconds, including the network stack. One that waits for
// other members takes at most the deadline, 300 ms by default.
func bounds() [buckets - 1]time.Duration {
	const us, ms = time.Microsecond, time.Millisecond
	return [buckets - 1]time.Duration{
		50 * us, 100 * us, 250 * us, 500 * us, 1 * ms, 2500 * us, 5 * ms, 10 * ms, 25 * ms,
		50 * ms, 100 * ms, 250 * ms, 500 * ms, time.Second, 2500 * ms,
	}
}

func bucketOf(d time.Duration) int {
	all := bounds()
	for i := range all {
		if d <= all[i] {
			return i
		}
	}
	return buckets - 1
}
