package quotatest

import "time"

const (
	// Rate is how many requests a second the limit of the cells admits.
	Rate = 2000
	// Change is when a cell changes.
	Change = 8 * time.Second
	// End is when a cell ends.
	End = 32 * time.Second
	// TTL is how long what is assigned lasts if reports come each second.
	TTL = 2 * time.Second
)

// Capacity is that of the limit: little more than the bursts of all Envoys' buckets, so that what is admitted beyond
// is seen.
func Capacity(envoys int) uint64 { return uint64(max(80*min(envoys, 3), 32*envoys)) }

// Stage is Envoys that ask for one bucket, the nodes that they report to, and the limit.
type Stage interface {
	Envoys() int
	// Load sets how many requests a second an Envoy has.
	Load(envoy int, rate float64)
	Kill(envoy int)
	// Restart ends an Envoy, which begins again at once and knows nothing.
	Restart(envoy int)
	Break(envoy int)
	// EndNode ends the node that owns the counter and that the first Envoy reports to. It dies, or it drains.
	EndNode(drains bool)
	// Limit puts a limit with another rate into force.
	Limit(rate float64)
	// Silence lets all nodes stand still for a time.
	Silence(d time.Duration)
	// After does something later.
	After(d time.Duration, do func())
}

// Cell is one load or fault.
type Cell struct {
	Name string
	// Begin sets the load, and Change is what happens at Change.
	Begin, Change func(Stage)
	// Least is the part of what could be admitted that strict and fast slices use, from Settled to End.
	Least float64
	// Settled is when it is: three reports after the change.
	Settled time.Duration
}

// Loads sets the load of all Envoys, 1.5 times the limit: a part of one Envoy, and the rest of the others.
func Loads(s Stage, part float64, at int) {
	const total = 1.5 * Rate
	n := s.Envoys()
	for i := range n {
		switch {
		case n == 1:
			s.Load(i, total)
		case i == at%n:
			s.Load(i, total*part)
		default:
			s.Load(i, total*(1-part)/float64(n-1))
		}
	}
}

func even(s Stage)   { Loads(s, 1/float64(s.Envoys()), 0) }
func skewed(s Stage) { Loads(s, 0.9, 0) }

// Cells are the loads and faults.
func Cells() []Cell {
	const settled = Change + 3*time.Second
	endNode := func(drains bool) func(Stage) {
		return func(s Stage) {
			s.EndNode(drains)
			even(s)
		}
	}
	limit := func(rate float64) func(Stage) { return func(s Stage) { s.Limit(rate) } }
	return []Cell{
		{"even", even, func(Stage) {}, 0.95, settled},
		{"one Envoy has 90 %", even, skewed, 0.95, settled},
		{"another one each 8 s", skewed, func(s Stage) {
			var move func(at int)
			move = func(at int) {
				Loads(s, 0.9, at)
				s.After(8*time.Second, func() { move(at + 1) })
			}
			move(1)
		}, 0.70, settled},
		{"one dies", even, func(s Stage) {
			n := s.Envoys()
			if n == 1 {
				s.Restart(0)
				return
			}
			s.Kill(0)
			for i := 1; i < n; i++ {
				s.Load(i, 1.5*Rate/float64(n-1))
			}
		}, 0.95, settled},
		{"a stream breaks", even, func(s Stage) { s.Break(0) }, 0.95, settled},
		{"a node dies", skewed, endNode(false), 0.95, settled},
		{"a node drains", skewed, endNode(true), 0.95, settled},
		{"a limit is raised", even, limit(1.2 * Rate), 0.95, settled},
		{"a limit is lowered", even, limit(0.6 * Rate), 0.95, settled},
		{"silent for two times to live", even, func(s Stage) { s.Silence(2 * TTL) }, 0.95, settled + 2*TTL},
	}
}
