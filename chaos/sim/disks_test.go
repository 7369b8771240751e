package sim

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// TestWhatIsGrantedAgain: of a partition that is restored from disks what was admitted since the last save before its
// last owner ended, and what that had granted and was answered later. Where a disk is lost, the interval is that before
// the outage. A reset of that time may be undone.
func TestWhatIsGrantedAgain(t *testing.T) {
	const part = 7
	for name, test := range map[string]struct {
		reset  limiter.Tick // how long before the owner ended
		lost   bool
		anew   int
		stands bool
	}{
		"all disks":            {reset: 1500 * ms, anew: 12 + 4 + 3, stands: true},
		"a disk is lost":       {reset: 2 * limiter.Second, lost: true, anew: 12 + 4 + 3 + 4, stands: true},
		"a reset":              {reset: 900 * ms, anew: 12 + 4 + 3},
		"a reset, a disk less": {reset: 1500 * ms, lost: true, anew: 12 + 4 + 3 + 4},
	} {
		w := newWorld(1)
		w.disks = &disks{lost: make(map[int]limiter.Tick)}
		k, other := &key{part: part, reset: reset{stands: true}}, &key{part: part + 1}
		w.keys = append(w.keys, k, other)
		pass := func(tenths int) { // one unit is admitted in each
			for range tenths {
				k.samples = append(k.samples, k.admitted)
				w.now += 100 * ms
				k.admitted++
			}
		}
		w.now += limiter.Minute
		pass(30)
		k.began = w.now + 400*ms - test.reset
		w.disks.endedAt = w.now
		pass(4)
		if test.lost {
			w.disks.lostAt = w.now
		}
		k.admitted += 4 // of this instant
		w.disks.forgets(part, w.now)
		pass(3) // answers to come
		if w.tookOver(part); k.anew != test.anew || k.stands != test.stands || other.anew != 0 {
			t.Errorf("%s: %d may be granted again and a reset stands: %v, want %d, %v", name, k.anew, k.stands, test.anew,
				test.stands)
		}
		if w.tookOver(part); k.anew != test.anew {
			t.Errorf("%s: %d are granted again by another takeover", name, k.anew)
		}
	}
}
