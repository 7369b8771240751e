package replay

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// script is a decider that does what each path says: a list of results such as
// "towns/minute+" (allows) and "towns/minute-" (denies), separated by commas; the same
// limit twice means two keys. "free" names a rule without limits, "" means no rule,
// "long" a request that is refused, "down" a failure.
type script struct {
	rules map[string]*limiter.Rule
	now   limiter.Tick
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{rules: map[string]*limiter.Rule{}}
	for _, rule := range outline() {
		r := &limiter.Rule{Name: rule.Name, Shadow: rule.Shadow}
		for _, l := range rule.Limits {
			limit := limitertest.Limit(t, limiter.Spec{Name: l.Name, Limit: 1, Window: time.Minute})
			r.Limits = append(r.Limits, limit)
		}
		s.rules[rule.Name] = r
	}
	return s
}

// outline is the rules of the script, with nothing counted.
func outline() []RuleResult {
	return []RuleResult{
		{Name: "towns", Limits: []LimitResult{{Name: "second"}, {Name: "minute"}}},
		{Name: "trial", Shadow: true, Limits: []LimitResult{{Name: "hour"}}},
		{Name: "free"},
		{Name: "idle", Limits: []LimitResult{{Name: "day"}}},
	}
}

func (s *script) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	d.Clear()
	switch r.Path {
	case "":
		return nil
	case "free":
		d.Rule = "free"
		return nil
	case "long":
		return fmt.Errorf("%w: the key is too long", limiter.ErrInvalid)
	case "down":
		return errors.New("the decider is down")
	}
	answers := strings.Split(r.Path, ",")
	d.Grow(len(answers))
	keys := map[string]int{}
	for i, a := range answers {
		rule, limit, _ := strings.Cut(strings.TrimRight(a, "+-"), "/")
		l := limiter.LimitDecision{Rule: s.rules[rule], Allowed: strings.HasSuffix(a, "+"), Key: keys[limit]}
		keys[limit]++
		for _, candidate := range l.Rule.Limits {
			if candidate.Name() == limit {
				l.Limit = candidate
			}
		}
		*d.Limit(i) = l
		if d.Rule == "" || d.Allowed && !l.Allowed && !l.Rule.Shadow {
			d.Rule = rule
		}
		d.Allowed = d.Allowed && (l.Allowed || l.Rule.Shadow)
		d.ShadowDenied = d.ShadowDenied || !l.Allowed && l.Rule.Shadow
	}
	return nil
}

// keys yields a key for each rule in a path, and number among its keys, of each host.
func (s *script) keys(r *limiter.Request, _ *limiter.Decision, c *arith.Charge) (string, error) {
	c.Clear()
	matched, _, _ := strings.Cut(strings.TrimRight(r.Path, "+-"), "/")
	n, index := map[string]uint64{}, map[string]uint64{}
	for i, rule := range outline() {
		index[rule.Name] = uint64(i)
	}
	for _, a := range strings.Split(r.Path, ",") {
		rule, limit, ok := strings.Cut(strings.TrimRight(a, "+-"), "/")
		if first := s.rules[rule]; !ok || limit != first.Limits[0].Name() {
			continue
		}
		c.Add(arith.Key{Hash: arith.Hash{Hi: index[rule]<<8 | n[rule], Lo: uint64(crc32.ChecksumIEEE([]byte(r.IP)))},
			Rule: s.rules[rule]})
		n[rule]++
	}
	return matched, nil
}

// run is how the script is replayed.
func (s *script) run() Run {
	return Run{
		Rules: outline(), Decider: s, SetTime: func(at limiter.Tick) { s.now = at },
		Keys: s.keys, Held: func() int64 { return 0 }, MaxBytes: math.MaxInt64,
	}
}

func (s *script) KeyName(r *limiter.Request, l *limiter.LimitDecision) string {
	return fmt.Sprintf("%s%s:%s", r.IP, strings.Repeat("'", l.Key), l.Limit.Name())
}

// step is one request: who asks, what is answered, and when.
type step struct {
	second int
	host   string
	answer string
}

func traceOf(t *testing.T, steps []step) *accesslog.Trace {
	t.Helper()
	trace := accesslog.NewTrace(len(steps), math.MaxInt64)
	for _, s := range steps {
		e := accesslog.Entry{
			Time: limiter.TickOf(time.Date(2015, 5, 17, 10, 0, s.second, 0, time.UTC)),
			Host: []byte(s.host), Method: []byte("GET"), Path: []byte(s.answer),
		}
		if !trace.Add(e) {
			t.Fatal("the trace is full")
		}
	}
	return trace
}

func replayed(t *testing.T, steps []step, file string) *Result {
	t.Helper()
	s := newScript(t)
	run := s.run()
	run.RulesFile, run.Compare = file, true
	out, err := run.Do(t.Context(), traceOf(t, steps))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// story has one request of each kind.
func story() []step {
	return []step{
		{0, "ada", "towns/second+,towns/minute+"},
		{1, "ada", "towns/second-,towns/minute+"},
		{2, "ada", "towns/second-,towns/minute-"},
		{2, "bob", "towns/second+,towns/minute-"},
		{3, "bob", ""},
		{4, "bob", "free"},
		{5, "bob", "trial/hour+"},
		{6, "bob", "trial/hour-"},
		{7, "bob", "towns/second+,towns/minute+,trial/hour-"},
		{8, "eve", "long"},
		// Two keys of one rule: one request, one denial, whichever denies.
		{9, "eve", "towns/second+,towns/minute+,towns/second-,towns/minute+"},
		{9, "eve", "towns/second-,towns/minute+,towns/second-,towns/minute+"},
	}
}

func TestTally(t *testing.T) {
	got := replayed(t, story(), "rules.yaml")
	want := &Result{
		RulesFile: "rules.yaml", Requests: 11, Allowed: 6, Denied: 5, Unmatched: 1,
		HasShadow: true, ShadowDenied: 2, Refused: 1,
		Rules: []RuleResult{
			{Name: "towns", Allowed: 2, Denied: 5, Keys: 4, Limits: []LimitResult{
				{Name: "second", Allowed: 3, Denied: 4}, {Name: "minute", Allowed: 5, Denied: 2},
			}},
			{Name: "trial", Shadow: true, Allowed: 3, ShadowDenied: 2, Keys: 1, Limits: []LimitResult{
				{Name: "hour", Allowed: 1, ShadowDenied: 2},
			}},
			{Name: "free", Allowed: 1},
			{Name: "idle", Limits: []LimitResult{{Name: "day"}}},
		},
		Series: []Slot{{1, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {0, 0}, {0, 2}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Result{}),
		cmpopts.IgnoreFields(Result{}, "FirstRefusal", "First", "Last", "SeriesStart", "SlotLength", "Bytes")); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(got.FirstRefusal, limiter.ErrInvalid) {
		t.Errorf("first refusal: %v", got.FirstRefusal)
	}
}

func TestTop(t *testing.T) {
	r := replayed(t, story(), "")
	want := []KeyCount{
		{"towns", "ada:second", 2}, {"towns", "eve':second", 2},
		{"towns", "ada:minute", 1}, {"towns", "bob:minute", 1}, {"towns", "eve:second", 1},
	}
	if diff := cmp.Diff(want, r.Top(10)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[:2], r.Top(2)); diff != "" {
		t.Error(diff)
	}
	if got := r.Top(0); len(got) != 0 {
		t.Errorf("the first none: %v", got)
	}
}

// Counters of other rules stay apart, even where their names are the same.
func TestTopTellsCountersApart(t *testing.T) {
	r := &Result{Rules: outline()}
	tally := newTally(r)
	s := newScript(t)
	var d limiter.Decision
	for range 2 {
		if err := s.CheckInto(t.Context(), &limiter.Request{Path: "towns/second-,idle/day-"}, &d); err != nil {
			t.Fatal(err)
		}
		tally.add(&d, func(*limiter.LimitDecision) string { return "same" })
	}
	want := []KeyCount{{"idle", "same", 2}, {"towns", "same", 2}}
	if diff := cmp.Diff(want, r.Top(10)); diff != "" {
		t.Error(diff)
	}
}

func TestRunDrivesTheClockAndReports(t *testing.T) {
	s := newScript(t)
	var seen, ticks, refused int
	run := s.run()
	run.Tick = func(int) { ticks++ }
	run.Seen = func(at limiter.Tick, r *limiter.Request, _ *limiter.Decision, refusal error) {
		if refusal != nil {
			refused++
		}
		if seen++; at != s.now || r.IP == "" {
			t.Errorf("request %d at %d, the clock says %d", seen, at, s.now)
		}
	}
	steps := []step{{9, "b", "free"}, {3, "a", "free"}, {4, "a", "long"}}
	out, err := run.Do(t.Context(), traceOf(t, steps))
	if err != nil || seen != 3 || refused != 1 || ticks == 0 {
		t.Fatalf("%d seen, %d refused, %d ticks, %v", seen, refused, ticks, err)
	}
	if got := out.Last - out.First; got != 6*limiter.Second || s.now != out.Last {
		t.Errorf("span %v, clock %v", got.Duration(), s.now.Time())
	}
}

func TestRunEndsWhenTheDeciderFails(t *testing.T) {
	s := newScript(t)
	run := s.run()
	_, err := run.Do(t.Context(), traceOf(t, []step{{1, "a", "free"}, {2, "a", "down"}}))
	if err == nil || !strings.Contains(err.Error(), "request 2 of 2") {
		t.Errorf("error %v", err)
	}
}

// The memory of a replay is bounded in bytes: of what the decider holds, of keys, of
// the names of keys that denied, and of verdicts.
func TestRunEndsAtTheBoundOfMemory(t *testing.T) {
	var steps []step
	for i := range 3 * lookEvery {
		steps = append(steps, step{0, string(rune('a' + i%26)), "towns/second-"})
	}
	do := func(most int64, change func(*Run)) (*Result, error) {
		s := newScript(t)
		run := s.run()
		run.MaxBytes = most
		change(&run)
		return run.Do(t.Context(), traceOf(t, steps))
	}
	all, err := do(math.MaxInt64, func(*Run) {})
	if err != nil || all.Bytes < 26*(keyBytes+deniedBytes) || all.Bytes > 26*(keyBytes+deniedBytes+100) {
		t.Fatalf("%v; 26 keys, all of which deny, take %d bytes", err, all.Bytes)
	}
	for name, row := range map[string]struct {
		most   int64
		change func(*Run)
		ends   bool
	}{
		"just enough":         {all.Bytes, func(*Run) {}, false},
		"a byte too few":      {all.Bytes - 1, func(*Run) {}, true},
		"verdicts":            {all.Bytes + int64(len(steps)) - 1, func(r *Run) { r.Compare = true }, true},
		"enough for verdicts": {all.Bytes + int64(len(steps)), func(r *Run) { r.Compare = true }, false},
		"the decider's":       {all.Bytes + 99, func(r *Run) { r.Held = func() int64 { return 100 } }, true},
		"only keys": {all.Bytes, func(r *Run) {
			r.Keys = func(*limiter.Request, *limiter.Decision, *arith.Charge) (string, error) { return "", nil }
		}, false},
	} {
		_, err := do(row.most, row.change)
		if errors.Is(err, ErrMemory) != row.ends || !row.ends && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of each rule the distinct keys are counted, whichever of its keys they are of.
func TestDistinctKeys(t *testing.T) {
	r := replayed(t, story(), "")
	got := map[string]int{}
	for _, rule := range r.Rules {
		got[rule.Name] = rule.Keys
	}
	// ada, bob and eve ask of towns, eve by two keys; bob of trial.
	if diff := cmp.Diff(map[string]int{"towns": 4, "trial": 1, "free": 0, "idle": 0}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSince(t *testing.T) {
	change := func(answers ...string) *Result {
		var steps []step
		for i, a := range answers {
			steps = append(steps, step{i, "a", a})
		}
		return replayed(t, steps, "")
	}
	const yes, no = "towns/second+", "towns/second-"
	first := change(yes, yes, no, no, yes, "long")
	second := change(yes, no, yes, no, no, yes)
	if got := second.Since(first); got != (Change{NewlyDenied: 2, NewlyAllowed: 1}) {
		t.Errorf("%+v", got)
	}
	if got := first.Since(first); got != (Change{}) {
		t.Errorf("against itself: %+v", got)
	}
}

func TestSlotLength(t *testing.T) {
	const year = 365 * limiter.Day
	for _, c := range []struct {
		first, last, want limiter.Tick
	}{
		{0, 0, limiter.Second},
		{0, 59 * limiter.Second, limiter.Second},
		{0, 60 * limiter.Second, 2 * limiter.Second},
		{1, limiter.Hour - 1, limiter.Minute},
		{1, limiter.Hour + 1, 2 * limiter.Minute},
		{0, 4 * limiter.Day, 2 * limiter.Hour},
		{0, 59 * limiter.Day, limiter.Day},
		{0, 70 * limiter.Day, 2 * limiter.Day},
		{0, 9000 * year, 65536 * limiter.Day},
	} {
		got := slotLength(c.first, c.last)
		if got != c.want || slots(c.first, c.last, got) > maxSlots {
			t.Errorf("%d to %d: %v, want %v", c.first, c.last, got, c.want)
		}
	}
}

// Every instant of a trace has its slot.
func TestSlotsCoverTheTrace(t *testing.T) {
	for _, span := range []limiter.Tick{0, 1, limiter.Second, limiter.Hour + 7, limiter.Day - 1, 99 * limiter.Day} {
		for _, first := range []limiter.Tick{0, 1, 1431857103 * limiter.Second} {
			var r Result
			r.startSeries(first, first+span)
			for _, at := range []limiter.Tick{first, first + span/2, first + span} {
				r.slot(at).Allowed++
			}
			if r.Series[0].Allowed == 0 || r.Series[len(r.Series)-1].Allowed == 0 {
				t.Errorf("%d for %d: the first or the last slot is unused: %v", first, span, r.Series)
			}
		}
	}
}
