package history

import (
	"cmp"
	"math"
	"slices"
)

// ever is an instant after all others.
const ever = Micros(math.MaxInt64)

// How long effects last. Nothing is excused or allowed outside these times.
const (
	// afterFault: all has settled when the last of the nodes, which are asked in turn,
	// says so, and checks from before may be under way for as long as a client waits.
	afterFault = Micros(1_000_000)
	// beforeStall: what stands still may do so a little before it is noticed.
	beforeStall = Micros(100_000)
	// afterStall: an heir is asked after 80 ms and claims within 100 ms more, what
	// was asked before ends at a deadline of 300 ms, and what was taken over is
	// handed back.
	afterStall = Micros(1_000_000)
	// longStall is long enough for gossip to take a node for dead, which it then
	// does within 2.4 s, and hears within as much again that it is not.
	longStall      = Micros(600_000)
	afterLongStall = Micros(5_000_000)
)

// perStall is how many takeovers of one key a time in which something stood still
// may cause: the owner stands still, and its heir takes over; then the new owner does
// before the first one is told.
const perStall = 2

// trouble is a time in which something is broken or stands still, or its effects last.
type trouble struct {
	Span
	takeovers int    // of one key, at most
	fault     *Fault // nil: something stood still
	end       Micros // of what stood still
}

// meets tells that some of a time is in the trouble.
func (t *trouble) meets(from, until Micros) bool { return t.From <= until && t.Until >= from }

// analysis is a history with what is found out about it first.
type analysis struct {
	*History
	troubles []trouble
	runs     map[string]map[int]Micros // by node and run, when it was asked first
	first    map[place]Micros          // when it answered first
}

func (h *History) analysis() *analysis {
	c := &analysis{History: h}
	for i := range h.Faults {
		if f := &h.Faults[i]; len(f.Nodes) > 0 {
			c.troubles = append(c.troubles, trouble{Span: Span{f.At, h.over(f)}, takeovers: f.Takeovers, fault: f})
		}
	}
	c.troubles = append(c.troubles, h.stood()...)
	return c
}

// over is when the effects of a fault end. Of those that overlap only the last was
// waited for.
func (h *History) over(f *Fault) Micros {
	settled := f.Settled
	for i := range h.Faults {
		if f.Settled == 0 {
			settled = max(settled, h.Faults[i].Settled)
		}
	}
	if settled == 0 || settled < f.Until {
		return max(h.End, f.Until) + afterFault // it never settled, or was not even mended
	}
	return settled + afterFault
}

// stood returns the times in which the machine or a node stood still, with as long
// as the effects of that last. Those that overlap are one.
func (h *History) stood() []trouble {
	all := slices.Clone(h.Stalls)
	for i := range h.Late {
		if l := &h.Late[i]; !h.madeLate(l) {
			all = append(all, l.Span)
		}
	}
	slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	var out []trouble
	for _, s := range all {
		after := afterStall
		if s.Until-s.From >= longStall {
			after = afterLongStall
		}
		t := trouble{Span: Span{s.From - beforeStall, s.Until + after}, takeovers: perStall, end: s.Until}
		if n := len(out); n > 0 && s.From <= out[n-1].end {
			out[n-1].Until, out[n-1].end = max(out[n-1].Until, t.Until), max(out[n-1].end, t.end)
			continue
		}
		out = append(out, t)
	}
	return out
}

// madeLate tells that it was a fault that made a node late, by itself.
func (h *History) madeLate(l *Late) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool {
		return len(f.Nodes) == 1 && f.Nodes[0] == l.Node && l.From <= f.Until && l.Until >= f.At
	})
}

// stalled tells that something stood still at some time in between, or had shortly
// before.
func (c *analysis) stalled(from, until Micros) bool {
	return slices.ContainsFunc(c.troubles, func(t trouble) bool { return t.fault == nil && t.meets(from, until) })
}

// exact tells that nothing of a time may be lost: every change was graceful, and
// nothing stood still near.
func (c *analysis) exact(from, until Micros) bool { return c.Allows.Exact && !c.stalled(from, until) }

// explains tells that what happened in a time may be owed to a trouble: faults
// explain nothing where every change was graceful.
func (c *analysis) explains(t *trouble, from, until Micros) bool {
	return (t.fault == nil || !c.Allows.Exact) && t.meets(from, until)
}

// cost returns how many of the changes of who decided a key may have cost D in a
// time: those within it that something explains, but no more than what explains them
// can cause. A change without a cause was graceful, or should have been.
func (c *analysis) cost(r *Rule, over []takeover, from, until Micros) int {
	seen, most := 0, 0
	for i := range over {
		t := &over[i]
		if t.after <= until && t.before >= from && c.explained(t) {
			seen++
		}
	}
	for i := range c.troubles {
		if t := &c.troubles[i]; c.explains(t, from, until) && (t.fault == nil || !c.apart(r, t.fault, from)) {
			most += t.takeovers
		}
	}
	return min(seen, most)
}

// explained tells that something explains why a key changed hands in another way than
// gracefully.
func (c *analysis) explained(t *takeover) bool {
	return slices.ContainsFunc(c.troubles, func(tr trouble) bool { return c.explains(&tr, t.after, t.before) })
}

// times returns the multiple that a policy may admit in a time: what the run
// allows where some of it is in a fault, and one otherwise.
func (c *analysis) times(r *Rule, from, until Micros) float64 {
	times := 1.0
	for i := range c.Faults {
		f := &c.Faults[i]
		if len(f.Nodes) == 0 || f.At > until || c.over(f) < from {
			continue
		}
		of := c.Allows.Of(r.Policy)
		if c.apart(r, f, from) {
			// One side goes on with the whole limit, the other one with less than half
			// of it, or one unit where that is more.
			of = max(1.5, float64(r.most()+1)/float64(r.most()))
		}
		times = max(times, of)
	}
	return times
}

// apart tells that a time that begins then comes after the cut of a split into two
// sides, of a rule that promises more exactly what each admits from then on.
func (c *analysis) apart(r *Rule, f *Fault, from Micros) bool {
	return c.Allows.Split && r.Policy == "local" && f.Broken > 0 && from >= f.Broken
}
