package history

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func at(s int) time.Time {
	return time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).Add(time.Duration(s) * time.Second)
}

func second(allowed, denied uint64) *Second {
	return &Second{P99: time.Millisecond, Members: 3, Rules: []Rule{{Name: "login", Allowed: allowed, Denied: denied,
		Sources: [Sources]uint64{1: allowed + denied}}}}
}

func span(t *testing.T, name string) Span {
	t.Helper()
	s, ok := SpanOf(name)
	if !ok {
		t.Fatal(name)
	}
	return s
}

func sum(list []uint64) (n uint64) {
	for _, v := range list {
		n += v
	}
	return n
}

func TestRingForgetsWhatIsOld(t *testing.T) {
	r := New()
	const all = 2 * 24 * 3600
	for i := range all {
		r.Add(at(i), second(10, 1))
	}
	for name, want := range map[string]uint64{"5m": 300, "1h": 3600, "1d": 24 * 3600} {
		s := r.Series(span(t, name), at(all))
		if got := sum(s.Denied); got != want || sum(s.Allowed) != 10*want {
			t.Errorf("%s: %d seconds are known, want %d", name, got, want)
		}
		if got := sum(s.Rules["login"].Checks); got != 11*want || sum(s.Sources[1]) != 11*want {
			t.Errorf("%s: the rule has %d checks, want %d", name, got, 11*want)
		}
		if s.P99Us[5] != 1000 || s.Members[5] != 3 {
			t.Errorf("%s: p99 %d us, %d members", name, s.P99Us[5], s.Members[5])
		}
	}
	if s := r.Series(span(t, "5m"), at(all+200)); sum(s.Denied) != 100 || s.Members[299] != 0 {
		t.Errorf("after a pause %d seconds are known", sum(s.Denied))
	}
}

func TestRulesAreBounded(t *testing.T) {
	r := New()
	for i := range 1000 {
		r.Add(at(0), &Second{Rules: []Rule{{Name: fmt.Sprint("rule ", i), Allowed: 1}}})
	}
	s := r.Series(span(t, "5m"), at(1))
	if len(s.Rules) != MaxRules || sum(s.Rules[Other].Checks) != 1000-MaxRules+1 {
		t.Errorf("%d rules, %d checks of others", len(s.Rules), sum(s.Rules[Other].Checks))
	}
}

func TestSeriesOfMembersAreAdded(t *testing.T) {
	a, b := New(), New()
	for i := range 100 {
		a.Add(at(i), second(1, 0))
		b.Add(at(i), &Second{Members: 2, Unreachable: 1, P99: time.Second, Rules: []Rule{{Name: "other", Denied: 2,
			ByPolicy: 2}}})
	}
	s := a.Series(span(t, "5m"), at(100))
	text, err := json.Marshal(b.Series(span(t, "5m"), at(103))) // its clock is ahead
	if err != nil {
		t.Fatal(err)
	}
	var o Series
	if err := json.Unmarshal(text, &o); err != nil || !s.Add(&o) {
		t.Fatal("it is not added", err)
	}
	if sum(s.Allowed) != 100 || sum(s.Denied) != 200 || sum(s.ByPolicy) != 200 || len(s.Rules) != 2 {
		t.Errorf("together: %d allowed, %d denied, %d rules", sum(s.Allowed), sum(s.Denied), len(s.Rules))
	}
	if i := 250; s.Members[i] != 2 || s.Unreachable[i] != 1 || s.P99Us[i] != 1_000_000 {
		t.Errorf("members %d, unreachable %d, p99 %d", s.Members[i], s.Unreachable[i], s.P99Us[i])
	}
	for name, change := range map[string]func(*Series){
		"another step": func(o *Series) { o.StepMs++ }, "too short": func(o *Series) { o.Denied = o.Denied[1:] },
	} {
		bad := *b.Series(span(t, "5m"), at(100))
		if change(&bad); s.Add(&bad) {
			t.Errorf("%s: it is added", name)
		}
	}
	bad := b.Series(span(t, "5m"), at(100))
	bad.Rules["x"], bad.Rules["y"], bad.Sources[99] = nil, &RuleSeries{}, []uint64{1}
	if !s.Add(bad) || s.Rules["x"] != nil || s.Rules["y"] != nil || s.Sources[99] != nil {
		t.Error("parts that cannot be are added")
	}
}
