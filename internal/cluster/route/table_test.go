package route

import "testing"

// A call's number is unique, whichever shard has room.
func TestCallsAreNumbered(t *testing.T) {
	var x callTable
	turn := new(Turn)
	seen := map[uint64]*Call{}
	for range maxCalls {
		o := new(Call)
		if !x.add(o, turn) || o.id == 0 || seen[o.id] != nil {
			t.Fatalf("after %d: %#x", len(seen), o.id)
		}
		seen[o.id] = o
	}
	if x.add(new(Call), turn) {
		t.Fatalf("there is room for more than %d", maxCalls)
	}
	for id, o := range seen {
		if x.get(id) != o {
			t.Fatalf("%#x is not its own number", id)
		}
		x.remove(o)
		x.remove(o)
		if x.get(id) != nil {
			t.Fatalf("%#x is still there", id)
		}
	}
	o := new(Call)
	if !x.add(o, turn) || seen[o.id] != nil {
		t.Errorf("%#x was given before", o.id)
	}
	if len(x.all()) != 1 || x.waiting() != 1 {
		t.Errorf("%d are under way", len(x.all()))
	}
}

// A caller that stops waiting first waits for the wake-ups of the decided checks:
// otherwise the next caller would get them.
func TestWhatIsDecidedIsToldBeforeAllIsAbandoned(t *testing.T) {
	r := New(Config{})
	for _, open := range []int{0, 1} {
		w := r.NewWaiting()
		calls := []*Call{{c: r, progress: progress{ended: true}}, nil}
		for range open {
			calls = append(calls, &Call{c: r})
		}
		w.Expect(int32(open))
		gone := make(chan []int)
		go func() { gone <- w.abandon(calls) }()
		w.Decided()
		if got := <-gone; len(got) != open || len(w.c) != 0 || w.open.Load() != 0 {
			t.Errorf("%v are abandoned of %d, and %d words are left of %d", got, open, len(w.c), w.open.Load())
		}
	}
}
