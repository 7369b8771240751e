package arith_test

import (
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

// A bucket that comes from another node with far more than it can hold denies for as long as what is believed
// takes to leak, and a block ends when one that began now would. What it can hold is as it was.
func TestWhatIsBelieved(t *testing.T) {
	const window = 20 * Second
	for _, s := range []Spec{
		{Algorithm: TokenBucket, Limit: 100, Burst: 50},
		{Algorithm: GCRA, Limit: 100},
		{Algorithm: LeakyBucket, Limit: 100},
		{Algorithm: LeakyBucket, Limit: 100, Drip: DripInterval},
		{Algorithm: TokenBucket, Limit: 100 << 32, Burst: 50 << 32},
	} {
		s.Window = window.Duration()
		l := mustLimit(t, s)
		drained := 2 * Tick(l.Capacity()*uint64(window)/l.Limit())
		for times, want := range map[uint64]Tick{1: drained / 2, 2: drained, 1000: drained} {
			k := &replica{l: l}
			k.s.Roll(l, nil, noon(0))
			k.s.Overdraw(l, nil, noon(0), times*l.Capacity())
			at := noon(0) + Second
			m := k.moved(t, noon(0), at)
			before := m.s
			Believe(l, &m.s, at, true)
			if times <= 2 && m.s != before {
				t.Errorf("%v: %d times its capacity became %+v, was %+v", l, times, m.s, before)
			}
			if got := m.s.EmptyAt(l, nil) - at; got < want-window/100 || got > want {
				t.Errorf("%v: %d times its capacity counts for %v more, want %v", l, times, got.Duration(), want.Duration())
			}
		}
	}
	l := mustLimit(t, Spec{Limit: 5, Window: time.Second, Block: time.Minute})
	longer := State{Until: Span(time.Hour)}
	if err := longer.CheckExported(l, nil); err != nil {
		t.Fatal(err)
	}
	longer.Import(l, nil, noon(0))
	if Believe(l, &longer, noon(0), true); BlockEnd(l, &longer) != noon(0)+Minute {
		t.Errorf("an hour's block ends in %v", (BlockEnd(l, &longer) - noon(0)).Duration())
	}
}

// With count_rejected: all a client can fill a bucket by asking, so any level is believed.
func TestRejectedChargesAreBelieved(t *testing.T) {
	l := mustLimit(t, Spec{Algorithm: GCRA, Limit: 1, Window: time.Second, CountRejected: CountAll})
	k := &replica{l: l}
	for range 100 {
		k.ask(noon(0), 1, false)
	}
	m := k.moved(t, noon(0), noon(0))
	if Believe(l, &m.s, noon(0), true); m.s.EmptyAt(l, nil) != noon(0)+100*Second {
		t.Errorf("%v counts for %v", l, (m.s.EmptyAt(l, nil) - noon(0)).Duration())
	}
}
