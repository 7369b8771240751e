package load

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/loadgen"
)

// Report is the result of a run, in the form of its JSON.
type Report struct {
	Go          string   `json:"go"`
	OS          string   `json:"os"`
	Arch        string   `json:"arch"`
	Cores       int      `json:"cores"`
	ServersAt   []string `json:"servers"`
	Keys        int      `json:"keys"`
	Dist        Dist     `json:"dist"`
	Limited     int      `json:"limited_percent"` // as configured; LimitedKeys is the actual number
	LimitedKeys int      `json:"limited_keys"`
	NoIDs       bool     `json:"no_ids,omitempty"` // the Go client sent checks without ids
	Leases      bool     `json:"leases,omitempty"` // the Go client borrowed units
	DurationMs  float64  `json:"duration_ms"`
	Points      []Point  `json:"points"`
}

// Point is the result of one mode at one rate. Waits are in microseconds, exact to 1 %,
// for checks that were answered. At a given rate they are measured from the intended
// time of sending, otherwise from sending.
type Point struct {
	Mode    Mode `json:"mode"`
	Clients int  `json:"clients"`
	Batch   int  `json:"batch"`
	// Ring reports that the client knew the owners at the end, and asked them directly.
	Ring bool `json:"ring,omitempty"`
	// Rate is the given rate in checks per second; nil if there was none.
	Rate *float64 `json:"rate,omitempty"`
	// Checks is the number of answered checks, Seconds the time that they took.
	Checks          uint64  `json:"checks"`
	Seconds         float64 `json:"seconds"`
	ChecksPerSecond float64 `json:"checks_per_second"`
	Waits
	// Owned are the waits of unary checks whose keys the asked node owns, Forwarded of
	// those that it relayed to another. Both are nil if the owners are not known, for
	// example without the administration addresses of all nodes.
	Owned     *Waits `json:"owned,omitempty"`
	Forwarded *Waits `json:"forwarded,omitempty"`
	// SentLate is how much later than intended calls were sent; nil without a given
	// rate. The waits include part of it.
	SentLate *Waits `json:"sent_late,omitempty"`
	// Unsent counts checks that were due, but not sent before the end because no client
	// was free. The waits include them as if answered then.
	Unsent uint64 `json:"unsent"`
	// ClientCPU is processor time of this process per check, ServerCPU that of all
	// servers' processes together; nil if not known. Servers has the costs of each
	// server.
	ClientCPU *float64 `json:"client_cpu_us_per_check,omitempty"`
	ServerCPU *float64 `json:"server_cpu_us_per_check,omitempty"`
	Servers   []Cost   `json:"server_costs,omitempty"`
	// CostUnknown is why the servers' usage could not be read at the end.
	CostUnknown string    `json:"server_costs_unknown,omitempty"`
	Decisions   Decisions `json:"decisions"`
	Limits      Limits    `json:"limits"`
	// Why is why a check failed, if any did.
	Why string `json:"why,omitempty"`
}

// Waits are quantiles, in microseconds.
type Waits struct {
	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p99_9_us"`
	Max  float64 `json:"max_us"`
}

func waitsOf(w *loadgen.Waits) Waits {
	at := func(part float64) float64 { return float64(w.At(part)) / 1000 }
	return Waits{at(0.5), at(0.9), at(0.99), at(0.999), float64(w.Most()) / 1000}
}

func newReport(c *Config) *Report {
	return &Report{
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0),
		ServersAt: c.Servers, Keys: c.Keys, Dist: c.Dist, Limited: c.Limited, LimitedKeys: c.limitedKeys(), NoIDs: c.NoIDs,
		Leases: c.Leases, DurationMs: float64(c.Duration) / float64(time.Millisecond),
	}
}

// conclude sums the results of the workers.
func (t *trial) conclude(sent loadgen.Result) Point {
	p := Point{Decisions: t.ledger.conclude()}
	var took, own, away loadgen.Waits
	last := t.Long
	for _, w := range t.workers {
		own.Merge(&w.own)
		away.Merge(&w.away)
		took.Merge(&w.took)
		last = max(last, w.finished)
		p.Why = cmp.Or(p.Why, w.why)
	}
	d := &p.Decisions
	p.Checks, p.Seconds = d.Allowed+d.Denied+d.ByPolicy, last.Seconds()
	p.ChecksPerSecond = float64(p.Checks) / p.Seconds
	if t.Rate > 0 {
		p.SentLate = new(waitsOf(sent.Late))
		p.Unsent = sent.Unsent.Count()
		took.Merge(sent.Unsent)
	}
	p.Waits = waitsOf(&took)
	if own.Count() > 0 && away.Count() > 0 {
		p.Owned, p.Forwarded = new(waitsOf(&own)), new(waitsOf(&away))
	}
	return p
}

// Wrong returns what is wrong with the points, nil if their figures are valid:
// impossible decisions, and checks without an answer.
func (r *Report) Wrong() error {
	var errs []error
	for i := range r.Points {
		p := &r.Points[i]
		hint := ""
		if d, l := &p.Decisions, &p.Limits; p.Mode.shares() && d.Under+d.Early+uint64(l.Unequal+l.Missed) > 0 {
			hint = " (where a node broke off meanwhile, the client has asked again for what it did not answer, which may be " +
				"charged twice)"
		}
		for _, err := range []error{p.Decisions.Wrong(), p.Limits.Wrong()} {
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w%s", p.title(), err, hint))
			}
		}
		if p.CostUnknown != "" {
			errs = append(errs, fmt.Errorf("%s: what the nodes used is not known: %s", p.title(), p.CostUnknown))
		}
		if n := p.Decisions.Failed; n > 0 {
			errs = append(errs, fmt.Errorf("%s: %s failed: %s", p.title(), term.Plural(int(n), "check"), p.Why))
		}
	}
	return errors.Join(errs...)
}

func (p *Point) title() string {
	how := string(p.Mode)
	if p.Batch > 1 {
		how += fmt.Sprintf(" of %d", p.Batch)
	}
	if p.Ring {
		how += " by the ring"
	}
	if p.Rate != nil {
		how += fmt.Sprintf(" at %s/s", rateText(*p.Rate))
	}
	return how
}

// rateText formats a rate, which need not be whole.
func rateText(rate float64) string {
	if rate == math.Trunc(rate) {
		return term.Count(int(rate))
	}
	return strconv.FormatFloat(rate, 'f', -1, 64)
}

// Text returns the report in readable form.
func (r *Report) Text(style term.Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asked, %s, %s, %s of them with a limit of %d; %g ms each; %s %s/%s, %s\n",
		term.Plural(len(r.ServersAt), "node"), term.Plural(r.Keys, "key"), r.Dist, term.Count(r.LimitedKeys), limit,
		r.DurationMs,
		r.Go, r.OS, r.Arch, term.Plural(r.Cores, "core"))
	var t term.Table
	t.Head(style.Dim, "", "clients", "checks/s", "p50", "p90", "p99", "p99.9", "max", "sent late p99",
		"node CPU/check", "client CPU/check")
	for i := range r.Points {
		t.Texts(style.Bold, r.Points[i].texts()...)
	}
	b.WriteString(t.String())
	for i := range r.Points {
		p := &r.Points[i]
		for _, s := range p.Servers {
			if s.Unknown != "" {
				fmt.Fprintf(&b, "%s: what %s used is not known: %s\n", p.title(), s.Server, s.Unknown)
				continue
			}
			fmt.Fprintf(&b, "%s: %s used %s/check%s\n", p.title(), s.Server, term.Micros(s.CPU), s.more())
		}
		if p.Owned != nil {
			fmt.Fprintf(&b, "%s: waits where the node that was asked owns the key p50 %s, p99 %s; where another does p50 %s, "+
				"p99 %s\n", p.title(),
				term.Micros(&p.Owned.P50), term.Micros(&p.Owned.P99), term.Micros(&p.Forwarded.P50), term.Micros(&p.Forwarded.P99))
		}
		d := &p.Decisions
		fmt.Fprintf(&b, "%s: %s allowed, should be %s; %s denied, %s failed, %s answered by policy, %s by heirs; %s hit\n",
			p.title(),
			count(d.Allowed), between(d.AllowedLeast, d.AllowedMost), count(d.Denied), count(d.Failed), count(d.ByPolicy),
			count(d.ByHeir),
			term.Plural(d.KeysHit, "key"))
		fmt.Fprintf(&b, "%s: %s\n", p.title(), p.Limits.text())
		if p.Unsent > 0 {
			fmt.Fprintf(&b, "%s: %s due and not sent: no client was free\n", p.title(), were(int(p.Unsent), "check"))
		}
	}
	return b.String()
}

// text describes what was verified, and whether that tested the limits.
func (l *Limits) text() string {
	if l.Hit == 0 {
		return "the limit was not tested: no key under a limit was asked for"
	}
	s := fmt.Sprintf("%s under a limit hit, %s beyond it; afterwards %s peeked at, and %s asked for until the limit",
		term.Plural(l.Hit, "key"), term.Count(l.Reached), term.Count(l.Peeked), term.Count(l.Exhausted))
	if !l.Tested() {
		s += "; the limit was not tested: no key reached it"
	}
	return s
}

func were(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return term.Plural(n, noun) + " were"
}

func count(n uint64) string { return term.Count(int(n)) }

func between(least, most uint64) string {
	if least == most {
		return count(least)
	}
	return count(least) + " to " + count(most)
}

func (c *Cost) more() string {
	if c.Allocations == nil {
		return ""
	}
	return fmt.Sprintf(", %.2f allocations and %.0f bytes/check, %.0f collections that stopped it for %.2f ms",
		*c.Allocations, *c.Bytes, *c.Collections, *c.PausedMs)
}

func (p *Point) texts() []string {
	late := "-"
	if p.SentLate != nil {
		late = term.Micros(&p.SentLate.P99)
	}
	return []string{
		p.title(), term.Count(p.Clients), term.Count(int(p.ChecksPerSecond)),
		term.Micros(&p.P50), term.Micros(&p.P90), term.Micros(&p.P99), term.Micros(&p.P999), term.Micros(&p.Max),
		late, term.Micros(p.ServerCPU), term.Micros(p.ClientCPU),
	}
}
