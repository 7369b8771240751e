package sim

import "testing"

// A cluster whose owners lend units keeps the bounds that it keeps without.
func TestLeasesKeepTheBounds(t *testing.T) {
	worlds(t)
	all := 0
	for kind := range Kinds {
		lent := 0
		for seed := range seeds(t, 6) {
			w := worldOf(kind, uint64(seed))
			if w.near.lending.on = true; seed%2 > 0 {
				w.stronger, w.broader = newStronger(kind, uint64(seed)), newBroader(kind, uint64(seed))
			}
			if err := w.play(kind, uint64(seed)); err != nil {
				t.Error(err)
			}
			lent += w.near.lending.units
		}
		t.Logf("%v: %d units were admitted by leases", kind, lent)
		all += lent
	}
	if all < 500 {
		t.Errorf("%d units were admitted by leases: there is little to judge", all)
	}
}
