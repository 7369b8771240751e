package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/loadgen"
	"github.com/weirlimit/weir/limiter"
)

// Results are kept if the run ends early.
func TestInterruptedLater(t *testing.T) {
	c := config(serve(t, allRules(), honest))
	c.Modes, c.Rates = []Mode{Unary}, []float64{0, 1000, 2000}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c.Progress = func(what string) {
		if strings.Contains(what, "1000") {
			stop()
		}
	}
	r, err := Run(ctx, c)
	if err == nil || errors.Is(err, ErrUnreachable) || r == nil || len(r.Points) != 1 || r.Points[0].Checks == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := Run(t.Context(), Config{}); err == nil || errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	c.Servers, c.Modes = []string{"127.0.0.1:1"}, []Mode{Stream}
	c.Progress, c.warm = nil, 10*time.Millisecond
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
}

// A node that stands still beyond the end leaves the figures of what it answered
// before, and what it did not answer has failed.
func TestStandsStill(t *testing.T) {
	const within = 100 * time.Millisecond
	for _, m := range Modes() {
		for _, rate := range []float64{0, 1000} {
			// One call is answered, and each client makes two.
			var asked atomic.Int64
			over, first := make(chan struct{}), int64(2)
			if m == Unary || m == Client {
				first = 1
			}
			addr := serveBroken(t, func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error {
				if asked.Add(1) > first {
					<-over
				}
				return n.CheckInto(t.Context(), r, d)
			})
			c := config(addr)
			c.Batch, c.Clients, c.Limited, c.warm = 2, 1, 0, warmWithin
			k, err := newKeys(&c)
			if err != nil {
				t.Fatal(err)
			}
			tr := &trial{Plan: loadgen.Plan{Rate: rate, Long: c.Duration, Weight: uint64(c.batch(m)), Least: 2}, keys: k,
				ledger: newLedger(k)}
			if err := tr.open(t.Context(), &c, m); err != nil {
				t.Fatal(err)
			}
			sent, err := tr.run(t.Context(), within)
			close(over)
			if err != nil {
				t.Errorf("%s at %v: %v", m, rate, err)
			} else if p := tr.conclude(sent); p.Decisions.Failed+p.Unsent == 0 ||
				rate == 0 && (p.Checks > uint64(first) || p.Why == "" || p.Seconds >= (c.Duration+within).Seconds()) ||
				p.Decisions.Wrong() != nil {
				t.Errorf("%s at %v: %+v", m, rate, p)
			}
			for _, l := range tr.lanes {
				if err := l.close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Metrics that cannot be read at the end cost their own figures only, and a server
// that was restarted has none.
func TestCostNotKnown(t *testing.T) {
	for what, second := range map[string]string{
		"500":                             "",
		"it was restarted during the run": "process_cpu_seconds_total 2\nprocess_start_time_seconds 8\n",
	} {
		var reads atomic.Int64
		metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch {
			case reads.Add(1) == 1:
				fmt.Fprint(w, "process_cpu_seconds_total 1\nprocess_start_time_seconds 7\n")
			case second == "":
				http.Error(w, "no", http.StatusInternalServerError)
			default:
				fmt.Fprint(w, second)
			}
		}))
		defer metrics.Close()
		c := config(serve(t, allRules(), honest))
		c.Modes, c.Rates, c.Metrics = []Mode{Batch}, []float64{0}, []string{strings.TrimPrefix(metrics.URL, "http://")}
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		p := &r.Points[0]
		if p.Checks == 0 || p.ServerCPU != nil || !strings.Contains(r.Text(term.Style{})+fmt.Sprint(r.Wrong()), what) {
			t.Errorf("%s: %+v, %v", what, p, r.Wrong())
		}
	}
	// A count that decreases also shows a restart.
	for _, after := range []usage{{cpu: 1}, {cpu: 9, mallocs: 1}, {cpu: 9, mallocs: 5, began: 1}} {
		p := Point{Checks: 1}
		if p.cost([]usage{{cpu: 5, mallocs: 5}, {}}, []usage{after, {}}); p.ServerCPU != nil || p.Servers[0].CPU != nil ||
			p.Servers[0].Unknown == "" || p.Servers[1].CPU == nil {
			t.Errorf("%+v", p)
		}
	}
}

// Waits are reported exactly, up to the longest possible one.
func TestLongWaits(t *testing.T) {
	for _, d := range []time.Duration{90 * time.Second, MaxDuration + grace} {
		var w loadgen.Waits
		w.Add(d, 1)
		if got := w.Most(); got < d*99/100 {
			t.Errorf("a wait of %v is told as %v", d, got)
		}
	}
}

// A stream that broke is opened again.
func TestStreamAgain(t *testing.T) {
	c := config(serve(t, allRules(), honest))
	k, err := newKeys(&c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLane(t.Context(), &c, Stream, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := l.(*columns)
	if !ok {
		t.Fatalf("%T", l)
	}
	for range 3 {
		one := call{keys: k, n: []uint32{1}, answers: make([]answer, 1)}
		if err := s.do(t.Context(), &one); err != nil || one.answers[0] != allowed {
			t.Errorf("%v, %v", one.answers, err)
		}
		s.pipe.cancel()
		<-s.pipe.done
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
