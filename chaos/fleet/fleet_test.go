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
