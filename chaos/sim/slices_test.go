package sim

import "testing"

// What is assigned as slices and what is admitted by checks is within the limit, whichever members end, pause, leave or
// are cut off, at each step of asking, lending and renewing.
func TestSlicesKeepTheBounds(t *testing.T) {
	worlds(t)
	for _, kind := range []Kind{Graceful, Suspicion, Crash, Split} {
		assigned := 0
		for seed := range seeds(t, 6) {
			w := worldOf(kind, uint64(seed))
			w.near.sliced.on = true
			if err := w.play(kind, uint64(seed)); err != nil {
				t.Error(err)
			}
			if err := w.near.sliced.judge(w); err != nil {
				t.Errorf("%v seed %d: %v", kind, seed, err)
			}
			assigned += w.near.sliced.assigned
		}
		t.Logf("%v: %d rates were assigned", kind, assigned)
		if assigned < 20*seeds(t, 6) {
			t.Errorf("%v: %d rates were assigned: there is little to judge", kind, assigned)
		}
	}
}
