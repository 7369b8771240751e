package console_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestContrast: text is readable on what lies below it, in the light and in the dark: 4.5 to 1 at least, as WCAG 2.1
// wants of level AA.
func TestContrast(t *testing.T) {
	css, err := os.ReadFile("web/console.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllSubmatch(css, -1)
	if len(themes) != 2 {
		t.Fatalf("the style sheet has %d themes", len(themes))
	}
	for i, name := range []string{"light", "dark"} {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6})`).FindAllSubmatch(themes[i][1], -1) {
			colours[string(m[1])] = string(m[2])
		}
		for text, grounds := range map[string][]string{"fg": {"bg", "card", "bad-bg", "soon-bg"}, "dim": {"bg", "card"},
			"accent": {"bg", "card"}, "good": {"bg", "card"}, "bad": {"bg", "card", "bad-bg"},
			"soon": {"bg", "card", "soon-bg"}} {
			for _, ground := range grounds {
				a, b := luminance(t, colours[text]), luminance(t, colours[ground])
				if c := (max(a, b) + 0.05) / (min(a, b) + 0.05); c < 4.5 {
					t.Errorf("%s: %s on %s has a contrast of %.2f", name, text, ground, c)
				}
			}
		}
	}
}

// luminance is the relative one of a colour, such as #1c2126, by WCAG 2.1.
func luminance(t *testing.T, colour string) (sum float64) {
	t.Helper()
	if len(colour) != 7 {
		t.Fatalf("%q is no colour", colour)
	}
	for i, part := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += part * c
	}
	return sum
}
