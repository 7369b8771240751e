package rules

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

func parseTree(tb testing.TB, text string) *syntax.Regexp {
	tb.Helper()
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		tb.Fatal(err)
	}
	return tree.Simplify()
}

// Stripping and trimming make another pattern that matches the same paths.
func TestTrimmingChangesNoMatch(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	rnd := rand.New(rand.NewPCG(11, 12))
	shorter := 0
	for range 3000 {
		text := randomPattern(rnd)
		tree := strip(parseTree(t, text))
		before := regexp.MustCompile(text)
		for name, trimmed := range map[string]*syntax.Regexp{"strip": tree, "tail": trimTail(tree), "head": trimHead(tree),
			"both": trimHead(trimTail(tree))} {
			after, err := regexp.Compile(trimmed.String())
			if err != nil {
				t.Fatalf("%s of %q: %v", name, text, err)
			}
			if len(trimmed.String()) < len(tree.String()) {
				shorter++
			}
			for range 10 {
				if path := randomPath(rnd); before.MatchString(path) != after.MatchString(path) {
					t.Fatalf("%s of %q is %q: they differ on %q", name, text, trimmed, path)
				}
			}
		}
	}
	if shorter < 100 {
		t.Errorf("only %d patterns became shorter", shorter)
	}
}

func TestTrim(t *testing.T) {
	for _, test := range []struct{ pattern, want string }{
		{`^/a.*`, `^/a`}, {`^/a(.*)?`, `^/a`}, {`^/a[b]*c?`, `^/a`}, {`^/ab+`, `^/ab`}, {`^/a(bc+)+`, `^/abc`}, {`.*a`, `a`},
		{`(a|b)?c+d*`, `c`},
		{`^/a.*$`, `^/a.*$`}, {`a*b*c*`, ``}, {`^(/ax.*|/by.*)`, `^(/ax|/by)`}, {`a+^`, `a^`}, {`x*^/a`, `^/a`},
		{`((((a))))`, `a`}, {``, ``},
	} {
		got := trimHead(trimTail(strip(parseTree(t, test.pattern))))
		if want := strip(parseTree(t, test.want)); got.String() != want.String() && test.want != "" ||
			test.want == "" && len(sequence(got)) != 0 {
			t.Errorf("%s becomes %s, want %s", test.pattern, got, want)
		}
	}
}

func TestAnchored(t *testing.T) {
	for pattern, want := range map[string]bool{
		`^a`: true, `\Aa`: true, `^`: true, `(^a)`: true, `(^a)+b`: true, `^a|^b`: true, `(^a|^b)c`: true, `^+a`: true,
		`a`: false, `a^`: false, `^a|b`: false, `(?m)^a`: false, `(^a)*b`: false, `(^a)?b`: false, `$`: false, ``: false,
		`\b^a`: false,
	} {
		if got := anchored(strip(parseTree(t, pattern))); got != want {
			t.Errorf("%s: %t, want %t", pattern, got, want)
		}
	}
}

func TestRequired(t *testing.T) {
	for pattern, want := range map[string]string{
		`^/a/[0-9]+/export$`: "/export", `[0-9]`: "", `x[0-9]long[0-9]y`: "long", `[0-9](?:ab)+[0-9]`: "ab",
		`[0-9](?:ab)*[0-9]`: "",
		`[0-9](ab|cd)[0-9]`: "", `(?i)[0-9]ab`: "", `(?i)[0-9]/-/`: "/-/", `[0-9]\x{fffd}a`: "", `[0-9]é`: "é",
	} {
		p, _, err := newPattern(pattern)
		if err != nil || p.need != want {
			t.Errorf("%s: needs %q, want %q (%v)", pattern, p.need, want, err)
		}
	}
}

func TestExpand(t *testing.T) {
	for _, test := range []struct{ pattern, want string }{
		{`^/a`, `/a…`},
		{`^/a$`, `/a`},
		{`^/a\z`, `/a`},
		{`^$`, ``},
		{`^(/a|/b)(/c|/d)x`, `/a/cx… /a/dx… /b/cx… /b/dx…`},
		{`^/[a-c]x`, `/ax… /bx… /cx…`},
		{`^/[a-z]x`, `/?`},
		{`^/ab?c`, `/abc… /ac…`},
		{`^/ab*c`, `/a?`},
		{`^/ab+c`, `/ab?`},
		{`^/(?:a|$)`, `/ /a…`},
		{`^/(?:a$|b)c`, `/a? /bc…`},
		{`^/a(?i)b`, `/a?`},
		{`^/(?i)-1/b`, `/-1/?`},
		{`^/a{2,3}$`, `/aa /aaa`},
		{`^/\x{fffd}`, `/?`},
		{`^/a\b/`, `/a?`},
		{`^/a^b`, `/a?`},
		{`^^/a`, `/a…`},
		{`^/é[è]`, `/éè…`},
		{`^(a|b|c|d)(a|b|c|d)`, `aa… ab… ac… ad… ba… bb… bc… bd… ca… cb… cc… cd… da… db… dc… dd…`},
		{`^(a|b|c|d)(a|b|c|d)(a|b)`, `aa? ab? ac? ad? ba? bb? bc? bd? ca? cb? cc? cd? da? db? dc? dd?`},
		{`^/(aa|bb|cc|dd|ee|ff|gg|hh|ii|jj|kk|ll|mm|nn|oo|pp|qq)`, `/?`},
	} {
		p, _, err := newPattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range p.begins {
			got = append(got, b.text+[]string{"…", "", "…line", "?"}[b.proves])
		}
		slices.Sort(got)
		if s := strings.Join(slices.Compact(got), " "); s != test.want {
			t.Errorf("%s: beginnings %s, want %s", test.pattern, s, test.want)
		}
	}
}

// However a pattern branches, its beginnings are few.
func TestBeginningsAreBounded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	patterns := []string{`^` + strings.Repeat(`(a|b)`, 100), `^` + strings.Repeat(`a?`, 100) + `$`,
		`^` + strings.Repeat(`(`, 50) + `a` + strings.Repeat(`|b)`, 50)}
	for range 2000 {
		patterns = append(patterns, randomPattern(rnd))
	}
	for _, text := range patterns {
		p, _, err := newPattern(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.begins) > maxBeginnings || (len(p.begins) == 0) == (p.loose == notLoose) {
			t.Errorf("%.60q has %d beginnings and is loose by %d", text, len(p.begins), p.loose)
		}
	}
}

// programSize is at least what a pattern compiles to, so that the bound holds,
// and not so far above that good patterns are refused.
func TestProgramSizeIsABound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	patterns := []string{`a{1000}`, `(a|b){0,100}`, `[a-z]{3,}`, `\pL+`, `(?:a{10}b{10}){9}`,
		`^/api/v[12]/(users|groups)/[^/]+/items$`}
	for range 1000 {
		patterns = append(patterns, randomPattern(rnd))
	}
	for _, text := range patterns {
		tree, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		size := programSize(tree)
		prog, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if real := len(prog.Inst); real > 2*size+4 || size > 3*real+200 {
			t.Errorf("%s: estimated at %d, it has %d instructions", text, size, real)
		}
	}
}

// A tree of beginnings holds every beginning exactly once, where the walk along
// it arrives.
func TestTreeOfBeginnings(t *testing.T) {
	texts := []string{"/", "/a", "/ab", "/abc", "/abd", "/b", "/é", "/è", "", "x", "/abc/def/ghi", "/abc/dxf"}
	list := make([]rule, len(texts))
	for i, text := range texts {
		list[i] = rule{more: true, match: matcher{path: &pattern{begins: []beginning{{text, provesMatch}}}}}
	}
	x := newIndex(list)
	count := 0
	for _, n := range x.nodes {
		count += len(n.here)
		if !slices.IsSorted([]byte(n.next)) {
			t.Errorf("children %q are not in order", n.next)
		}
	}
	if count != len(texts) {
		t.Errorf("%d beginnings in the tree, want %d", count, len(texts))
	}
	for _, path := range append(texts, "/abc/def/ghi/jkl", "/abcd", "/c", "y", "/\xc3") {
		var want []uint16
		for i, text := range texts {
			if strings.HasPrefix(path, text) {
				want = append(want, uint16(i))
			}
		}
		if got := x.match(path, nil); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}
