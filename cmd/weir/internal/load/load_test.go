package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// TestMain looks for goroutines that a run left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lying is a node whose answers a test changes: it is called after each decision,
// with how many checks there were before, peeks not counted.
type lying struct {
	*weir.Node
	asked  atomic.Int64
	change func(asked int64, d *limiter.Decision) error
}

func (l *lying) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	if err := l.Node.CheckInto(ctx, r, d); err != nil {
		return err
	}
	return l.change(l.asked.Add(1)-1, d)
}

func (l *lying) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	if err := l.Node.CheckBatchInto(ctx, rs, ds); err != nil {
		return err
	}
	for i := range ds {
		if err := l.change(l.asked.Add(1)-1, &ds[i]); err != nil {
			return err
		}
	}
	return nil
}

// serve starts a node and returns its address. It ends with the test.
func serve(t *testing.T, rules string, change func(int64, *limiter.Decision) error) string {
	t.Helper()
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(rules)})
	if err != nil {
		t.Fatal(err)
	}
	return serveDecider(t, n, &lying{Node: n, change: change})
}

// serveBroken does the same for a node that decides as a test defines.
func serveBroken(t *testing.T, decide func(*weir.Node, *limiter.Request, *limiter.Decision) error) string {
	t.Helper()
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(allRules())})
	if err != nil {
		t.Fatal(err)
	}
	return serveDecider(t, n, &broken{n, decide})
}

// serveDecider serves what decides by a node, and closes both with the test.
func serveDecider(t *testing.T, n *weir.Node, by transport.Decider) string {
	t.Helper()
	s, err := transport.NewServer(transport.Options{Decider: by})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, nil) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served, n.Close()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func honest(int64, *limiter.Decision) error { return nil }

func allRules() string { return "version: 1\nrules:\n" + Rules() }

// config is a run that ends soon and still exhausts keys.
func config(servers ...string) Config {
	return Config{
		Servers: servers, Modes: Modes(), Rates: []float64{0, 2000}, Duration: 60 * time.Millisecond,
		Batch: 50, Keys: 4, Dist: Uniform, Limited: 50,
	}
}

// Every mode, at a rate and without, is right against one node; and two nodes that
// know nothing of each other allow too many together.
func TestModes(t *testing.T) {
	one := serve(t, allRules(), honest)
	c := config(one)
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wrong(); err != nil || len(r.Points) != 10 {
		t.Fatalf("%d points, %v", len(r.Points), err)
	}
	due := map[int]uint64{1: 119, 50: 150} // until the last step, of 59 ms; a message each 25 ms, from the start on
	for i := range r.Points {
		p := &r.Points[i]
		d := &p.Decisions
		switch {
		case p.Mode != Modes()[i/2] || (p.Rate == nil) != (i%2 == 0) || (p.SentLate == nil) != (i%2 == 0):
			t.Errorf("point %d is of %s at %v", i, p.Mode, p.Rate)
		case p.Checks+p.Unsent == 0 || p.Rate == nil && p.Checks == 0 || d.Allowed+d.Denied != p.Checks ||
			d.Allowed != d.AllowedLeast || d.Allowed != d.AllowedMost:
			t.Errorf("%s: %+v", p.title(), p)
		case p.P50 <= 0 || p.P90 < p.P50 || p.P99 < p.P90 || p.P999 < p.P99 || p.Max < p.P999:
			t.Errorf("%s: %+v", p.title(), p.Waits)
		case p.Rate != nil && p.Checks+p.Unsent != due[p.Batch]:
			t.Errorf("%s: %d checks were sent and %d not", p.title(), p.Checks, p.Unsent)
		case p.Rate == nil && p.Unsent != 0, d.KeysHit > 4, (p.Mode == Unary || p.Mode == Client) && p.Batch != 1:
			t.Errorf("%s: %+v", p.title(), p)
		}
	}
	two := config(one, serve(t, allRules(), honest))
	two.Modes, two.Rates, two.Keys, two.least = []Mode{Stream}, []float64{0}, 2, 10
	if r, err = Run(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if d := r.Points[0].Decisions; d.Over == 0 || r.Wrong() == nil ||
		!strings.Contains(r.Wrong().Error(), "allowed beyond their key's limit") {
		t.Errorf("nodes that do not count together pass: %+v", d)
	}
}

// errPlanted is the error of a broken node.
var errPlanted = errors.New("out of order")

// Wrong counts that were planted are found, whatever is wrong with them, in every
// mode.
func TestPlanted(t *testing.T) {
	deny := func(n int64, d *limiter.Decision) error {
		if n == 3 {
			d.Allowed = false
		}
		return nil
	}
	allow := func(n int64, d *limiter.Decision) error {
		if n > 100 {
			d.Allowed = true
		}
		return nil
	}
	for name, c := range map[string]struct {
		limited int
		change  func(int64, *limiter.Decision) error
		look    func(*Decisions) bool
	}{
		"one denied too early": {100, deny, func(d *Decisions) bool { return d.Early+d.Under > 0 }},
		"an open key denied":   {0, deny, func(d *Decisions) bool { return d.Early == 1 && d.Under == 1 }},
		"allowed beyond":       {100, allow, func(d *Decisions) bool { return d.Over > 0 && d.Allowed > d.AllowedMost }},
	} {
		for _, m := range Modes() {
			config := config(serve(t, allRules(), c.change))
			config.Modes, config.Rates, config.Keys, config.Limited = []Mode{m}, []float64{0}, 1, c.limited
			config.Clients, config.Batch = 1, 1
			config.Duration, config.least = time.Millisecond, 300
			r, err := Run(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			if d := &r.Points[0].Decisions; !c.look(d) || d.Wrong() == nil || r.Wrong() == nil {
				t.Errorf("%s, %s: it passes: %+v", name, m, d)
			}
		}
	}
}

// Checks that a rule's policy answers, or that fail, may or may not have been charged.
func TestUnsure(t *testing.T) {
	for name, c := range map[string]struct {
		change func(int64, *limiter.Decision) error
		look   func(*Report, *Decisions) bool
	}{
		"policy": {func(n int64, d *limiter.Decision) error {
			if n%10 == 0 {
				d.Source = limiter.SourceFallbackLocal
			}
			return nil
		}, func(r *Report, d *Decisions) bool { return d.ByPolicy > 0 && d.Failed == 0 && r.Wrong() == nil }},
		"heirs": {func(_ int64, d *limiter.Decision) error {
			d.Source = limiter.SourceHeir
			return nil
		}, func(r *Report, d *Decisions) bool {
			return d.ByHeir == d.Allowed+d.Denied && d.ByHeir > 0 && r.Wrong() == nil
		}},
		"failures": {func(n int64, _ *limiter.Decision) error {
			if n%10 == 0 {
				return errPlanted
			}
			return nil
		}, func(r *Report, d *Decisions) bool {
			// The client asks again where an answer is late, and then a check may count twice.
			twice := r.Points[0].Mode.shares()
			return d.Failed > 0 && d.Over+d.Early == 0 && (d.Under == 0 || twice) &&
				strings.Contains(r.Wrong().Error(), "node 127.0.0.1:") &&
				strings.Contains(r.Wrong().Error(), errPlanted.Error())
		}},
	} {
		for _, m := range Modes() {
			config := config(serve(t, allRules(), c.change))
			config.Modes, config.Rates, config.Batch = []Mode{m}, []float64{0}, 3
			r, err := Run(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			if d := &r.Points[0].Decisions; !c.look(r, d) {
				t.Errorf("%s, %s: %+v, %v", name, m, d, r.Wrong())
			}
		}
	}
}

// A node without the rules, and one that is not there, cannot be measured.
func TestCannot(t *testing.T) {
	other := serve(t, "version: 1\nrules:\n  - {name: all, limits: [5/second]}\n", honest)
	if _, err := Run(t.Context(), config(other)); !errors.Is(err, errRules) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, config("127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "node 127.0.0.1:1") {
		t.Error(err)
	}
}

// A wait begins when the check was to be sent: where a node stands still for a
// while, all that was due meanwhile waited, though one client alone was waiting.
func TestIntendedTime(t *testing.T) {
	const stall, rate = 200 * time.Millisecond, 1000
	begun := make(chan struct{})
	addr := serve(t, allRules(), func(n int64, _ *limiter.Decision) error {
		if n == 0 {
			close(begun)
			over := time.NewTimer(stall)
			defer over.Stop()
			<-over.C
		}
		return nil
	})
	c := config(addr)
	c.Modes, c.Rates, c.Clients, c.Duration = []Mode{Unary}, []float64{rate}, 1, 2*stall
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	p := &r.Points[0]
	// Those of the first half of the stall waited for half of it at least: a quarter
	// of all.
	if p.Checks+p.Unsent != 400 || p.P90 < float64((stall/2).Microseconds())*0.98 {
		t.Errorf("%+v", p)
	}
	if p.SentLate.P90 < float64((stall/2).Microseconds())*0.9 && p.Unsent == 0 {
		t.Errorf("sent late: %+v", p.SentLate)
	}
}

// Waits are separated by the owner of the key, if nodes provide their names.
func TestOwnedAndForwarded(t *testing.T) {
	owner := func(name string) func(int64, *limiter.Decision) error {
		return func(_ int64, d *limiter.Decision) error {
			d.Limit(0).Owner = name
			return nil
		}
	}
	for name, first := range map[string]string{"": "", "a": "a", "z": "a"} {
		c := config(serve(t, allRules(), owner(first)), serve(t, allRules(), owner(first)))
		c.Modes, c.Rates, c.Keys, c.Limited, c.Clients, c.least = []Mode{Unary}, []float64{0}, 4, 0, 2, 10
		for i := range c.Servers {
			own := name
			if i > 0 && name != "" {
				own = "b"
			}
			directory := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/metrics" {
					fmt.Fprint(w, "process_cpu_seconds_total 1\n")
					return
				}
				fmt.Fprintf(w, `{"members":[{"name":"other"},{"name":%q,"self":{}}]}`, own)
			}))
			defer directory.Close()
			c.Metrics = append(c.Metrics, strings.TrimPrefix(directory.URL, "http://"))
		}
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		p := &r.Points[0]
		switch told := p.Owned != nil && p.Forwarded != nil; {
		case told != (name == "a"):
			t.Errorf("node %q, owner %q: %v, %v", name, first, p.Owned, p.Forwarded)
		case told && (p.Owned.P50 <= 0 || p.Forwarded.P50 <= 0 ||
			!strings.Contains(r.Text(term.Style{}), "owns the key p50")):
			t.Errorf("%+v, %+v", p.Owned, p.Forwarded)
		}
	}
}
