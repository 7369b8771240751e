package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const townRules = `version: 1
rules:
  - {name: towns, match: {path: "^/towns"}, key: [path, user], limits: [{limit: 3, window: 1d, algorithm: fixed_window, align: first_hit}]}
`

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// plain returns the config of a node on free ports, without rules.
func plain() (Config, *logBuffer) {
	j := &logBuffer{}
	return Config{
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0", MaxKeys: 1000,
		ClusterName:     "weir",
		ShutdownTimeout: 10 * time.Second, Version: "v0", Log: slog.New(slog.NewTextHandler(j, nil)),
	}, j
}

// start starts a node that ends with the test.
func start(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop := func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		if !s.stopping.Load() {
			once.Do(stop)
		}
	})
	return s
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func replace(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// answerTo asks over HTTP on a connection of its own, with some header fields.
func answerTo(t *testing.T, method, url, body string, header ...string) (status int, text string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	return answerTo(t, http.MethodGet, url, "")
}

// bearer returns the header field that shows a token; none if it is empty.
func bearer(token string) []string {
	if token == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + token}
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// membersInOneProcess begins a test that runs several members in this process. It does not run
// where the race detector meets -short: their ticks take most of a core there for as long as they
// live, and packages cluster and internal/cluster have them under the detector in all cases.
func membersInOneProcess(t *testing.T) {
	t.Helper()
	if raceEnabled && testing.Short() {
		t.Skip("members in one process, whose ticks take a core under the race detector; make wire runs it")
	}
}

// eventually waits for what must become true soon.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	end := time.After(20 * time.Second)
	for !is() {
		select {
		case <-look.C:
		case <-end:
			t.Fatal("this never came true: " + what)
		}
	}
}

// A node answers in both protocols from the same counters, is healthy and ready, and
// counts everything in its metrics.
func TestServes(t *testing.T) {
	c, log := plain()
	c.RulesFile = file(t, townRules)
	s := start(t, c)
	status, body := get(t, "http://"+s.Addresses().HTTP+"/v1/check?path=/towns&user=ada")
	if status != http.StatusOK || !strings.Contains(body, `"remaining":2`) {
		t.Errorf("%d %s", status, body)
	}
	conn := dial(t, s.Addresses().GRPC)
	a, err := weirv1.NewLimiterClient(conn).Check(t.Context(), &weirv1.CheckRequest{Path: "/towns", User: "ada"})
	if err != nil || a.GetLimits()[0].GetRemaining() != 1 {
		t.Errorf("%v, %v", a, err)
	}
	var d weir.Decision
	if err := s.Node().CheckInto(t.Context(), &weir.Request{Path: "/towns", User: "ada"}, &d); err != nil ||
		d.Limit(0).Remaining != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if status, body = get(t, "http://"+s.Addresses().HTTP+
		"/v1/check?path=/towns&user=ada"); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, body)
	}
	h, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", h, err)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		for _, at := range []string{s.Addresses().HTTP, s.Addresses().Health} {
			if status, body := get(t, "http://"+at+path); status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	}
	for _, path := range []string{"/debug/pprof/", "/metrics", "/v1/top"} {
		a := s.Addresses()
		for at, want := range map[string]int{a.HTTP: http.StatusNotFound, a.Health: http.StatusNotFound,
			a.Admin: http.StatusOK} {
			if status, body := get(t, "http://"+at+path); status != want {
				t.Errorf("%s at %s: %d %s", path, at, status, body)
			}
		}
	}
	if log.String() != "" {
		t.Errorf("there is nothing to tell: %s", log)
	}
	_, text := get(t, "http://"+s.Addresses().Admin+"/metrics")
	metrics := families(t, text)
	for name, want := range map[string]float64{
		`weir_checks_total{result="allowed",rule="towns",source="owner"}`:        3,
		`weir_checks_total{result="denied",rule="towns",source="owner"}`:         1,
		`weir_request_duration_seconds_count{code="200",method="GET /v1/check"}`: 1,
		`weir_request_duration_seconds_count{code="429",method="GET /v1/check"}`: 1,
		`weir_request_duration_seconds_count{code="OK",method="Check"}`:          1,
		`weir_table_keys`:                                     1,
		`weir_table_max_keys`:                                 1000,
		`weir_table_max_bytes`:                                64 << 20,
		`weir_rules_reloads_total{result="success"}`:          1,
		`weir_rules_info{hash="` + s.RulesHash() + `"}`:       1,
		`weir_rules_last_reload_successful`:                   1,
		`weir_check_errors_total{reason="invalid"}`:           0,
		`go_sched_gomaxprocs_threads`:                         -1, // whatever
		`weir_table_overflow_total{bound="max_share"}`:        0,
		`weir_rules_last_reload_success_timestamp_seconds`:    -1,
		`weir_table_bytes`:                                    -1,
		`weir_check_errors_total{reason="deadline_exceeded"}`: 0,
	} {
		if got, ok := metrics[name]; !ok || want >= 0 && got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// families reads metrics as Prometheus does, into a number for each series.
func families(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for name, f := range all {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			set := ""
			if labels != nil {
				set = "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetHistogram() != nil:
				out[name+"_count"+set] = float64(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				out[name+set] = m.GetCounter().GetValue()
			default:
				out[name+set] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// Every setting of the config reaches the node.
func TestConfig(t *testing.T) {
	c, log := plain()
	c.Rules, c.AllowRequestLimits, c.AllowReset, c.MaxKeys, c.AdminAddr, c.HealthAddr = []byte(townRules), true, true, 1,
		"", ""
	s := start(t, c)
	if s.Addresses().Admin != "" || s.Addresses().Health != "" {
		t.Errorf("it serves apart, unasked, at %q and %q", s.Addresses().Admin, s.Addresses().Health)
	}
	asker := weirv1.NewLimiterClient(dial(t, s.Addresses().GRPC))
	if a, err := asker.Check(t.Context(), &weirv1.CheckRequest{Path: "/x", User: "ada",
		Limits: []*weirv1.Limit{{Limit: 1, WindowUs: 1e9}}}); err != nil || !a.GetAllowed() {
		t.Errorf("limits of a request: %v, %v", a, err)
	}
	if a, err := asker.Check(t.Context(), &weirv1.CheckRequest{Path: "/towns", User: "bob"}); err != nil ||
		a.GetAllowed() || !a.GetLimits()[0].GetOverflow() {
		t.Errorf("a second key of one: %v, %v", a, err)
	}
	if a, err := asker.Reset(t.Context(), &weirv1.ResetRequest{Path: "/x", User: "ada",
		Limits: []*weirv1.Limit{{Limit: 1, WindowUs: 1e9}}}); err != nil || a.GetCounters() != 1 {
		t.Errorf("reset: %v, %v", a, err)
	}
	s.Reload()
	if !strings.Contains(log.String(), "nothing to reload") {
		t.Errorf("a reload without a file: %s", log)
	}
}

// With overflow: allow, a second key of one passes. The node takes a secret and a
// cluster's name; what they do to the hash is tested where it is made.
func TestOverflowAllow(t *testing.T) {
	c, _ := plain()
	c.Rules, c.Secret, c.ClusterName, c.MaxKeys, c.Overflow = []byte(townRules), []byte("s3cret"), "other", 1,
		weir.OverflowAllow
	s := start(t, c)
	for _, user := range []string{"ada", "bob"} {
		var d weir.Decision
		if err := s.Node().CheckInto(t.Context(), &weir.Request{Path: "/towns", User: user}, &d); err != nil || !d.Allowed {
			t.Errorf("%s: %+v, %v", user, d, err)
		}
	}
}

// Operators ask by the names that the configuration knows.
func TestAdminHosts(t *testing.T) {
	c := Config{AdminAddr: "ops-1:8082", AdminHosts: []string{"ops.example"},
		Cluster: &cluster.Config{Advertise: "node-1"}}
	c.HTTPAddr, c.HTTPHosts = "web-1:8080", []string{"web.example"}
	if got := c.hosts(c.HTTPHosts, c.HTTPAddr); !slices.Equal(got, []string{"web.example", "web-1", "node-1"}) {
		t.Errorf("browsers ask by %v", got)
	}
	s := &Server{config: c}
	s.watching.console = console.New(console.Config{})
	h := transport.NewAdmin(s.site()).Handler()
	for host, want := range map[string]int{"ops-1": 200, "ops.example:80": 200, "node-1:8082": 200, "localhost": 200,
		"ops-2": 403, "node-2:8082": 403} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/openapi.yaml", nil)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
}

func TestCannotStart(t *testing.T) {
	taken := listener(t)
	used := taken.Addr().String()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"gRPC port in use": {func(c *Config) {
			c.GRPCAddr = used
		}, "cannot listen on " + used +
			": another program has that port; stop it, or choose another address with --grpc-addr"},
		"HTTP port in use":   {func(c *Config) { c.HTTPAddr = used }, "--http-addr"},
		"admin port in use":  {func(c *Config) { c.AdminAddr = used }, "--admin-addr"},
		"health port in use": {func(c *Config) { c.HealthAddr = used }, "--health-addr"},
		"no such address":    {func(c *Config) { c.HTTPAddr = "192.0.2.1:80" }, "--http-addr"},
		"no rules file":      {func(c *Config) { c.RulesFile = "none.yaml" }, "rules file none.yaml cannot be opened"},
		"bad rules":          {func(c *Config) { c.Rules = []byte("version: 2") }, "version"},
		"empty file":         {func(c *Config) { c.RulesFile = file(t, "") }, "rules.yaml:1:1: "},
		"negative max keys":  {func(c *Config) { c.MaxKeys = -1 }, "MaxKeys -1"},
	} {
		t.Run(name, func(t *testing.T) {
			config, _ := plain()
			c.change(&config)
			s, err := Start(t.Context(), config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if s != nil {
				t.Error("there is a server too")
			}
		})
	}
	config, _ := plain()
	config.RulesFile = file(t, "version: 1\nrules:\n  - {name: a}\n  - {name: b}\n")
	_, err := Start(t.Context(), config)
	if bad := (*rules.Error)(nil); !errors.As(err, &bad) || len(bad.Problems) != 2 || bad.File != config.RulesFile {
		t.Errorf("not all that is wrong: %v", err)
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A start that fails late leaves the addresses free that it had already.
func TestCannotStartLeavesNothing(t *testing.T) {
	free, taken := listener(t), listener(t)
	c, _ := plain()
	c.GRPCAddr, c.HTTPAddr = free.Addr().String(), taken.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "--http-addr") {
			t.Fatal(err)
		}
	}
}

func TestOpenAddress(t *testing.T) {
	c, log := plain()
	c.HTTPAddr = ":0"
	start(t, c)
	if got := log.String(); strings.Count(got, "level=WARN") != 1 ||
		!strings.Contains(got, "without TLS and authentication") || !strings.Contains(got, "flag=--http-addr") {
		t.Error(got)
	}
}

// A changed file takes effect automatically or on demand. An invalid one does not, and
// the metrics show it.
func TestReload(t *testing.T) {
	c, log := plain()
	c.RulesFile = file(t, townRules)
	s := start(t, c)
	first := s.RulesHash()
	replace(t, c.RulesFile, strings.Replace(townRules, "limit: 3", "limit: 4", 1))
	eventually(t, "the file that changed is in force", func() bool { return s.RulesHash() != first })
	second := s.RulesHash()
	replace(t, c.RulesFile, "version: 1\nrules:\n  - {name: a}\n  - {name: b}\n")
	eventually(t, "the bad file is refused", func() bool { return strings.Contains(log.String(), "4:5: ") })
	if s.RulesHash() != second {
		t.Error("the bad file is in force")
	}
	if err := os.Remove(c.RulesFile); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is missed", func() bool { return strings.Contains(log.String(), "cannot be opened") })
	replace(t, c.RulesFile, townRules)
	eventually(t, "the old rules are back", func() bool { return s.RulesHash() == first })
	s.Reload()
	reloads := func(result string) float64 {
		_, text := get(t, "http://"+s.Addresses().Admin+"/metrics")
		return families(t, text)[`weir_rules_reloads_total{result="`+result+`"}`]
	}
	eventually(t, "four loads", func() bool { return reloads("success") == 4 })
	if got := reloads("failure"); got != 2 {
		t.Errorf("%v failures", got)
	}
	if status, body := get(t, "http://"+s.Addresses().HTTP+"/readyz"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// Warnings of the rules, and rules that a reload takes away, are in the node's log: at the
// start, and at a reload what is new.
func TestRulesAreWarnedOf(t *testing.T) {
	const open = "version: 1\nrules:\n  - {name: towns, match: {path: \"^/towns\"}, limits: [5/second]}\n"
	c, log := plain()
	c.RulesFile = file(t, open+"  - {name: rest, key: [ip], limits: [5/second]}\n")
	start(t, c)
	const warning = `line=3 column=33 rule=towns warning=`
	if got := log.String(); strings.Count(got, warning) != 1 || !strings.Contains(got, `instead="key: [rule, user]"`) {
		t.Errorf("at the start: %s", got)
	}
	replace(t, c.RulesFile, open) // as if it had been cut off
	eventually(t, "the missing rule is named", func() bool {
		return strings.Contains(log.String(), "gone=1 names=[rest] rules=1")
	})
	eventually(t, "the reload is warned of", func() bool { return strings.Contains(log.String(), "mistakes=1") })
}

// Rules that change under load lose no count and fail no check. (In a process of
// its own, over the wire and a thousand times: cmd/node's tests.)
func TestReloadUnderLoad(t *testing.T) {
	const limit = 4_000_000_000
	version := func(n int) string {
		return fmt.Sprintf("version: 1\nrules:\n  - {name: a%d, match: {path: /a}, limits: [1/second]}\n"+
			"  - {name: counted, limits: [{limit: %d, window: 30d, algorithm: fixed_window, align: first_hit}]}\n", n, limit)
	}
	c, _ := plain()
	c.RulesFile = file(t, version(0))
	s := start(t, c)
	r := &weir.Request{Path: "/counted", User: "all"}
	var checks [4]int64
	done := make(chan struct{})
	var asking sync.WaitGroup
	for i := range checks {
		asking.Go(func() {
			var d weir.Decision
			for ; ; checks[i]++ {
				select {
				case <-done:
					return
				default:
				}
				if err := s.Node().CheckInto(t.Context(), r, &d); err != nil || !d.Allowed || d.Rule != "counted" {
					t.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	for n := range 100 {
		before := s.RulesHash()
		replace(t, c.RulesFile, version(n+1))
		s.Reload()
		eventually(t, "the file is in force", func() bool { return s.RulesHash() != before })
	}
	close(done)
	asking.Wait()
	var d weir.Decision
	if err := s.Node().PeekInto(t.Context(), r, &d); err != nil {
		t.Fatal(err)
	}
	if want := limit - checks[0] - checks[1] - checks[2] - checks[3]; int64(d.Limit(0).Remaining) != want {
		t.Errorf("%d remain, want %d", d.Limit(0).Remaining, want)
	}
}

// slowRequest begins a request and returns what ends it.
func slowRequest(t *testing.T, address string) (finish func() (string, error)) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := `{"path": "/towns", "user": "ada"}`
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
		"%d\r\nExpect: 100-continue\r\n\r\n", len(body))
	in := bufio.NewReader(conn)
	// The node sends "continue" when it begins to read the body: from then on the
	// request is in flight.
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	return func() (string, error) {
		fmt.Fprint(conn, body)
		all, err := io.ReadAll(in)
		return string(all), err
	}
}

// While it drains, a node reports not ready, still decides for a while, then accepts
// nothing new, and answers what it has begun.
func TestDrains(t *testing.T) {
	c, _ := plain()
	c.Rules, c.ShutdownDelay = []byte(townRules), 2*time.Second
	s := start(t, c)
	conn := dial(t, s.Addresses().GRPC)
	health := healthv1.NewHealthClient(conn)
	if h, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil ||
		h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", h, err)
	}
	finish := slowRequest(t, s.Addresses().HTTP)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	eventually(t, "the node says that it is not ready", func() bool {
		status, _ := get(t, "http://"+s.Addresses().HTTP+"/readyz")
		return status == http.StatusServiceUnavailable
	})
	if out, err := http.Get("http://" + s.Addresses().HTTP + "/v1/check?path=/towns&user=eve"); err != nil ||
		out.StatusCode != http.StatusOK || !out.Close {
		t.Errorf("a client that keeps its connection is not told to connect to another node: %+v, %v", out, err)
	} else {
		out.Body.Close()
	}
	if h, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil ||
		h.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	if a, err := weirv1.NewLimiterClient(conn).Check(t.Context(),
		&weirv1.CheckRequest{Path: "/towns", User: "bob"}); err != nil || !a.GetAllowed() {
		t.Errorf("not decided any more: %v, %v", a, err)
	}
	eventually(t, "no connection is accepted", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addresses().HTTP)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-stopped:
		t.Fatalf("it did not wait for the request in flight: %v", err)
	default:
	}
	if answer, err := finish(); err != nil || !strings.Contains(answer, "200 OK") ||
		!strings.Contains(answer, `"allowed":true`) {
		t.Errorf("the request in flight: %s, %v", answer, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	var d limiter.Decision
	if err := s.Node().CheckInto(t.Context(), &weir.Request{}, &d); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("the node is open: %v", err)
	}
}

// Calls that do not end are cut off within the bound, a stream of checks ends by
// itself.
func TestStopIsBounded(t *testing.T) {
	c, _ := plain()
	c.Rules, c.ShutdownTimeout = []byte(townRules), time.Second
	s := start(t, c)
	stream, err := weirv1.NewLimiterClient(dial(t, s.Addresses().GRPC)).CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&weirv1.CheckColumns{Keys: []byte("/towns"), PathLengths: []uint32{6}}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || len(m.GetFlags()) != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	slowRequest(t, s.Addresses().HTTP)
	err = s.Stop() // without the bound it would wait for a request that never ends
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream goes on")
	}
}

// TestStopLeavesWhatIsStuck: work that does not end, such as the reading of a rules file from
// a file system that hangs, does not keep the node from ending. The log names it.
func TestStopLeavesWhatIsStuck(t *testing.T) {
	c, log := plain()
	c.ShutdownTimeout = 5 * time.Second
	s := start(t, c)
	release := make(chan struct{})
	s.background.start("reading of rules.yaml", func() { <-release })
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	if !strings.Contains(log.String(), "stopped without waiting") ||
		!strings.Contains(log.String(), `left="reading of rules.yaml"`) {
		t.Errorf("the log does not name what is left:\n%s", log)
	}
	close(release)
	s.background.all.Wait()
}

// A node reports when its listener fails.
func TestFailed(t *testing.T) {
	c, _ := plain()
	s := start(t, c)
	if err := s.http.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.Failed():
		if !strings.Contains(err.Error(), "HTTP") {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing was said")
	}
}
