package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// alert is what these tests read of an alert.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readAlerts(t *testing.T) (out []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	readYAML(t, "deploy/prometheus/alerts.yml", &file)
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 5 {
		t.Fatalf("there are %d alerts", len(out))
	}
	return out
}

// alerts reports alerts that name a metric, a label or a value that nodes do not expose.
func (e exposed) alerts(t *testing.T) {
	t.Helper()
	for _, a := range readAlerts(t) {
		for _, wrong := range e.check(a.Expr, a.Annotations["summary"]) {
			t.Errorf("alert %s: %s\n\t%s", a.Alert, wrong, a.Expr)
		}
	}
}

// Each alert has a name of its own, says how grave it is, what happened and what to do, and
// Prometheus of docker-compose.yaml reads the file.
func TestAlerts(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range readAlerts(t) {
		if seen[a.Alert] || !strings.HasPrefix(a.Alert, "Weir") {
			t.Errorf("alert %q", a.Alert)
		}
		seen[a.Alert] = true
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if a.Annotations["summary"] == "" || len(a.Annotations["description"]) < 20 {
			t.Errorf("%s does not say what happened and what to do", a.Alert)
		}
		if _, err := time.ParseDuration(a.For); a.For != "" && err != nil {
			t.Errorf("%s: %v", a.Alert, err)
		}
		if !regexp.MustCompile(`(==|<=|>|<) \S`).MatchString(a.Expr) {
			t.Errorf("%s compares nothing: %s", a.Alert, a.Expr)
		}
	}
	var prometheus struct {
		Files []string `yaml:"rule_files"`
	}
	readYAML(t, "deploy/prometheus/prometheus.yml", &prometheus)
	if !slices.Equal(prometheus.Files, []string{"alerts.yml"}) {
		t.Errorf("Prometheus reads %q", prometheus.Files)
	}
}

// runbooks is where the alerts' runbook_url leads to.
const runbooks = "https://github.com/weirlimit/weir/blob/main/docs/metrics.md#"

// Each alert leads to a heading of its name in docs/metrics.md, below which is what to do;
// and each such heading is that of an alert.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n#") {
		heading, body, _ := strings.Cut(part, "\n")
		if name := strings.TrimLeft(heading, "# "); strings.HasPrefix(name, "Weir") {
			sections[name] = body
		}
	}
	for _, a := range readAlerts(t) {
		if want := runbooks + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %q, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if n := len(strings.Fields(sections[a.Alert])); n < 30 {
			t.Errorf("docs/metrics.md says %d words under a heading %s", n, a.Alert)
		}
		delete(sections, a.Alert)
	}
	for name := range sections {
		t.Errorf("docs/metrics.md has a heading %s, and there is no such alert", name)
	}
}

// Prometheus accepts the alerts, and they fire when they are to by the metrics in
// deploy/prometheus/alerts_test.yml, where promtool is installed.
func TestPromtoolAcceptsTheAlerts(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: alerts are checked by TestAlerts and TestDashboard only")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		run := exec.CommandContext(t.Context(), tool, args...)
		run.Dir = filepath.Join(root, "deploy", "prometheus")
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
