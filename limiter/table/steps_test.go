package table

import "testing"

// A partition has one block of memory up to oneMost slots, whole blocks above, and as many homes as its
// size says.
func TestSizesOfPartitions(t *testing.T) {
	for n := 1; n <= 3*oneMost; n++ {
		size := roundUp(n)
		if size < n || size > blockSlots && size > n+blockSlots || roundUp(size) != size {
			t.Fatalf("%d slots become %d, which become %d", n, size, roundUp(size))
		}
		var s slots
		s.layOut(size, 0)
		if s.even() != size {
			t.Fatalf("%d slots have %d homes, which are those of %d", size, s.homes, s.even())
		}
		if want := max(1, size/blockSlots); size > oneMost && len(s.blocks) != want || size <= oneMost && len(s.blocks) != 1 {
			t.Fatalf("%d slots are in %d blocks", size, len(s.blocks))
		}
	}
}

// Entries stay, in order, while a partition grows and shrinks through all its sizes, and counts its memory.
func TestPartitionGrowsBySteps(t *testing.T) {
	a := &arena{}
	s := slots{arena: a}
	o := newOrder(fixedOrder{})
	sizes := map[int]bool{}
	check := func() {
		t.Helper()
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		if have := a.held.Load(); have != int64(s.bytes()) {
			t.Fatalf("%d bytes are counted, %d used", have, s.bytes())
		}
		sizes[s.size] = true
	}
	const most = 2 * oneMost
	for n := range uint64(most) {
		if s.full() {
			s.rebuild(nil, false)
		}
		place := o.of(n)
		for i, _ := s.find(place, n); !s.insert(i, slot{place: place, lo: n, limit: 1}); i, _ = s.find(place, n) {
			s.extend()
		}
		check()
	}
	for n := uint64(most); n > 0; n /= 2 {
		s.rebuild(func(e *slot) bool { return e.lo < n }, n%4 == 0)
		if check(); s.used != int(n) {
			t.Fatalf("%d entries are left of %d", s.used, n)
		}
	}
	if len(sizes) < 12 {
		t.Errorf("the sizes were %v", sizes)
	}
}

type fixedOrder struct{}

func (fixedOrder) Uint64() uint64 { return 0x9e3779b97f4a7c15 }
