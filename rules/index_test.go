package rules

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// indexOf indexes patterns as rules that do not end the search, so that match returns
// all matches.
func indexOf(tb testing.TB, patterns []string) index {
	tb.Helper()
	list := make([]rule, len(patterns))
	for i, text := range patterns {
		p, _, err := newPattern(text)
		if err != nil || p == nil {
			tb.Fatalf("pattern %q: %v", text, err)
		}
		list[i] = rule{more: true, match: matcher{path: p}}
	}
	return newIndex(list)
}

// naive runs every pattern in turn.
func naive(tb testing.TB, patterns []string, path string) (out []uint16) {
	tb.Helper()
	for i, text := range patterns {
		re, err := regexp.Compile(text)
		if err != nil {
			tb.Fatal(err)
		}
		if re.MatchString(path) {
			out = append(out, uint16(i))
		}
	}
	return out
}

func checkIndex(tb testing.TB, patterns []string, paths ...string) (matched int) {
	tb.Helper()
	x := indexOf(tb, patterns)
	for _, path := range paths {
		got, want := x.match(path, nil), naive(tb, patterns, path)
		if !slices.Equal(got, want) {
			tb.Fatalf("path %q with patterns %q:\n got %v\nwant %v", path, patterns, got, want)
		}
		matched += len(got)
	}
	return matched
}

// Patterns and paths in which an index of beginnings could go wrong.
func TestIndexTraps(t *testing.T) {
	patterns := []string{
		``, `^`, `$`, `^$`, `\A`, `\z`, `^^/a`, `^/a$b`, `/a^`, `^/a`, `^/a$`, `^/ab`, `^/a|^/b`, `^/a|/b`, `(^/a)`,
		`(^/a|b)c`,
		`(?m)^/b`, `(?m)/a$`, `(?i)^/a`, `(?i)/K`, `(?i)k`, `^/(a|b)`, `^/(a|b)$`, `^/(?:ab?|c+)$`, `^/a(/|$)`, `^/a/?$`,
		`^/a.*`, `^/a.*$`, `(?s)^/a.*$`, `^/a.+$`, `^.*/b$`, `.*b`, `.*/a.*`, `a+`, `a*^/a`, `(a|^)/b`, `\.json$`,
		`(?m)\.json$`,
		`b+$`, `^/[ab]`, `^/[^ab]`, `^/[a-z]+$`, `^/a{2,3}`, `^/a{0}b`, `\b/a`, `/a\b`, `^/a\B`, `\x{fffd}`, `^/\x{fffd}`,
		`é`, `^/é`,
		`^/é$`, `[é]$`, `^/a\n`, `^(?:/a|)`, `^(?:/a|)$`, `(^/a+)+b`, `^/a(b(c|d)|e)f?$`, `^(/a.*|/b$)`, `^(/a|/b$).*$`,
		`^/a.*b.*$`,
		`^/[ab][ab][ab][ab][ab]`, `^(a|b|c|d|e|f|g|h|i|j|k|l|m|n|o|p|q|r)`,
		`^/(aa|bb|cc|dd|ee|ff|gg|hh|ii|jj|kk|ll|mm|nn|oo|pp|qq)$`,
		`a??`, `^/a*?$`, `(?U)^/a+`, `[[:alpha:]]+/`, `\pL`, `^/\Qa.b\E`, `x*`, `^(?:)`, `(?:)$`, `^\x{212a}`, `^/a(?i)b`,
	}
	paths := []string{
		"", "/", "a", "b", "/a", "/b", "/ab", "/abc", "/aa", "/aaa", "/a/", "/a/b", "/A", "/K", "/k", "/\u212a", "\u212a",
		"/a\n", "/a\n/b", "\n/b", "/ab\n",
		"/a.json", ".json", "/x.json\n", "é", "/é", "/\xc3", "\xc3\xa9", "/\xff", "\xff", "/\ufffd", "/é\xa9", "\xe2/é",
		"/a\xff", "/abdf", "/aef", "/abc\xff",
		"/c", "/cc", "/qq", "q", "r", "z", "/a.b", "/axb", "/aB", "/aab", "x", " /a", "/a b", "/a\x00b",
	}
	if n := checkIndex(t, patterns, paths...); n < 1000 {
		t.Fatalf("only %d matches; the test is not worth much", n)
	}
}

// Random patterns, many to an index, agree with running each in turn.
func TestIndexRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	matched, asked := 0, 0
	for range 400 {
		patterns := make([]string, 1+rnd.IntN(30))
		for i := range patterns {
			patterns[i] = randomPattern(rnd)
		}
		paths := make([]string, 20)
		for i := range paths {
			paths[i] = randomPath(rnd)
		}
		matched += checkIndex(t, patterns, paths...)
		asked += len(patterns) * len(paths)
	}
	if share := float64(matched) / float64(asked); share < 0.1 || share > 0.9 {
		t.Fatalf("%.0f %% of the patterns matched; the test is not worth much", 100*share)
	}
}

func randomPattern(rnd *rand.Rand) string {
	for {
		p := randomTree(rnd, 3)
		if rnd.IntN(3) > 0 {
			p = "^/" + p
		}
		if rnd.IntN(4) == 0 {
			p += "$"
		}
		if rnd.IntN(8) == 0 {
			p = []string{"(?i)", "(?m)", "(?s)", "(?U)"}[rnd.IntN(4)] + p
		}
		if _, err := regexp.Compile(p); err == nil {
			return p
		}
	}
}

func randomTree(rnd *rand.Rand, depth int) string {
	if depth == 0 || rnd.IntN(3) == 0 {
		atoms := []string{"a", "b", "k", "/", "ab", "/a", "é", ".", "[ab]", "[^a]", `\n`, `\x{fffd}`, "^", "$", `\b`, `\A`,
			`\z`, "", "[a-z]"}
		return atoms[rnd.IntN(len(atoms))]
	}
	a, b := randomTree(rnd, depth-1), randomTree(rnd, depth-1)
	switch rnd.IntN(9) {
	case 0:
		return "(" + a + "|" + b + ")"
	case 1:
		return "(?:" + a + ")" + []string{"*", "+", "?", "*?", "{2}", "{0,2}", "{1,}"}[rnd.IntN(7)] + b
	case 2:
		return "(" + a + ")" + b
	case 3:
		return a + ".*" + b
	default:
		return a + b
	}
}

func randomPath(rnd *rand.Rand) string {
	atoms := []string{"a", "b", "k", "K", "\u212a", "/", "ab", "é", "\n", "\ufffd", "\xff", "\xc3", "z"}
	var b strings.Builder
	if rnd.IntN(4) > 0 {
		b.WriteByte('/')
	}
	for range rnd.IntN(6) {
		b.WriteString(atoms[rnd.IntN(len(atoms))])
	}
	return b.String()
}

func FuzzIndex(f *testing.F) {
	f.Add("^/a\x00^/a$\x00/b", "/a")
	f.Add("(?i)^/k|\\.js$\x00^/(a|b).*$", "/K\n.js")
	f.Add("^(/a+|b?)(/|$)\x00(?m)^x", "\nx/\xff")
	f.Fuzz(func(t *testing.T, joined, path string) {
		var patterns []string
		for text := range strings.SplitSeq(joined, "\x00") {
			if p, _, err := newPattern(text); err == nil && p != nil && len(patterns) < 20 {
				patterns = append(patterns, text)
			}
		}
		checkIndex(t, patterns, path)
	})
}

// Which patterns do without their regular expression; a change here is a change
// of speed, not of meaning.
func TestPatternNeedsNoRegexp(t *testing.T) {
	for _, test := range []struct {
		pattern string
		needs   bool
		begins  string
	}{
		{`^/towns`, false, "/towns…"},
		{`^/towns$`, false, "/towns"},
		{`^/towns(/.*)?$`, true, "/towns /towns/?"},
		{`^/towns/.*`, false, "/towns/…"},
		{`^/towns/.*$`, true, "/towns/…line"}, // for paths with a line break
		{`(?s)^/towns/.*$`, false, "/towns/…"},
		{`^/(towns|cities)/`, false, "/towns/… /cities/…"},
		{`^/api(/|$)`, false, "/api/… /api"},
		{`^/a[bc]?`, false, "/a…"},
		{`^/towns/[0-9]+$`, true, "/towns/?"},
		{`(?i)^/towns`, true, "/?"},
		{`\.json$`, false, ""},
		{`/admin/`, false, ""},
		{`.*`, false, ""},
		{`[0-9]+x`, true, ""},
	} {
		p, _, err := newPattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		var begins []string
		for _, b := range p.begins {
			begins = append(begins, b.text+[]string{"…", "", "…line", "?"}[b.proves])
		}
		slices.Sort(begins)
		want := strings.Fields(test.begins)
		slices.Sort(want)
		if needs := p.re != nil; needs != test.needs || !slices.Equal(begins, want) {
			t.Errorf("%s: needs a regular expression: %t, beginnings %q; want %t, %q", test.pattern, needs, begins, test.needs,
				want)
		}
	}
}

// A rule that matches whatever the request ends the search: nothing behind it
// is even looked at.
func TestIndexEndsAtTheFinalRule(t *testing.T) {
	list := make([]rule, 4)
	for i, text := range []string{`^/a`, `^/`, `b`, `^/ab`} {
		p, _, err := newPattern(text)
		if err != nil {
			t.Fatal(err)
		}
		list[i].match.path = p
	}
	list[0].match.groups = []string{"admin"}
	list = append(list, rule{})
	x := newIndex(list)
	for path, want := range map[string]string{"/ab": "[0 1]", "/b": "[1]", "ab": "[2]", "c": "[4]"} {
		if got := fmt.Sprint(x.match(path, nil)); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// Thousands of patterns with one beginning overflow the scratch space on the
// stack and are still all found.
func TestIndexManyCandidates(t *testing.T) {
	patterns := make([]string, 3000)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("^/a.*%d$", i%7)
	}
	checkIndex(t, patterns, "/a/3", "/a/8", "/b/3")
}

func TestProgramSize(t *testing.T) {
	for _, pattern := range []string{strings.Repeat(`a{1000}`, 11), strings.Repeat(`(?:[a-z]{20}/){20}`, 25),
		strings.Repeat(`\pL{30}`, 40)} {
		p, size, err := newPattern(pattern)
		if p != nil || err != nil || size <= maxProgram {
			t.Errorf("%s: size %d, pattern %v, error %v; want one that is refused", pattern, size, p, err)
		}
	}
	for _, pattern := range []string{`^/a{1000}`, `^/[a-z]{3,64}/[0-9]{1,20}$`, `\pL+`} {
		if p, size, err := newPattern(pattern); p == nil || err != nil {
			t.Errorf("%s: size %d, error %v; want one that is accepted", pattern, size, err)
		}
	}
}
