package spelling

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"limits", "limits", 0}, {"limts", "limits", 1}, {"limmits", "limits", 1},
		{"limitz", "limits", 1},
		{"lmiits", "limits", 1}, {"ilmist", "limits", 2}, {"kitten", "sitting", 3}, {"abcd", "badc", 2},
		{"burst", "block", 4},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%s to %s: %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("%s to %s: %d, want %d", test.b, test.a, got, test.want)
		}
	}
}

// slowDistance is the definition of distance, as a recursion.
func slowDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	x, y := a[:len(a)-1], b[:len(b)-1]
	if a[len(a)-1] == b[len(b)-1] {
		return slowDistance(x, y)
	}
	d := 1 + min(slowDistance(x, b), slowDistance(a, y), slowDistance(x, y))
	if len(x) > 0 && len(y) > 0 && a[len(a)-1] == y[len(y)-1] && x[len(x)-1] == b[len(b)-1] {
		d = min(d, 1+slowDistance(x[:len(x)-1], y[:len(y)-1]))
	}
	return d
}

func TestDistanceAgreesWithItsDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	word := func() string {
		b := make([]byte, rnd.IntN(7))
		for i := range b {
			b[i] = "abc"[rnd.IntN(3)]
		}
		return string(b)
	}
	for range 2000 {
		if a, b := word(), word(); distance(a, b) != slowDistance(a, b) {
			t.Fatalf("%q to %q: %d, want %d", a, b, distance(a, b), slowDistance(a, b))
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"path", "user", "ip", "attr.NAME"}
	for got, want := range map[string]string{
		"pth": "path", "PATH": "path", "suer": "user", "users": "user", "pi": "ip", "colour": "", "": "", "attr.name": "",
		strings.Repeat("path", 100): "",
	} {
		if s := Nearest(got, known); s != want {
			t.Errorf("near %q is %q, want %q", got, s, want)
		}
	}
}
