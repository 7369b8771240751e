package recent

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// Values are bounded in number, and are forgotten when they were not used for two lives.
func TestValuesExpire(t *testing.T) {
	now := time.Unix(0, 0)
	v := New[int, string](100, time.Minute, func() time.Time { return now })
	if got, ok := v.Get(1); ok {
		t.Fatalf("%q before any was kept", got)
	}
	v.Keep(1, "used")
	v.Keep(2, "unused")
	v.Keep(1, "another")
	for range 3 {
		now = now.Add(time.Minute)
		if got, ok := v.Get(1); !ok || got != "used" {
			t.Errorf("a value that is used: %q, %t", got, ok)
		}
	}
	if n := v.Len(); n != 2 {
		t.Errorf("%d values are kept", n) // the used one, twice
	}
	if got, ok := v.Get(2); ok {
		t.Errorf("a value that was not used for three lives is still there: %q", got)
	}
	for i := range 1000 {
		v.Keep(i, fmt.Sprint(i))
	}
	if n := v.Len(); n > 200 {
		t.Errorf("%d values are kept, of at most 200", n)
	}
	if got, ok := v.Get(999); !ok || got != "999" {
		t.Errorf("the last one: %q, %t", got, ok)
	}
}

// Many ask at once.
func TestValuesTogether(t *testing.T) {
	v := New[int, int](10, time.Hour, time.Now)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 500 {
				if got, ok := v.Get(i % 37); ok && got != i%37 {
					t.Errorf("key %d has the value %d", i%37, got)
				}
				v.Keep(i%37, i%37)
			}
		})
	}
	all.Wait()
	if n := v.Len(); n > 2*(10+8) { // each goroutine may add one to a full generation
		t.Errorf("%d values are kept", n)
	}
}
