package recent

import "testing"

// A value is made once as long as it is kept, and there is a bound on how many are.
func TestMade(t *testing.T) {
	count := 0
	m := NewMade(func(n int) *int { count++; return &n })
	if a, b := m.Of(3), m.Of(3); a != b || *a != 3 || count != 1 {
		t.Errorf("%d and %d, made %d times", *a, *b, count)
	}
	for n := range 10_000 {
		if got := *m.Of(n); got != n {
			t.Fatalf("%d is %d", n, got)
		}
	}
	if count = 0; *m.Of(0) != 0 && count == 0 {
		t.Error("0 is another")
	}
	for n := range 10_000 {
		m.Of(n)
	}
	if count < 10_000-len(m.at) {
		t.Errorf("only %d of 10,000 were made again", count)
	}
}
