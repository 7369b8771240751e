package sim

import "testing"

// All nodes end at once, or most of them, and start anew with their disks: what is admitted in all is the limit, D for
// each takeover, and what was admitted since the last save once more; and no partition of closed rules goes on before
// all
// are back.
func TestOutages(t *testing.T) {
	worlds(t)
	for seed := range uint64(seeds(t, 300)) {
		if _, err := Run(Outages, seed, false); err != nil {
			t.Errorf("%v", err)
		}
	}
}
