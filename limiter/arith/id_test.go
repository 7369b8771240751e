package arith

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// An id of another node is checked before it is imported: each bound that a table relies on.
func TestCheckExportedIDs(t *testing.T) {
	l, day := RememberedLimit(), limiter.Span(limiter.MaxIDTTL)
	good := State{Time: day, Until: -5, A: 3, B: SettledID - 1}
	if err := errors.Join(good.CheckExported(l, nil), new(State).CheckExported(l, nil)); err != nil {
		t.Error(err)
	}
	for what, s := range map[string]State{
		"for more than 2 days":  {Time: 2*day + 1, Until: -5, A: 3},
		"over":                  {Time: 0, Until: -5, A: 3},
		"charged in the future": {Time: 9, Until: 1, A: 3},
		"charged long ago":      {Time: 9, Until: -limiter.Span(limiter.MaxWindow) - 1, A: 3},
		"without a cost":        {Time: 9, Until: -5, B: 1},
		"of too many limits":    {Time: 9, Until: -5, A: 3, B: SettledID + 1},
	} {
		if err := s.CheckExported(l, nil); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("an id %s: %v", what, err)
		}
	}
	if err := good.CheckExported(l, make([]uint64, 1)); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("an id with words: %v", err)
	}
}

// An id keeps what it remembers when it moves. Of two that are merged the charge of this side stays, until
// the later of both ends. One whose
// clock has gone back is exported as of its charge, so that no node refuses it.
func TestIDsMove(t *testing.T) {
	l, now := RememberedLimit(), limiter.Tick(1767614400e6)
	s := State{Time: now + limiter.Minute, Until: now, A: 3, B: 2}
	there := s
	there.Export(l, nil, now+5)
	if want := (State{Time: limiter.Minute - 5, Until: -5, A: 3, B: 2}); there != want {
		t.Errorf("exported %+v, want %+v", there, want)
	}
	there.Import(l, nil, 1000*limiter.Minute)
	if want := (State{Time: 1001*limiter.Minute - 5, Until: 1000*limiter.Minute - 5, A: 3, B: 2}); there != want {
		t.Errorf("imported %+v, want %+v", there, want)
	}
	longer := State{Time: now + 2*limiter.Minute, Until: now + 7, A: 4, B: 1}
	settled := State{Time: now + limiter.Second, Until: now, A: 2, B: SettledID}
	for what, of := range map[string]struct{ into, from, want State }{
		"the other is longer":  {s, longer, State{Time: longer.Time, Until: s.Until, A: s.A, B: s.B}},
		"the other is shorter": {longer, s, longer},
		"only the other":       {State{}, s, s},
		"only this":            {s, State{}, s},
		"settled there":        {s, settled, settled},
		"settled here":         {settled, s, settled},
	} {
		for range 2 { // what comes twice changes nothing more
			of.into.Merge(l, nil, &of.from, nil, now+9)
		}
		if of.into != of.want {
			t.Errorf("%s: merged to %+v, want %+v", what, of.into, of.want)
		}
	}
	if at := s.NotBefore(l, now-limiter.Hour); at != now {
		t.Errorf("exported as of %d, want the charge at %d", at, now)
	}
	s.Roll(l, nil, now+limiter.Minute-1)
	if s.A != 3 || s.EmptyAt(l, nil) != now+limiter.Minute {
		t.Errorf("forgotten too soon: %+v", s)
	}
	if s.Roll(l, nil, now+limiter.Minute); s != (State{}) {
		t.Errorf("not forgotten: %+v", s)
	}
}
