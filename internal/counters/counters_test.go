package counters_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/counters"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

const all = `version: 1
quotas:
  - {name: pool, key: [group], limits: [{name: pool, limit: 1000, window: 1h}]}
rules:
  - {name: shut, match: {path: "^/shut"}, key: [user], on_unreachable: closed, limits: [{name: q, limit: 90, window: 1h}]}
  - name: each
    match: {path: "^/each"}
    key: [user]
    quotas: [{quota: pool}]
    limits:
      - {name: f, limit: 90, window: 1h, algorithm: fixed_window}
      - {name: h, limit: 90, window: 1h, algorithm: fixed_window, align: first_hit}
      - {name: c, limit: 90, window: 1h, algorithm: sliding_counter}
      - {name: l, limit: 90, window: 1h, algorithm: sliding_log}
      - {name: w, limit: 90, window: 1h, algorithm: sliding_window}
      - {name: t, limit: 90, window: 1h, algorithm: token_bucket}
      - {name: k, limit: 90, window: 1h, algorithm: leaky_bucket}
      - {name: g, limit: 90, window: 1h, algorithm: gcra}
  - {name: twin-a, match: {path: "^/ta"}, key: [user], limits: [{name: twin, limit: 5, window: 1h}]}
  - {name: twin-b, match: {path: "^/tb"}, key: [user], limits: [{name: twin, limit: 5, window: 1h}]}
`

func set(t testing.TB) *rules.Set {
	t.Helper()
	s, err := rules.Parse("rules.yaml", []byte(strings.ReplaceAll(all, "quotas: [{quota: pool}]", "")), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// node is a table and its rules at an instant.
type node struct {
	*table.Table
	set *rules.Set
	now limiter.Tick
}

func (n *node) charge(t testing.TB, path, user string, cost uint64) {
	t.Helper()
	var c arith.Charge
	r := limiter.Request{Path: path, User: user, Cost: limiter.Units(int64(cost))}
	if _, err := n.set.Resolve(&r, &c); err != nil {
		t.Fatal(err)
	}
	var d limiter.Decision
	if err := n.Decide(n.now, &c, &d); err != nil {
		t.Fatal(err)
	}
}

// peek returns what is left of each limit.
func (n *node) peek(t testing.TB, path, user string) (left []uint64) {
	t.Helper()
	var c arith.Charge
	r := limiter.Request{Path: path, User: user}
	if _, err := n.set.Resolve(&r, &c); err != nil {
		t.Fatal(err)
	}
	c.Peek = true
	var d limiter.Decision
	if err := n.Decide(n.now, &c, &d); err != nil {
		t.Fatal(err)
	}
	for i := range d.Len() {
		left = append(left, d.Limit(i).Remaining)
	}
	return left
}

func (n *node) export(t testing.TB) (lines [][]byte) {
	t.Helper()
	x := counters.NewExporter(counters.NewNamer(n.set))
	for part := range 2 * table.Partitions {
		n.Export(part, n.now, func(e table.Entry) {
			l, ok := x.Line(part, &e, n.now, "")
			b, err := json.Marshal(&l)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			lines = append(lines, b)
		})
	}
	return lines
}

func (n *node) load(t testing.TB, lines [][]byte, replace bool) (did map[engine.Imported]int) {
	t.Helper()
	in := counters.NewImporter(counters.NewNamer(n.set))
	did = map[engine.Imported]int{}
	for _, b := range lines {
		c, err := in.Read(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		what, _, err := engine.ImportInto(n.Table, n.now, c.Part, c.Of, replace, false)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		did[what]++
	}
	return did
}

const start = 1_800_000_000 * limiter.Second

// What is exported and imported, at once or later, says what the counters say.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 9))
		a := &node{table.New(table.Config{}), set(t), start}
		for range 300 {
			user := string(rune('a' + rng.IntN(8)))
			a.charge(t, []string{"/each", "/shut"}[rng.IntN(2)], user, uint64(1+rng.IntN(5)))
			a.now += limiter.Tick(rng.Int64N(int64(20 * limiter.Second)))
		}
		lines := a.export(t)
		b := &node{table.New(table.Config{}), a.set, a.now}
		late := limiter.Tick(rng.Int64N(int64(90 * limiter.Minute)))
		a.now, b.now = a.now+late, b.now+late
		if did := b.load(t, lines, seed%2 == 0); did[engine.ImportedMerged]+did[engine.ImportedReplaced] > 0 {
			t.Errorf("seed %d: %v", seed, did)
		}
		for u := range 8 {
			for _, path := range []string{"/each", "/shut"} {
				want, got := a.peek(t, path, string(rune('a'+u))), b.peek(t, path, string(rune('a'+u)))
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("seed %d, %s of %c, %v later: limit %d has %d left, want %d", seed, path, 'a'+u, late.Duration(), i,
							got[i], want[i])
					}
				}
			}
		}
	}
}

// An import lowers nothing, unless it is to replace.
func TestMergeAndReplace(t *testing.T) {
	a := &node{table.New(table.Config{}), set(t), start}
	a.charge(t, "/shut", "ada", 10)
	lines := a.export(t)
	a.charge(t, "/shut", "ada", 20)
	if did := a.load(t, lines, false); did[engine.ImportedMerged] != 1 || a.peek(t, "/shut", "ada")[0] > 60 {
		t.Errorf("merged: %v, %v are left", did, a.peek(t, "/shut", "ada"))
	}
	if did := a.load(t, lines, true); did[engine.ImportedReplaced] != 1 || a.peek(t, "/shut", "ada")[0] != 80 {
		t.Errorf("replaced: %v, %v are left", did, a.peek(t, "/shut", "ada"))
	}
	a.now += 3 * limiter.Hour
	if did := a.load(t, lines, true); did[engine.ImportedNothing] != 1 {
		t.Errorf("what has ended: %v", did)
	}
}

// A counter of another window is not merged into the one that is there, which would end with it. It may replace it.
func TestAnotherWindowIsNotMerged(t *testing.T) {
	rulesOf := func(limit string) *rules.Set {
		text := "version: 1\nrules: [{name: r, key: [user], limits: [" + limit + "]}]"
		s, err := rules.Parse("rules", []byte(text), rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := &node{table.New(table.Config{}), rulesOf("{name: l, limit: 1000, window: 1h}"), start}
	a.charge(t, "/x", "ada", 10)
	lines := a.export(t)
	b := &node{table.New(table.Config{}), rulesOf("{name: l, limit: 1000, window: 720h}"), start}
	b.charge(t, "/x", "ada", 900)
	c, err := counters.NewImporter(counters.NewNamer(b.set)).Read(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = engine.ImportInto(b.Table, b.now, c.Part, c.Of, false, false)
	if !errors.Is(err, limiter.ErrInvalid) || b.peek(t, "/x", "ada")[0] != 100 {
		t.Errorf("%v: %v are left of 1000", err, b.peek(t, "/x", "ada"))
	}
	if did := b.load(t, lines, true); did[engine.ImportedReplaced] != 1 {
		t.Errorf("replaced: %v", did)
	}
}

// The counter of a user whose plan has a number of its own is of its rule.
func TestLinesOfPlans(t *testing.T) {
	s, err := rules.Parse("rules", []byte(`version: 1
rules:
  - {name: r, key: [user], limits: [{limit: {by: "attr:plan", of: {pro: 1000/minute}, else: 10/minute}}]}
  - {name: other, key: [user], limits: [10/hour]}`), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := counters.NewNamer(s)
	pro, ok := s.Rule("r").In("pro")
	if got := n.Rules(pro.Limits[0], false); !ok || !slices.Equal(got, []string{"r"}) {
		t.Errorf("the limit of a plan is of %v", got)
	}
	if got := n.Rules(s.Rule("other").Limits[0], false); !slices.Equal(got, []string{"other"}) {
		t.Errorf("the limit of another rule is of %v", got)
	}
}

// A line says which rules it can be of, and how much is used.
func TestLines(t *testing.T) {
	a := &node{table.New(table.Config{}), set(t), start}
	a.charge(t, "/shut", "ada", 10)
	a.charge(t, "/ta", "ada", 1)
	for _, b := range a.export(t) {
		var l counters.Line
		if err := json.Unmarshal(b, &l); err != nil {
			t.Fatal(err)
		}
		switch {
		case l.Closed:
			if len(l.Rules) != 1 || l.Rules[0] != "shut" || l.Used != 10 || l.Remaining != 80 ||
				!l.At.Equal(start.Time()) || !l.Full.After(l.At) {
				t.Errorf("%s", b)
			}
		case len(l.Rules) != 2 || l.Used != 1 || l.Remaining != 4:
			t.Errorf("%s", b)
		}
	}
}

// The line of a quota has all that is left, whichever part the draw may use that asked last, and can be imported.
func TestLinesOfParts(t *testing.T) {
	s, err := rules.Parse("rules", []byte(`version: 1
quotas: [{name: units, key: [user], limits: [{limit: 100, window: 1h, algorithm: fixed_window}]}]
rules:
  - {name: batch, match: {path: ^/batch}, quotas: [{name: units, up_to: 50%}]}
  - {name: all, quotas: [units]}`), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &node{table.New(table.Config{}), s, start}
	a.charge(t, "/all", "ada", 30)
	a.charge(t, "/batch", "ada", 10)
	lines := a.export(t)
	var l counters.Line
	if err := json.Unmarshal(lines[0], &l); err != nil || len(lines) != 1 {
		t.Fatalf("%v, %d lines", err, len(lines))
	}
	if !slices.Equal(l.Rules, []string{"units"}) || l.Used != 40 || l.Remaining != 60 {
		t.Errorf("%s", lines[0])
	}
	b := &node{table.New(table.Config{}), s, start}
	b.load(t, lines, true)
	if left := slices.Concat(b.peek(t, "/all", "ada"), b.peek(t, "/batch", "ada")); !slices.Equal(left, []uint64{60, 10}) {
		t.Errorf("%v are left of what was imported", left)
	}
}

// A rule that has become closed since counts in other partitions.
func TestTheClassOfNow(t *testing.T) {
	a := &node{table.New(table.Config{}), set(t), start}
	a.charge(t, "/each", "ada", 10)
	lines := a.export(t)
	closed, err := rules.Parse("rules.yaml", []byte(strings.Replace(strings.ReplaceAll(all, "quotas: [{quota: pool}]", ""),
		"  - name: each\n", "  - name: each\n    on_unreachable: closed\n", 1)), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &node{table.New(table.Config{}), closed, start}
	b.load(t, lines, false)
	if got := b.peek(t, "/each", "ada"); got[0] != 80 {
		t.Errorf("%v are left", got)
	}
}

// Lines that cannot be are refused with the reason.
func TestBadLines(t *testing.T) {
	a := &node{table.New(table.Config{}), set(t), start}
	a.charge(t, "/shut", "ada", 10)
	a.charge(t, "/shut", "bob", 10)
	lines := a.export(t)
	var one, two counters.Line
	if err := errors.Join(json.Unmarshal(lines[0], &one), json.Unmarshal(lines[1], &two)); err != nil {
		t.Fatal(err)
	}
	in := counters.NewImporter(counters.NewNamer(a.set))
	for says, change := range map[string]func(l *counters.Line){
		"its key is not":       func(l *counters.Line) { l.Key = "ab" },
		"of another key":       func(l *counters.Line) { l.Key = two.Key },
		"its state cannot be ": func(l *counters.Line) { l.State = l.State[:10] },
		"cannot be read":       func(l *counters.Line) { l.State = nil },
	} {
		l := one
		change(&l)
		b, _ := json.Marshal(l)
		if _, err := in.Read(b); !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	if _, err := in.Read([]byte(`[1]`)); !errors.Is(err, limiter.ErrInvalid) {
		t.Error(err)
	}
}

// Whatever a line says, reading it and importing it ends without a panic.
func FuzzRead(f *testing.F) {
	a := &node{table.New(table.Config{}), set(f), start}
	for _, path := range []string{"/each", "/shut", "/ta"} {
		a.charge(f, path, "ada", 3)
	}
	for _, l := range a.export(f) {
		f.Add(l, int64(time.Hour))
	}
	f.Fuzz(func(_ *testing.T, b []byte, later int64) {
		in := counters.NewImporter(counters.NewNamer(a.set))
		c, err := in.Read(b)
		if err != nil {
			return
		}
		x := table.New(table.Config{MaxKeys: 100})
		_, _, _ = engine.ImportInto(x, start+limiter.Tick(later>>12), c.Part, c.Of, false, false)
	})
}

// A line of the longest log, of a limit that many rules have, is one that an import takes, and says what the log says.
func TestTheLongestLine(t *testing.T) {
	text := "version: 1\nrules:\n"
	for i := range 300 {
		text += fmt.Sprintf("  - {name: %s-%d, match: {path: ^/%d$}, key: [user], limits: "+
			"[{name: l, limit: 1000000, window: 1h, algorithm: sliding_log}]}\n", strings.Repeat("x", 60), i, i)
	}
	all, err := rules.Parse("rules.yaml", []byte(text), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &node{table.New(table.Config{MaxBytes: 1 << 30}), all, start}
	for range 60_000 {
		a.charge(t, "/7", "ada", 5)
		a.now += 50 * limiter.Millisecond
	}
	lines := a.export(t)
	if len(lines) != 1 || len(lines[0]) > counters.MaxLine || len(lines[0]) < counters.MaxLine/4 {
		t.Fatalf("%d lines, of %d bytes", len(lines), len(lines[0]))
	}
	b := &node{table.New(table.Config{MaxBytes: 1 << 30}), all, a.now}
	if did := b.load(t, lines, false); did[engine.ImportedAdded] != 1 {
		t.Fatalf("it was %v", did)
	}
	if have, want := b.peek(t, "/7", "ada"), a.peek(t, "/7", "ada"); !slices.Equal(have, want) || want[0] != 700_000 {
		t.Errorf("%v are left, and were %v", have, want)
	}
}
