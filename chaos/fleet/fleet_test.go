//go:build linux

package fleet

import (
	"context"
	"errors"
	"strings"
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
		if len(n.Downs) != 1 || !n.Downs[0].Told.Equal(told) || n.Downs[0].Until.IsZero() || n.Downs[0].From.After(n.Downs[0].Until) || n.Starts != nil {
			t.Fatalf("%+v", n)
		}
	}
	f.started(1, 2)
	f.Doubt(errors.New("no"))
	if n := f.Notes(); len(n.Downs) != 1 || len(n.Starts) != 1 || n.Starts[0].Node != 1 || n.Starts[0].Run != 2 || n.Starts[0].At.Before(n.Downs[0].Until) || n.Doubts == nil {
		t.Errorf("%+v", n)
	}
	if n := f.Notes(); n.Downs != nil || n.Starts != nil || n.Doubts != nil {
		t.Errorf("what was told before is told again: %+v", n)
	}
}
