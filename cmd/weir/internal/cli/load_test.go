package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/load"
	"github.com/weirlimit/weir/limiter"
)

// generous is a node that denies nothing.
type generous struct{ *weir.Node }

func (g generous) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	err := g.Node.CheckBatchInto(ctx, rs, ds)
	for i := range ds {
		ds[i].Allowed = true
	}
	return err
}

// asked is a short run against a node.
func asked(addr string, args ...string) []string {
	return append([]string{"bench", "--server", addr, "--keys", "10", "--duration", "50ms", "--batch", "100"}, args...)
}

// Nodes are measured over the network, and the result is text, JSON and a picture.
// Wrong decisions are reported, too, with status 1.
func TestLoad(t *testing.T) {
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(person{}.run(t, "bench", "--print-rules").out)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	addr, _ := serveNode(t, n)
	picture := filepath.Join(t.TempDir(), "waits.svg")
	got := person{}.run(t, asked(addr, "--mode", "unary,batch,stream,client,client-batch", "--json", "--rate", "500,1000",
		"--clients", "2", "--dist", "zipf", "--svg", picture)...)
	var r load.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 || len(r.Points) != 10 {
		t.Fatalf("%v: %+v", err, got)
	}
	for _, p := range r.Points {
		if p.Checks+p.Unsent == 0 || p.Clients != 2 || p.Rate == nil || p.Decisions.Allowed != p.Decisions.AllowedMost {
			t.Errorf("%+v", p)
		}
	}
	if svg, err := os.ReadFile(picture); err != nil || strings.Count(string(svg), "<polyline") != 25 {
		t.Errorf("%v: %s", err, svg)
	}
	got = person{}.run(t, asked(addr, "--mode", "stream")...)
	if got.status != 0 || !strings.Contains(got.out, "stream of 100: ") ||
		!strings.Contains(got.out, "allowed, should be ") {
		t.Errorf("%+v", got)
	}
	wrong, _ := serveNode(t, generous{n})
	got = person{}.run(t, asked(wrong, "--mode", "stream", "--limited", "100", "--keys", "1")...)
	if got.status != 1 || !strings.Contains(got.err, "decisions are wrong") ||
		!strings.Contains(got.out, "allowed, should be 100;") {
		t.Errorf("%+v", got)
	}
	// That the picture cannot be written is known before anything is measured.
	got = person{}.run(t, asked(addr, "--mode", "stream", "--svg", t.TempDir())...)
	if got.status != 1 || got.out != "" || !strings.Contains(got.err, "the picture cannot be written to") {
		t.Errorf("%+v", got)
	}
}

// Results of a run that ends early are printed and drawn, with status 1 and each
// reason.
func TestLoadKeepsFigures(t *testing.T) {
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(person{}.run(t, "bench", "--print-rules").out)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	addr, _ := serveNode(t, n)
	reads := 0
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if reads++; reads > 2 {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("process_cpu_seconds_total 1\n"))
	}))
	defer metrics.Close()
	picture := file(t, "waits.svg", strings.Repeat("what was there ", 5000))
	args := asked(addr, "--mode", "batch", "--rate", "1000,2000", "--json", "--svg", picture, "--server-admin",
		strings.TrimPrefix(metrics.URL, "http://"))
	got := person{}.run(t, args...)
	var r load.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 1 || len(r.Points) != 1 ||
		!strings.Contains(got.err, "500 Internal Server Error") {
		t.Errorf("%v: %+v", err, got)
	}
	if svg, err := os.ReadFile(picture); err != nil || strings.Count(string(svg), "<circle") != 5 ||
		strings.Contains(string(svg), "what was there") {
		t.Errorf("%v: %s", err, svg)
	}
	wrong, _ := serveNode(t, generous{n})
	got = person{}.run(t, asked(wrong, "--mode", "stream,batch", "--limited", "100")...)
	if got.status != 1 || strings.Contains(got.err, `\n`) ||
		!strings.Contains(got.err, "; batch of 100: counters are wrong: ") {
		t.Errorf("%+v", got)
	}
}

func TestLoadBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		args   string
		status int
		want   string
	}{
		"no server": {"--mode unary", 2, "the mode unary needs the addresses of nodes: give --server HOST:PORT"},
		"mixed modes": {"--mode unary,table --server 127.0.0.1:1", 2,
			"unary, batch, stream, client and client-batch go together, and with no other mode"},
		"mode twice":    {"--mode unary,unary --server 127.0.0.1:1", 2, "the mode unary is given twice"},
		"HTTP":          {"--mode unary --server http://127.0.0.1:1", 2, `--server "http://127.0.0.1:1" is no address`},
		"empty address": {"--mode unary --server 127.0.0.1:1,", 2, `--server "" is no address`},
		"elsewhere": {"--mode unary --server 127.0.0.1:1,10.0.0.1:1", 2,
			"--server 10.0.0.1:1 is not on this machine: give --remote"},
		"metrics away": {"--mode unary --server 127.0.0.1:1 --server-admin 10.0.0.1:1", 2,
			"--server-admin 10.0.0.1:1 is not on this machine"},
		"rate":           {"--mode unary --server 127.0.0.1:1 --rate 0", 2, "--rate 0 is out of range"},
		"rate too large": {"--mode unary --server 127.0.0.1:1 --rate 1e12", 2, "is out of range: give up to"},
		"rates": {"--mode unary --server 127.0.0.1:1 --rate 1" + strings.Repeat(",1", 64), 2,
			"are too many to measure"},
		"batch": {"--mode batch --server 127.0.0.1:1 --batch 1001", 2,
			"a batch of 1001 checks is out of range: give 1 to 1000"},
		"clients": {"--mode batch --server 127.0.0.1:1 --clients -1", 2, "-1 clients are out of range"},
		"keys":    {"--mode batch --server 127.0.0.1:1 --keys 0", 2, "0 keys are out of range"},
		"dist": {"--mode batch --server 127.0.0.1:1 --dist normal", 2,
			`there is no distribution "normal": give uniform or zipf`},
		"limited":  {"--mode batch --server 127.0.0.1:1 --limited 101", 2, "101 % of the keys is out of range"},
		"duration": {"--mode batch --server 127.0.0.1:1 --duration 1h", 2, "a duration of 1h0m0s is out of range"},
		"rounds": {"--mode batch --server 127.0.0.1:1 --rounds 2", 2,
			"--rounds is not for the modes unary, batch, stream, client and client-batch"},
		"rate for a table": {"--mode table --rate 5", 2,
			"--rate is for the modes unary, batch, stream, client and client-batch: give one with --mode"},
		"process twice": {"--mode batch --server 127.0.0.1:1 --pid 5,6,5", 2, "the process 5 is given twice"},
		"metrics twice": {"--mode batch --server 127.0.0.1:1 --server-admin 127.0.0.1:2,127.0.0.1:2", 2,
			"the metrics of 127.0.0.1:2 are given twice"},
		"pid and metrics": {"--mode batch --server 127.0.0.1:1 --pid 5 --server-admin 127.0.0.1:2", 2,
			"would be counted twice: give one kind"},
		"several faults": {"--mode batch --server 127.0.0.1:1 --keys 0 --batch 0", 2,
			"give 1 to 1000; 0 keys are out of range"},
		"rate below batch": {"--mode unary,batch --server 127.0.0.1:1 --rate 99 --batch 100", 2,
			"a rate of 99 checks a second is less than a batch of 100"},
		"nobody there": {"--mode stream --server 127.0.0.1:1", 2, "a node cannot be asked: node 127.0.0.1:1"},
		"no process":   {"--mode batch --server 127.0.0.1:1 --pid x", 2, "--pid"},
	} {
		t.Run(name, func(t *testing.T) {
			got := person{}.run(t, append([]string{"bench"}, strings.Fields(c.args)...)...)
			if got.status != c.status || got.out != "" || !strings.Contains(got.err, c.want) {
				t.Errorf("status %d, want %d, with %q: %s%s", got.status, c.status, c.want, got.out, got.err)
			}
		})
	}
}
