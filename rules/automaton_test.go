package rules

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"testing"
)

// automatonOf returns an automaton of patterns.
func automatonOf(tb testing.TB, patterns ...string) *automaton {
	tb.Helper()
	trees := make([]*syntax.Regexp, len(patterns))
	for i, text := range patterns {
		trees[i] = trimHead(trimTail(strip(parseTree(tb, text))))
	}
	return newAutomaton(trees)
}

// An automaton of one pattern, and one of several, find what the regular expressions do.
func TestAutomatonFindsWhatTheExpressionsDo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	rounds := 1500
	if testing.Short() {
		rounds = 300
	}
	built, matched, asked := 0, 0, 0
	for range rounds {
		patterns := make([]string, 1+rnd.IntN(6))
		naive := make([]*regexp.Regexp, len(patterns))
		for i := range patterns {
			patterns[i] = randomPattern(rnd)
			naive[i] = regexp.MustCompile(patterns[i])
		}
		a := automatonOf(t, patterns...)
		if a == nil {
			continue
		}
		built++
		for range 20 {
			path, want := randomPath(rnd), uint64(0)
			for i, re := range naive {
				asked++
				if re.MatchString(path) {
					want |= 1 << i
					matched++
				}
			}
			if got := a.run(path, 1<<len(patterns)-1); got != want {
				t.Fatalf("%q on %q: found %b, want %b", patterns, path, got, want)
			}
		}
	}
	if built < rounds/3 || matched < asked/10 {
		t.Fatalf("%d of %d built, %d of %d matched: the test is not worth much", built, rounds, matched, asked)
	}
}

// A pattern that an automaton cannot express, or only by too many states, has none.
func TestAutomatonIsBounded(t *testing.T) {
	for pattern, want := range map[string]bool{
		`/a/[0-9]+$`: true, `(?i)/admin`: true, `\bx`: false, `(?m)^x`: false, `a.{20}b`: false, `\pL+/x`: true,
		`^(/[^/]+){20}$`: true, `[^/]{40}/$`: true,
	} {
		a := automatonOf(t, pattern)
		if (a != nil) != want {
			t.Errorf("%s: an automaton: %t, want %t", pattern, a != nil, want)
		}
		if a != nil && len(a.next) > maxTable {
			t.Errorf("%s: %d transitions", pattern, len(a.next))
		}
	}
	if a := automatonOf(t, func() (out []string) {
		for i := range 20 {
			out = append(out, fmt.Sprintf("/a%d/.*/x", i))
		}
		return out
	}()...); a != nil {
		t.Errorf("an automaton of 20 patterns which all may be half found has %d transitions", len(a.next))
	}
}

// Patterns that have to look at all of a path do so in few passes, whatever text the path has, since a caller chooses
// the path: a regular expression takes up to 100 ns a byte and rule.
func TestManyPatternsTakeFewPasses(t *testing.T) {
	const n = 1000
	for _, shape := range []string{`/s%d/`, `/s%d/[0-9]+`, `/[0-9]+/s%d/`, `.*/s%d/[0-9]+$`, `^/v1/.*/s%d$`,
		`^/v1/[^/]+/s%d/[0-9]+$`, `(?i)/s%d/`, `(?i)^/v1/s%d/`, `[0-9]+-%d$`, `\.(php|asp)%d$`, `/(users|groups)%d/[0-9]+`,
		`^/v1/([a-z]+/)*s%d$`} {
		patterns := make([]string, n)
		for i := range patterns {
			patterns[i] = fmt.Sprintf(shape, i)
		}
		x := indexOf(t, patterns)
		for i, at := range x.grouped {
			if at.bit == 0 {
				t.Fatalf("%s is matched by itself", patterns[i])
			}
		}
		if most := n / maxTogether * 3 / 2; len(x.groups) > most {
			t.Errorf("%d patterns such as %s take %d passes, want at most %d", n, shape, len(x.groups), most)
		}
	}
}

// Patterns that cannot be matched together do not keep others from it, nor a file from being loaded: each of these
// may be half found beside each other one.
func TestPatternsThatDoNotGoTogether(t *testing.T) {
	var patterns []string
	for i := range 1200 {
		if i < 200 {
			patterns = append(patterns, fmt.Sprintf(`^.*/s%d/.*/x$`, i))
		} else {
			patterns = append(patterns, fmt.Sprintf(`/s%d/[0-9]+`, i), fmt.Sprintf(`\bs%d\b`, i))
		}
	}
	x := indexOf(t, patterns)
	if len(x.groups) < 10 || len(x.groups) > 40 {
		t.Errorf("there are %d groups", len(x.groups))
	}
	for i, p := range x.patterns {
		if i < 200 && p.auto() == nil {
			t.Errorf("%s has no automaton", p)
		}
	}
	for _, path := range []string{"/s7/y/x", "/s7/s8/s9/x", "/s300/7", "/s300", "/", "/s300/7/s301/8/s7/x"} {
		if got, want := fmt.Sprint(x.match(path, nil)), fmt.Sprint(naive(t, patterns, path)); got != want {
			t.Errorf("%s: rules %s, want %s", path, got, want)
		}
	}
}
