package limitertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Run tests a decider against everything that all deciders must do: the transcripts,
// the oracle on random traces, the exactness of promised instants, the bounds of
// admissions, refunds, changes of rules, and the separation of keys. Each is a subtest.
// Random tests are the same in every run, and report their seed when they fail.
//
// It makes about 150,000 checks, most of them in one transcript and under changed
// rules. Its own work, mainly the oracle's, takes some five seconds.
func Run(t *testing.T, f Factory) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"Transcripts", Transcripts},
		{"Oracle", oracleTraces},
		{"OracleSeveralLimits", oracleSeveralLimits},
		{"Calendars", calendars},
		{"Zones", zones},
		{"Numbers", numbers},
		{"LooksChangeNoBucket", looks},
		{"Ceilings", ceilings},
		{"RetryAfter", retryAfter},
		{"RetryAfterSeveralLimits", retryAfterSeveralLimits},
		{"Bounds", bounds},
		{"Refunds", refunds},
		{"RefundsBounds", refundsBounds},
		{"ChangedLimits", changedLimits},
		{"ChangedLimitsBounds", changedLimitsBounds},
		{"ThereAndBack", thereAndBack},
		{"SlotsThereAndBack", slotsThereAndBack},
		{"WideSlots", wideSlots},
		{"UnchangedRules", unchangedRules},
		{"Peeks", peeks},
		{"CostZeroOnlyPeeks", costZeroOnlyPeeks},
		{"Resets", resets},
		{"IDs", ids},
		{"KeysApart", keysApart},
		{"InvalidRequests", invalidRequests},
		{"ClockGoesBack", clockGoesBack},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, f) })
	}
}

// asker sends checks to a subject whose clock is at now.
type asker struct {
	tb  testing.TB
	s   Subject
	now Tick
}

func newAsker(tb testing.TB, f Factory, rules string) *asker {
	tb.Helper()
	a := &asker{tb, f(tb, rules), 0}
	a.goTo(Start() + 4*limiter.Day) // a Monday
	return a
}

// goTo sets the clock to t, unless that is earlier.
func (a *asker) goTo(t Tick) {
	a.now = max(a.now, t)
	a.s.SetTime(a.now)
}

// check sends a check with a cost on the rule's path.
func (a *asker) check(rule, user string, cost uint64) *limiter.Decision {
	a.tb.Helper()
	return a.ask(rule, user, cost, false)
}

// ask sends a check, or a peek if the subject is a Peeker.
func (a *asker) ask(rule, user string, cost uint64, peek bool) *limiter.Decision {
	a.tb.Helper()
	ask := a.s.CheckInto
	if peek {
		ask = a.s.(Peeker).PeekInto
	}
	d := new(limiter.Decision)
	if err := ask(context.Background(), question(rule, user, cost), d); err != nil {
		a.tb.Fatalf("%s %s cost %d: %v", rule, user, cost, err)
	}
	return d
}

func (a *asker) refund(rule, user string, cost uint64, rc limiter.Receipt) {
	a.tb.Helper()
	if err := a.s.(Refunder).Refund(context.Background(), *question(rule, user, cost), rc); err != nil {
		a.tb.Fatalf("refund %s %s cost %d: %v", rule, user, cost, err)
	}
}

func (a *asker) setRules(file *rulesFile) {
	a.tb.Helper()
	if err := a.s.SetRules(file.String()); err != nil {
		a.tb.Fatalf("rules refused: %v\n%s", err, file)
	}
}

func question(rule, user string, cost uint64) *limiter.Request {
	return &limiter.Request{Path: "/" + rule, User: user, Cost: limiter.Units(int64(cost))}
}

// needRefunds skips a part of the suite for subjects without refunds.
func needRefunds(t *testing.T, s Subject) {
	if _, can := s.(Refunder); !can {
		t.Skip("this decider takes no charges back")
	}
}

// longest is the longest window in the suite's random traces. It keeps the clock within
// a century or two.
const longest = 14 * 24 * time.Hour

// trial is one random limit, or several, under its own rule.
type trial struct {
	seed    uint64
	choices Choices
	rule    string
	specs   []limiter.Spec
}

// newTrials makes n trials, or a third of them with -short, and the rules file with a
// rule for each.
func newTrials(n int, first uint64, specs func(Choices) []limiter.Spec) ([]trial, *rulesFile) {
	if testing.Short() {
		n = (n + 2) / 3
	}
	file := new(rulesFile)
	trials := make([]trial, n)
	for i := range trials {
		seed := first + uint64(i)
		c := SeededChoices(seed)
		trials[i] = trial{seed, c, fmt.Sprintf("t%d", i), specs(c)}
		file.add(trials[i].rule, trials[i].specs...)
	}
	return trials, file
}

func one(a limiter.Algorithm) func(Choices) []limiter.Spec {
	return func(c Choices) []limiter.Spec { return []limiter.Spec{RandomSpec(c, a, "", longest)} }
}

// several returns two or three random limits of any algorithms.
func several(c Choices) []limiter.Spec {
	specs := make([]limiter.Spec, 2+c.Pick(2))
	for i := range specs {
		specs[i] = RandomSpec(c, limiter.Algorithm(c.Pick(algorithmCount())), fmt.Sprintf("l%d", i), longest)
	}
	return specs
}

// algorithmCount returns the number of algorithms.
func algorithmCount() int { return len(limiter.AlgorithmNames()) }

// eachAlgorithm runs a subtest for each algorithm.
func eachAlgorithm(t *testing.T, run func(*testing.T, limiter.Algorithm)) {
	for i := range algorithmCount() {
		a := limiter.Algorithm(i)
		t.Run(a.String(), func(t *testing.T) { run(t, a) })
	}
}

// premise makes a test fail if nearly all its decisions were the same, since it then
// shows less than it seems to.
type premise struct{ checks, denied int }

func (p *premise) count(allowed bool) {
	p.checks++
	if !allowed {
		p.denied++
	}
}

func (p *premise) hold(tb testing.TB) {
	tb.Helper()
	if p.checks == 0 || 5*p.denied < p.checks || 5*p.denied > 4*p.checks {
		tb.Errorf("%d of %d checks were denied; 20 to 80 %% were to be", p.denied, p.checks)
	}
}

// oracleTraces: decider and oracle agree on every number of every answer, for each
// algorithm with random options.
func oracleTraces(t *testing.T, f Factory) {
	eachAlgorithm(t, func(t *testing.T, a limiter.Algorithm) {
		trials, file := newTrials(150, 1000, one(a))
		traceAll(t, newAsker(t, f, file.String()), trials, 40)
	})
}

// calendars: the same for calendar windows, and their promised instants. The clock passes
// many changes of the zones' clocks.
func calendars(t *testing.T, f Factory) {
	t.Run("Oracle", func(t *testing.T) {
		trials, file := newTrials(150, 11000, calendarSpec)
		traceAll(t, newAsker(t, f, file.String()), trials, 30)
	})
	t.Run("RetryAfter", func(t *testing.T) {
		trials, file := newTrials(60, 12000, calendarSpec)
		keepPromises(t, newAsker(t, f, file.String()), trials)
	})
}

// oracleSeveralLimits: the same for two or three limits of any algorithms.
func oracleSeveralLimits(t *testing.T, f Factory) {
	trials, file := newTrials(300, 2000, several)
	traceAll(t, newAsker(t, f, file.String()), trials, 30)
}

func traceAll(t *testing.T, ask *asker, trials []trial, steps int) {
	var p premise
	_, canRefund := ask.s.(Refunder)
	_, canPeek := ask.s.(Peeker)
	for _, tr := range trials {
		trace := NewTrace(ask.now+Tick(tr.choices.Pick(int(limiter.Minute))), tr.specs...)
		trace.Refunds, trace.Peeks = canRefund && tr.choices.Pick(3) == 0, canPeek
		var receipts []limiter.Receipt
		for i := range steps {
			s, want := trace.Next(tr.choices)
			ask.goTo(s.Now)
			if s.Refund >= 0 {
				ask.refund(tr.rule, "u", trace.Steps[s.Refund].Cost, receipts[s.Refund])
			}
			d := ask.ask(tr.rule, "u", s.Cost, s.Peek)
			receipts = append(receipts, d.Receipt)
			p.count(want.Allowed)
			if diff := diff(ask.s, d, want); diff != "" {
				t.Fatalf("seed %d, step %d differs from the oracle: %s\n%s", tr.seed, i, diff, trace)
			}
		}
	}
	p.hold(t)
}

// unchangedRules: setting the same rules again changes nothing, at any time.
func unchangedRules(t *testing.T, f Factory) {
	trials, file := newTrials(15, 3000, several)
	ask := newAsker(t, f, file.String())
	for _, tr := range trials {
		trace := NewTrace(ask.now, tr.specs...)
		for i := range 30 {
			s, want := trace.Next(tr.choices)
			ask.goTo(s.Now)
			if tr.choices.Pick(3) == 0 {
				ask.setRules(file)
			}
			if diff := diff(ask.s, ask.check(tr.rule, "u", s.Cost), want); diff != "" {
				t.Fatalf("seed %d, step %d: %s\n%s", tr.seed, i, diff, trace)
			}
		}
	}
}

// peeks: one of two callers also peeks between its checks, and both get the same
// answers.
func peeks(t *testing.T, f Factory) {
	trials, file := newTrials(40, 4000, several)
	ask := newAsker(t, f, file.String())
	for _, tr := range trials {
		trace := NewTrace(ask.now, tr.specs...)
		for range 25 {
			s, _ := trace.Next(tr.choices)
			ask.goTo(s.Now)
			for range tr.choices.Pick(3) {
				ask.check(tr.rule, "peeks", 0)
			}
			if _, can := ask.s.(Peeker); can {
				ask.ask(tr.rule, "peeks", s.Cost, true)
			}
			a, b := ask.check(tr.rule, "peeks", s.Cost), ask.check(tr.rule, "does-not", s.Cost)
			if x, y := strings.Join(describe(a), "\n"), strings.Join(describe(b), "\n"); x != y {
				t.Fatalf("seed %d: with peeks\n%s\nwithout\n%s\n%s", tr.seed, x, y, trace)
			}
		}
	}
}

// costZeroOnlyPeeks: checks with cost 0 never charge anything or begin a block, with
// and without room, even where denials count and begin blocks.
func costZeroOnlyPeeks(t *testing.T, f Factory) {
	eachAlgorithm(t, func(t *testing.T, a limiter.Algorithm) {
		file := new(rulesFile)
		file.add("r", limiter.Spec{Algorithm: a, Limit: 3, Window: time.Hour, CountRejected: limiter.CountAll,
			Block: time.Hour})
		ask := newAsker(t, f, file.String())
		for used := range uint64(4) {
			for range 50 {
				d := ask.check("r", "peeks", 0)
				if l := d.Limit(0); d.Allowed != (used < 3) || l.Remaining != 3-used || l.Blocked {
					t.Fatalf("after %d of 3 units a cost of 0 is told: %v", used, describe(d))
				}
			}
			if used < 3 && !ask.check("r", "peeks", 1).Allowed {
				t.Fatalf("unit %d of 3 is denied after peeks", used+1)
			}
		}
		if d := ask.check("r", "peeks", 1); d.Allowed {
			t.Fatalf("the fourth unit of 3 is allowed: %v", describe(d))
		}
		if d := ask.check("r", "peeks", 0); !d.Limit(0).Blocked { // by that denial, not by a peek
			t.Fatalf("a denial began no block: %v", describe(d))
		}
	})
}

// resets: after a reset a key is as new, without blocks.
func resets(t *testing.T, f Factory) {
	trials, file := newTrials(40, 5000, several)
	ask := newAsker(t, f, file.String())
	for _, tr := range trials {
		trace := NewTrace(ask.now, tr.specs...)
		for range 10 {
			s, _ := trace.Next(tr.choices)
			ask.goTo(s.Now)
			ask.check(tr.rule, "u", s.Cost)
		}
		if err := ask.s.Reset(context.Background(), *question(tr.rule, "u", 1)); err != nil {
			t.Fatal(err)
		}
		a, b := ask.check(tr.rule, "u", 0), ask.check(tr.rule, "new", 0)
		if x, y := strings.Join(describe(a), "\n"), strings.Join(describe(b), "\n"); x != y {
			t.Fatalf("seed %d: after a reset\n%s\na new key\n%s\n%s", tr.seed, x, y, trace)
		}
	}
}

// keysApart: what one caller uses does not reduce another caller's limit, or the same
// caller's under another rule. Values that look alike when joined are different keys.
func keysApart(t *testing.T, f Factory) {
	file := new(rulesFile)
	s := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Hour}
	file.add("a", s)
	file.add("b", s)
	rules := file.String() + `  - name: both
    match: {path: "^/x"}
    key: [path, user, group, "attr:device"]
    limits: [{limit: 1, window: 1h, algorithm: fixed_window}]
`
	ask := newAsker(t, f, rules)
	for _, user := range []string{"ada", "Ada", "ada ", "bob", "ada:", "a:da", "ada%3A"} {
		for _, rule := range []string{"a", "b"} {
			if !ask.check(rule, user, 1).Allowed || ask.check(rule, user, 1).Allowed {
				t.Errorf("%q has not exactly one unit of his own under rule %s", user, rule)
			}
		}
	}
	for _, parts := range [][4]string{
		{"/x", "u", "g", "d"}, {"/xu", "", "g", "d"}, {"/x", "ug", "", "d"}, {"/x", "u", "gd", ""},
		{"/x:u", "g", "d", ""}, {"/x", "u:g", "d", ""}, {"/x", "", "u", "gd"}, {"/x", "u", "g", "d\x00"},
	} {
		r := &limiter.Request{Path: parts[0], User: parts[1], Group: parts[2],
			Attributes: map[string]string{"device": parts[3]}}
		for i := range 2 {
			var d limiter.Decision
			if err := ask.s.CheckInto(context.Background(), r, &d); err != nil || d.Allowed != (i == 0) {
				t.Errorf("%q, check %d: allowed %v, %v; it has not exactly one unit of its own", parts, i+1, d.Allowed, err)
			}
		}
	}
}

// invalidRequests: an invalid request returns an error that wraps ErrInvalid, and
// counts nothing.
func invalidRequests(t *testing.T, f Factory) {
	file := new(rulesFile)
	file.add("a", limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 3, Window: time.Hour})
	ask := newAsker(t, f, file.String())
	for what, r := range map[string]*limiter.Request{
		"a negative cost":      {Path: "/a", User: "u", Cost: limiter.Units(-1)},
		"a cost above 2^53-1":  {Path: "/a", User: "u", Cost: limiter.Units(limiter.MaxUnits + 1)},
		"a user above 8 KiB":   {Path: "/a", User: strings.Repeat("u", limiter.MaxFieldBytes+1)},
		"two addresses as one": {Path: "/a", User: "u", IP: "203.0.113.9, 10.0.0.1"},
	} {
		var d limiter.Decision
		if err := ask.s.CheckInto(context.Background(), r, &d); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("%s: got %v, want an error that wraps ErrInvalid", what, err)
		}
	}
	if d := ask.check("a", "u", 3); !d.Allowed {
		t.Error("a request that was refused as invalid was counted")
	}
}
