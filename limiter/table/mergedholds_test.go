package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// mergedHold is a reservation as the clients of one table know it.
type mergedHold struct {
	id, estimate uint64
	end          limiter.Tick
	settled      bool // here
	used         uint64
	elsewhere    int // what the other table has settled it with; -1: it has not
	merged       int // the same as far as this table was told
}

// mergedHolds are two tables that reserve, settle and extend apart, from the same beginning. What the other
// has is merged into this one, late, and perhaps more than once.
type mergedHolds struct {
	t      *testing.T
	rng    *rand.Rand
	l      *limiter.Limit
	part   int
	now    limiter.Tick
	here   *Table
	other  *Table
	sent   [][]Entry // by the other
	told   [][]int   // what each of these has settled the first of holds with
	holds  []*mergedHold
	theirs []*mergedHold
	trace  []string
}

func (m *mergedHolds) charge(h *mergedHold, cost uint64) *arith.Charge {
	c := heldCharge(m.l, h.id, cost)
	if h.id%2 == 0 {
		c.ID.Life = time.Hour // else it is forgotten with the next step
	}
	return c
}

func (m *mergedHolds) logf(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf("%d ", (m.now-noon)/limiter.Minute)+fmt.Sprintf(format, args...))
}

func (m *mergedHolds) reserve(t *Table, id uint64) *mergedHold {
	h := &mergedHold{id: id, estimate: 1 + m.rng.Uint64N(10), end: m.now + limiter.Hour, elsewhere: -1, merged: -1}
	var d limiter.Decision
	if err := t.Decide(m.now, m.charge(h, h.estimate), &d); err != nil || !d.Allowed {
		m.t.Fatal(err, d)
	}
	m.logf("reserve %d: %d, here %t", id, h.estimate, t == m.here)
	return h
}

func (m *mergedHolds) export(from *Table) (all []Entry) {
	from.Export(m.part, m.now, func(e Entry) {
		e.Words = append([]uint64(nil), e.Words...)
		all = append(all, e)
	})
	return all
}

func (m *mergedHolds) step(i int) {
	m.now += limiter.Tick(m.rng.Int64N(int64(10 * limiter.Minute)))
	switch m.rng.IntN(8) {
	case 0:
		m.holds = append(m.holds, m.reserve(m.here, uint64(1000+i)))
	case 1:
		m.theirs = append(m.theirs, m.reserve(m.other, uint64(2000+i)))
	case 2: // settled here
		h := m.holds[m.rng.IntN(len(m.holds))]
		if !h.settled && h.merged < 0 && m.now < h.end {
			n := m.rng.Uint64N(13)
			out, _ := m.here.Amend(m.now, m.charge(h, n), limiter.Amend{IgnoreUnknown: true})
			m.logf("settle %d with %d here: %v", h.id, n, out)
			if out.State == limiter.AmendDone {
				h.settled, h.used = true, n
			}
		}
	case 3: // extended here
		h := m.holds[m.rng.IntN(len(m.holds))]
		if !h.settled && h.merged < 0 && m.now < h.end {
			n := h.estimate + m.rng.Uint64N(4)
			out, _ := m.here.Amend(m.now, m.charge(h, n), limiter.Amend{Extend: true})
			m.logf("extend %d to %d here: %v", h.id, n, out)
			if out.State == limiter.AmendDone {
				h.estimate, h.end = n, m.now+limiter.Hour
			}
		}
	case 4: // settled or extended there
		h := m.holds[m.rng.IntN(len(m.holds))]
		n, extend := m.rng.Uint64N(13), m.rng.IntN(2) == 0
		if extend {
			n += 5
		}
		out, _ := m.other.Amend(m.now, m.charge(h, n), limiter.Amend{IgnoreUnknown: true, Extend: extend})
		m.logf("amend %d to %d there, extend %t: %v", h.id, n, extend, out)
		if out.State == limiter.AmendDone && !extend {
			h.elsewhere = int(n)
		}
	case 5:
		m.sent, m.told = append(m.sent, m.export(m.other)), append(m.told, nil)
		for _, h := range m.holds {
			used := h.elsewhere
			if !m.other.Remembers(m.now, m.charge(h, 1)) { // any more
				used = -1
			}
			m.told[len(m.told)-1] = append(m.told[len(m.told)-1], used)
		}
		m.logf("sent %d", len(m.sent)-1)
	case 6:
		if len(m.sent) > 0 {
			n := m.rng.IntN(len(m.sent))
			if err := m.here.Import(m.part, m.now, m.sent[n], Merge); err != nil {
				m.t.Fatal(err)
			}
			for i, used := range m.told[n] {
				if h := m.holds[i]; used >= 0 && h.merged < 0 && !h.settled && m.now < h.end {
					h.merged = used
				}
			}
			m.logf("merged %d", n)
		}
	default: // this one hands over to a third
		next := New(Config{MaxKeys: 1000})
		all := m.export(m.here)
		m.now += limiter.Tick(m.rng.Int64N(int64(limiter.Second)))
		if err := next.Import(m.part, m.now, all, Replace); err != nil {
			m.t.Fatal(err)
		}
		m.here = next
		m.logf("handed over")
	}
}

// least is what is certainly held or used.
func (m *mergedHolds) least() (n uint64) {
	for _, h := range m.holds {
		switch {
		case (h.settled || h.elsewhere >= 0) && m.l.Algorithm() == limiter.Concurrency: // it holds nothing
		case h.settled:
			n += h.used
		case h.merged >= 0:
			n += uint64(h.merged)
		case h.elsewhere >= 0:
			// The merger may have it, or not yet.
			if m.now < h.end {
				n += min(h.estimate, uint64(h.elsewhere))
			}
		case m.now < h.end:
			n += h.estimate
		}
	}
	return n
}

// TestMergedHoldsCountWhatIsHeld: whatever comes from the other table, and however often, as much is counted
// as is held and was used.
func TestMergedHoldsCountWhatIsHeld(t *testing.T) {
	inWire(t)
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow,
		limiter.SlidingLog, limiter.Concurrency} {
		spec := limiter.Spec{Name: "l", Limit: 10000, Algorithm: algorithm}
		if algorithm != limiter.Concurrency {
			spec.Window = 400 * 24 * time.Hour
		}
		l, err := limiter.NewLimit(spec)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(150) {
			holdsApart(t, l, seed)
			if t.Failed() {
				break
			}
		}
	}
}

func holdsApart(t *testing.T, l *limiter.Limit, seed uint64) {
	t.Helper()
	m := &mergedHolds{t: t, rng: rand.New(rand.NewPCG(seed, 1)), l: l, now: noon, here: New(Config{MaxKeys: 1000}),
		other: New(Config{MaxKeys: 1000})}
	for i := range uint64(1 + m.rng.IntN(4)) {
		m.holds = append(m.holds, m.reserve(m.here, i+1))
	}
	m.part = PartitionOf(m.charge(m.holds[0], 1).Key(0))
	if err := m.other.Import(m.part, m.now, m.export(m.here), Replace); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		m.step(i)
		if n, least := used(t, m.here, l, m.now), m.least(); n < int(least) {
			for _, line := range m.trace {
				t.Log(line)
			}
			t.Errorf("%v, seed %d, step %d: %d are counted, at least %d are held or used", l.Algorithm(), seed, i, n, least)
			return
		}
	}
}

// TestAMergedIDStandsForWhatTheReservationHasHere: an id may be over a moment before its reservation, since they move
// apart. Another table, which has raised the estimate, brings the id back. It stands for what is charged here, so
// that a settlement gives back no more than that.
func TestAMergedIDStandsForWhatTheReservationHasHere(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Name: "l", Limit: 100, Window: 24 * time.Hour, Algorithm: limiter.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	m := &mergedHolds{t: t, rng: rand.New(rand.NewPCG(1, 1)), l: l, now: noon, here: New(Config{}), other: New(Config{})}
	h := m.reserve(m.here, 1)
	c := m.charge(h, 0)
	m.part = PartitionOf(c.Key(0))
	if err := m.other.Import(m.part, m.now, m.export(m.here), Replace); err != nil {
		t.Fatal(err)
	}
	raised := h.estimate + 20
	if out, done := m.other.Amend(m.now, m.charge(h, raised), limiter.Amend{Extend: true}); !done ||
		out.State != limiter.AmendDone {
		t.Fatal(out)
	}
	p, pos, live := m.here.findID(m.now, c, c.Key(0))
	if !live {
		t.Fatal("the id is unknown here")
	}
	m.here.ring(p).at(pos).Time = m.now
	if err := m.here.Import(m.part, m.now, m.export(m.other), Merge); err != nil {
		t.Fatal(err)
	}
	before := used(t, m.here, l, m.now)
	out, done := m.here.Amend(m.now, m.charge(h, h.estimate), limiter.Amend{})
	if after := used(t, m.here, l, m.now); !done || out.State != limiter.AmendDone || after != before {
		t.Errorf("a reservation of %d was settled with as much, %v: %d were counted before, %d are now", h.estimate, out,
			before, after)
	}
}

// TestWhatTheOtherHasSettledIsCountedOnce: both tables know a reservation of 10, and the other has settled it. What it
// has given back or charged for that is given back or charged here, and what else both have charged is the larger
// of both: whichever counter is larger, also if the ids come before the counters, as they do in a push.
func TestWhatTheOtherHasSettledIsCountedOnce(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow,
		limiter.SlidingLog, limiter.TokenBucket, limiter.LeakyBucket} {
		l := hundred(t, algorithm, 24*time.Hour)
		for _, actual := range []uint64{0, 4, 10, 30} {
			for _, more := range [][2]uint64{{0, 0}, {5, 0}, {0, 5}, {25, 3}, {3, 25}} {
				for _, parts := range []bool{false, true} {
					here, c := heldTable(t, l, noon, 1)
					part, other := PartitionOf(c.Key(0)), New(Config{MaxKeys: 1000})
					moveTo(t, here, part, noon, other, noon, Replace)
					for i, table := range []*Table{here, other} {
						if k := heldCharge(l, 0, more[i]); more[i] > 0 {
							k.ID = nil
							if err := table.Decide(noon, k, new(limiter.Decision)); err != nil {
								t.Fatal(err)
							}
						}
					}
					if out, _ := other.Amend(noon, heldCharge(l, 1, actual), limiter.Amend{}); out.State != limiter.AmendDone {
						t.Fatal(out)
					}
					m := &mergedHolds{now: noon, part: part}
					all := m.export(other)
					var ids, rest []Entry
					for _, e := range all {
						if parts && e.Limit.Algorithm() == arith.Remembered {
							ids = append(ids, e)
						} else {
							rest = append(rest, e)
						}
					}
					for range 2 { // it may come again
						for _, entries := range [][]Entry{ids, rest} {
							if err := here.Import(part, noon, entries, Merge); err != nil {
								t.Fatal(err)
							}
						}
					}
					want := int(actual + max(more[0], more[1]))
					if n := used(t, here, l, noon); n != want {
						t.Errorf("%v, settled with %d beside %v, in parts %t: %d are counted, want %d", algorithm, actual, more, parts, n,
							want)
					}
					if out, _ := here.Amend(noon, heldCharge(l, 1, actual), limiter.Amend{}); out.State != limiter.AmendRepeated ||
						used(t, here, l, noon+2*limiter.Hour) > want {
						t.Errorf("%v, settled again: %v", algorithm, out.State)
					}
				}
			}
		}
	}
}

// TestUndoSettled: what was charged for ids that were not known is taken back with these ids, once, and only if the
// settlement that is meant has charged it.
func TestUndoSettled(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow,
		limiter.SlidingLog, limiter.TokenBucket, limiter.LeakyBucket} {
		l := hundred(t, algorithm, 24*time.Hour)
		table, c := heldTable(t, l, noon, 1)
		part, at := PartitionOf(c.Key(0)), noon+limiter.Second
		if out, _ := table.Amend(at, heldCharge(l, 2, 130), limiter.Amend{}); out.State != limiter.AmendCharged ||
			used(t, table, l, at) != 100 {
			t.Fatalf("%v: %v, %d are counted", algorithm, out.State, used(t, table, l, at))
		}
		for name, undo := range map[string]func(){
			"of another partition": func() { table.UndoSettled(part+1, at, heldCharge(l, 2, 130), at) },
			"of another instant":   func() { table.UndoSettled(part, at, heldCharge(l, 2, 130), at-1) },
			"of another number":    func() { table.UndoSettled(part, at, heldCharge(l, 2, 129), at) },
			"of a reservation":     func() { table.UndoSettled(part, at, heldCharge(l, 1, 10), noon) },
			"of an unknown id":     func() { table.UndoSettled(part, at, heldCharge(l, 3, 130), at) },
		} {
			if undo(); used(t, table, l, at) != 100 || !table.Remembers(at, heldCharge(l, 2, 1)) ||
				!table.Remembers(at, heldCharge(l, 1, 1)) {
				t.Errorf("%v: one %s was taken back: %d are counted", algorithm, name, used(t, table, l, at))
			}
		}
		for range 2 {
			if table.UndoSettled(part, at, heldCharge(l, 2, 130), at); used(t, table, l, at) != 10 ||
				table.Remembers(at, heldCharge(l, 2, 1)) {
				t.Errorf("%v: %d are counted once it was taken back, want 10", algorithm, used(t, table, l, at))
			}
		}
		if out, _ := table.Amend(at, heldCharge(l, 2, 20), limiter.Amend{}); out.State != limiter.AmendCharged ||
			used(t, table, l, at) != 30 {
			t.Errorf("%v: settled again: %v, %d are counted, want 30", algorithm, out.State, used(t, table, l, at))
		}
	}
}

// TestUndoOfWhatABucketDidNotCount: of a settlement beyond what a bucket counts nothing is given back, then and later,
// so what others have charged still counts.
func TestUndoOfWhatABucketDidNotCount(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA} {
		for _, later := range []limiter.Tick{0, limiter.Minute, 30 * limiter.Minute} {
			l := hundred(t, algorithm, time.Hour)
			table, c := heldTable(t, l, noon, 1)
			part, at := PartitionOf(c.Key(0)), noon+limiter.Second
			all := heldCharge(l, 2, limiter.MaxUnits)
			if out, _ := table.Amend(at, all, limiter.Amend{}); out.State != limiter.AmendCharged {
				t.Fatalf("%v: %v", algorithm, out.State)
			}
			wait := func(now limiter.Tick) time.Duration {
				var d limiter.Decision
				c := *heldCharge(l, 3, 100)
				c.ID, c.Peek = nil, true
				table.Decide(now, &c, &d)
				return d.RetryAfter
			}
			before := wait(at + later)
			if want := 25*time.Hour - later.Duration(); before != want {
				t.Errorf("%v: a full bucket is there after %v, want %v", algorithm, before, want)
			}
			if table.UndoSettled(part, at+later, all, at); wait(at+later) != before {
				t.Errorf("%v: %v later it is there after %v, want %v", algorithm, later.Duration(), wait(at+later), before)
			}
		}
	}
}

// TestARefusedHoldLeavesOthersTheirs: a hold that took its counter to its bound, as those of shadow rules may, gives
// nothing back. What an earlier one has charged still comes back.
func TestARefusedHoldLeavesOthersTheirs(t *testing.T) {
	const day = 24 * time.Hour
	l, err := limiter.NewLimit(limiter.Spec{Name: "l", Limit: 10, Window: 10 * day, Algorithm: limiter.TokenBucket,
		CountRejected: limiter.CountAll})
	if err != nil {
		t.Fatal(err)
	}
	table := New(Config{MaxKeys: 1000})
	of := func(id, cost uint64) *arith.Charge {
		c := heldCharge(l, id, cost)
		c.Key(0).Rule.Shadow = true
		return c
	}
	wait := func() time.Duration {
		var d limiter.Decision
		c := of(9, 1)
		c.ID, c.Peek = nil, true
		table.Decide(noon, c, &d)
		return d.Limit(0).RetryAfter
	}
	for id := range uint64(2) {
		var d limiter.Decision
		table.Decide(noon, of(1+id, 10), &d)
	}
	if got := wait(); got != day { // the earlier one ends within the hour
		t.Errorf("a unit is admitted after %v, want %v", got, day)
	}
	table.Amend(noon, of(2, 10), limiter.Amend{})
	table.Amend(noon, of(1, 0), limiter.Amend{})
	if got := wait(); got != day {
		t.Errorf("once they are settled, a unit is admitted after %v, want %v", got, day)
	}
}
