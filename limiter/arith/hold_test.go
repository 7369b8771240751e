package arith

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// held returns a state with holds, and its words with room for some more.
func held(hs ...Hold) (s State, words []uint64) {
	words = make([]uint64, (len(hs)+8)*HoldWords)
	for _, h := range hs {
		s.AddHold(words, h)
	}
	return s, words
}

// Holds of another node are checked before they are imported: each bound that a table relies on.
func TestCheckExportedHolds(t *testing.T) {
	l, day := HoldsLimit(), limiter.Span(limiter.MaxHold)
	good := Hold{ID: 7, End: day, At: -5, Limit: 3, Cost: 4, Keep: true, First: true}
	check := func(s State, words []uint64) error { return s.CheckExported(l, words[:int(s.A)*HoldWords]) }
	if err := check(held(good, Hold{ID: 7, End: -5, At: 5, Cost: 1})); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(h *Hold){
		"without an id":       func(h *Hold) { h.ID = 0 },
		"for more than a day": func(h *Hold) { h.End++ },
		"that is long over":   func(h *Hold) { h.End = -day },
		"charged long ago":    func(h *Hold) { h.At = -limiter.Span(limiter.MaxWindow) - 1 },
		"charged far ahead":   func(h *Hold) { h.At = limiter.Span(limiter.MaxWindow) + 1 },
		"without a cost":      func(h *Hold) { h.Cost = 0 },
	} {
		h := good
		change(&h)
		if err := check(held(good, h)); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("a hold %s: %v", what, err)
		}
	}
	s, words := held(good)
	for what, bad := range map[string]State{
		"none":            {},
		"too many":        {A: 2*limiter.MaxHoldEntries + 1, Time: day, Until: day},
		"more than words": {A: 2, Time: day, Until: day},
		"another end":     {A: 1, Time: day, Until: day + 1},
		"another first":   {A: 1, Time: day - 1, Until: day},
		"a B":             {A: 1, B: 1, Time: day, Until: day},
	} {
		if err := bad.CheckExported(l, words[:HoldWords]); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	words[7] = limiter.MaxUnits + 2
	if err := check(s, words); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("more lost than is counted: %v", err)
	}
	words[7] = limiter.MaxUnits + 1
	if err := check(s, words); err != nil {
		t.Error(err)
	}
	words[4] |= 1 << 61
	if err := check(s, words); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("an unknown bit: %v", err)
	}
}

// Holds keep what they are when they move. Of two states each hold stays as it is where it ends
// later, or has more entries, and merging is idempotent.
func TestHoldsMove(t *testing.T) {
	l, now := HoldsLimit(), limiter.Tick(1767614400e6)
	a := Hold{ID: 1, End: now + 9, At: now - 3, Limit: 5, Cost: 4, First: true}
	b := Hold{ID: 2, End: now + 7, At: now - 2, Limit: 5, Cost: 6, First: true, Keep: true}
	s, words := held(a, b)
	if s.Time != b.End || s.EmptyAt(l, words) != a.End || s.Held(l) != 2*HoldWords || s.CountHolds(words) != 2 {
		t.Errorf("%+v", s)
	}
	s.Export(l, words, now)
	if h := HoldAt(words, 0); h.End != 9 || h.At != -3 || s.Time != 7 || s.Until != 9 {
		t.Errorf("exported %+v of %+v", h, s)
	}
	s.Import(l, words, now)
	if HoldAt(words, 0) != a || HoldAt(words, 1) != b || s.Time != b.End {
		t.Errorf("imported %+v, %+v", HoldAt(words, 0), s)
	}
	longer, more := a, b
	longer.End++
	more.First = false
	other, otherWords := held(longer, b, more, Hold{ID: 3, End: now + 1, Cost: 1, First: true})
	for range 2 {
		s.Merge(l, words, &other, otherWords, now)
		var ids []uint64
		for i := range int(s.A) {
			ids = append(ids, HoldAt(words, i).ID)
		}
		if s.A != 4 || ids[0] != 1 || HoldAt(words, 0) != longer || s.CountHolds(words) != 3 || s.Time != now+1 {
			t.Fatalf("merged to %+v, %v", s, ids)
		}
	}
	if at := s.NotBefore(l, now-limiter.Span(limiter.MaxHold)); at != longer.End-limiter.Span(limiter.MaxHold) {
		t.Errorf("exported as of %d, so that no node takes it", at)
	}
	if _, err := limiter.NewLimit(limiter.Spec{Name: holdsName, Limit: 1, Window: limiter.MaxWindow}); !errors.Is(err,
		limiter.ErrInvalid) {
		t.Errorf("another limit may have the name of the holds: %v", err)
	}
	if again, err := limiter.NewLimit(l.Spec()); err != nil || !again.Equal(l) {
		t.Errorf("the limit is another one after it travelled as a spec: %v", err)
	}
}

// A use that has happened counts whatever the limit is, up to the bounds of a state.
func TestOverdraw(t *testing.T) {
	for a := range limiter.Concurrency {
		for _, s := range []limiter.Spec{{Limit: 3, Window: limiter.Minute.Duration()}, {Limit: 1000,
			Window: limiter.MinWindow, Burst: 7},
			{Limit: 1, Window: limiter.MaxWindow}} {
			s.Algorithm = a
			l, err := limiter.NewLimit(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []uint64{1, 4, 1000, limiter.MaxLogLimit + 5, limiter.NarrowUnits} {
				now, st := limiter.Tick(1767614400e6), State{}
				st.Roll(l, nil, now)
				words := make([]uint64, st.Words(l, now, n)+8)
				st.Overdraw(l, words, now, n)
				most := n
				if a == limiter.SlidingLog {
					most = min(n, limiter.MaxLogUnits)
				}
				if used := of(l).used(new(st.Open(l)), now); used != most && used != min(most, max(of(l).Most, 1)) {
					t.Errorf("%s: %d units are %d", l, n, used)
				}
				out := limiter.LimitDecision{Cost: 1}
				if st.Probe(l, words, now, &out); out.Allowed != (n+1 <= of(l).Cap) {
					t.Errorf("%s: after %d units allowed %t", l, n, out.Allowed)
				}
				st.Export(l, words, now)
				if err := st.CheckExported(l, words[:st.Held(l)]); err != nil {
					t.Errorf("%s: after %d units no node takes it: %v", l, n, err)
				}
			}
		}
	}
}
