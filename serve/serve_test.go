package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/serve"
	"github.com/weirlimit/weir/transport"
)

const rules = "version: 1\nrules:\n  - {name: day, key: [user], limits: [2/day]}\n"

func get(t *testing.T, h http.Handler, url string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+url, nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

// One call joins a member with its metrics and its handlers: checks are decided and
// counted, and operators see members, keys and metrics.
func TestService(t *testing.T) {
	s, err := serve.Open(t.Context(), serve.Config{
		Node: weir.Config{Rules: []byte(rules), MaxKeys: 10,
			Cluster: &cluster.Config{Name: "node-1", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"}},
		Version: "v7",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Node().WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 200, 429} {
		if status, body := get(t, s.Handler(), "/v1/check?user=ada"); status != want {
			t.Errorf("check %d: %d %s", i, status, body)
		}
	}
	if status, body := get(t, s.Handler(), "/readyz"); status != 200 || body != "ready\n" {
		t.Errorf("readyz: %d %s", status, body)
	}
	_, text := get(t, s.Admin(), "/metrics")
	for _, line := range []string{
		`weir_checks_total{result="denied",rule="day",source="owner"} 1`, `weir_table_keys 1`, `weir_table_max_keys 10`,
		`weir_minority 0`,
		`weir_members{state="active"} 1`, `version="v7"`,
		`weir_request_duration_seconds_count{code="429",method="GET /v1/check"} 1`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	var seen struct{ Members []transport.Member }
	if _, body := get(t, s.Admin(), "/v1/members"); json.Unmarshal([]byte(body), &seen) != nil || len(seen.Members) != 1 ||
		seen.Members[0].Self == nil || seen.Members[0].Self.Checks != 3 {
		t.Errorf("members: %s", body)
	}
	if status, body := get(t, s.Admin(), "/v1/top"); status != 200 {
		t.Errorf("top: %d %s", status, body)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Node().Ready(); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("after Shutdown: %v", err)
	}
}

// With a Registerer of the program, the service registers there, serves no metrics itself,
// and leaves nothing behind.
func TestOwnRegisterer(t *testing.T) {
	r := metrics.NewRegistry()
	for range 2 {
		s, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{Rules: []byte(rules)}, Registerer: r})
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := get(t, s.Admin(), "/metrics"); status != http.StatusNotFound {
			t.Errorf("it serves metrics, too: %d", status)
		}
		if _, text := get(t, metrics.Handler(r), "/"); !strings.Contains(text, "weir_table_max_keys 1e+07") {
			t.Error("the program's metrics lack those of the service")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The node stays open until the program's own servers have answered what they have begun.
func TestShutdownWaitsForOtherServers(t *testing.T) {
	for name, c := range map[string]weir.Clustering{"alone": nil,
		"member": &cluster.Config{PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"}} {
		s, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{Rules: []byte(rules), Cluster: c}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Node().WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		failed := errors.New("a server of the program's own")
		var order []string
		other := func(what string, err error) func(context.Context) error {
			return func(context.Context) error {
				status, body := get(t, s.Handler(), "/v1/check?user=ada")
				if ready, _ := get(t, s.Handler(), "/readyz"); status != 200 || ready != 503 {
					t.Errorf("%s: while %s ends: %d %s, and readiness %d", name, what, status, body, ready)
				}
				order = append(order, what)
				return err
			}
		}
		if err := s.Shutdown(t.Context(), other("the first", failed), other("the second", nil)); !errors.Is(err, failed) ||
			strings.Join(order, ", ") != "the first, the second" {
			t.Errorf("%s: %v, after %q", name, err, order)
		}
		if err := s.Node().Ready(); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("%s: after Shutdown: %v", name, err)
		}
	}
}

// A service ends once, however often it is told to, and every caller learns how.
func TestServiceEndsOnce(t *testing.T) {
	failed := errors.New("cut off")
	s, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{Rules: []byte(rules)}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	times := 0 // written by one caller only, or the race detector reports it
	for range 8 {
		all.Go(func() {
			if err := s.Shutdown(t.Context(), func(context.Context) error { times++; return failed }); !errors.Is(err, failed) {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
	all.Wait()
	if err := s.Close(); !errors.Is(err, failed) || times != 1 {
		t.Errorf("Close: %v, after %d ends", err, times)
	}
	for name, end := range map[string]func(*serve.Service) error{"Close": (*serve.Service).Close,
		"Shutdown": func(s *serve.Service) error {
			return s.Shutdown(t.Context())
		}} {
		b := new(closing)
		s, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{Backend: b}})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			all.Go(func() {
				if err := errors.Join(s.Close(), end(s)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		if all.Wait(); b.times != 1 {
			t.Errorf("%s: the backend was closed %d times", name, b.times)
		}
	}
}

// closing counts how often a backend was closed.
type closing struct {
	weir.Backend
	times int
}

func (*closing) Extras() (none weir.BackendExtras) { return none }

func (c *closing) Close() error { c.times++; return nil }

// What cannot be opened leaves no metrics and no backend behind, and an Observer is
// refused rather than ignored.
func TestServiceThatCannotOpen(t *testing.T) {
	r, b := metrics.NewRegistry(), new(closing)
	for _, c := range []serve.Config{
		{Node: weir.Config{Backend: b, Rules: []byte("version: 2")}, Registerer: r},
		{Node: weir.Config{Backend: b}, Registerer: r, Wire: transport.Options{MaxStreams: -1}},
	} {
		b.times = 0
		if _, err := serve.Open(t.Context(), c); err == nil || b.times != 1 {
			t.Errorf("error %v, and the backend was closed %d times", err, b.times)
		}
	}
	m, err := metrics.New(r, metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.times = 0
	if _, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{Backend: b,
		Observer: m.Observer()}}); !errors.Is(err, weir.ErrInvalid) || b.times != 1 {
		t.Errorf("an observer: %v, and the backend was closed %d times", err, b.times)
	}
}
