package spelling

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
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

// Text from a file is quoted so that no error is long, breaks a line or cuts a
// character.
func TestQuoteAndClip(t *testing.T) {
	for _, s := range []string{"", "a", "é", "a\nb\t\x00", strings.Repeat("é", 50), strings.Repeat("é", 51),
		"a" + strings.Repeat("é", 51), strings.Repeat("\xff", 300), strings.Repeat("\n", 101)} {
		q, c := Quote(s), Clip(s)
		if len(q) > 4*100+5 || strings.ContainsAny(q, "\n\t\x00") || !utf8.ValidString(q) {
			t.Errorf("%q is quoted as %q", s, q)
		}
		if len(c) > 2*100+3 || strings.ContainsAny(c, "\n\t") || utf8.ValidString(s) && !utf8.ValidString(c) {
			t.Errorf("%q is clipped to %q", s, c)
		}
		if long := len(s) > 100; strings.HasSuffix(q, `"...`) != long || strings.HasSuffix(c, "...") != long {
			t.Errorf("%d bytes: %s, %s", len(s), q, c)
		}
	}
}
