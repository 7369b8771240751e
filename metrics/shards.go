package metrics

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimit/weir/limiter"
)

// Bounds on the number of time series.
const (
	// maxRules is how many names of rules are told apart, those of earlier rules
	// files included.
	maxRules = 1000
	// maxRequests is how many pairs of method and code are told apart.
	maxRequests = 256
	// other is the label of what is beyond a bound.
	other = "other"
)

// A counter is split into shards so that goroutines that run at the same time
// mostly add to different cache lines.
const (
	minShards = 8
	maxShards = 64 // hint yields no more
)

// shardCount returns the number of shards, a power of two, for so many threads:
// four times as many, so that two goroutines seldom share one.
func shardCount(threads int) int {
	n := minShards
	for n < 4*threads && n < maxShards {
		n *= 2
	}
	return n
}

// hint returns a number below shards, a power of two, that is mostly the same for one
// goroutine and mostly different for two: where its stack lies, mixed. A random
// number would cost 5 ns more, and would take every cache line to every core.
// It only chooses among counters that are summed, so any number is right.
func hint(shards int) uint64 {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here)) >> 11) // stacks have 2 KiB and more
	return page * 0x9E3779B97F4A7C15 >> 58 & uint64(shards-1)
}

// bounded maps labels to counters. Reading all takes no lock; a label that is
// new copies the map. Beyond the bound everything is one.
type bounded[K comparable, V any] struct {
	all  atomic.Pointer[map[K]*V]
	mu   sync.Mutex // one writer
	most int
	rest *V // what is beyond the bound
	// clean returns the label that is shown, which is kept; make its counters.
	clean func(K) K
	make  func(K) *V
}

func (b *bounded[K, V]) init(most int, rest K, clean func(K) K, make func(K) *V) {
	b.most, b.clean, b.make, b.rest = most, clean, make, make(rest)
	b.all.Store(&map[K]*V{rest: b.rest})
}

// add is the way of a label that is not known yet, and of all beyond the bound.
func (b *bounded[K, V]) add(k K) *V {
	if len(*b.all.Load()) > b.most { // the rest is one more
		return b.rest
	}
	k = b.clean(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	old := *b.all.Load()
	if v := old[k]; v != nil {
		return v
	}
	if len(old) > b.most {
		return b.rest
	}
	next := make(map[K]*V, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	v := b.make(k)
	next[k] = v
	b.all.Store(&next)
	return v
}

// label makes text fit for a label, and a copy, so that a rules file is not kept
// for a name in it.
func label(s string) string { return strings.Clone(strings.ToValidUTF8(s, "\uFFFD")) }

// Results of a check, as indices.
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
const sources = 9

// checkCounters are the counters of one rule.
type checkCounters struct {
	rule   string
	shards []checkShard
}

type checkShard struct {
	n [sources * results]atomic.Uint64
	_ [256 - 8*sources*results]byte // to the end of the cache line
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

type refusedShard struct {
	n [reasons]atomic.Uint64
	_ [64 - 8*reasons]byte // to the end of the cache line
}

// request names a kind of request.
type request struct{ method, code string }

func (r request) clean() request { return request{label(r.method), label(r.code)} }

// latency is the histogram of one kind of request.
type latency struct {
	request
	shards []latencyShard
}

// buckets is how many buckets a histogram has, the last without a bound.
const buckets = 16

type latencyShard struct {
	buckets     [buckets]atomic.Uint64
	nanoseconds atomic.Uint64
	_           [192 - 8*(buckets+1)]byte // to the end of the cache line
}

// bounds returns the upper bounds of all buckets but the last. A check that is
// decided here takes some tens of microseconds with its way through the
// network stack, and the deadline of one that is not is 300 ms by default.
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
