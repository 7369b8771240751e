package peerlink_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

// tripping is a box that panics at the listed calls about one member, once each and in
// their order. It sends a frame to that member again after each connection, as a frame
// is lost with a connection that breaks, for whatever reason.
type tripping struct {
	*box
	of    peer.Instance
	mu    sync.Mutex
	list  []string
	again *peer.Frame // nil: none
}

// repeat sends a frame, and again with each connection until the next call of repeat.
func (x *tripping) repeat(f *peer.Frame) {
	x.mu.Lock()
	x.again = f
	x.mu.Unlock()
	x.send(x.of, f.Clone())
}

// connected puts the frame that is repeated into the outbox. The new connection takes it.
func (x *tripping) connected(to peer.Instance) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.again == nil || to != x.of {
		return
	}
	f := x.again.Clone()
	f.From, f.To = x.self, to
	x.box.mu.Lock()
	defer x.box.mu.Unlock()
	x.out[to] = append(x.out[to], f)
}

func (x *tripping) at(what string, i peer.Instance) {
	x.mu.Lock()
	trip := i == x.of && len(x.list) > 0 && x.list[0] == what
	if trip {
		x.list = x.list[1:]
	}
	x.mu.Unlock()
	if trip {
		panic(what)
	}
}

func (x *tripping) trip(at []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = at
}

func (x *tripping) Deliver(f *peer.Frame) { x.at("deliver", f.From); x.box.Deliver(f) }
func (x *tripping) Release(f *peer.Frame) { x.at("release", f.To); x.box.Release(f) }
func (x *tripping) Up(i peer.Instance)    { x.connected(i); x.box.Up(i); x.at("up", i) }
func (x *tripping) Down(i peer.Instance)  { x.box.Down(i); x.at("down", i) }
func (x *tripping) Take(to peer.Instance, checks bool) *peer.Frame {
	x.at("take", to)
	return x.box.Take(to, checks)
}

// A panic anywhere in a link ends only that link, which is then made again. The process
// and the other links continue.
func TestAPanicEndsItsLinkOnly(t *testing.T) {
	for name, id := range map[string]peer.Instance{"it dials": 1, "it is dialled": 5} {
		t.Run(name, func(t *testing.T) {
			var trips, back *tripping
			var caught atomic.Int32
			other := start(t, 2, "", func(c *peerlink.Config) {
				back = &tripping{box: c.Frames.(*box), of: id}
				c.Frames = back
			})
			third := start(t, 3, "", nil)
			x := start(t, id, "", func(c *peerlink.Config) {
				b := c.Frames.(*box)
				trips = &tripping{box: b, of: 2}
				c.Frames = trips
				c.Panicked = func(any) { caught.Add(1); b.changed.Broadcast() }
			})
			introduce(x, other, third)
			for _, n := range []*node{other, third} {
				x.waitUp(t, n.self)
				n.waitUp(t, id)
			}
			panics := int32(0)
			for i, step := range []struct {
				trips []string
				ups   int
			}{
				{[]string{"deliver"}, 1}, {[]string{"take"}, 1}, {[]string{"release"}, 1},
				{[]string{"deliver", "down"}, 1}, {[]string{"deliver", "up"}, 2},
			} {
				ups := x.tally("up " + other.self.String())
				trips.trip(step.trips)
				if step.trips[0] == "deliver" {
					back.repeat(announce(i))
				} else {
					trips.repeat(announce(i))
				}
				panics += int32(len(step.trips))
				x.wait(t, "the panics", func() bool { return caught.Load() >= panics })
				x.waitMore(t, "up "+other.self.String(), ups+step.ups-1)
				trips.repeat(announce(100 + i))
				other.wait(t, "a frame", func() bool {
					return slices.ContainsFunc(other.got, func(f *peer.Frame) bool {
						return f.Announces[0].Epoch.Counter == uint64(100+i)
					})
				})
				if n := caught.Load(); n != panics {
					t.Fatalf("%v: %d panics were caught, want %d", step.trips, n, panics)
				}
			}
			third.send(id, announce(1))
			x.wait(t, "a frame of the third", func() bool {
				return slices.ContainsFunc(x.got, func(f *peer.Frame) bool { return f.From == third.self })
			})
			if n := x.tally("down " + third.self.String()); n != 0 {
				t.Errorf("the link to the third was down %d times", n)
			}
		})
	}
}
