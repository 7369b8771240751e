package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// newLanes returns a store with nothing but its lanes.
func newLanes(c *redis.ClusterClient) *Store {
	s := newStore(Config{Timeout: time.Second, Queue: 4, Nodes: 1, Prefix: defaultPrefix,
		Log: slog.New(slog.DiscardHandler)}, nil)
	s.cluster = c
	return s
}

func failed(t *testing.T, j *job) {
	t.Helper()
	select {
	case <-j.done:
		if err := j.calls[0].err; !errors.Is(err, errStopped) {
			t.Errorf("a call in a lane that has stopped: %v", err)
		}
	default:
		t.Error("a call waits in a lane that has stopped")
	}
}

// A lane that nobody uses ends, but not during an outage, of which a new one would not
// know.
func TestIdleLaneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLanes(new(redis.ClusterClient))
		l := s.newLane(nil, "a:1")
		s.lanes.Store("a:1", l)
		l.health.outage.Store(&outage{})
		time.Sleep(5*laneIdle + laneIdle/2)
		if _, ok := s.lanes.Load("a:1"); !ok {
			t.Error("a lane ends during its outage")
		}
		l.health.outage.Store(nil)
		l.run([]*job{{deadline: time.Now(), done: make(chan struct{})}}) // it is too late, and is use
		time.Sleep(laneIdle)
		if _, ok := s.lanes.Load("a:1"); !ok {
			t.Error("a lane ends that was used within the minute")
		}
		time.Sleep(2 * laneIdle)
		if _, ok := s.lanes.Load("a:1"); ok {
			t.Error("an idle lane does not end")
		}
		s.lanes.Clear()
		l.stop()
		s.running.Wait()
		failed(t, l.submit([]*call{{route: "k"}}))
	})
}

// The lane of a client that was replaced ends, and what waits in it fails.
func TestReplacedLaneEnds(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot,
		error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:1"}}}}, nil
	}})
	defer cluster.Close()
	s := newLanes(cluster)
	old := &lane{store: s, queue: make(chan *job, 1), stopped: make(chan struct{})}
	s.lanes.Store("10.0.0.1:1", old)
	waiting := old.submit([]*call{{route: "k"}})
	l, err := s.lane(t.Context(), "k")
	if err != nil || l == old {
		t.Fatalf("%v, %v", l, err)
	}
	if again, err := s.lane(t.Context(), "k"); again != l || err != nil {
		t.Errorf("a second lane to one server, %v", err)
	}
	l.stop()
	s.running.Wait()
	select {
	case <-old.stopped:
		failed(t, waiting)
	default:
		t.Error("a lane that was replaced goes on")
	}
}

// Calls in a job that is not done are replaced, in their places.
func TestAbandon(t *testing.T) {
	var calls []*call
	for i := range 6 {
		calls = append(calls, &call{at: i, route: string(rune('a' + i))})
	}
	done, late := &job{calls: []*call{calls[0], calls[3]}, done: make(chan struct{})},
		&job{calls: []*call{calls[4], calls[1]}, done: make(chan struct{})}
	close(done.done)
	out := abandon(calls, []*job{done, late})
	for i, c := range out {
		if replaced := i == 1 || i == 4; (c != calls[i]) != replaced || errors.Is(c.err, errLate) != replaced ||
			c.route != calls[i].route {
			t.Errorf("call %d is %+v", i, c)
		}
	}
}
