package arith

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// wideBlocks are the limits above NarrowUnits with a block: of each form in which a state is stored then.
func wideBlocks(t *testing.T) (aligned, others []*limiter.Limit) {
	t.Helper()
	for _, s := range []limiter.Spec{
		{}, {Algorithm: limiter.FixedWindow}, {Algorithm: limiter.SlidingWindow},
		{Algorithm: limiter.FixedWindow, Calendar: limiter.CalendarMonth, Zone: "Europe/Berlin"},
		{Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit}, {Algorithm: limiter.Concurrency},
		{Algorithm: limiter.GCRA},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval},
	} {
		if s.Limit, s.Block = 1<<40, 400*24*time.Hour; s.Algorithm != limiter.Concurrency &&
			s.Calendar == limiter.CalendarNone {
			s.Window = time.Hour
		}
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		if of(l).alignedStarts() {
			aligned = append(aligned, l)
		} else {
			others = append(others, l)
		}
	}
	return aligned, others
}

// year is 365 days.
const year = 365 * limiter.Day

// A state during a block has each bit of its counts and instants, from the first to the last that are
// possible, and an exported one too.
func TestAStateDuringABlockHasAllBits(t *testing.T) {
	aligned, others := wideBlocks(t)
	if len(aligned) != 4 || len(others) != 4 {
		t.Fatalf("%d limits of aligned windows, %d others", len(aligned), len(others))
	}
	r := rand.New(rand.NewPCG(1, 2))
	between := func(from, to limiter.Tick) limiter.Tick { return from + limiter.Tick(r.Int64N(int64(to-from)+1)) }
	units := func(most uint64) uint64 { return []uint64{0, 1, most, most - 1, r.Uint64N(most + 1)}[r.IntN(5)] }
	kept := func(l *limiter.Limit, c Counts) {
		t.Helper()
		s := c.State(l)
		if got := s.Open(l); got != c || s == (State{}) {
			t.Fatalf("%v: stored %+v, found %+v", l, c, got)
		}
	}
	const longest = 400 * limiter.Day
	for range 20_000 {
		for _, l := range aligned {
			start := between(-limiter.Week/limiter.Second,
				280*year/limiter.Second-4*year/limiter.Second-8*year/limiter.Second) * limiter.Second
			kept(l, Counts{Time: start, Until: max(1, between(start-17*year, start+3*longest)), A: units(limiter.MaxUnits),
				B: units(limiter.MaxUnits)})
			kept(l, Counts{Time: between(-2*longest/limiter.Millisecond, 2*longest/limiter.Millisecond) * limiter.Millisecond,
				Until: between(1, longest), A: units(limiter.MaxUnits), B: units(limiter.MaxUnits)})
			beyond := Counts{Time: start, Until: max(1, between(start-17*year, start+3*longest)), A: limiter.MaxUnits + 1,
				B: units(limiter.MaxUnits)}
			kept(l, beyond)
			beyond.A, beyond.B = beyond.B, beyond.A
			kept(l, beyond)
			beyond.Time, beyond.Until = between(-2*longest/limiter.Millisecond,
				2*longest/limiter.Millisecond)*limiter.Millisecond, between(1, longest)
			kept(l, beyond)
		}
		for _, l := range others {
			now := between(-2*longest, 280*year)
			counts := Counts{Time: now, Until: between(1, 280*year), A: units(limiter.MaxUnits), B: units(limiter.NarrowUnits)}
			if counts.B > 0 && !of(l).Shared && of(l).P.Algorithm != limiter.Concurrency {
				counts.A, counts.B = limiter.MaxUnits+1, 0 // they have no B
			}
			kept(l, counts)
		}
	}
}

// What a state during a block cannot have is stored as what denies no less: a start within a second becomes
// the next second, exported the next millisecond. A start long before the block's end, as that of a counter without
// charges, counts nothing wherever it is.
func TestAStateDuringABlockDeniesNoLess(t *testing.T) {
	aligned, others := wideBlocks(t)
	const noon = limiter.Tick(1767614400e6)
	for _, l := range aligned {
		for i, row := range []struct{ stored, found Counts }{
			{Counts{Time: noon + 1, Until: noon + limiter.Hour, A: 3, B: 4},
				Counts{Time: noon + limiter.Second, Until: noon + limiter.Hour, A: 3, B: 4}},
			{Counts{Time: -limiter.Second - 1, Until: limiter.Hour, A: 3, B: 4}, Counts{Time: -limiter.Second,
				Until: limiter.Hour, A: 3, B: 4}},
			{Counts{Time: limiter.Second + 1, Until: limiter.Hour, A: 3, B: 4},
				Counts{Time: limiter.Second + limiter.Millisecond, Until: limiter.Hour, A: 3, B: 4}},
			{Counts{Time: 0, Until: noon}, Counts{Time: floorTo(noon-1<<49+2*limiter.Second+limiter.Second-1, limiter.Second),
				Until: noon}},
		} {
			s := row.stored.State(l)
			if got := s.Open(l); got != row.found {
				t.Errorf("%v, row %d: %+v, want %+v", l, i, got, row.found)
			}
		}
	}
	for _, l := range others {
		c := Counts{Time: 1 << 60, Until: 1 << 61, A: 5, B: limiter.MaxUnits}
		s := c.State(l)
		if got, want := s.Open(l), (Counts{Time: 1<<53 - 1 - early, Until: 1<<53 - 1, A: 5,
			B: limiter.NarrowUnits}); got != want {
			t.Errorf("%v: %+v, want %+v", l, got, want)
		}
	}
}

// Once its block is over, or before one begins, the state of a limit with blocks is that of a limit without.
func TestAStateAfterABlockIsAsWithout(t *testing.T) {
	aligned, others := wideBlocks(t)
	const noon = limiter.Tick(1767614400e6)
	for _, l := range append(aligned, others...) {
		spec := l.Spec()
		spec.Block = 0
		without, err := limiter.NewLimit(spec)
		if err != nil {
			t.Fatal(err)
		}
		during := Counts{Time: (*window)(of(l)).start(noon), Until: noon + 1, A: 1 << 41, B: 7}
		with, plain := during.State(l), Counts{Time: during.Time, A: during.A, B: during.B}
		want := plain.State(without)
		with.Roll(l, make([]uint64, 100), noon+1)
		want.Roll(without, make([]uint64, 100), noon+1)
		if with != want {
			t.Errorf("%v: %+v, without a block %+v", l, with, want)
		}
	}
}
