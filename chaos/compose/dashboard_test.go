package compose

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/limiter"
)

// soon is how long a test waits for what must happen. None waits for it to pass.
const soon = 60 * time.Second

// exposed is what a cluster exposes: of each series' name, the labels and their
// values. Prometheus itself adds job and instance.
type exposed map[string]map[string][]string

// Every metric, label and value that the dashboard's queries and the alerts name is exposed by nodes that are asked: of
// a cluster, of which one has a data directory, or of one that counts in Redis.
func TestDashboard(t *testing.T) {
	all := exposed{}
	for _, addr := range nodes(t) {
		all.scrape(t, addr)
	}
	all.alerts(t)
	d := readDashboard(t)
	for _, p := range d.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, wrong := range all.check(target.Expr, target.LegendFormat) {
				t.Errorf("panel %q: %s\n\t%s", p.Title, wrong, target.Expr)
			}
		}
	}
	for _, v := range d.Templating.List {
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query)
		if m == nil {
			t.Errorf("variable %s asks %q", v.Name, v.Query)
			continue
		}
		for _, wrong := range all.check(m[1], "{{"+m[2]+"}}") {
			t.Errorf("variable %s: %s", v.Name, wrong)
		}
	}
}

// What the check of queries must notice.
func TestCheckOfQueries(t *testing.T) {
	all := exposed{"weir_x_total": {"rule": {"towns"}, "job": nil, "instance": nil},
		"weir_y": {"job": nil, "instance": nil}}
	for _, c := range []struct{ expr, legend, want string }{
		{`sum by (rule) (rate(weir_x_total{job=~"$job", rule="towns"}[$__rate_interval]))`, "{{rule}}", ""},
		{`max(weir_y) or vector(0)`, "", ""},
		{`weir_y{job=~"$job"}`, "{{instance}}", ""},
		{`weir_z`, "", "weir_z is not exposed"},
		{`sum by (user) (weir_x_total)`, "", "weir_x_total has no label user"},
		{`weir_x_total{path="/"}`, "", "weir_x_total has no label path"},
		{`weir_x_total{rule="town"}`, "", `weir_x_total has no rule="town"`},
		{`weir_x_total{rule=~"ci.*"}`, "", `weir_x_total has no rule=~"ci.*"`},
		{`weir_x_total{rule!~"ci.*"}`, "", `weir_x_total has no rule!~"ci.*"`},
		{`sum by (job) (weir_x_total)`, "{{rule}}", "the legend names rule, which the query sums over"},
		{`sum(weir_y)`, "{{instance}}", "the legend names instance, which the query sums over"},
		{`vector(0)`, "", "it asks for no metric"},
	} {
		got := strings.Join(all.check(c.expr, c.legend), "; ")
		if got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.expr, c.legend, got, c.want)
		}
	}
}

// check returns what is wrong with a query and its legend.
func (e exposed) check(expr, legend string) (wrong []string) {
	by := grouped(expr)
	found := false
	// What is left without strings, groups and spans of time are functions and metrics.
	for _, m := range regexp.MustCompile(`\b(\w+)\b(\{[^}]*\})?`).FindAllStringSubmatch(plain(expr), -1) {
		name, matchers := m[1], m[2]
		if slices.Contains([]string{
			"sum", "max", "min", "rate", "increase", "min_over_time", "max_over_time", "count_over_time", "histogram_quantile",
			"vector", "or", "and", "offset",
		}, name) || name[0] <= '9' {
			continue
		}
		found = true
		labels, ok := e[name]
		if !ok {
			wrong = append(wrong, name+" is not exposed")
			continue
		}
		for _, l := range by {
			if _, ok := labels[l]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s has no label %s", name, l))
			}
		}
		wrong = append(wrong, e.matchers(name, matchers)...)
	}
	if !found {
		wrong = append(wrong, "it asks for no metric")
	}
	summed := regexp.MustCompile(`\b(sum|max|min)\b`).MatchString(expr)
	for _, l := range regexp.MustCompile(`\{\{(?: \$labels\.)?(\w+) ?\}\}`).FindAllStringSubmatch(legend, -1) {
		if summed && !slices.Contains(by, l[1]) {
			wrong = append(wrong, fmt.Sprintf("the legend names %s, which the query sums over", l[1]))
		}
	}
	return wrong
}

// matchers checks {label="value", ...} of a metric.
func (e exposed) matchers(name, text string) (wrong []string) {
	for _, m := range regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`).FindAllStringSubmatch(text, -1) {
		label, how, value := m[1], m[2], m[3]
		values, ok := e[name][label]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s has no label %s", name, label))
			continue
		case label == "job" || label == "instance":
			continue
		case how == "=" || how == "!=":
			value = regexp.QuoteMeta(value)
		}
		pattern, err := regexp.Compile("^(?:" + value + ")$")
		if err != nil {
			wrong = append(wrong, err.Error())
		} else if !slices.ContainsFunc(values, pattern.MatchString) {
			wrong = append(wrong, fmt.Sprintf("%s has no %s", name, m[0]))
		}
	}
	return wrong
}

// grouped returns the labels that a query keeps.
func grouped(expr string) (labels []string) {
	for _, m := range regexp.MustCompile(`\bby\s*\(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(m[1], ",") {
			labels = append(labels, strings.TrimSpace(l))
		}
	}
	return labels
}

func plain(expr string) string {
	expr = regexp.MustCompile(`\b(by|on)\s*\([^)]*\)`).ReplaceAllString(expr, "")
	return regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(expr, "")
}

// scrape adds what a node exposes, and what it would once that happened.
func (e exposed) scrape(t *testing.T, addr string) {
	t.Helper()
	resp, err := (&http.Client{Timeout: soon}).Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			e.add(name, m)
			if family.GetType() == dto.MetricType_HISTOGRAM {
				e.add(name+"_bucket", m)
				e[name+"_bucket"]["le"] = nil
			}
		}
	}
	for _, name := range []string{"weir_certificate_expiry_seconds", "weir_certificate_lifetime_seconds"} {
		e[name] = map[string][]string{"job": nil, "instance": nil, "plane": {"peer"}}
	}
	e["up"] = map[string][]string{"job": nil, "instance": nil} // from Prometheus
	// A test that made policies answer and shadows deny would be longer than this.
	for s := range limiter.SourceShare + 1 {
		e["weir_checks_total"]["source"] = append(e["weir_checks_total"]["source"], s.String())
	}
	e["weir_checks_total"]["result"] = append(e["weir_checks_total"]["result"], "shadow_denied")
	e["weir_overridden_checks_total"] = map[string][]string{"job": nil, "instance": nil, "rule": nil,
		"result": {"allowed", "denied"}}
	e["weir_shadow_checks_total"] = map[string][]string{"job": nil, "instance": nil, "rule": nil,
		"result": {"allowed", "denied"}}
	e["weir_checks_repeated_total"] = map[string][]string{"job": nil, "instance": nil, "rule": nil}
	e["weir_settlements_total"] = map[string][]string{"job": nil, "instance": nil, "rule": nil,
		"result": {"settled", "extended", "charged"}}
}

func (e exposed) add(name string, m *dto.Metric) {
	if e[name] == nil {
		e[name] = map[string][]string{"job": nil, "instance": nil}
	}
	for _, l := range m.GetLabel() {
		e[name][l.GetName()] = append(e[name][l.GetName()], l.GetValue())
	}
}

// nodes runs three nodes of a cluster and one with Redis as processes, asks each of them a little, and returns where
// their administration is. They have the rules that docker-compose.yaml mounts.
func nodes(t *testing.T) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "node")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/node")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rules, ports := filepath.Join(root, "deploy", "weir", "rules.yaml"), freePorts(t, 18)
	join := strings.Join([]string{ports[0], ports[5], ports[10]}, ",")
	for i := range 3 {
		p := ports[5*i:]
		args := []string{"--name", fmt.Sprintf("node-%d", i+1), "--join", join, "--gossip-addr", p[0], "--peer-addr", p[1],
			"--grpc-addr", p[2], "--http-addr", p[3], "--admin-addr", p[4], "--health-addr", "off", "--rules", rules}
		if i == 0 {
			args = append(args, "--data-dir", t.TempDir())
		}
		start(t, program, args...)
	}
	start(t, program, "--backend", "redis", "--redis-addr", redistest.Start(t).Socket, "--redis-timeout", "10s",
		"--grpc-addr", ports[15], "--http-addr", ports[16], "--admin-addr", ports[17], "--health-addr", "off", "--rules",
		rules)
	addrs := []string{ports[3], ports[8], ports[13], ports[16]}
	for _, a := range addrs {
		eventually(t, a+" is ready", func() bool { return status("http://"+a+"/readyz") == http.StatusOK })
	}
	for _, a := range addrs {
		if got := status("http://" + a + "/v1/check?path=/towns&user=ada"); got != http.StatusOK {
			t.Fatalf("%s answers %d", a, got)
		}
	}
	return []string{ports[4], ports[9], ports[14], ports[17]}
}

func start(t *testing.T, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, which is no error here
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%v\n%s", args, text)
		}
	})
}

// Ports are below the range that systems assign to outgoing connections, so that none is
// taken before its node listens.
const lowestPort, highestPort = 12000, 32000

// freePorts returns addresses on loopback that nobody has, over TCP and UDP.
func freePorts(t *testing.T, n int) (out []string) {
	t.Helper()
	var config net.ListenConfig
	for range 100 * n {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowestPort+rand.IntN(highestPort-lowestPort)))
		tcp, err := config.Listen(t.Context(), "tcp", addr)
		if err != nil {
			continue
		}
		defer func() { _ = tcp.Close() }()
		udp, err := config.ListenPacket(t.Context(), "udp", addr)
		if err != nil {
			continue
		}
		defer func() { _ = udp.Close() }()
		if out = append(out, addr); len(out) == n {
			return out
		}
	}
	t.Fatalf("only %d of %d ports are free", len(out), n)
	return nil
}

// status returns the status of an answer, 0 if there is none.
func status(url string) int {
	resp, err := (&http.Client{Timeout: 3 * time.Second}).Get(url)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// eventually asks until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	end := time.After(soon)
	for !so() {
		select {
		case <-look.C:
		case <-end:
			t.Fatalf("it never came about that %s", what)
		}
	}
}
