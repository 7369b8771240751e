package tracing

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir/limiter/arith"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a tracer whose collector is not there.
func open(t *testing.T, ratio float64) *Tracer {
	t.Helper()
	tr, err := Open(t.Context(), Config{Endpoint: "http://127.0.0.1:1", Ratio: ratio, Name: "node-1",
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = tr.Close(ctx) // nobody takes the spans
	})
	return tr
}

const (
	trace1  = "0af7651916cd43dd8448eb211c80319c"
	sampled = "00-" + trace1 + "-b7ad6b7169203331-01"
)

// A client's trace goes on in the answer and at members; what a client excludes, and what is no
// traceparent with a ratio of 0, is not traced.
func TestServe(t *testing.T) {
	tr := open(t, 0)
	ctx, traceparent, end := tr.Serve(t.Context(), "Check", sampled, "vendor=1")
	if end == nil || !strings.HasPrefix(traceparent, "00-"+trace1+"-") || traceparent == sampled {
		t.Fatalf("the answer's traceparent is %q", traceparent)
	}
	parent := tr.Parent(ctx)
	if parent == nil || parent.TraceHi != 0x0af7651916cd43dd || parent.TraceLo != 0x8448eb211c80319c ||
		parent.Span == 0xb7ad6b7169203331 {
		t.Fatalf("the parent of spans below is %+v", parent)
	}
	own, done := tr.Start(parent, "weir.decide")
	if own.TraceHi != parent.TraceHi || own.TraceLo != parent.TraceLo || own.Span == parent.Span || own.Span == 0 {
		t.Errorf("a span below it is %+v", own)
	}
	done()
	done()
	end("OK")

	for _, header := range []string{"", "00-" + trace1 + "-b7ad6b7169203331-00", "nonsense", "00-0-0-01",
		strings.Repeat("0", 1<<14)} {
		ctx, traceparent, end := tr.Serve(t.Context(), "Check", header, "")
		if end != nil || traceparent != "" || ctx != t.Context() || tr.Parent(ctx) != nil {
			t.Errorf("%.40q is traced", header)
		}
	}
	if _, _, end := open(t, 1).Serve(t.Context(), "Check", "nonsense", ""); end == nil {
		t.Error("with a ratio of 1 a request is not traced")
	}
}

// Clients decide for so many traces a second at most; members for all.
func TestForcedTracesAreBounded(t *testing.T) {
	tr := open(t, 0)
	s := new(sampler)
	n := 0
	for range 10 * maxForced {
		if s.force(7) {
			n++
		}
	}
	if n != maxForced || !s.force(8) {
		t.Errorf("%d traces in one second", n)
	}
	for range 2 * maxForced {
		if own, _ := tr.Start(&arith.TraceContext{TraceHi: 1, TraceLo: 2, Span: 3}, "weir.decide"); own.TraceHi != 1 ||
			own.Span == 0 {
			t.Fatalf("a member's trace is not followed: %+v", own)
		}
	}
	if trace.FlagsSampled == 0 {
		t.Error("no flag says that a trace is sampled")
	}
}

// Addresses of collectors.
func TestCheckEndpoint(t *testing.T) {
	for _, good := range []string{"http://127.0.0.1:4317", "https://collector.example:4317", "http://[::1]:4317"} {
		if err := CheckEndpoint(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "127.0.0.1:4317", "http://127.0.0.1", "grpc://a:1", "http://a:1/v1/traces",
		"http://u:p@a:1", "http://:4317", "http://a:b"} {
		if CheckEndpoint(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A failing collector is logged once a minute.
func TestComplaints(t *testing.T) {
	var log strings.Builder
	c := &sdkErrors{log: slog.New(slog.NewTextHandler(&log, nil)), endpoint: "http://a:1"}
	for range 5 {
		c.Handle(context.DeadlineExceeded)
	}
	if n := strings.Count(log.String(), "traces cannot be sent"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
