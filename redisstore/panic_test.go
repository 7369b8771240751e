package redisstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A panic in a goroutine of the store ends its calls, and neither the process nor the
// worker.
func TestPanicEndsAJob(t *testing.T) {
	var log bytes.Buffer
	panics := true
	s, err := Open(context.Background(), Config{
		Addrs: []string{redistest.Start(t).Socket}, Timeout: 20 * time.Second, Log: slog.New(slog.NewJSONHandler(&log, nil)),
		Observe: func(int, time.Duration, error) {
			if panics {
				panic("a defect")
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{mustLimit(t, limiter.Spec{Limit: 100, Window: time.Hour})}}
	source := func() limiter.Source {
		var c arith.Charge
		var d limiter.Decision
		c.Add(arith.Key{Hash: arith.Hash{Hi: 1}, Rule: rule, Cost: 1})
		if err := s.Decide(context.Background(), arith.Instant{}, []*arith.Charge{&c}, []*limiter.Decision{&d},
			nil); err != nil {
			t.Fatal(err)
		}
		return d.Source
	}
	var counted atomic.Int64
	for i := range 3 * laneWorkers {
		if got := source(); got != limiter.SourceFallbackLocal {
			t.Errorf("%s decides after a panic", got)
		}
		if i == 1 { // two panics were before
			s.panics.watch(func(place string) {
				if counted.Add(1); place != guard.Redis {
					t.Errorf("a panic in %q", place)
				}
			})
		}
	}
	if n := counted.Load(); n != 3*laneWorkers {
		t.Errorf("%d panics are counted, want %d", n, 3*laneWorkers)
	}
	panics = false
	if got := source(); got != limiter.SourceRedis {
		t.Errorf("%s decides after the panics", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "panic recovered"); n != 1 ||
		!strings.Contains(log.String(), "TestPanicEndsAJob") {
		t.Errorf("%d panics are logged:\n%s", n, log.String())
	}
}

// A probe that panics has failed, and the next one is made.
func TestPanicInAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		to := slog.New(slog.NewJSONHandler(&log, nil))
		s := &Store{config: Config{Timeout: time.Second, Log: to}, guard: guard.New(to, nil), closing: make(chan struct{})}
		s.single = &lane{store: s, health: health{store: s}} // no address, so a probe panics
		h := &s.single.health
		h.suspect(&call{route: "weir:{}"}, errors.New("lost"))
		time.Sleep(3 * probeEvery)
		synctest.Wait()
		if !h.down() || h.suspected.Load() {
			t.Errorf("after a panic in the probe: down %v, suspected %v", h.down(), h.suspected.Load())
		}
		close(s.closing)
		s.running.Wait()
		if strings.Count(log.String(), "panic recovered") != 1 {
			t.Errorf("the log has %s", log.String())
		}
	})
}
