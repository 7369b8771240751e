package guard

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/seldom"
)

// explode panics in a function whose name a stack must show.
func explode(g *Guard, at string, then func(error)) {
	defer g.Recover(at, then)
	panic("secret value")
}

func TestRecover(t *testing.T) {
	var log bytes.Buffer
	counted := map[string]int{}
	g := New(slog.New(slog.NewJSONHandler(&log, nil)), func(at string) { counted[at]++ })
	now := time.Unix(1000, 0)
	g.now = func() time.Time { return now }

	var told error
	explode(g, GRPC, func(err error) { told = err })
	if told == nil || !strings.Contains(told.Error(), GRPC) || strings.Contains(told.Error(), "secret") {
		t.Errorf("told %v; it must name the place and hide the panic's value", told)
	}
	if got := log.String(); !strings.Contains(got, "guard.explode") || !strings.Contains(got, "secret value") {
		t.Errorf("the log lacks the stack or the value: %s", got)
	}

	// The rest of the minute is counted and not logged; another place is logged.
	now = now.Add(seldom.Every - 1)
	explode(g, GRPC, nil)
	explode(g, GRPC, nil)
	explode(g, Gossip, nil)
	if n := strings.Count(log.String(), "panic recovered"); n != 2 {
		t.Errorf("%d panics were logged, want one of each place", n)
	}
	log.Reset()
	now = now.Add(1)
	explode(g, GRPC, nil)
	if got := log.String(); strings.Count(got, "panic recovered") != 1 ||
		!strings.Contains(got, `"earlier_not_logged":2`) {
		t.Errorf("after a minute the log has %s", got)
	}
	if counted[GRPC] != 4 || counted[Gossip] != 1 {
		t.Errorf("counted %v", counted)
	}
}

// TestWithout leaves out what may be left out.
func TestWithout(t *testing.T) {
	for _, g := range []*Guard{nil, New(nil, nil)} {
		explode(g, HTTP, nil)
		called := false
		func() { defer g.Recover(HTTP, func(error) { called = true }) }()
		if called {
			t.Error("something was recovered where nothing had panicked")
		}
	}
}
