package resp

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// A deadline is set again when less than its time is left, or too much.
func TestDeadline(t *testing.T) {
	var d deadline
	start := time.Unix(1000, 0)
	for _, step := range []struct {
		after, within time.Duration
		want          time.Duration // after start; 0: what is set stays
	}{
		{0, 8 * time.Second, 9 * time.Second},
		{time.Second, 8 * time.Second, 0},
		{time.Second + 1, 8 * time.Second, 10*time.Second + 1},
		{time.Second + 1, time.Second, 2*time.Second + 125*time.Millisecond + 1}, // sooner
		{time.Second + 1, 0, time.Second + 1},
		{3 * time.Second, -time.Second, 1875 * time.Millisecond}, // it is over
	} {
		at, set := d.set(start.Add(step.after), step.within)
		if set != (step.want != 0) || set && at != start.Add(step.want) {
			t.Errorf("%+v: %v after the start, set: %v", step, at.Sub(start), set)
		}
	}
}

// While commands come, deadlines are set once, and not for each of them.
func TestDeadlinesAreSetOnce(t *testing.T) {
	f := start(t, nil)
	n := &repeating{sent: []byte(encode("PING")), left: 100}
	(&conn{of: f.server, Conn: n}).serve(t.Context())
	if n.reads != 1 || n.writes != 1 {
		t.Errorf("100 commands set %d deadlines of reads and %d of writes", n.reads, n.writes)
	}
}

// told notes what an observer is told.
type told struct {
	mu    sync.Mutex
	calls []string
}

func (o *told) ServedMany(method, code string, _ time.Duration, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, fmt.Sprint(method, " ", code, " ", n))
}

// The observer is told of all replies, and at once of those that are alike and follow one
// another. A flush in a pipeline holds from the next command on.
func TestPipelineIsTold(t *testing.T) {
	o := new(told)
	f := start(t, func(s *Options) { s.Observer = o })
	c := f.dial(t)
	throttle := encode("CL.THROTTLE k 1 1 60")
	c.send(strings.Repeat(throttle, 3) + encode("CL.THROTTLE k x 1 60") + encode("WEIR.CHECK /towns USER ada") +
		encode("FLUSHDB") + throttle + encode("PING"))
	var got string
	for range 8 {
		got += c.read()
	}
	if want := "[0 2 1 -1 60][0 2 0 -1 120][1 2 0 60 120]-ERR max_burst is \"x\": give a whole number"; !strings.HasPrefix(
		got, want) || !strings.HasSuffix(got, "OK[0 2 1 -1 60]PONG") {
		t.Errorf("%s", got)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if got, want := strings.Join(o.calls, ", "),
		"RESP CL.THROTTLE OK 2, RESP CL.THROTTLE DENIED 1, RESP CL.THROTTLE ERR 1, "+
			"RESP WEIR.CHECK OK 1, RESP FLUSHDB OK 1, RESP CL.THROTTLE OK 1, RESP PING OK 1"; got != want {
		t.Errorf("told %s, not %s", got, want)
	}
}
