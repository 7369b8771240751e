package rules_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// patternsOf returns n patterns as a service has them: some are plain
// beginnings, some need their regular expression.
func patternsOf(n int) []string {
	out := make([]string, n)
	for i := range out {
		switch i % 5 {
		case 0:
			out[i] = fmt.Sprintf(`^/api/v1/service%d/`, i)
		case 1:
			out[i] = fmt.Sprintf(`^/api/v1/service%d/[0-9]+$`, i)
		case 2:
			out[i] = fmt.Sprintf(`^/api/v1/(users|groups)%d/[^/]+/items`, i)
		case 3:
			out[i] = fmt.Sprintf(`^/static%d/.*\.(css|js)$`, i)
		case 4:
			out[i] = fmt.Sprintf(`^/api/v2/area%d/[a-z0-9]+/towns`, i)
		}
	}
	return out
}

func fileOf(patterns []string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i, p := range patterns {
		fmt.Fprintf(&b, "- {name: rule%d, match: {path: '%s'}, limits: [5/second]}\n", i, p)
	}
	return b.String()
}

// lastPaths are n different paths that only the last pattern matches, of such a
// length that path and user are 30 bytes together.
func lastPaths(rules, n int) []string {
	out := make([]string, n)
	rnd := rand.New(rand.NewPCG(1, uint64(rules)))
	for i := range out {
		head := fmt.Sprintf("/api/v2/area%d/", rules-1)
		out[i] = head + strconv.FormatUint(1+rnd.Uint64N(9), 36) + strconv.Itoa(i) + "/towns"
		if pad := 30 - len("u00") - len(out[i]); pad > 0 {
			out[i] = strings.Replace(out[i], "/towns", strings.Repeat("x", pad)+"/towns", 1)
		}
	}
	return out
}

func mustSet(tb testing.TB, file string, o rules.Options) *rules.Set {
	tb.Helper()
	s, err := rules.Parse("test.yaml", []byte(file), o)
	if err != nil {
		tb.Fatal(err)
	}
	fitsSchema(tb, file)
	return s
}

func users(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("u%02d", i)
	}
	return out
}

func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{10, 100, 500} {
		patterns := patternsOf(n)
		last := fmt.Sprintf("rule%d", n-1)
		who := users(100)
		b.Run(fmt.Sprintf("cached/rules=%d", n), func(b *testing.B) {
			s := mustSet(b, fileOf(patterns), rules.Options{})
			benchResolve(b, s, lastPaths(n, 1024), who, last)
		})
		b.Run(fmt.Sprintf("fresh/rules=%d", n), func(b *testing.B) {
			s := mustSet(b, fileOf(patterns), rules.Options{PathCacheEntries: -1})
			benchResolve(b, s, lastPaths(n, 1024), who, last)
		})
		b.Run(fmt.Sprintf("naive/rules=%d", n), func(b *testing.B) {
			naive := compile(b, patterns)
			paths := lastPaths(n, 1024)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if got := firstOf(naive, paths[i%len(paths)]); got != n-1 {
					b.Fatalf("rule %d matched", got)
				}
			}
		})
	}
}

// BenchmarkLongPath resolves a path of 8 KB, which no cache keeps, that contains texts of many patterns.
func BenchmarkLongPath(b *testing.B) {
	for _, shape := range []string{`/s%d/[0-9]+/x$`, `^/v1/.*/s%d/[0-9]+$`, `(?i)/S%d/x`, `^.*/s%d/.*/x$`} {
		b.Run(strings.ReplaceAll(shape, "/", "|"), func(b *testing.B) {
			patterns, path := make([]string, 1000), "/v1"
			for i := range patterns {
				if patterns[i] = fmt.Sprintf(shape, i); len(path) < 8000 {
					path += fmt.Sprintf("/s%d/7", i)
				}
			}
			path += "/y"
			s, c := mustSet(b, fileOf(patterns), rules.Options{}), arith.Charge{}
			for b.Loop() {
				if m, err := s.Resolve(&limiter.Request{Path: path}, &c); err != nil || m.Count != 0 {
					b.Fatal(m, err)
				}
			}
		})
	}
}

func benchResolve(b *testing.B, s *rules.Set, paths, who []string, last string) {
	var c arith.Charge
	for range 2 { // at the latest a path is remembered when it is seen again
		for _, p := range paths {
			if m, err := s.Resolve(&limiter.Request{Path: p}, &c); err != nil || m.Rule != last {
				b.Fatal(m, err)
			}
		}
	}
	b.ReportAllocs()
	var r limiter.Request
	for p, u := 0, 0; b.Loop(); p, u = p+1, u+1 {
		if p == len(paths) { // cheaper than a division, which would be measured too
			p = 0
		}
		if u == len(who) {
			u = 0
		}
		r.Path, r.User = paths[p], who[u]
		if m, err := s.Resolve(&r, &c); err != nil || m.Count != 1 || c.Len() != 1 {
			b.Fatal(m, err)
		}
	}
}

func compile(tb testing.TB, patterns []string) []*regexp.Regexp {
	tb.Helper()
	out := make([]*regexp.Regexp, len(patterns))
	for i, p := range patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			tb.Fatal(err)
		}
		out[i] = re
	}
	return out
}

// firstOf is the naive way: each pattern in turn.
func firstOf(patterns []*regexp.Regexp, path string) int {
	for i, re := range patterns {
		if re.MatchString(path) {
			return i
		}
	}
	return -1
}
