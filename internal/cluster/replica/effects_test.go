package replica

import (
	"reflect"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
)

// The memory of a usual step is used again, and what it held is let go. That of a large
// step is not kept.
func TestEffectsKeepBoundedMemory(t *testing.T) {
	fill := func(n int) *Effects {
		var e Effects
		for range n {
			e.end(Rerun, &question{})
			e.keys = append(e.keys, 1)
		}
		e.sendBatch(other, &peer.Batch{}, e.keys, table.NoIDs)
		e.Watch = true
		if e.Reset(); e.Any() || len(e.keys) != 0 {
			t.Errorf("after %d there is left %+v", n, e)
		}
		return &e
	}
	e := fill(10)
	if cap(e.List) == 0 || cap(e.keys) == 0 {
		t.Error("the memory of a usual step is not used again")
	}
	for _, x := range e.List[:cap(e.List)] {
		if !reflect.ValueOf(x).IsZero() {
			t.Fatalf("what the next effect is put over is not zero: %+v", x)
		}
	}
	if e := fill(2 * maxKeptKeys); cap(e.List) > maxKeptEffects || cap(e.keys) > maxKeptKeys {
		t.Errorf("of a large step room for %d effects and %d keys is kept", cap(e.List), cap(e.keys))
	}
}
