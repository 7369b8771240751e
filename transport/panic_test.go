package transport_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// fragile is a decider that panics when it is asked about boom, and, of a request of
// late's, only when the answer is written.
type fragile struct{ transport.Decider }

func (f fragile) must(r *limiter.Request) {
	if r.User == "boom" {
		panic("a defect")
	}
}

func (f fragile) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	f.must(r)
	return f.Decider.CheckInto(ctx, r, d)
}

func (f fragile) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	for i := range rs {
		f.must(&rs[i])
	}
	return f.Decider.CheckBatchInto(ctx, rs, ds)
}

func (f fragile) Reset(ctx context.Context, r limiter.Request) (int, error) {
	f.must(&r)
	return f.Decider.Reset(ctx, r)
}

func (f fragile) Explain(_ context.Context, r limiter.Request) (*limiter.Explanation, error) {
	f.must(&r)
	return nil, limiter.ErrInvalid
}

func (f fragile) KeyName(r *limiter.Request, l *limiter.LimitDecision) string {
	if r.User == "late" {
		panic("a defect in a name")
	}
	return f.Decider.KeyName(r, l)
}

// brokenRing panics whenever it is asked.
type brokenRing struct{}

func (brokenRing) View() uint64                    { return 0 }
func (brokenRing) Placement() *weirv1.RingResponse { panic("a defect in the ring") }

// witness counts panics, by place.
type witness struct {
	mu     sync.Mutex
	places map[string]int
}

func (w *witness) Served(string, string, time.Duration) {}

func (w *witness) Panicked(place string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[place]++
}

// shared is a buffer that many write to.
type shared struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// TestPanicsEndRequests: a panic in a handler, wherever it happens, ends that request
// only. It is counted, and logged once with its stack, and its text does not reach the
// client. Other requests on the same connection are answered.
func TestPanicsEndRequests(t *testing.T) {
	log, seen := new(shared), &witness{places: map[string]int{}}
	s := newServer(t, fixed, func(o *transport.Options) {
		o.Decider, o.Observer, o.Ring = fragile{o.Decider}, seen, brokenRing{}
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.MaxDecodingBytes = 600 << 10
		o.Ready = func() error { return nil }
	})
	ctx := t.Context()
	boom := &weirv1.CheckRequest{User: "boom"}
	large := &weirv1.CheckBatchRequest{}
	for range 400 { // of which there is room for one
		large.Checks = append(large.Checks, boom)
	}
	columns := func() error {
		stream, err := s.api.CheckStream(ctx)
		if err == nil {
			err = stream.Send(&weirv1.CheckColumns{Keys: bytes.Repeat([]byte("boom"), 400), UserLengths: lengths(400, 4)})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	grpc := 0
	for name, ask := range map[string]func() error{
		"Check":       func() error { _, err := s.api.Check(ctx, boom); return err },
		"CheckBatch":  func() error { _, err := s.api.CheckBatch(ctx, large); return err },
		"CheckStream": columns,
		"Explain":     func() error { _, err := s.api.Explain(ctx, boom); return err },
		"Reset":       func() error { _, err := s.api.Reset(ctx, &weirv1.ResetRequest{User: "boom"}); return err },
		"an answer":   func() error { _, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "late"}); return err },
		"Ring":        func() error { _, err := s.api.Ring(ctx, &weirv1.RingRequest{}); return err },
	} {
		for range 3 { // the room of large ones is given back
			err := ask()
			if grpc++; status.Code(err) != codes.Internal || strings.Contains(err.Error(), "defect") {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.stillCounts(t, "ada", 3)
	}
	overHTTP := 0
	for path, body := range map[string]string{
		"/v1/check": `{"user":"boom"}`, "/v1/check/batch": `{"checks":[{"user":"boom"}]}`,
		"/v1/explain": `{"user":"boom"}`, "/v1/reset": `{"user":"boom"}`,
	} {
		overHTTP++
		if got := s.post(t, path, body); got.status != http.StatusInternalServerError ||
			strings.Contains(got.body, "defect") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if _, err := healthv1.NewHealthClient(s.conn).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if want := map[string]int{"grpc": grpc, "http": overHTTP}; !maps.Equal(seen.places, want) {
		t.Errorf("counted %v, want %v", seen.places, want)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if text := log.text.String(); strings.Count(text, "panic recovered") != 2 || !strings.Contains(text, "fragile.must") {
		t.Errorf("the log has\n%s", text)
	}
}

func lengths(n int, of uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = of
	}
	return out
}
