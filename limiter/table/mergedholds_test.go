package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// mergedHold is a reservation as the clients of one table know it.
type mergedHold struct {
	id, estimate uint64
	end          limiter.Tick
	settled      bool // here
	used         uint64
	elsewhere    int // what the other table has settled it with; -1: it has not
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
	holds  []*mergedHold
	theirs []*mergedHold
	trace  []string
}

func (m *mergedHolds) charge(h *mergedHold, cost uint64) *limiter.Charge {
	return heldCharge(m.l, h.id, cost)
}

func (m *mergedHolds) logf(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf("%d ", (m.now-noon)/limiter.Minute)+fmt.Sprintf(format, args...))
}

func (m *mergedHolds) reserve(t *Table, id uint64) *mergedHold {
	h := &mergedHold{id: id, estimate: 1 + m.rng.Uint64N(10), end: m.now + limiter.Hour, elsewhere: -1}
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
		if !h.settled && m.now < h.end {
			n := m.rng.Uint64N(13)
			out, _ := m.here.Amend(m.now, m.charge(h, n), limiter.Amend{IgnoreUnknown: true})
			m.logf("settle %d with %d here: %v", h.id, n, out)
			if out.State == limiter.AmendDone {
				h.settled, h.used = true, n
			}
		}
	case 3: // extended here
		h := m.holds[m.rng.IntN(len(m.holds))]
		if !h.settled && m.now < h.end {
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
		m.sent = append(m.sent, m.export(m.other))
		m.logf("sent %d", len(m.sent)-1)
	case 6:
		if len(m.sent) > 0 {
			n := m.rng.IntN(len(m.sent))
			if err := m.here.Import(m.part, m.now, m.sent[n], Merge); err != nil {
				m.t.Fatal(err)
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
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow, limiter.SlidingLog, limiter.Concurrency} {
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
	m := &mergedHolds{t: t, rng: rand.New(rand.NewPCG(seed, 1)), l: l, now: noon, here: New(Config{MaxKeys: 1000}), other: New(Config{MaxKeys: 1000})}
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
	if out, done := m.other.Amend(m.now, m.charge(h, raised), limiter.Amend{Extend: true}); !done || out.State != limiter.AmendDone {
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
		t.Errorf("a reservation of %d was settled with as much, %v: %d were counted before, %d are now", h.estimate, out, before, after)
	}
}
