package metrics

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
)

// Options are what the metrics need beside the Registerer. The zero value is
// usable.
type Options struct {
	// Version is the program's version, for weir_build_info; default "unknown".
	Version string
	// Table tells how much the node holds. It is called once for each scrape,
	// and scrapes may come together. Default nil: no metrics of the table.
	Table func() TableStats
	// Cluster tells what the node is to its cluster, as Table does. Default nil: no
	// metrics of a cluster.
	Cluster func() ClusterStats
	// Runtime adds the usual metrics of the Go runtime and of the process. Leave
	// it out where the program registers them itself.
	Runtime bool
	// Now is the wall clock, for the time of the last good reload; default
	// time.Now.
	Now func() time.Time
}

// TableStats tells how much a node holds.
type TableStats struct {
	// Keys is the number of counters held, MaxKeys their bound.
	Keys, MaxKeys int
	// Bytes is the memory they take, MaxBytes the bound of what are no copies, 0 if there
	// is none.
	Bytes, MaxBytes int64
	// Overflowed is how many checks met the bound so far.
	Overflowed int64
	// Shares are those of rules that have a share of the table.
	Shares []RuleShare
}

// RuleShare is what the counters of a rule with a share of the table take.
type RuleShare struct {
	// Rule is the rule's name.
	Rule string
	// Keys is the number of its counters, Bytes the memory of their logs and sub-windows.
	Keys, Bytes int64
}

// Metrics counts what a node tells it. Its methods are safe for concurrent use;
// those on the path of a check allocate nothing.
type Metrics struct {
	options    Options
	registerer prometheus.Registerer
	registered []prometheus.Collector

	checks  bounded[string, checkCounters]
	served  bounded[request, latency]
	refused []refusedShard
	rules   rulesState
	panics  [places + 1]atomic.Uint64 // by place, as guard lists them; the last: elsewhere
}

// places is how many places of panics are told apart.
const places = 5

// New registers the metrics with r. It fails if r has some of the same names
// already, and leaves r as it was then.
func New(r prometheus.Registerer, o Options) (*Metrics, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	shards := shardCount(runtime.GOMAXPROCS(0))
	m := &Metrics{options: o, registerer: r, refused: make([]refusedShard, shards)}
	m.checks.init(maxRules, other, label, func(rule string) *checkCounters {
		return &checkCounters{rule: rule, shards: make([]checkShard, shards)}
	})
	m.served.init(maxRequests, request{other, other}, request.clean, func(r request) *latency {
		return &latency{request: r, shards: make([]latencyShard, shards)}
	})
	all := []prometheus.Collector{newCollector(m)}
	if o.Cluster != nil {
		all = append(all, newClusterCollector(o.Cluster))
	}
	if o.Runtime {
		all = append(all, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			m.Close()
			return nil, err
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// Close takes the metrics from their Registerer, so that others of the same
// names may be registered. What is counted afterwards nobody sees.
func (m *Metrics) Close() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}

// Checked counts n decisions by the rule that decided, by who decided, and by the
// result: a check that is allowed only because the rule that would deny it is
// in shadow is counted as shadow_denied.
func (m *Metrics) Checked(n int, rule string, source limiter.Source, allowed, shadowDenied bool) {
	c := (*m.checks.all.Load())[rule] // not by a generic method, whose look-up is slower
	if c == nil {
		c = m.checks.add(rule)
	}
	c.shards[hint(len(c.shards))].n[checkCell(source, allowed, shadowDenied)].Add(uint64(n))
}

// Refused counts a request that could not be decided.
func (m *Metrics) Refused(err error) {
	m.refused[hint(len(m.refused))].n[reasonOf(err)].Add(1)
}

// Served counts a request that a front door has answered, and how long that
// took. Method and code are names from short lists of the front door's, such as
// "Check" and "OK"; of more than 256 pairs the rest is counted as "other".
func (m *Metrics) Served(method, code string, d time.Duration) {
	r := request{method, code}
	l := (*m.served.all.Load())[r]
	if l == nil {
		l = m.served.add(r)
	}
	s := &l.shards[hint(len(l.shards))]
	s.buckets[bucketOf(d)].Add(1)
	s.nanoseconds.Add(uint64(max(0, d)))
}

// Panicked counts a panic that was recovered from, by place: "grpc", "http",
// "cluster", "link" or "gossip"; any other is counted as "other".
func (m *Metrics) Panicked(place string) {
	i := slices.Index(guard.Places(), place)
	if i < 0 {
		i = places
	}
	m.panics[i].Add(1)
}

// RulesSet notes that rules came into force, or, with an error, that a file was
// refused.
func (m *Metrics) RulesSet(hash uint64, err error) {
	m.rules.set(hash, err, m.options.Now())
}

// rulesState is what is known of the rules in force.
type rulesState struct {
	mu         sync.Mutex
	known      bool // a set was in force once
	hash       uint64
	good, bad  uint64
	lastIsGood bool
	lastGood   time.Time
}

func (s *rulesState) set(hash uint64, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hash, s.known, s.lastIsGood = hash, true, err == nil
	if err != nil {
		s.bad++
		return
	}
	s.good++
	s.lastGood = now
}

// Reasons why a request is refused, as indices into refusedShard.
const (
	reasonInvalid = iota
	reasonCanceled
	reasonDeadline
	reasonOther
	reasons
)

func reasonName(i int) string {
	switch i {
	case reasonInvalid:
		return "invalid"
	case reasonCanceled:
		return "canceled"
	case reasonDeadline:
		return "deadline_exceeded"
	}
	return other
}

func reasonOf(err error) int {
	switch {
	case errors.Is(err, limiter.ErrInvalid):
		return reasonInvalid
	case errors.Is(err, context.Canceled):
		return reasonCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return reasonDeadline
	}
	return reasonOther
}
