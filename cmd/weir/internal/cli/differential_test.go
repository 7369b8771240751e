package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/cmd/weir/internal/replay"
	"github.com/weirlimit/weir/limiter"
)

// realLog returns the name of a real access log, which is next to the repository and
// not in it. If it is missing the test is skipped with a message.
func realLog(t *testing.T) string {
	t.Helper()
	shared := filepath.Join("..", "..", "..", "..", "..", "shared")
	log := filepath.Join(shared, "data", "access-combined.log")
	_, err := os.Stat(log)
	if err == nil {
		return log
	}
	if _, noShared := os.Stat(shared); noShared == nil && os.Getenv("CI") == "true" {
		t.Fatalf("the real access log is missing: %v", err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	t.Logf("NOT TESTED on real input: there is no %s", log)
	t.Skip("the real access log is absent")
	return ""
}

// naiveHit is a line of a log, read by a regular expression and the standard
// library.
type naiveHit struct {
	at               int64 // seconds since the epoch
	ip, method, path string
}

var naiveLine = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^]]+)\] "(\S+) ([^ ?"]*)`)

func naiveHits(t *testing.T, name string) []naiveHit {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer finish(t, f)
	var out []naiveHit
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := naiveLine.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("no hit: %s", lines.Text())
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, naiveHit{at.Unix(), m[1], m[3], m[4]})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(out, func(a, b naiveHit) int { return int(a.at - b.at) })
	return out
}

// naiveRule is a rule written down a second time, in Go. A log's time has whole
// seconds, so seconds are exact.
type naiveRule struct {
	matches func(h naiveHit) bool
	key     func(h naiveHit) string
	limits  []naiveLimit
	charged map[string][]int64
}

type naiveLimit struct {
	most    int
	seconds int64
}

// counts reports whether a hit at `then` counts against the limit at now.
type counts func(l naiveLimit, then, now int64) bool

func fixedWindow(l naiveLimit, then, now int64) bool { return then/l.seconds == now/l.seconds }
func slidingLog(l naiveLimit, then, now int64) bool  { return then > now-l.seconds }

// decide returns the answer of each limit of the rule that matches, and charges
// the hit if all allow it.
func decide(rules []naiveRule, h naiveHit, counted counts) (out []bool) {
	for _, r := range rules {
		if !r.matches(h) {
			continue
		}
		key, all := r.key(h), true
		for _, l := range r.limits {
			n := 0
			for _, then := range r.charged[key] {
				if counted(l, then, h.at) {
					n++
				}
			}
			out = append(out, n < l.most)
			all = all && n < l.most
		}
		if all {
			r.charged[key] = append(r.charged[key], h.at)
		}
		return out
	}
	return nil
}

// naiveCase is a rules file, with ALGORITHM for the algorithm, and its twin.
type naiveCase struct {
	yaml  string
	rules []naiveRule
}

func naiveCases() map[string]naiveCase {
	byIP := func(h naiveHit) string { return h.ip }
	byPathAndIP := func(h naiveHit) string { return h.path + " " + h.ip } // nobody has a user
	byMethod := func(h naiveHit) string { return h.method }
	images := func(h naiveHit) bool {
		return strings.HasPrefix(h.path, "/images/") || strings.HasPrefix(h.path, "/presentations/")
	}
	return map[string]naiveCase{
		"per address, two rules": {`
rules:
  - {name: images, match: {path: "^/(images|presentations)/"}, key: [ip], limits: [4/minute, 12/2h]}
  - {name: rest, match: {path: "^/", method: [GET]}, key: [ip], limits: [2/minute, 6/4h, 9/day]}
`, []naiveRule{
			{images, byIP, []naiveLimit{{4, 60}, {12, 7200}}, map[string][]int64{}},
			{func(h naiveHit) bool {
				return h.method == "GET"
			}, byIP, []naiveLimit{{2, 60}, {6, 4 * 3600}, {9, 86400}}, map[string][]int64{}},
		}},
		"per path and caller": {`
rules:
  - {name: all, match: {path: "^/"}, limits: [1/hour, 2/day]}
`, []naiveRule{
			{func(naiveHit) bool { return true }, byPathAndIP, []naiveLimit{{1, 3600}, {2, 86400}}, map[string][]int64{}},
		}},
		"one counter for many": {`
rules:
  - {name: blog, match: {path: "^/blog/"}, key: [rule, method], limits: [{limit: 9, window: 15m}, 20/hour]}
  - {name: all, match: {path: "/"}, key: [method], limits: [1/second, {limit: 60, window: 90m}]}
`, []naiveRule{
			{func(h naiveHit) bool {
				return strings.HasPrefix(h.path, "/blog/")
			}, byMethod, []naiveLimit{{9, 900}, {20, 3600}}, map[string][]int64{}},
			{func(naiveHit) bool { return true }, byMethod, []naiveLimit{{1, 1}, {60, 5400}}, map[string][]int64{}},
		}},
	}
}

// Every single decision of a replay of a real log equals one that is computed
// in another way, and the report counts just these.
func TestReplayAgainstNaive(t *testing.T) {
	log := realLog(t)
	hits := naiveHits(t, log)
	for algorithm, counted := range map[string]counts{"fixed_window": fixedWindow, "sliding_log": slidingLog} {
		for name, c := range naiveCases() {
			t.Run(algorithm+", "+name, func(t *testing.T) {
				yaml := "version: 1\ndefaults: {algorithm: " + algorithm + "}" + c.yaml
				againstNaive(t, log, yaml, hits, func(h naiveHit) []bool { return decide(c.rules, h, counted) })
			})
		}
	}
}

func againstNaive(t *testing.T, log, yaml string, hits []naiveHit, naive func(naiveHit) []bool) {
	t.Helper()
	i, denied, lone := 0, 0, 0
	result := replayWith(t, log, yaml, func(at limiter.Tick, r *limiter.Request, d *limiter.Decision, refusal error) {
		h := hits[i]
		i++
		if at != limiter.Tick(h.at)*limiter.Second || r.Path != h.path || r.IP != h.ip || r.Method != h.method {
			t.Fatalf("request %d is %+v, want %+v", i, r, h)
		}
		want := naive(h)
		if refusal != nil {
			t.Fatalf("request %d, %+v: refused with %v", i, h, refusal)
		}
		all := true
		if len(want) != d.Len() {
			t.Fatalf("request %d, %s: %d limits, want %d", i, r.Path, d.Len(), len(want))
		}
		for j, ok := range want {
			all = all && ok
			if d.Limit(j).Allowed != ok {
				t.Fatalf("request %d, %s at %v: limit %d says %v, want %v", i, r.Path, at.Time(), j, d.Limit(j).Allowed, ok)
			}
			if !ok {
				lone++
			}
		}
		if d.Allowed != all {
			t.Fatalf("request %d, %s at %v: allowed %v, want %v", i, r.Path, at.Time(), d.Allowed, all)
		}
		if !all {
			denied++
		}
	})
	if i != len(hits) {
		t.Fatalf("%d decisions for %d lines", i, len(hits))
	}
	if n := len(hits); denied < n/10 || denied > n*9/10 {
		t.Errorf("%d of %d denied: the rules should deny 10 to 90 %%", denied, n)
	}
	if result.Requests != i || result.Denied != denied || result.Allowed != i-denied || result.Refused != 0 {
		t.Errorf("the report says %d requests, %d denied, %d refused; want %d, %d, none",
			result.Requests, result.Denied, result.Refused, i, denied)
	}
	byLimit, byKey := 0, 0
	for _, r := range result.Rules {
		for _, l := range r.Limits {
			byLimit += l.Denied
		}
	}
	for _, k := range result.Top(i) {
		byKey += k.Denied
	}
	if byLimit != lone || byKey != lone {
		t.Errorf("the limits denied %d and the keys %d in the report, want %d", byLimit, byKey, lone)
	}
	t.Logf("%d decisions agree, %d denied", i, denied)
}

// replayWith replays a log as the command does, and shows every decision.
func replayWith(t *testing.T, log, yaml string, seen func(limiter.Tick, *limiter.Request, *limiter.Decision,
	error)) *replay.Result {
	t.Helper()
	a := &app{Streams{Err: t.Output()}}
	files, err := a.loadRules([]string{file(t, "rules.yaml", yaml)})
	if err != nil {
		t.Fatal(err)
	}
	src, err := accesslog.Open(log, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer finish(t, src)
	trace := accesslog.NewTrace(accesslog.MaxTraceLines, math.MaxInt64)
	if _, err := trace.Read(src, nil); err != nil {
		t.Fatal(err)
	}
	run, node, err := newRun(t.Context(), files[0], trace)
	if err != nil {
		t.Fatal(err)
	}
	defer finish(t, node)
	run.Seen = seen
	result, err := run.Do(t.Context(), trace)
	if err != nil {
		t.Fatal(fmt.Errorf("replaying: %w", err))
	}
	return result
}

// finish closes what a test has opened.
func finish(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
