package metrics

import (
	"cmp"
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

// Options are the inputs of the metrics besides the Registerer. The zero value is
// usable.
type Options struct {
	// Version is the program's version, for weir_build_info; default "unknown".
	Version string
	// Table returns the size of the node's table. It is called once for each scrape,
	// possibly concurrently. Default nil: no metrics of the table.
	Table func() TableStats
	// Cluster returns the state of the node in its cluster, in the same way. Default
	// nil: no metrics of a cluster.
	Cluster func() ClusterStats
	// Validities returns how long certificates are valid, by what they are for. It is called
	// once for each scrape, possibly concurrently. Default nil: no metrics of certificates.
	Validities func() map[string]Validity
	// Evicted returns how many keys Redis has evicted, of a node that counts there. It is called once
	// for each scrape, possibly concurrently. Default nil: no metric of that.
	Evicted func() uint64
	// Runtime adds the standard metrics of the Go runtime and the process. Leave it
	// false if the program registers them itself.
	Runtime bool
	// Now is the wall clock, for the time of the last successful reload; default
	// time.Now.
	Now func() time.Time
}

// Validity is the time for which a certificate is valid.
type Validity struct{ Begins, Expires time.Time }

// TableStats is the size of a node's table.
type TableStats struct {
	// Keys is the number of counters held that are not copies of other members' counters,
	// MaxKeys their bound. Copies is the number of copies.
	Keys, Copies, MaxKeys int
	// Bytes is the memory of the counters that are not copies, MaxBytes their bound, 0 if
	// there is none. CopyBytes is the memory of copies.
	Bytes, CopyBytes, MaxBytes int64
	// Overflowed is how many checks have met a bound of the table. OverflowedBy is how many
	// of them have met only a bound of one tenant, rule or key; the others have met that of the
	// whole table.
	Overflowed   int64
	OverflowedBy struct{ Tenant, Share, Key int64 }
	// IDs is how many of Keys remember ids, IDsForgotten how many ids found no room.
	IDs, IDsForgotten int64
	// Holds is how many reservations are held, HoldsExpired how many ended unsettled, and
	// Overdrawn how many units settlements have charged beyond a limit.
	Holds, HoldsExpired, Overdrawn int64
	// Shares are the usages of rules with a max_share.
	Shares []RuleShare
}

// RuleShare is the usage of a rule with a max_share.
type RuleShare struct {
	// Rule is the rule's name.
	Rule string
	// Keys is the number of its counters, Bytes the memory of their logs and
	// sub-windows.
	Keys, Bytes int64
}

// Metrics counts the events of a node. Its methods are safe for concurrent use. Those
// on the path of a check allocate nothing.
type Metrics struct {
	options    Options
	registerer prometheus.Registerer
	registered []prometheus.Collector
	closing    sync.Once

	checks      bounded[string, checkCounters]
	served      bounded[request, latency]
	zones       bounded[string, pairCounters]
	elses       bounded[string, pairCounters]
	shadows     bounded[string, pairCounters]
	overrides   bounded[string, pairCounters]
	leases      bounded[string, pairCounters]
	repeats     bounded[string, pairCounters] // the first of each pair only
	settles     bounded[string, settleCounters]
	connections bounded[string, connections]
	refusals    []refusedShard
	rules       rulesState
	panics      [places + 1]atomic.Uint64 // by place, in the order of guard; the last: other places
}

// places is the number of distinguished places of panics.
const places = 8

// New registers the metrics with r. It fails if r already has some of their names, and
// then leaves r unchanged.
func New(r prometheus.Registerer, o Options) (*Metrics, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Version = cmp.Or(o.Version, "unknown")
	shards := shardCount(runtime.GOMAXPROCS(0))
	m := &Metrics{options: o, registerer: r, refusals: make([]refusedShard, shards)}
	m.checks.init(maxRules, other, label, func(rule string) *checkCounters {
		return &checkCounters{rule: rule, shards: make([]checkShard, shards)}
	})
	m.zones.init(maxRules, other, label, newPairs(shards))
	m.elses.init(maxRules, other, label, newPairs(shards))
	m.shadows.init(maxRules, other, label, newPairs(shards))
	m.overrides.init(maxRules, other, label, newPairs(shards))
	m.leases.init(maxRules, other, label, newPairs(shards))
	m.repeats.init(maxRules, other, label, newPairs(shards))
	m.settles.init(maxRules, other, label, func(rule string) *settleCounters { return &settleCounters{rule: rule} })
	m.connections.init(maxListeners, other, label, func(listener string) *connections {
		return &connections{listener: listener}
	})
	m.served.init(maxRequests, request{other, other}, request.clean, func(r request) *latency {
		return &latency{request: r, shards: make([]latencyShard, shards)}
	})
	all := []prometheus.Collector{newCollector(m), newConnectionCollector(m)}
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

// Close unregisters the metrics, so that others with the same names can be registered.
// Events after Close are not exported. A second call does nothing.
func (m *Metrics) Close() {
	m.closing.Do(func() {
		for _, c := range m.registered {
			m.registerer.Unregister(c)
		}
		m.registered = nil
	})
}

// Observer returns the functions that count a node's events, for the Observer of its Config.
func (m *Metrics) Observer() *limiter.Observer {
	return &limiter.Observer{
		Checked: m.checked, Refused: m.refused, Repeated: m.repeated, Shadowed: m.shadowed,
		Overridden: m.overridden, Lent: m.lent, Unzoned: m.unzoned, Unlisted: m.unlisted,
		Settled: m.settled, RulesSet: m.rulesSet, RulesNamed: m.rulesNamed, Panicked: m.panicked,
	}
}

// checked counts n decisions by deciding rule, source and result. A check that is
// allowed only because the rule that would deny it is in shadow has the result
// shadow_denied; [Metrics.shadowed] counts which rule that is.
func (m *Metrics) checked(n int, rule string, source limiter.Source, allowed, shadowDenied bool) {
	c := (*m.checks.all.Load())[rule] // not by of, which is slower
	if c == nil {
		c = m.checks.add(rule)
	}
	c.shards[hint(len(c.shards))].n[checkCell(source, allowed, shadowDenied)].Add(uint64(n))
}

// unzoned counts a check by the default time zone of a rule that has its zone from an
// attribute of the request: the request lacked it, or its value was not the name of a zone.
func (m *Metrics) unzoned(rule string, missing bool) {
	m.zones.of(rule).count(missing)
}

// unlisted counts a check by the number of "else" of a rule that has numbers from the request: the
// request lacked what chooses one, or it was not in the table, or not a number.
func (m *Metrics) unlisted(rule string, missing bool) {
	m.elses.of(rule).count(missing)
}

// shadowed counts what a rule or a quota in shadow would have decided.
func (m *Metrics) shadowed(rule string, denied bool) {
	m.shadows.of(rule).count(denied)
}

// overridden counts a check that an operator's override took part in.
func (m *Metrics) overridden(rule string, denied bool) {
	m.overrides.of(rule).count(denied)
}

// lent counts a lease that a client asked for.
func (m *Metrics) lent(rule string, denied bool) {
	m.leases.of(rule).count(denied)
}

// repeated counts a check that got the answer of an earlier one with its id.
func (m *Metrics) repeated(rule string) {
	m.repeats.of(rule).count(false)
}

// settled counts what was done with a reservation: it was to be settled, or extended.
func (m *Metrics) settled(rule string, extended bool, state limiter.AmendState) {
	m.settles.of(rule).n[settlementOf(extended, state)].Add(1)
}

// refused counts a request that could not be decided.
func (m *Metrics) refused(err error) {
	m.refusals[hint(len(m.refusals))].n[reasonOf(err)].Add(1)
}

// Served counts a request that a server has answered, with its duration. Method and
// code must come from short lists, such as "Check" and "OK". Pairs beyond the first 256
// are counted as "other".
func (m *Metrics) Served(method, code string, d time.Duration) { m.ServedMany(method, code, d, 1) }

// ServedMany is Served for n requests that were answered together, after d each.
func (m *Metrics) ServedMany(method, code string, d time.Duration, n int) {
	r := request{method, code}
	l := (*m.served.all.Load())[r]
	if l == nil {
		l = m.served.add(r)
	}
	s := &l.shards[hint(len(l.shards))]
	s.buckets[bucketOf(d)].Add(uint64(n))
	s.nanoseconds.Add(uint64(max(0, d)) * uint64(n))
}

// panicked counts a panic that was recovered from, by place: "grpc", "http",
// "cluster", "link", "gossip" or "redis"; any other is counted as "other".
func (m *Metrics) panicked(place string) {
	i := slices.Index(guard.Places(), place)
	if i < 0 {
		i = places
	}
	m.panics[i].Add(1)
}

// rulesSet records that rules came into force, or, with an error, that a file was
// refused.
func (m *Metrics) rulesSet(hash uint64, err error) {
	m.rules.set(hash, err, m.options.Now())
}

// rulesNamed ends the series of rules that were named before and are not any more. What checks
// that are under way still count for them is counted as "other".
func (m *Metrics) rulesNamed(names []string) {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	here := make(map[string]bool, len(names))
	for _, name := range names {
		here[name] = true
	}
	gone := slices.DeleteFunc(m.rules.names, func(name string) bool { return here[name] })
	m.rules.names = slices.Clone(names)
	m.checks.keep(names, gone)
	m.zones.keep(names, gone)
	m.elses.keep(names, gone)
	m.shadows.keep(names, gone)
	m.overrides.keep(names, gone)
	m.leases.keep(names, gone)
	m.repeats.keep(names, gone)
	m.settles.keep(names, gone)
}

type rulesState struct {
	mu         sync.Mutex
	known      bool // a set has been in force
	hash       uint64
	good, bad  uint64
	lastIsGood bool
	lastGood   time.Time
	names      []string // in force
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

// Reasons for refusing a request, as indexes into refusedShard.
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
