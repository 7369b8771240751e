package transport

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestRapidReset: a client that opens calls and resets each at once, which never counts as many open
// calls, makes the server keep neither memory nor goroutines, also if no call ends and it reads
// nothing. Others are answered meanwhile.
func TestRapidReset(t *testing.T) {
	const streams = 20_000
	raw, err := proto.Marshal(&weirv1.CheckRequest{Path: "/slow", User: "thief"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		method      string
		message     []byte
		stuck, deaf bool // no check ends; nothing is read
	}{
		{"only opened", "Check", nil, false, false},
		{"opened, and nothing is read", "Check", nil, false, true},
		{"streams", "CheckStream", nil, false, false},
		{"with a check", "Check", messageOf(len(raw), raw), false, false},
		{"with a check that does not end", "Check", messageOf(len(raw), raw), true, false},
		{"with a check that does not end, and nothing is read", "Check", messageOf(len(raw), raw), true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			hold := make(chan struct{})
			var sent, asked atomic.Int64
			s := newTicking(t, func(o *Options) {
				o.ClientTimeout = time.Hour
				o.Decider = &stub{decide: func(r *limiter.Request, d *limiter.Decision) error {
					if c.stuck && r.Path == "/slow" {
						asked.Add(1)
						<-hold
					}
					d.Allowed = true
					return nil
				}}
			})
			honest := s.dial(someWindow)
			honest.send(headersOf(1, "CheckStream"), columnsOf(t, 1))
			honest.wants("an answer", frameData, 1)
			thief := s.dial(someWindow)
			last, answered := uint32(2*streams+1), make(chan struct{})
			if !c.deaf {
				go func() {
					for f := range thief.frames {
						if f == [2]uint32{frameData, last} {
							close(answered)
						}
					}
				}()
			}
			var before runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			goroutines := runtime.NumGoroutine()
			flooded := make(chan struct{})
			go func() {
				defer close(flooded)
				for i := range uint32(streams) {
					id := 2*i + 1
					frames := headersOf(id, c.method)
					if c.message != nil {
						frames = append(frames, frameOf(frameData, flagEndStream, id, c.message)...)
					}
					if _, err := thief.Write(append(frames, resetOf(id)...)); err != nil {
						return
					}
					sent.Add(1)
				}
			}()
			most, moreHeap := flood(goroutines, before.HeapAlloc)
			honest.send(columnsOf(t, 1))
			honest.wants("an answer during the flood", frameData, 1)
			t.Logf("%d calls were opened; %d were served at once; %d more goroutines, %d KiB more of heap", sent.Load(),
				asked.Load(), most, moreHeap>>10)
			if n := asked.Load(); c.stuck && (n == 0 || n > 100) {
				t.Errorf("%d calls are served at a time, want 1 to 100", n)
			}
			if limit := 2*100 + 20; most > limit {
				t.Errorf("%d more goroutines, want %d at most", most, limit)
			}
			if moreHeap > 32<<20 {
				t.Errorf("%d MiB more of heap", moreHeap>>20)
			}
			close(hold)
			<-flooded
			if !c.deaf { // the server has read them all, and still serves the connection
				if _, err := thief.Write(append(headersOf(last, "Check"),
					frameOf(frameData, flagEndStream, last, messageOf(len(raw), raw))...)); err != nil {
					t.Error(err)
				}
				select {
				case <-answered:
				case <-time.After(watchdog):
					t.Error("a call after the flood is not answered")
				}
			}
			_ = thief.Close()
			s.waitFor("all room is given back", func() bool { return s.service.room.InUse() == 0 })
		})
	}
}

// flood looks for a while, and returns the most goroutines and bytes of heap that there were
// beyond those before.
func flood(goroutines int, heap uint64) (mostGoroutines int, mostHeap int64) {
	for range 30 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		mostGoroutines = max(mostGoroutines, runtime.NumGoroutine()-goroutines)
		mostHeap = max(mostHeap, int64(now.HeapAlloc)-int64(heap))
		time.Sleep(10 * time.Millisecond)
	}
	return mostGoroutines, mostHeap
}
