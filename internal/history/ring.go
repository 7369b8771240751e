// Package history keeps what a node decided lately, in a ring of fixed size: each second of the last five minutes, and
// each ten seconds of the last day.
package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"
)

const (
	seconds = 300  // slots of a second
	tens    = 8640 // slots of ten seconds
	// MaxRules is how many rules have counts of their own. The others are counted together.
	MaxRules = 24
	// Sources is how many sources of decisions there are at most.
	Sources = 11
	maxName = 128
)

// Other is the name of the rules beyond MaxRules.
const Other = "(other rules)"

// Slot is what was decided in a second, or in ten.
type Slot struct {
	at int64 // the second, or the ten seconds, since 1970

	Allowed, Denied, ByPolicy, Undecided uint32
	// P99 is the time in which 99 of 100 answers to checks left, in microseconds; the longest of ten seconds.
	P99 uint32
	// Members is how many members the node saw, itself included, the least of ten seconds; Unreachable how many of
	// them it could not reach, the most.
	Members, Unreachable uint16
	sources              [Sources]uint32
	rules                [MaxRules]ruleSlot
}

type ruleSlot struct{ checks, denied uint32 }

// The ring takes at most this many bytes.
const maxBytes = 4 << 20

const _ = uint(maxBytes - (seconds+tens)*int(unsafe.Sizeof(Slot{})))

// Second is what a node tells of one second.
type Second struct {
	Undecided            uint64
	P99                  time.Duration
	Members, Unreachable int
	Rules                []Rule
}

// Rule is what a rule decided in it.
type Rule struct {
	Name                      string
	Allowed, Denied, ByPolicy uint64
	Sources                   [Sources]uint64
}

// Ring keeps slots. It is safe for concurrent use. Its memory is allocated by [New].
type Ring struct {
	mu     sync.Mutex
	names  []string // of the rules, by their index
	second []Slot
	ten    []Slot
}

// New returns an empty ring.
func New() *Ring { return &Ring{second: make([]Slot, seconds), ten: make([]Slot, tens)} }

// Add keeps what happened in the second that ends now.
func (r *Ring) Add(now time.Time, s *Second) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now.Unix()
	one := &r.second[at%seconds]
	if one.at != at {
		*one = Slot{at: at}
	}
	r.fill(one, s)
	many := &r.ten[at/10%tens]
	if many.at != at/10 {
		*many = Slot{at: at / 10}
	}
	r.fill(many, s)
}

func (r *Ring) fill(to *Slot, s *Second) {
	to.Undecided = plus(to.Undecided, s.Undecided)
	to.P99 = max(to.P99, clip(uint64(max(0, s.P99.Microseconds()))))
	if n := uint16(min(s.Members, 1<<15)); to.Members == 0 || n < to.Members {
		to.Members = n
	}
	to.Unreachable = max(to.Unreachable, uint16(min(s.Unreachable, 1<<15)))
	for i := range s.Rules {
		x := &s.Rules[i]
		to.Allowed, to.Denied = plus(to.Allowed, x.Allowed), plus(to.Denied, x.Denied)
		to.ByPolicy = plus(to.ByPolicy, x.ByPolicy)
		for j, n := range x.Sources {
			to.sources[j] = plus(to.sources[j], n)
		}
		y := &to.rules[r.index(x.Name)]
		y.checks, y.denied = plus(y.checks, x.Allowed+x.Denied), plus(y.denied, x.Denied)
	}
}

// index returns where a rule is counted. The last place is that of the others.
func (r *Ring) index(name string) int {
	if i := slices.Index(r.names, name); i >= 0 {
		return i
	}
	if len(r.names) < MaxRules-1 && len(name) <= maxName {
		r.names = append(r.names, strings.Clone(name))
		return len(r.names) - 1
	}
	return MaxRules - 1
}

func clip(n uint64) uint32              { return uint32(min(n, 1<<32-1)) }
func plus(have uint32, n uint64) uint32 { return clip(uint64(have) + min(n, 1<<32-1)) }

// Series is what happened in steps of time, of a node or of several together.
type Series struct {
	// Start is the begin of the first step, StepMs how long each takes.
	Start  time.Time `json:"start"`
	StepMs int64     `json:"step_ms"`
	// Sums over each step. ByPolicy are those of both that a policy decided, Undecided those that got an error.
	Allowed   []uint64 `json:"allowed"`
	Denied    []uint64 `json:"denied"`
	ByPolicy  []uint64 `json:"by_policy"`
	Undecided []uint64 `json:"undecided"`
	// P99Us is the longest, over seconds and nodes, of the time in which 99 of 100 answers left, in microseconds.
	P99Us []uint64 `json:"p99_us"`
	// Members is the least number that a node saw, Unreachable the most that it could not reach. 0: nothing was recorded.
	Members     []uint64 `json:"members"`
	Unreachable []uint64 `json:"unreachable"`
	// Rules have their checks and those that they denied. The rule without a name stands for requests that none matched.
	Rules map[string]*RuleSeries `json:"rules"`
	// Sources have the decisions by what made them, by their number as a limiter.Source.
	Sources map[int][]uint64 `json:"sources,omitempty"`
}

// RuleSeries is what a rule decided.
type RuleSeries struct {
	Checks []uint64 `json:"checks"`
	Denied []uint64 `json:"denied"`
}

// Span is a time that can be shown.
type Span struct {
	Name  string
	Long  time.Duration
	Step  time.Duration
	Steps int
}

// Spans returns those that there are, the shortest first.
func Spans() []Span {
	return []Span{
		{"5m", 5 * time.Minute, time.Second, 300}, {"1h", time.Hour, 10 * time.Second, 360},
		{"1d", 24 * time.Hour, 5 * time.Minute, 288},
	}
}

// SpanOf returns the span with a name, the shortest if there is none.
func SpanOf(name string) (Span, bool) {
	for _, s := range Spans() {
		if s.Name == name {
			return s, true
		}
	}
	return Spans()[0], name == ""
}

// empty returns a series of a span that ends with the step before now.
func empty(s Span, now time.Time) *Series {
	end := now.Truncate(s.Step)
	line := func() []uint64 { return make([]uint64, s.Steps) }
	return &Series{Start: end.Add(-time.Duration(s.Steps) * s.Step).UTC(), StepMs: s.Step.Milliseconds(), Allowed: line(),
		Denied: line(), ByPolicy: line(), Undecided: line(), P99Us: line(), Members: line(), Unreachable: line(),
		Rules: map[string]*RuleSeries{}, Sources: map[int][]uint64{}}
}

// Series returns what happened in a span that ends before now.
func (r *Ring) Series(s Span, now time.Time) *Series {
	out := empty(s, now)
	slots, unit := r.second, int64(1)
	if s.Step > time.Second {
		slots, unit = r.ten, 10
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	start := out.Start.Unix()
	for i := range slots {
		x := &slots[i]
		step := (x.at*unit - start) * 1000 / out.StepMs
		if x.at == 0 || x.at*unit < start || step >= int64(s.Steps) {
			continue
		}
		r.add(out, int(step), x)
	}
	return out
}

func (r *Ring) add(out *Series, i int, x *Slot) {
	out.Allowed[i] += uint64(x.Allowed)
	out.Denied[i] += uint64(x.Denied)
	out.ByPolicy[i] += uint64(x.ByPolicy)
	out.Undecided[i] += uint64(x.Undecided)
	out.P99Us[i] = max(out.P99Us[i], uint64(x.P99))
	out.Members[i] = least(out.Members[i], uint64(x.Members))
	out.Unreachable[i] = max(out.Unreachable[i], uint64(x.Unreachable))
	for j, n := range x.sources {
		if n == 0 {
			continue
		}
		if out.Sources[j] == nil {
			out.Sources[j] = make([]uint64, len(out.Allowed))
		}
		out.Sources[j][i] += uint64(n)
	}
	for j := range x.rules {
		if x.rules[j].checks == 0 {
			continue
		}
		name := Other
		if j < len(r.names) {
			name = r.names[j]
		}
		of := out.rule(name)
		of.Checks[i] += uint64(x.rules[j].checks)
		of.Denied[i] += uint64(x.rules[j].denied)
	}
}

func (s *Series) rule(name string) *RuleSeries {
	if s.Rules[name] == nil {
		s.Rules[name] = &RuleSeries{make([]uint64, len(s.Allowed)), make([]uint64, len(s.Allowed))}
	}
	return s.Rules[name]
}

// least returns the smaller of two numbers of which 0 is not known.
func least(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// maxMerged bounds the rules of several nodes together.
const maxMerged = 4 * MaxRules

// Add adds what another node tells of the same span. It reports false if that is of another one, or impossible. Its
// clock may differ by some steps.
func (s *Series) Add(o *Series) bool {
	n := len(s.Allowed)
	lists := [][]uint64{o.Allowed, o.Denied, o.ByPolicy, o.Undecided, o.P99Us, o.Members, o.Unreachable}
	if o.StepMs != s.StepMs || len(o.Rules) > MaxRules || len(o.Sources) > Sources ||
		slices.ContainsFunc(lists, func(list []uint64) bool { return len(list) != n }) {
		return false
	}
	by := int(o.Start.Sub(s.Start).Milliseconds() / s.StepMs)
	sum := func(to, from []uint64) {
		for i, v := range from {
			if j := i + by; j >= 0 && j < n {
				to[j] += v
			}
		}
	}
	sum(s.Allowed, o.Allowed)
	sum(s.Denied, o.Denied)
	sum(s.ByPolicy, o.ByPolicy)
	sum(s.Undecided, o.Undecided)
	for i := range n {
		if j := i + by; j >= 0 && j < n {
			s.P99Us[j], s.Members[j] = max(s.P99Us[j], o.P99Us[i]), least(s.Members[j], o.Members[i])
			s.Unreachable[j] = max(s.Unreachable[j], o.Unreachable[i])
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(o.Rules), cmp.Compare[string]) {
		x := o.Rules[name]
		if x == nil || len(x.Checks) != n || len(x.Denied) != n || len(s.Rules) >= maxMerged && s.Rules[name] == nil {
			continue
		}
		of := s.rule(name)
		sum(of.Checks, x.Checks)
		sum(of.Denied, x.Denied)
	}
	for j, list := range o.Sources {
		if j < 0 || j >= Sources || len(list) != n {
			continue
		}
		if s.Sources[j] == nil {
			s.Sources[j] = make([]uint64, n)
		}
		sum(s.Sources[j], list)
	}
	return true
}
