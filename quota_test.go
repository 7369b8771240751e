package weir_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

const unitsFile = `
version: 1
defaults: {algorithm: fixed_window}
quotas:
  - {name: units, key: ["attr:customer"], limits: [{limit: 12, calendar: month, zone: Europe/Berlin}]}
rules:
  - {name: search, match: {path: "^/search"}, key: [user], limits: [3/minute], quotas: [{name: units, cost: 5}]}
  - {name: towns, match: {path: "^/towns"}, quotas: [units]}
`

// unitsRequest is a request of a customer whose counter the two rules share.
func unitsRequest(path string) weir.Request {
	return weir.Request{Path: path, User: "ada", Attributes: map[string]string{"customer": "acme"}}
}

// ruleNames is an observer that keeps the names of the rules that decided.
type ruleNames struct{ names []string }

func (r *ruleNames) observer() *weir.Observer {
	return &weir.Observer{Checked: func(_ int, rule string, _ limiter.Source, _, _ bool) {
		r.names = append(r.names, rule)
	}}
}

// Answers, explanations and key names have the quota by its name, and the rules that
// matched are rules.
func TestQuotasInAnswers(t *testing.T) {
	at := &clock{time.Date(2026, 1, 31, 22, 59, 0, 0, time.UTC)}
	seen := &ruleNames{}
	n := open(t, weir.Config{Now: at.now, Rules: []byte(unitsFile), Observer: seen.observer()})
	request := unitsRequest("/search")
	first := check(t, n, request)
	if second := check(t, n, unitsRequest("/towns")); !second.Allowed || second.Rule != "towns" || second.Len() != 1 ||
		second.Limit(0).Remaining != 6 {
		t.Errorf("%+v", n.Answer(&request, second))
	}
	if !check(t, n, request).Allowed {
		t.Error("five of six units are denied")
	}
	d := check(t, n, request)
	a := n.Answer(&request, d)
	if a.Allowed || a.Rule != "units" || a.BlockedBy != "units/month" || a.DrawnBy != "search" ||
		*a.RetryAfterMs != 60_000 ||
		a.Limits[0].Name != "search/minute" || a.Limits[0].Remaining != 1 || a.Limits[1].Key != "acme:month" ||
		a.Limits[1].Remaining != 1 {
		t.Errorf("%+v", a)
	}
	if want := []string{"search", "towns", "search", "units"}; !slices.Equal(seen.names, want) {
		t.Errorf("the observer saw %q", seen.names)
	}
	for path, rule := range map[string]string{"/search": "search", "/towns": "towns"} {
		e, err := n.Explain(context.Background(), unitsRequest(path))
		if err != nil {
			t.Fatal(err)
		}
		last := e.Limits[len(e.Limits)-1]
		if !slices.Equal(e.Rules, []string{rule}) || last.Name != "units/month" || last.Key != "acme:month" ||
			!strings.HasPrefix(last.Arithmetic, "11 counted + ") {
			t.Errorf("%s: %q, %+v", path, e.Rules, last)
		}
	}
	if err := n.Refund(context.Background(), request, first.Receipt); err != nil {
		t.Fatal(err)
	}
	d = check(t, n, unitsRequest("/towns"))
	if d.Limit(0).Remaining != 5 {
		t.Errorf("a refund of 5 and a check of 1 leave %d of 1", d.Limit(0).Remaining)
	}
	if d, err := n.Peek(context.Background(), request); err != nil || d.Limit(0).Remaining != 2 {
		t.Errorf("the refund left %d, %v", d.Limit(0).Remaining, err)
	}
	at.at = at.at.Add(time.Minute)
	if d := check(t, n, request); !d.Allowed || d.Limit(1).Remaining != 7 {
		t.Errorf("the month of Berlin began: %+v", n.Answer(&request, d))
	}
}

// A file that lacks a quota that was in force is logged, and counters of a quota stay when
// rules change.
func TestQuotasAcrossReloads(t *testing.T) {
	var log bytes.Buffer
	n := open(t, weir.Config{
		Now: (&clock{time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)}).now, Rules: []byte(unitsFile),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	check(t, n, unitsRequest("/search"))
	if err := n.SetRules([]byte(strings.ReplaceAll(strings.ReplaceAll(unitsFile, "search", "find"), "limit: 12",
		"limit: 20"))); err != nil {
		t.Fatal(err)
	}
	if d := check(t, n, unitsRequest("/find")); d.Limit(1).Remaining != 10 ||
		d.Limit(1).Limit.Algorithm() != limiter.FixedWindow {
		t.Errorf("%+v", d.Limit(1))
	}
	if err := n.SetRules([]byte("rules: [{name: rest, key: [user], limits: [5/second]}]")); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "names=\"[find towns units]\"") {
		t.Errorf("%s", got)
	}
}

// shadowNames is an observer that also keeps what shadow rules would have decided.
type shadowNames struct {
	ruleNames
	shadows []string
}

func (s *shadowNames) observer() *weir.Observer {
	o := s.ruleNames.observer()
	o.Shadowed = func(rule string, denied bool) {
		s.shadows = append(s.shadows, rule+map[bool]string{true: " denied", false: " allowed"}[denied])
	}
	return o
}

// A check that shadow rules count is one of the rule in force, in answers and metrics, and
// each shadow rule is told apart, also in a batch.
func TestShadowRulesAreSeenApart(t *testing.T) {
	seen := &shadowNames{}
	n := open(t, weir.Config{Observer: seen.observer(), Rules: []byte(`
rules:
  - {name: tight, key: [user], limits: [1/hour, 2/day], shadow: true, continue: true}
  - {name: loose, key: [user], limits: [5/hour], shadow: true, continue: true}
  - {name: in_force, key: [user], limits: [3/hour]}
`)})
	request := weir.Request{User: "ada"}
	for i, allowed := range []bool{true, true} {
		if d := check(t, n, request); d.Allowed != allowed || d.Rule != "in_force" || d.ShadowDenied != (i > 0) {
			t.Errorf("check %d: %+v", i, n.Answer(&request, d))
		}
	}
	if ds, err := n.CheckBatch(t.Context(), []weir.Request{request, request}); err != nil || !ds[0].Allowed ||
		ds[1].Allowed || ds[1].Rule != "in_force" {
		t.Errorf("%v", err)
	}
	want := "tight allowed, loose allowed, tight denied, loose allowed, tight denied, loose allowed, tight denied, " +
		"loose allowed"
	if got := strings.Join(seen.shadows, ", "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := strings.Join(slices.Compact(seen.names), ", "); got != "in_force" {
		t.Errorf("decided by %s", got)
	}
}

// What is shown of a bucket is what a user can check: its capacity, not its rate.
func TestCapacityIsShown(t *testing.T) {
	n := open(t, weir.Config{Rules: []byte(`
rules:
  - {name: bucket, match: {path: ^/bucket}, key: [user], limits: [{limit: 30, window: 1m, algorithm: token_bucket, burst: 20}]}
  - {name: window, key: [user], limits: [30/minute]}
`)})
	request := weir.Request{Path: "/bucket", Cost: weir.Units(21)}
	a := n.Answer(&request, check(t, n, request))
	if l := a.Limits[0]; a.Allowed || !a.Never || l.Limit != 30 || l.Capacity != 20 || l.Remaining != 20 {
		t.Errorf("%+v", a)
	}
	request = weir.Request{Path: "/window"}
	if l := n.Answer(&request, check(t, n, request)).Limits[0]; l.Limit != 30 || l.Capacity != 0 || l.Remaining != 29 {
		t.Errorf("%+v", l)
	}
}

// The answer says that a request's time zone is none, and that no default was needed.
func TestUnknownZonesAreTold(t *testing.T) {
	n := open(t, weir.Config{Rules: []byte(`
rules:
  - {name: partners, match: {attributes: {partner: }}, key: ["attr:partner"], limits: [{limit: 5, calendar: day, zone: "attr:tz"}]}
`)})
	for zone, want := range map[string]string{"Europe/Berlin": "", "Europe/Berln": "partners", "": "partners"} {
		request := weir.Request{Attributes: map[string]string{"partner": "p", "tz": zone}}
		if a := n.Answer(&request, check(t, n, request)); a.ZoneDefault != want {
			t.Errorf("%q: %+v", zone, a)
		}
	}
}
