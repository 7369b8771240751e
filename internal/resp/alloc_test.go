package resp

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// discard is an observer that keeps nothing.
type discard struct{}

func (discard) ServedMany(string, string, time.Duration, int) {}

// In the steady state a command costs no allocation: neither by itself nor in a pipeline.
func TestCommandsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := start(t, func(o *Options) { o.Observer = discard{} })
	for name, command := range map[string]string{
		"CL.THROTTLE": "CL.THROTTLE k 1000000 1000000 60", "denied": "CL.THROTTLE d 0 1 60",
		"WEIR.CHECK": "WEIR.CHECK /towns USER ada",
	} {
		for _, depth := range []int{1, 20} {
			const rounds = 1000
			sent := []byte(strings.Repeat(encode(command), depth))
			serve := func() {
				c := &conn{of: f.server, Conn: &repeating{sent: sent, left: rounds}}
				c.serve(t.Context())
			}
			serve()                                                     // counters and buffers are made
			if n := testing.AllocsPerRun(5, serve) / rounds; n >= 0.2 { // a connection makes its buffer
				t.Errorf("%s: %d commands at a time make %v allocations", name, depth, n)
			}
		}
	}
}

// repeating is a connection from which the same bytes are read a number of times.
type repeating struct {
	net.Conn
	sent          []byte
	left          int
	reads, writes int // how often deadlines were set
}

func (r *repeating) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	return copy(p, r.sent), nil
}

func (*repeating) Write(p []byte) (int, error) { return len(p), nil }

func (r *repeating) SetReadDeadline(time.Time) error { r.reads++; return nil }

func (r *repeating) SetWriteDeadline(time.Time) error { r.writes++; return nil }

// BenchmarkCommands measures commands without a network.
func BenchmarkCommands(b *testing.B) {
	for _, depth := range []int{1, 50} {
		b.Run(map[int]string{1: "one", 50: "pipeline"}[depth], func(b *testing.B) {
			f := start(b, nil)
			c := &conn{of: f.server}
			c.identify()
			text := []byte(strings.Repeat(encode("CL.THROTTLE k 1000000 1000000 60"), depth))
			b.ReportAllocs()
			for i := 0; i < b.N; i += depth {
				c.buf = append(c.buf[:0], text...)
				if !c.carryOut(b.Context()) {
					b.Fatal("the connection has ended")
				}
				c.giveBatch()
				c.reply.buf = c.reply.buf[:0]
			}
		})
	}
}
