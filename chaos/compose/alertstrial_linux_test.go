package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs/certstest"
)

// Prometheus with the shipped alerts watches three real nodes. Ten minutes of rolling restarts,
// with clients, make no alert fire. A killed member, one that stands still, a certificate that
// nobody renews, and a table that fills make theirs fire, and no other that is not about the
// same, and they end with their cause. It takes three quarters of an hour.
func TestAlertsOnRealNodes(t *testing.T) {
	if os.Getenv("WEIR_ALERTS") == "" {
		t.Skip("it takes three quarters of an hour: make alerts-test runs it")
	}
	w := watchAlerts(t)
	w.fill(12_000, 2000) // two fifths of the tables
	w.load(20)

	t.Log("rolling restarts")
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
		for _, n := range w.nodes {
			n.signal(syscall.SIGTERM)
			_ = n.cmd.Wait() // in good order or not, Prometheus sees the same
			n.run()
			w.pause(10 * time.Second)
		}
	}
	w.expect(0)

	t.Log("a member is killed")
	w.nodes[2].signal(syscall.SIGKILL)
	_ = w.nodes[2].cmd.Wait() // it was killed
	w.expect(4*time.Minute, "WeirMemberDead", "WeirMemberDown")
	w.nodes[2].run()
	w.over(2 * time.Minute)

	t.Log("a member stands still")
	w.nodes[1].signal(syscall.SIGSTOP)
	w.expect(4*time.Minute, "WeirMemberDead", "WeirMemberDown")
	w.nodes[1].signal(syscall.SIGCONT)
	w.over(2 * time.Minute)

	t.Log("a certificate is not renewed")
	w.certificate(time.Now().Add(-time.Hour), time.Now().Add(4*time.Minute))
	w.expect(3*time.Minute, "WeirCertificateExpires")
	w.expect(5*time.Minute, "WeirCertificateExpires", "WeirCertificateExpired")
	w.certificate(time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	w.over(2 * time.Minute)

	t.Log("the tables fill within the hour")
	stop := w.load(-10)
	w.expect(20*time.Minute, "WeirTableFills")
	if n := w.sum("weir_table_overflow_total"); n > 0 {
		t.Errorf("%g checks have met the bound before the alert", n)
	}
	stop()
	w.over(12 * time.Minute)
}

// watched is a Prometheus and the three nodes that it asks.
type watched struct {
	t          *testing.T
	prometheus string
	nodes      []*watchedNode
	authority  *certstest.Authority
	dir        string
	users      atomic.Int64 // who have asked

	firing map[string]bool // now
	fired  map[string]bool // since the last expect
}

type watchedNode struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd
	http string
	log  *os.File
}

func (n *watchedNode) run() {
	n.t.Helper()
	n.cmd = exec.Command(n.args[0], n.args[1:]...)
	n.cmd.Stderr = n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, n.http+" is ready", func() bool { return status("http://"+n.http+"/readyz") == http.StatusOK })
}

func (n *watchedNode) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

func watchAlerts(t *testing.T) *watched {
	t.Helper()
	server, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("prometheus is not installed: ", err)
	}
	w := &watched{t: t, dir: t.TempDir(), authority: certstest.New(t, "ours"), firing: map[string]bool{},
		fired: map[string]bool{}}
	w.certificate(time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
	program := filepath.Join(w.dir, "node")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/node")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ports := freePorts(t, 16)
	join := strings.Join([]string{ports[0], ports[5], ports[10]}, ",")
	var admin []string
	for i := range 3 {
		p, name := ports[5*i:], fmt.Sprintf("node-%d", i+1)
		log, err := os.Create(filepath.Join(w.dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		n := &watchedNode{t: t, http: p[3], log: log, args: []string{
			program, "--name", name, "--join", join, "--gossip-addr", p[0], "--peer-addr", p[1], "--grpc-addr", p[2],
			"--http-addr", p[3],
			"--admin-addr", p[4], "--health-addr", "off", "--rules", filepath.Join(root, "deploy", "weir", "rules.yaml"),
			"--max-keys", "10000",
			"--tls-cert", filepath.Join(w.dir, "a.pem"), "--tls-key", filepath.Join(w.dir, "a.key"), "--tls", "optional",
		}}
		w.nodes, admin = append(w.nodes, n), append(admin, p[4])
		t.Cleanup(func() {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait() // killed, which is no error here
			if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
				t.Logf("%s\n%s", name, text)
			}
		})
	}
	var starting sync.WaitGroup
	for _, n := range w.nodes {
		starting.Go(n.run)
	}
	starting.Wait()

	text, err := os.ReadFile(filepath.Join(root, "deploy", "prometheus", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(text), "node-1:8082, node-2:8082, node-3:8082", strings.Join(admin, ", "), 1)
	config, _, _ = strings.Cut(config, "  # Only there with the profile redis")
	alerts, err := filepath.Abs(filepath.Join(root, "deploy", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	config = strings.Replace(config, "alerts.yml", alerts, 1)
	file := filepath.Join(w.dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	w.prometheus = "http://" + ports[15]
	start(t, server, "--config.file", file, "--storage.tsdb.path", filepath.Join(w.dir, "data"), "--web.listen-address",
		ports[15])
	eventually(t, "Prometheus is ready", func() bool { return status(w.prometheus+"/-/ready") == http.StatusOK })
	return w
}

// certificate gives the nodes another one for clients.
func (w *watched) certificate(begins, ends time.Time) {
	w.t.Helper()
	p := w.authority.Write(w.t, w.t.TempDir(), certstest.Leaf{Name: "a", Hosts: []string{"127.0.0.1"}, Begins: begins,
		Ends: ends})
	for from, to := range map[string]string{p.Cert: "a.pem", p.Key: "a.key"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(w.dir, to), text, 0o600)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// ask makes a check of a user at a node, whatever comes of it.
func (w *watched) ask(node int, user int64) {
	_ = status(fmt.Sprintf("http://%s/v1/check?path=/exports&user=%d", w.nodes[node].http, user))
}

// fill makes a number of users known, some of them a second.
func (w *watched) fill(users, rate int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var asking sync.WaitGroup
	for i := range 8 {
		asking.Go(func() {
			for n := range users / 8 {
				<-tick.C
				w.ask(n%3, w.users.Add(1))
			}
		})
		_ = i
	}
	asking.Wait()
}

// load asks so many times a second until the test or the function ends it: known users, or if
// the number is negative new ones.
func (w *watched) load(rate int) (stop func()) {
	ctx, stop := context.WithCancel(w.t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(max(rate, -rate)))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			user := int64(n%10_000) + 1
			if rate < 0 {
				user = w.users.Add(1)
			}
			go w.ask(n%3, user)
		}
	})
	w.t.Cleanup(func() { stop(); asking.Wait() })
	return stop
}

// look asks which alerts fire, and notes them.
func (w *watched) look() {
	w.t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	w.get("/api/v1/alerts", &answer)
	now := map[string]bool{}
	for _, a := range answer.Data.Alerts {
		if name := a.Labels["alertname"]; a.State == "firing" {
			if now[name] = true; !w.firing[name] {
				w.t.Logf("%s fires: %v", name, a.Labels)
			}
			w.fired[name] = true
		}
	}
	for name := range w.firing {
		if !now[name] {
			w.t.Logf("%s has ended", name)
		}
	}
	w.firing = now
}

func (w *watched) get(path string, into any) {
	w.t.Helper()
	resp, err := (&http.Client{Timeout: soon}).Get(w.prometheus + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		w.t.Fatal(err)
	}
}

// sum returns the sum of a metric over all nodes.
func (w *watched) sum(metric string) (n float64) {
	w.t.Helper()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	w.get("/api/v1/query?query=sum("+metric+")", &answer)
	for _, r := range answer.Data.Result {
		_, _ = fmt.Sscan(fmt.Sprint(r.Value[1]), &n) // a number, or the test fails
	}
	return n
}

// pause looks for a time.
func (w *watched) pause(d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.look()
		select {
		case <-w.t.Context().Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// expect waits until all these alerts have fired, for a time at most, and reports others that have.
func (w *watched) expect(within time.Duration, names ...string) {
	w.t.Helper()
	began := time.Now()
	missing := func() bool { return slices.ContainsFunc(names, func(n string) bool { return !w.fired[n] }) }
	for end := began.Add(within); missing() && time.Now().Before(end); {
		w.pause(2 * time.Second)
	}
	if missing() {
		w.t.Errorf("%v: within %v there were only %v", names, within, w.fired)
	}
	for name := range w.fired {
		if !slices.Contains(names, name) {
			w.t.Errorf("%s has fired; %v were to", name, names)
		}
	}
	w.t.Logf("%v within %v", names, time.Since(began).Round(time.Second))
	w.fired = map[string]bool{}
}

// over waits until no alert fires.
func (w *watched) over(within time.Duration) {
	w.t.Helper()
	began := time.Now()
	for end := began.Add(within); len(w.firing) > 0 && time.Now().Before(end); {
		w.pause(2 * time.Second)
	}
	if len(w.firing) > 0 {
		w.t.Errorf("after %v there still are %v", within, w.firing)
	}
	w.t.Logf("all over within %v", time.Since(began).Round(time.Second))
	w.fired = map[string]bool{}
}
