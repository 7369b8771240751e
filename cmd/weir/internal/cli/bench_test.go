package cli

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/bench"
	"github.com/weirlimit/weir/internal/redistest"
)

// short is a run that ends soon.
func short(args ...string) []string {
	return append([]string{"bench", "--keys", "1000", "--callers", "4", "--rounds", "2", "--duration", "50ms"}, args...)
}

// namesIn returns the keys that a Redis has.
func namesIn(t *testing.T, socket string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "redis-cli", "-s", socket, "KEYS", "*").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// spareRace skips a test of the mode cluster under the race detector with -short: its three nodes run in
// this process.
func spareRace(t *testing.T) {
	t.Helper()
	if raceEnabled && testing.Short() {
		t.Skip("three nodes and two cores: long under the race detector; make wire runs it")
	}
}

// Table, cluster and Redis in one run: every mode of every shape has figures, the
// premises are reported, and Redis is left as it was.
func TestBench(t *testing.T) {
	spareRace(t)
	socket := redistest.Start(t).Socket
	got := person{}.run(t, short("--redis-addr", socket, "--json")...)
	var r bench.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	if len(r.Results) != 9 || r.Keys != 1000 || r.Callers != 4 || r.Rounds != 2 || r.RoundMs != 50 ||
		len(r.LeftOut) != 1 || r.LeftOut[0] != bench.Server {
		t.Fatalf("%+v", r)
	}
	for i, m := range r.Results {
		if want := bench.Modes()[i%3]; m.Mode != want || m.Shape != bench.Shapes()[i/3] {
			t.Errorf("result %d is of %s, %s", i, m.Shape, m.Mode)
		}
		checkResult(t, m)
	}
	if names := namesIn(t, socket); names != "" {
		t.Errorf("left behind: %s", names)
	}
}

// checkResult looks at what is true however fast a machine is.
func checkResult(t *testing.T, m bench.Result) {
	t.Helper()
	limits := 1
	if m.Shape == bench.Three {
		limits = 3
	}
	p := m.Premises
	switch {
	case m.Checks == 0 || p.Allowed == 0 || p.Denied == 0 || p.Allowed+p.Denied != m.Checks:
		t.Errorf("%s, %s: %d checks, %d allowed and %d denied", m.Shape, m.Mode, m.Checks, p.Allowed, p.Denied)
	case p.Filled != 1000 || p.Hit < 1 || p.Hit > 1000 || p.Held == nil || *p.Held < 500*limits:
		t.Errorf("%s, %s: %+v", m.Shape, m.Mode, p)
	case m.Mode != bench.Cluster && *p.Held != 500*limits:
		t.Errorf("%s, %s: %d counters are held", m.Shape, m.Mode, *p.Held)
	case m.P50 <= 0 || m.P99 < m.P50 || m.Slowest <= 0 || m.Fastest < m.Slowest || m.ChecksPerSecond < m.Slowest*0.99 ||
		m.ChecksPerSecond > m.Fastest*1.01:
		t.Errorf("%+v", m)
	case (m.RedisCPU != nil) != (m.Mode == bench.Redis) || m.Mode == bench.Redis && m.Memory != nil:
		t.Errorf("%+v", m)
	}
}

// The readable report has what was measured and what was left out.
func TestBenchText(t *testing.T) {
	spareRace(t)
	got := person{}.run(t, short("--rules-shape", "log")...)
	for _, want := range []string{"1,000 keys", "log table", "log cluster", "left out: redis", "left out: server",
		"premises: "} {
		if got.status != 0 || !strings.Contains(got.out, want) {
			t.Errorf("status %d, %q is not in\n%s%s", got.status, want, got.out, got.err)
		}
	}
}

// A node that runs is measured if it has the rules, and refused if not.
func TestBenchServer(t *testing.T) {
	for name, c := range map[string]struct {
		rules  string
		status int
		want   string
	}{
		"with the rules": {person{}.run(t, "bench", "--print-rules").out, 0, "one server"},
		"with others":    {townRules, 1, "the node needs the rules that weir bench --print-rules prints"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(c.rules)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = n.Close() })
			addr, _ := serveNode(t, n)
			got := person{}.run(t, short("--mode", "server", "--rules-shape", "one", "--server", addr)...)
			if got.status != c.status || !strings.Contains(got.out+got.err, c.want) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// An interrupted run ends with a message, and leaves nothing in Redis.
func TestBenchInterrupted(t *testing.T) {
	socket := redistest.Start(t).Socket
	ctx, cancel := context.WithCancel(t.Context())
	c := bench.Config{
		Modes: []bench.Mode{bench.Table, bench.Redis}, Shapes: []bench.Shape{bench.Three}, Keys: 500, Callers: 2, Rounds: 2,
		Duration: bench.MaxMeasured / 1000, RedisAddr: socket,
	}
	c.Progress = func(what string) {
		if strings.Contains(what, "redis: round") {
			if namesIn(t, socket) == "" {
				t.Error("there is nothing in Redis that could be left behind")
			}
			cancel()
		}
	}
	if _, err := bench.Run(ctx, c); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("it ended with %v", err)
	}
	if names := namesIn(t, socket); names != "" {
		t.Errorf("left behind: %s", names)
	}
	var out, errs strings.Builder
	status := Run(ctx, short("--mode", "table"), Streams{Out: &out, Err: &errs})
	if status != 1 || out.String() != "" || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("status %d: %s%s", status, out.String(), errs.String())
	}
}

func TestBenchBadInput(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		args   string
		status int
		want   string
	}{
		"mode":         {"--mode table,disk", 2, `there is no mode "disk": give some of table,cluster,redis,server`},
		"mode twice":   {"--mode table,table", 2, "the mode table is given twice"},
		"shape":        {"--rules-shape two", 2, `there is no shape "two": give some of one,three,log`},
		"no shape":     {"--rules-shape=", 2, "no shape is given"},
		"keys":         {"--keys 1", 2, "1 keys are out of range: give 2 to 1000000"},
		"callers":      {"--callers 0", 2, "0 callers are out of range"},
		"rounds":       {"--rounds 0", 2, "0 rounds are out of range"},
		"duration":     {"--duration 2m", 2, "a duration of 2m0s is out of range: give 1ms to 1m0s for each of 3 rounds"},
		"no redis":     {"--mode redis", 2, "the mode redis needs an address: give --redis-addr HOST:PORT"},
		"no server":    {"--mode server", 2, "the mode server needs an address: give --server HOST:PORT"},
		"redis unused": {"--mode table --redis-addr 127.0.0.1:1", 2, "--mode leaves redis out"},
		"redis elsewhere": {"--redis-addr 10.0.0.1:6379", 2,
			"--redis-addr 10.0.0.1:6379 is not on this machine: give --remote"},
		"node elsewhere": {"--server http://weir.example:80/x", 2, "is not on this machine: give --remote"},
		"server":         {"--server ftp://localhost:1", 2, "--server \"ftp://localhost:1\" is no address"},
		"redis away":     {"--mode redis --redis-addr " + none, 1, "redis " + none + " cannot be reached: "},
		"argument":       {"table", 2, "table"},
	} {
		t.Run(name, func(t *testing.T) {
			got := person{}.run(t, append([]string{"bench"}, strings.Fields(c.args)...)...)
			if got.status != c.status || got.out != "" || !strings.Contains(got.err, c.want) {
				t.Errorf("status %d, want %d, with %q: %s%s", got.status, c.status, c.want, got.out, got.err)
			}
		})
	}
	protected := redistest.Start(t, "--requirepass", "secret").Socket
	got := person{}.run(t, short("--mode", "redis", "--redis-addr", protected)...)
	if got.status != 1 || !strings.Contains(got.err, "NOAUTH") {
		t.Errorf("%+v", got)
	}
}
