package resp

import (
	"context"
	"strings"
	"testing"
	"time"
)

// discard is an observer that keeps nothing.
type discard struct{}

func (discard) Served(string, string, time.Duration) {}

// In the steady state a command costs no allocation: neither by itself nor in a pipeline.
func TestCommandsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := start(t, func(o *Options) { o.Observer = discard{} })
	for name, command := range map[string]string{
		"CL.THROTTLE": "CL.THROTTLE k 1000000 1000000 60", "denied": "CL.THROTTLE d 0 1 60", "WEIR.CHECK": "WEIR.CHECK /towns USER ada",
	} {
		for _, depth := range []int{1, 20} {
			c := &conn{of: f.server}
			text := []byte(strings.Repeat(encode(command), depth))
			carry := func() {
				c.buf = append(c.buf[:0], text...)
				c.began = time.Now()
				if !c.carryOut(context.Background()) {
					t.Fatal("the connection has ended")
				}
				c.giveBatch()
				c.reply.buf = c.reply.buf[:0]
			}
			for range 3 {
				carry() // counters and buffers are made
			}
			if n := testing.AllocsPerRun(100, carry); n >= 1 {
				t.Errorf("%s: %d commands make %v allocations", name, depth, n)
			}
		}
	}
}

// BenchmarkCommands measures commands without a network.
func BenchmarkCommands(b *testing.B) {
	for _, depth := range []int{1, 50} {
		b.Run(map[int]string{1: "one", 50: "pipeline"}[depth], func(b *testing.B) {
			f := start(b, nil)
			c := &conn{of: f.server}
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
