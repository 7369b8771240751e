package metrics

import (
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Totals are sums of what has been counted since the start.
type Totals struct {
	// Rules are those that decided.
	Rules []RuleTotals
	// Undecided is how many requests could not be decided.
	Undecided uint64
	// Waits counts answers to checks, of all protocols, by how long they took: each up to the bound of the same index in
	// Bounds, and the last one longer.
	Waits []uint64
}

// RuleTotals are the checks that a rule decided.
type RuleTotals struct {
	// Rule is its name, empty if none matched.
	Rule string
	// Allowed and Denied count checks by their result, and ByPolicy those of both that a policy decided.
	Allowed, Denied, ByPolicy uint64
	// Sources counts them by [limiter.Source].
	Sources [sources]uint64
}

// WaitBounds returns the bounds of Waits of [Totals].
func WaitBounds() []time.Duration {
	b := bounds()
	return b[:]
}

// Totals returns what has been counted. It takes some microseconds for each rule.
func (m *Metrics) Totals() Totals {
	t := Totals{Waits: make([]uint64, buckets)}
	for _, c := range *m.checks.all.Load() {
		r := RuleTotals{Rule: c.rule}
		for source := range sources {
			for result := range results {
				n := uint64(0)
				for i := range c.shards {
					n += c.shards[i].n[source*results+result].Load()
				}
				r.Sources[source] += n
				if result == resultDenied {
					r.Denied += n
				} else {
					r.Allowed += n
				}
				if limiter.Source(source).ByPolicy() {
					r.ByPolicy += n
				}
			}
		}
		if r.Allowed+r.Denied > 0 {
			t.Rules = append(t.Rules, r)
		}
	}
	for i := range m.refusals {
		for j := range m.refusals[i].n {
			t.Undecided += m.refusals[i].n[j].Load()
		}
	}
	for r, l := range *m.served.all.Load() {
		switch r.method {
		case "Check", "CheckBatch", "CheckStream", "POST /v1/check", "GET /v1/check", "POST /v1/check/batch", "GET /v1/auth":
			for i := range l.shards {
				for j := range l.shards[i].buckets {
					t.Waits[j] += l.shards[i].buckets[j].Load()
				}
			}
		}
	}
	return t
}
