package metrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
)

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func open(t testing.TB, o Options) (*Metrics, *prometheus.Registry) {
	t.Helper()
	if o.Now == nil {
		o.Now = noon
	}
	r := NewRegistry()
	m, err := New(r, o)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// want compares the families of some names with their text.
func want(t *testing.T, g prometheus.Gatherer, text string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(g, strings.NewReader(text), names...); err != nil {
		t.Error(err)
	}
}

func TestChecks(t *testing.T) {
	m, r := open(t, Options{})
	for range 3 {
		m.checked(1, "towns", limiter.SourceOwner, true, false)
	}
	m.checked(1, "towns", limiter.SourceOwner, false, true) // denied, whatever the shadow says
	m.checked(1, "towns", limiter.SourceOwner, true, true)
	m.checked(1, "towns", limiter.SourceFallbackLocal, false, false)
	m.checked(1, "", limiter.SourceNone, true, false)
	m.checked(1, "a\"b\\\n\xff", limiter.SourceOwner, true, false)
	m.checked(1, "a\"b\\\n\xff", limiter.SourceOwner, true, false)
	want(t, r, `
# HELP weir_checks_total Decisions, peeks included, by the rule that decided (empty: none matched), by result (shadow_denied: allowed, but a shadow rule would have denied), and by who decided.
# TYPE weir_checks_total counter
weir_checks_total{result="allowed",rule="",source="no_rule"} 1
weir_checks_total{result="allowed",rule="a\"b\\\n�",source="owner"} 2
weir_checks_total{result="denied",rule="a\"b\\\n�",source="owner"} 0
weir_checks_total{result="allowed",rule="towns",source="owner"} 3
weir_checks_total{result="denied",rule="towns",source="fallback_local"} 1
weir_checks_total{result="denied",rule="towns",source="owner"} 1
weir_checks_total{result="shadow_denied",rule="towns",source="owner"} 1
`, "weir_checks_total")
}

// Every source has its own place, and an unknown source does no harm.
func TestSources(t *testing.T) {
	m, r := open(t, Options{})
	for s := range limiter.Source(200) {
		m.checked(1, "towns", s, false, false)
	}
	seen := map[string]float64{}
	for _, metric := range family(t, r, "weir_checks_total").GetMetric() {
		if l := labels(metric); l["result"] == "denied" {
			seen[l["source"]] = metric.GetCounter().GetValue()
		}
	}
	for s := range limiter.SourceShare + 1 {
		if seen[s.String()] != 1 {
			t.Errorf("%s: %v", s, seen[s.String()])
		}
	}
	if len(seen) != sources {
		t.Errorf("%v", seen)
	}
}

func family(t testing.TB, g prometheus.Gatherer, name string) *dto.MetricFamily {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f
		}
	}
	return nil
}

func labels(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

func TestRefused(t *testing.T) {
	m, r := open(t, Options{})
	for range 2 {
		m.refused(fmt.Errorf("%w: cost -1", limiter.ErrInvalid))
	}
	m.refused(context.Canceled)
	m.refused(fmt.Errorf("asking: %w", context.DeadlineExceeded))
	m.refused(errors.New("the table is on fire"))
	want(t, r, `
# HELP weir_check_errors_total Checks that could not be decided and counted nothing.
# TYPE weir_check_errors_total counter
weir_check_errors_total{reason="canceled"} 1
weir_check_errors_total{reason="deadline_exceeded"} 1
weir_check_errors_total{reason="invalid"} 2
weir_check_errors_total{reason="other"} 1
`, "weir_check_errors_total")
}

func TestPanicked(t *testing.T) {
	if n := len(guard.Places()); n != places {
		t.Fatalf("there are %d places and room for %d", n, places)
	}
	m, r := open(t, Options{})
	m.panicked(guard.GRPC)
	m.panicked(guard.Gossip)
	m.panicked(guard.Gossip)
	m.panicked(guard.Redis)
	m.panicked(guard.RESP)
	m.panicked("elsewhere")
	want(t, r, `
# HELP weir_panics_total Defects that ended a request or a connection, by where they were recovered from.
# TYPE weir_panics_total counter
weir_panics_total{place="cluster"} 0
weir_panics_total{place="gossip"} 2
weir_panics_total{place="grpc"} 1
weir_panics_total{place="http"} 0
weir_panics_total{place="link"} 0
weir_panics_total{place="other"} 1
weir_panics_total{place="redis"} 1
weir_panics_total{place="resp"} 1
weir_panics_total{place="spoe"} 0
`, "weir_panics_total")
}

func TestServed(t *testing.T) {
	m, r := open(t, Options{})
	m.Served("Check", "OK", 0)
	m.Served("Check", "OK", 50*time.Microsecond) // a bound belongs to its bucket
	m.Served("Check", "OK", 50*time.Microsecond+1)
	m.ServedMany("Check", "OK", 3*time.Millisecond, 2)
	m.Served("Check", "OK", time.Hour)
	m.Served("Check", "INVALID_ARGUMENT", -time.Second) // no clock does this, but no bucket is lost
	f := family(t, r, "weir_request_duration_seconds")
	if len(f.GetMetric()) != 2 {
		t.Fatalf("%v", f)
	}
	for _, metric := range f.GetMetric() {
		h := metric.GetHistogram()
		if labels(metric)["code"] != "OK" {
			if h.GetSampleCount() != 1 || h.GetSampleSum() != 0 || h.GetBucket()[0].GetCumulativeCount() != 1 {
				t.Errorf("%v", metric)
			}
			continue
		}
		if labels(metric)["method"] != "Check" || h.GetSampleCount() != 6 ||
			math.Abs(h.GetSampleSum()-3600.006100001) > 1e-9 {
			t.Errorf("%v", metric)
		}
		upTo := map[float64]uint64{}
		for _, b := range h.GetBucket() {
			upTo[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		if upTo[0.00005] != 2 || upTo[0.0001] != 3 || upTo[0.0025] != 3 || upTo[0.005] != 5 || upTo[2.5] != 5 {
			t.Errorf("%v", upTo)
		}
	}
}

func TestBounds(t *testing.T) {
	all := bounds()
	for i, b := range all {
		if i > 0 && b <= all[i-1] {
			t.Errorf("%v after %v", b, all[i-1])
		}
		if bucketOf(b) != i || bucketOf(b+1) != i+1 {
			t.Errorf("%v is in bucket %d, and a little more in %d", b, bucketOf(b), bucketOf(b+1))
		}
	}
}

func TestTable(t *testing.T) {
	calls := 0
	_, r := open(t, Options{Table: func() TableStats {
		calls++
		return TableStats{Keys: 12, Copies: 7, MaxKeys: 1000, Bytes: 4096, CopyBytes: 512, MaxBytes: 9000, Overflowed: 6,
			IDs: 5, IDsForgotten: 4, Holds: 6, HoldsExpired: 7, Overdrawn: 8,
			OverflowedBy: struct{ Tenant, Share, Key int64 }{1, 2, 1},
			Shares:       []RuleShare{{Rule: "a", Keys: 2, Bytes: 64}, {Rule: "b", Keys: 1}}}
	}})
	want(t, r, `
# HELP weir_table_bytes Memory of the counters held that are no copies: what weir_table_max_bytes bounds.
# TYPE weir_table_bytes gauge
weir_table_bytes 4096
# HELP weir_table_copied_bytes Memory of these copies.
# TYPE weir_table_copied_bytes gauge
weir_table_copied_bytes 512
# HELP weir_table_copied_keys Copies held of other members' counters.
# TYPE weir_table_copied_keys gauge
weir_table_copied_keys 7
# HELP weir_table_keys Counters held, one for each key and limit, that are no copies: what weir_table_max_keys bounds.
# TYPE weir_table_keys gauge
weir_table_keys 12
# HELP weir_table_max_bytes Bound on weir_table_bytes, 0 if there is none.
# TYPE weir_table_max_bytes gauge
weir_table_max_bytes 9000
# HELP weir_table_max_keys Bound on weir_table_keys.
# TYPE weir_table_max_keys gauge
weir_table_max_keys 1000
# HELP weir_table_holds Reservations held, each once for every key of its check.
# TYPE weir_table_holds gauge
weir_table_holds 6
# HELP weir_table_holds_expired_total Reservations that ended without having been settled, counted once for every key.
# TYPE weir_table_holds_expired_total counter
weir_table_holds_expired_total 7
# HELP weir_table_ids Counters held that remember ids of checks.
# TYPE weir_table_ids gauge
weir_table_ids 5
# HELP weir_table_ids_forgotten_total Ids that were not remembered, since they took half of the table: their checks were charged, and would be again.
# TYPE weir_table_ids_forgotten_total counter
weir_table_ids_forgotten_total 4
# HELP weir_table_overdrawn_units_total Units that settlements have charged beyond what a limit had left.
# TYPE weir_table_overdrawn_units_total counter
weir_table_overdrawn_units_total 8
# HELP weir_table_overflow_total Checks that needed a new counter, or a longer log, when a bound was reached, by bound: of the table, of a tenant, of a rule (max_share) or of a key.
# TYPE weir_table_overflow_total counter
weir_table_overflow_total{bound="max_share"} 2
weir_table_overflow_total{bound="per_key"} 1
weir_table_overflow_total{bound="table"} 2
weir_table_overflow_total{bound="tenant"} 1
# HELP weir_table_rule_bytes Memory of the logs and sub-windows of a rule that has a max_share.
# TYPE weir_table_rule_bytes gauge
weir_table_rule_bytes{rule="a"} 64
weir_table_rule_bytes{rule="b"} 0
# HELP weir_table_rule_keys Counters of a rule that has a max_share.
# TYPE weir_table_rule_keys gauge
weir_table_rule_keys{rule="a"} 2
weir_table_rule_keys{rule="b"} 1
`, "weir_table_bytes", "weir_table_copied_bytes", "weir_table_copied_keys", "weir_table_holds",
		"weir_table_holds_expired_total", "weir_table_overdrawn_units_total", "weir_table_ids",
		"weir_table_ids_forgotten_total", "weir_table_keys", "weir_table_max_bytes", "weir_table_max_keys",
		"weir_table_overflow_total", "weir_table_rule_bytes", "weir_table_rule_keys")
	if calls != 1 {
		t.Errorf("the table was asked %d times for one scrape", calls)
	}
	_, r = open(t, Options{})
	if f := family(t, r, "weir_table_keys"); f != nil {
		t.Errorf("without a table: %v", f)
	}
}

func TestRules(t *testing.T) {
	now := noon()
	m, r := open(t, Options{Now: func() time.Time { return now }})
	names := []string{
		"weir_rules_info", "weir_rules_reloads_total", "weir_rules_last_reload_successful",
		"weir_rules_last_reload_success_timestamp_seconds",
	}
	reloads := `
# HELP weir_rules_reloads_total Rules files read, the first included.
# TYPE weir_rules_reloads_total counter
`
	want(t, r, reloads+`weir_rules_reloads_total{result="failure"} 0
weir_rules_reloads_total{result="success"} 0
`, names...)
	rest := func(hash string, ok int, at float64) string {
		return fmt.Sprintf(`
# HELP weir_rules_info The rules in force: always 1, the hash is what they mean.
# TYPE weir_rules_info gauge
weir_rules_info{hash=%q} 1
# HELP weir_rules_last_reload_successful Whether the rules file that was read last is in force: 1 or 0.
# TYPE weir_rules_last_reload_successful gauge
weir_rules_last_reload_successful %d
# HELP weir_rules_last_reload_success_timestamp_seconds When rules came into force, in seconds since 1970.
# TYPE weir_rules_last_reload_success_timestamp_seconds gauge
weir_rules_last_reload_success_timestamp_seconds %g
`, hash, ok, at)
	}
	m.rulesSet(0xabc, nil)
	want(t, r, reloads+`weir_rules_reloads_total{result="failure"} 0
weir_rules_reloads_total{result="success"} 1
`+rest("0000000000000abc", 1, 1767355200), names...)
	now = now.Add(time.Minute)
	m.rulesSet(0xabc, limiter.ErrInvalid)
	want(t, r, reloads+`weir_rules_reloads_total{result="failure"} 1
weir_rules_reloads_total{result="success"} 1
`+rest("0000000000000abc", 0, 1767355200), names...)
	m.rulesSet(0xdef, nil)
	want(t, r, reloads+`weir_rules_reloads_total{result="failure"} 1
weir_rules_reloads_total{result="success"} 2
`+rest("0000000000000def", 1, 1767355260), names...)
}

func TestBuildInfo(t *testing.T) {
	_, r := open(t, Options{Version: "v1.2.3"})
	want(t, r, fmt.Sprintf(`
# HELP weir_build_info What runs: always 1.
# TYPE weir_build_info gauge
weir_build_info{goversion=%q,version="v1.2.3"} 1
`, runtime.Version()), "weir_build_info")
	_, r = open(t, Options{})
	if got := labels(family(t, r, "weir_build_info").GetMetric()[0])["version"]; got != "unknown" {
		t.Error(got)
	}
}

// With more rules than a metrics server can bear, the rest is counted in one series,
// and nothing is lost.
func TestRulesAreBounded(t *testing.T) {
	m, r := open(t, Options{})
	for i := range 3 * maxRules {
		m.checked(1, fmt.Sprint("rule ", i), limiter.SourceOwner, true, false)
	}
	rules, total, rest := map[string]bool{}, 0.0, 0.0
	for _, metric := range family(t, r, "weir_checks_total").GetMetric() {
		l := labels(metric)
		rules[l["rule"]] = true
		total += metric.GetCounter().GetValue()
		if l["rule"] == other {
			rest += metric.GetCounter().GetValue()
		}
	}
	if len(rules) != maxRules+1 || total != 3*maxRules || rest != 2*maxRules {
		t.Errorf("%d rules, %v checks, %v of them other", len(rules), total, rest)
	}
	// Known rules stay known, and a rule with the name "other" is counted among the
	// others.
	m.checked(1, "rule 1", limiter.SourceOwner, false, false)
	m.checked(1, other, limiter.SourceOwner, true, false)
	for _, metric := range family(t, r, "weir_checks_total").GetMetric() {
		l, v := labels(metric), metric.GetCounter().GetValue()
		if l["rule"] == "rule 1" && v != 1 || l["rule"] == other && l["result"] == "allowed" && v != 2*maxRules+1 {
			t.Errorf("%v: %v", l, v)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	m, r := open(t, Options{})
	for i := range 2 * maxRequests {
		m.Served("Check", fmt.Sprint(i), time.Millisecond)
	}
	f := family(t, r, "weir_request_duration_seconds")
	if len(f.GetMetric()) != maxRequests+1 {
		t.Errorf("%d series", len(f.GetMetric()))
	}
	for _, metric := range f.GetMetric() {
		if l := labels(metric); l["method"] == other && metric.GetHistogram().GetSampleCount() != maxRequests {
			t.Errorf("%v", metric)
		}
	}
}

// Nothing is lost with any number of counting goroutines, while rules appear and
// scrapes run, and the values in scrapes never decrease.
func TestConcurrent(t *testing.T) {
	m, r := open(t, Options{})
	const goroutines, each, rules = 8, 20_000, 50
	names := make([]string, rules)
	for i := range names {
		names[i] = fmt.Sprint("rule ", i)
	}
	done := make(chan struct{})
	var scrapes sync.WaitGroup
	scrapes.Go(func() {
		for last := 0.0; ; {
			now := sum(t, r)
			if now < last {
				t.Errorf("the count fell from %v to %v", last, now)
			}
			last = now
			select {
			case <-done:
				return
			default:
			}
		}
	})
	var counting sync.WaitGroup
	for g := range goroutines {
		counting.Go(func() {
			for i := range each {
				m.checked(1, names[(g+i)%rules], limiter.SourceOwner, i%3 > 0, false)
				m.Served("Check", "OK", time.Duration(i))
				m.refused(limiter.ErrInvalid)
				if i%1000 == 0 {
					m.rulesSet(uint64(i), nil)
				}
			}
		})
	}
	counting.Wait()
	close(done)
	scrapes.Wait()
	if got := sum(t, r); got != goroutines*each {
		t.Errorf("%v checks", got)
	}
	if got := family(t, r,
		"weir_request_duration_seconds").GetMetric()[0].GetHistogram().GetSampleCount(); got != goroutines*each {
		t.Errorf("%v requests", got)
	}
	for _, metric := range family(t, r, "weir_check_errors_total").GetMetric() {
		if labels(metric)["reason"] == "invalid" && metric.GetCounter().GetValue() != goroutines*each {
			t.Errorf("%v", metric)
		}
	}
}

func sum(t testing.TB, g prometheus.Gatherer) float64 {
	total := 0.0
	for _, metric := range family(t, g, "weir_checks_total").GetMetric() {
		total += metric.GetCounter().GetValue()
	}
	return total
}

// The metrics of two nodes fit on one Registerer with a label for each. A clash returns
// an error and leaves nothing registered.
func TestRegister(t *testing.T) {
	r := NewRegistry()
	for _, name := range []string{"a", "b"} {
		if _, err := New(prometheus.WrapRegistererWith(prometheus.Labels{"node": name}, r), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	r = NewRegistry()
	m, err := New(r, Options{Runtime: true})
	if err != nil {
		t.Fatal(err)
	}
	if f := family(t, r, "go_goroutines"); f == nil {
		t.Error("there are no metrics of the runtime")
	}
	if runtime.GOOS == "linux" && family(t, r, "process_open_fds") == nil {
		t.Error("there are no metrics of the process")
	}
	if _, err := New(r, Options{}); err == nil {
		t.Error("the same names were registered twice")
	}
	m.Close()
	m.Close()
	if all, err := r.Gather(); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	r = NewRegistry()
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "process_open_fds", Help: "Another's."})
	if err := r.Register(other); err != nil {
		t.Fatal(err)
	}
	if _, err := New(r, Options{Runtime: true}); err == nil {
		t.Error("a clash went unseen")
	}
	if all, err := r.Gather(); err != nil || len(all) != 1 {
		t.Errorf("what clashed left something behind: %v, %v", all, err)
	}
}

func TestLint(t *testing.T) {
	m, r := open(t, Options{Table: func() TableStats { return TableStats{} }})
	fill(m)
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// fill makes every metric appear.
func fill(m *Metrics) {
	m.checked(1, "towns", limiter.SourceOwner, true, false)
	m.refused(limiter.ErrInvalid)
	m.Served("Check", "OK", time.Millisecond)
	m.Connections("127.0.0.1:8080", 1)
	m.rulesSet(1, nil)
}

// The output for Prometheus, in its text format and in OpenMetrics.
func TestHandler(t *testing.T) {
	m, r := open(t, Options{Table: func() TableStats { return TableStats{} }, Runtime: true})
	fill(m)
	h := Handler(r)
	for _, accept := range []string{"", "application/openmetrics-text; version=1.0.0"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		req.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != http.StatusOK {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		if accept != "" {
			if !strings.HasSuffix(w.Body.String(), "# EOF\n") || !strings.Contains(w.Body.String(), "weir_checks_total{") {
				t.Errorf("not OpenMetrics: %s", w.Body)
			}
			continue
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all, err := parser.TextToMetricFamilies(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"weir_checks_total", "weir_request_duration_seconds", "weir_table_keys",
			"weir_build_info", "go_goroutines"} {
			if all[name] == nil {
				t.Errorf("there is no %s", name)
			}
		}
	}
}

// A node reports all of this to its observer.
func TestOfANode(t *testing.T) {
	var n *weir.Node
	m, r := open(t, Options{Table: func() TableStats {
		s := n.Stats()
		return TableStats{Keys: s.Keys, Bytes: s.Bytes, Overflowed: s.Overflowed, MaxKeys: 10}
	}})
	n, err := weir.Open(t.Context(), weir.Config{Observer: m.Observer(), Now: noon,
		Rules: []byte(`{version: 1, rules: [{name: towns, match: {path: "^/t"}, limits: [2/minute]}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	var d weir.Decision
	for range 3 {
		if err := n.CheckInto(t.Context(), &weir.Request{Path: "/t", User: "ada"}, &d); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.CheckInto(t.Context(), &weir.Request{Path: "/t", Cost: weir.Units(-1)}, &d); err == nil {
		t.Fatal("a negative cost was decided")
	}
	if err := n.SetRules([]byte("version: 9")); err == nil {
		t.Fatal("bad rules were taken")
	}
	want(t, r, fmt.Sprintf(`
# HELP weir_checks_total Decisions, peeks included, by the rule that decided (empty: none matched), by result (shadow_denied: allowed, but a shadow rule would have denied), and by who decided.
# TYPE weir_checks_total counter
weir_checks_total{result="allowed",rule="towns",source="owner"} 2
weir_checks_total{result="denied",rule="towns",source="owner"} 1
# HELP weir_rules_info The rules in force: always 1, the hash is what they mean.
# TYPE weir_rules_info gauge
weir_rules_info{hash="%016x"} 1
# HELP weir_rules_reloads_total Rules files read, the first included.
# TYPE weir_rules_reloads_total counter
weir_rules_reloads_total{result="failure"} 1
weir_rules_reloads_total{result="success"} 1
# HELP weir_table_keys Counters held, one for each key and limit, that are no copies: what weir_table_max_keys bounds.
# TYPE weir_table_keys gauge
weir_table_keys 1
`, n.RulesHash()), "weir_checks_total", "weir_rules_info", "weir_rules_reloads_total", "weir_table_keys")
}

func TestShards(t *testing.T) {
	for threads, want := range map[int]int{1: 8, 2: 8, 3: 16, 16: 64, 1000: 64} {
		if got := shardCount(threads); got != want {
			t.Errorf("%d threads: %d shards, want %d", threads, got, want)
		}
	}
	var mu sync.Mutex
	seen := map[uint64]bool{}
	ready := make(chan struct{})
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			<-ready // so that all stacks exist at once
			h := hint(maxShards)
			mu.Lock()
			defer mu.Unlock()
			seen[h] = true
			if h >= maxShards || hint(minShards) >= minShards {
				t.Errorf("%d, %d", h, hint(minShards))
			}
		})
	}
	close(ready)
	all.Wait()
	if len(seen) < 8 {
		t.Errorf("64 goroutines share %d shards of 64", len(seen))
	}
}

func TestDefaultZones(t *testing.T) {
	m, r := open(t, Options{})
	if f := family(t, r, "weir_zone_default_total"); f != nil {
		t.Errorf("before any: %v", f)
	}
	m.unzoned("own", true)
	m.unzoned("own", true)
	m.unzoned("own", false)
	m.unzoned("other rule", false)
	want(t, r, `
# HELP weir_zone_default_total Checks by the default time zone of a rule, since the attribute of the request was missing or not the name of a zone (unknown).
# TYPE weir_zone_default_total counter
weir_zone_default_total{reason="missing",rule="other rule"} 0
weir_zone_default_total{reason="missing",rule="own"} 2
weir_zone_default_total{reason="unknown",rule="other rule"} 1
weir_zone_default_total{reason="unknown",rule="own"} 1
`, "weir_zone_default_total")
}

func TestRepeats(t *testing.T) {
	m, r := open(t, Options{})
	if f := family(t, r, "weir_checks_repeated_total"); f != nil {
		t.Errorf("before any: %v", f)
	}
	m.repeated("pay")
	m.repeated("pay")
	want(t, r, `
# HELP weir_checks_repeated_total Checks whose id was remembered: they got the answer of the first check with it and were not charged.
# TYPE weir_checks_repeated_total counter
weir_checks_repeated_total{rule="pay"} 2
`, "weir_checks_repeated_total")
}

func TestShadows(t *testing.T) {
	m, r := open(t, Options{})
	if f := family(t, r, "weir_shadow_checks_total"); f != nil {
		t.Errorf("before any: %v", f)
	}
	m.shadowed("trial", false)
	m.shadowed("trial", true)
	m.shadowed("trial", true)
	want(t, r, `
# HELP weir_shadow_checks_total What rules and quotas in shadow would have decided, by rule.
# TYPE weir_shadow_checks_total counter
weir_shadow_checks_total{result="allowed",rule="trial"} 1
weir_shadow_checks_total{result="denied",rule="trial"} 2
`, "weir_shadow_checks_total")
}
