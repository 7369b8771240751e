package load

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/loadgen"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

func TestRules(t *testing.T) {
	set, err := rules.Parse("load", []byte(allRules()), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := newKeys(&Config{Keys: 200, Limited: 30})
	if err != nil {
		t.Fatal(err)
	}
	limited := 0
	for n := range uint32(200) {
		var r limiter.Request
		var c arith.Charge
		k.request(&r, n)
		if m, err := set.Resolve(&r, &c); err != nil || m.Rule != k.rule(n) || c.Len() != 1 {
			t.Fatalf("key %d: %+v, %v", n, m, err)
		}
		if k.isLimited(n) {
			limited++
		}
	}
	if limited != 60 {
		t.Errorf("%d of 200 keys are limited", limited)
	}
	// As many as are told.
	for _, c := range []Config{{Keys: 1, Limited: 50}, {Keys: 3, Limited: 50}, {Keys: 250, Limited: 30},
		{Keys: 12_345, Limited: 1}} {
		k, err := newKeys(&c)
		if err != nil {
			t.Fatal(err)
		}
		limited := 0
		for n := range uint32(c.Keys) {
			if k.isLimited(n) {
				limited++
			}
		}
		if c.limitedKeys() != limited {
			t.Errorf("%d of %d keys are limited, %d are told", limited, c.Keys, c.limitedKeys())
		}
	}
}

// Drawing repeats, stays in range, and by zipf the first key is drawn most.
func TestDrawer(t *testing.T) {
	for _, d := range []Dist{Uniform, Zipf} {
		c := &Config{Keys: 100, Dist: d}
		one, again, other := newDrawer(c, 1), newDrawer(c, 1), newDrawer(c, 2)
		counts, differ := make([]int, c.Keys), false
		for range 10_000 {
			n := one()
			counts[n]++
			if again() != n {
				t.Fatal("the same seed draws other keys")
			}
			differ = differ || other() != n
		}
		if top := counts[0]; (top > 1000) != (d == Zipf) || !differ {
			t.Errorf("%s: key 0 was drawn %d times", d, top)
		}
	}
	if n := newDrawer(&Config{Keys: 1, Dist: Zipf}, 1)(); n != 0 {
		t.Errorf("the only key is not drawn but %d", n)
	}
}

func TestLedger(t *testing.T) {
	k := &keys{n: 2, limited: []bool{true, false}}
	for name, c := range map[string]struct {
		do   func(*ledger)
		want Decisions
	}{
		"right": {func(l *ledger) {
			for range 102 {
				l.ask(0)
			}
			for range 100 {
				l.answer(0, allowed)
			}
			l.answer(0, denied)
			l.answer(0, denied)
		}, Decisions{Allowed: 100, Denied: 2, KeysHit: 1, AllowedLeast: 100, AllowedMost: 100}},
		"one of them failed": {func(l *ledger) {
			for range 50 {
				l.ask(0)
			}
			for range 48 {
				l.answer(0, allowed)
			}
			l.answer(0, failed)
			l.answer(0, policyDenied)
		}, Decisions{Allowed: 48, Failed: 1, ByPolicy: 1, KeysHit: 1, AllowedLeast: 47, AllowedMost: 50}},
		"too few": {func(l *ledger) {
			l.ask(1)
			l.ask(1)
			l.answer(1, allowed)
			l.answer(1, denied)
		}, Decisions{Allowed: 1, Denied: 1, KeysHit: 1, AllowedLeast: 2, AllowedMost: 2, Under: 1, Early: 1}},
		"too many": {func(l *ledger) {
			for range 101 {
				l.ask(0)
				l.answer(0, allowed)
			}
		}, Decisions{Allowed: 101, KeysHit: 1, AllowedLeast: 100, AllowedMost: 100, Over: 1}},
	} {
		l := newLedger(k)
		c.do(l)
		d := l.conclude()
		wrong := c.want.Over+c.want.Under+c.want.Early > 0
		if d != c.want || (d.Wrong() != nil) != wrong {
			t.Errorf("%s: %+v, %v", name, d, d.Wrong())
		}
	}
}

const exposition = `# HELP process_cpu_seconds_total x
process_cpu_seconds_total 1.5
go_memstats_mallocs_total 1e+06
go_memstats_alloc_bytes_total 2.5e+07
go_gc_duration_seconds{quantile="0"} 0.1
go_gc_duration_seconds_sum 0.25
go_gc_duration_seconds_count 12
`

// The usage of servers comes from their metrics, or from the system.
func TestUsage(t *testing.T) {
	for text, want := range map[string]string{
		exposition: "", "process_cpu_seconds_total 2\n": "", "": "is it a node's HTTP address?",
		"process_cpu_seconds_total soon\n": "not a number",
	} {
		u, err := parseMetrics("there", strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if whole := text == exposition; err == nil && (u.measured != whole ||
			whole && u != (usage{"there", 1500 * time.Millisecond, true, 1e6, 2.5e7, 12, 0.25, 0})) {
			t.Errorf("%q: %+v", text, u)
		}
	}
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, exposition)
	}))
	defer metrics.Close()
	c := Config{Metrics: []string{strings.TrimPrefix(metrics.URL, "http://")}}
	if runtime.GOOS == "linux" {
		c.Processes = []int{os.Getpid()}
	}
	before, err := c.usage(t.Context())
	if err != nil || len(before) != 1+len(c.Processes) {
		t.Fatalf("%+v, %v", before, err)
	}
	after := []usage{before[len(before)-1]}
	before = after[:1:1]
	after = []usage{after[0]}
	after[0].cpu += time.Millisecond
	after[0].mallocs += 50
	after[0].bytes += 1000
	after[0].cycles++
	after[0].paused += 0.5
	p := Point{Checks: 100}
	p.cost(before, after)
	s := p.Servers[0]
	if *p.ServerCPU != 10 || *s.CPU != 10 || *s.Allocations != 0.5 || *s.Bytes != 10 || *s.Collections != 1 ||
		*s.PausedMs != 500 {
		t.Errorf("%+v", s)
	}
	metrics.Close()
	if _, err := c.usage(t.Context()); err == nil {
		t.Error("metrics that are gone are no error")
	}
}

// The picture is XML, with a panel for each mode, a curve for each quantile, and a
// point for each rate.
func TestSVG(t *testing.T) {
	r := Report{Points: []Point{
		{Mode: Unary, Rate: new(2000.0), Waits: Waits{80, 90, 400, 2000, 9000}},
		{Mode: Unary, Rate: new(1000.0), Waits: Waits{50, 60, 100, 200, 300}},
		{Mode: Stream, ChecksPerSecond: 5e6},
	}}
	counts := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(string(r.SVG())))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			counts[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s has %s %q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
	if counts["g"] != 2 || counts["polyline"] != 10 || counts["circle"] != 15 {
		t.Errorf("%v", counts)
	}
	// A curve goes from the lower load to the higher.
	if !strings.Contains(string(r.SVG()), `p99 at 1k/s: 100 µs`) {
		t.Error("a point does not tell its value")
	}
}

func TestText(t *testing.T) {
	r := Report{ServersAt: []string{"a:1"}, Keys: 3, LimitedKeys: 2, Points: []Point{{
		Mode: Client, Ring: true, Batch: 10, Rate: new(2000.0), SentLate: &Waits{}, Unsent: 7, ServerCPU: new(1.0),
		Servers: []Cost{{Server: "a:2", CPU: new(1.0), Allocations: new(0.5), Bytes: new(3.0), Collections: new(2.0),
			PausedMs: new(1.5)}},
		Decisions: Decisions{Allowed: 5, AllowedLeast: 4, AllowedMost: 6, Failed: 1, KeysHit: 3}, Why: "it is gone",
	}}}
	text := r.Text(term.Style{})
	for _, want := range []string{
		"1 node asked, 3 keys, , 2 of them with a limit of 100", "client of 10 by the ring at 2,000/s",
		"a:2 used 1.00µs/check, 0.50 allocations and 3 bytes/check, 2 collections",
		"5 allowed, should be 4 to 6; 0 denied, 1 failed", "7 checks were due and not sent",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	r.Points[0].Decisions.Under = 1
	if err := r.Wrong(); err == nil || !strings.Contains(err.Error(), "which may be charged twice") {
		t.Error(err)
	}
	r.Points[0].Decisions.Under = 0
	r.Points[0].Rate, r.Points[0].Unsent = new(0.5), 1
	if text := r.Text(term.Style{}); !strings.Contains(text, "at 0.5/s: 1 check was due and not sent") {
		t.Error(text)
	}
	if err := r.Wrong(); err == nil || !strings.Contains(err.Error(), "1 check failed: it is gone") {
		t.Error(err)
	}
}

// mute is a lane that never answers.
type mute struct{ deadlines int }

func (m *mute) warm(context.Context) error { return nil }
func (m *mute) close() error               { return nil }

func (m *mute) do(ctx context.Context, _ *call) error {
	if _, ok := ctx.Deadline(); ok {
		m.deadlines++
	}
	<-ctx.Done()
	return ctx.Err()
}

// An unanswered call is given up here, and its deadline is not sent to the node, which
// would end it a moment earlier and so give an answer.
func TestNodesAreToldOfNoDeadline(t *testing.T) {
	c := config("127.0.0.1:1")
	k, err := newKeys(&c)
	if err != nil {
		t.Fatal(err)
	}
	m := new(mute)
	w := &worker{
		lane: m, draw: newDrawer(&c, 0),
		call: call{keys: k, n: make([]uint32, 1), answers: make([]answer, 1)},
	}
	tr := &trial{Plan: loadgen.Plan{Long: time.Millisecond, Weight: 1, Least: 1}, keys: k, ledger: newLedger(k),
		workers: []*worker{w}}
	if _, err := tr.run(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if m.deadlines != 0 || w.finished != 0 || w.why != errSilent.Error() {
		t.Errorf("%d calls had a deadline; the last answer came after %v, and what went wrong is %q", m.deadlines, w.finished,
			w.why)
	}
}

// The Go client's checks have ids unless the run is to have none; those of other modes never do.
func TestNoIDs(t *testing.T) {
	for _, without := range []bool{false, true} {
		for _, m := range Modes() {
			var with, of atomic.Int64
			addr := serveBroken(t, func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error {
				of.Add(1)
				if r.ID != "" {
					with.Add(1)
				}
				return n.CheckInto(t.Context(), r, d)
			})
			c := config(addr)
			c.Modes, c.Rates, c.NoIDs = []Mode{m}, []float64{0}, without
			r, err := Run(t.Context(), c)
			if err != nil || r.NoIDs != without {
				t.Fatalf("%s: %v, %v", m, r, err)
			}
			if got := with.Load() > 0; of.Load() == 0 || got != (m.shares() && !without) {
				t.Errorf("%s, no ids %t: %d of %d checks had one", m, without, with.Load(), of.Load())
			}
		}
	}
}
