package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Dirty keys are found and dropped as in a map.
func TestDirtyKeys(t *testing.T) {
	for _, spread := range []uint64{3, 40, 5000} {
		r := rand.New(rand.NewPCG(spread, 1))
		var d dirtyKeys
		want := map[uint64]uint64{}
		for step := range 20_000 {
			hi := r.Uint64N(spread) * (1 << 20) // all of them fall on the same places
			switch k := d.find(hi); {
			case k != nil && want[hi] == 0:
				t.Fatalf("%d keys, step %d: %d is found and was not added", spread, step, hi)
			case k != nil:
				k.last++
				want[hi]++
			case want[hi] != 0:
				t.Fatalf("%d keys, step %d: %d is not found", spread, step, hi)
			default:
				d.add(dirtyKey{hi: hi, last: 1})
				want[hi] = 1
			}
			if r.IntN(200) == 0 {
				most := 1 + r.Uint64N(4)
				d.keep(func(k *dirtyKey) bool { return k.last > most })
				for hi, n := range want {
					if n <= most {
						delete(want, hi)
					}
				}
			}
			if r.IntN(5000) == 0 {
				d.clear()
				clear(want)
			}
		}
		got := map[uint64]uint64{}
		for _, k := range d.list {
			got[k.hi] = k.last
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || len(got) != len(d.list) {
			t.Errorf("%d keys: left %v, want %v", spread, got, want)
		}
	}
}
