//go:build linux

package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Whoever is interrupted is told so, and not that the nodes took too long.
func TestUntil(t *testing.T) {
	never := func() error { return errors.New("they do not see each other") }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := until(ctx, time.Hour, "the nodes did not settle", never)
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "interrupted") {
		t.Errorf("interrupted: %v", err)
	}
	err = until(t.Context(), time.Millisecond, "the nodes did not settle", never)
	if err == nil || err.Error() != "the nodes did not settle within 1ms: they do not see each other" {
		t.Errorf("too late: %v", err)
	}
	if err := until(t.Context(), time.Hour, "", func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestNotes: who was ended is down from when it was told to be until it is started, also
// where both are at once, and who is down still is so in the next notes too.
func TestNotes(t *testing.T) {
	f := new(Fleet)
	told := time.Now().Add(-time.Second)
	f.down(1, "killed", told)
	for range 2 {
		n := f.Notes()
		if len(n.Downs) != 1 || !n.Downs[0].Told.Equal(told) || n.Downs[0].Until.IsZero() ||
			n.Downs[0].From.After(n.Downs[0].Until) || n.Starts != nil {
			t.Fatalf("%+v", n)
		}
	}
	f.started(1, 2)
	f.Doubt(errors.New("no"))
	if n := f.Notes(); len(n.Downs) != 1 || len(n.Starts) != 1 || n.Starts[0].Node != 1 || n.Starts[0].Run != 2 ||
		n.Starts[0].At.Before(n.Downs[0].Until) || n.Doubts == nil {
		t.Errorf("%+v", n)
	}
	if n := f.Notes(); n.Downs != nil || n.Starts != nil || n.Doubts != nil {
		t.Errorf("what was told before is told again: %+v", n)
	}
}

// TestPost: a node is asked once, and where it is not there it was not asked at all.
func TestPost(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nth := asked.Add(1)
		text, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/check" ||
			r.Header.Get("Content-Type") != "application/json" || string(text) != `{"a":1}` {
			t.Errorf("%s %s %q %v, %v", r.Method, r.URL, text, r.Header, err)
		}
		if nth == 2 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil { // which resets it
				t.Error(err)
			}
			return
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "no")
	}))
	n := &Node{fleet: &Fleet{client: server.Client()}, url: server.URL}
	post := func() (int, []byte, error) { return n.Post(t.Context(), "/v1/check", map[string]int{"a": 1}) }
	if status, text, err := post(); status != http.StatusTooManyRequests || string(text) != "no" || err != nil {
		t.Errorf("%d %q %v", status, text, err)
	}
	if _, _, err := post(); err == nil || errors.Is(err, ErrAway) || asked.Load() != 2 {
		t.Errorf("a connection that broke after %d checks: %v", asked.Load(), err)
	}
	server.Close()
	if _, _, err := post(); !errors.Is(err, ErrAway) {
		t.Errorf("nobody is there: %v", err)
	}
}
