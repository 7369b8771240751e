package netlab

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Link says what happens to the frames of one direction between two namespaces.
// The zero value carries everything at once.
type Link struct {
	// Delay is added to each frame, and up to Jitter more, evenly drawn.
	Delay, Jitter time.Duration
	// Loss, Duplicate and Reorder are parts of the frames, 0 to 1. A frame that is
	// reordered waits ReorderBy longer than its Delay, default 10 ms, and so
	// arrives after some that were sent later.
	Loss, Duplicate, Reorder float64
	ReorderBy                time.Duration
	// Bandwidth in bytes a second; 0: as fast as the machine can.
	Bandwidth int
	// Cut: nothing arrives.
	Cut bool
	// Blocked are ports, over TCP and UDP, of which nothing arrives, whichever
	// end has the port.
	Blocked []uint16
}

// String tells what is wrong with the link.
func (l *Link) String() string {
	var out []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(l.Cut, "cut")
	add(len(l.Blocked) > 0, "ports %v blocked", l.Blocked)
	add(l.Delay > 0 || l.Jitter > 0, "%v to %v late", l.Delay, l.Delay+l.Jitter)
	add(l.Loss > 0, "%.0f %% lost", 100*l.Loss)
	add(l.Duplicate > 0, "%.0f %% twice", 100*l.Duplicate)
	add(l.Reorder > 0, "%.0f %% reordered", 100*l.Reorder)
	add(l.Bandwidth > 0, "%d bytes/s", l.Bandwidth)
	if len(out) == 0 {
		return "whole"
	}
	return strings.Join(out, ", ")
}

const (
	defaultReorderBy = 10 * time.Millisecond
	// longestBacklog is how long frames may wait for bandwidth; a router would
	// drop them too.
	longestBacklog = 500 * time.Millisecond
)

// direction is one direction of a link as it is used. The switch's lock guards
// it.
type direction struct {
	link   Link
	set    time.Time // when it was last told so
	rng    *rand.Rand
	free   time.Time // when the bandwidth has room again
	sent   uint64    // frames that were to be carried, twice or not
	latest uint64    // of them, which arrived
	counts Counts
}

// become sets the link.
func (d *direction) become(l Link) { d.link, d.set = l, time.Now() }

// carried notes that a frame arrives. One that was under way when the link was set was
// carried by what the link was before, and is not counted.
func (d *direction) carried(w *waiting) {
	if w.came.Before(d.set) {
		return
	}
	d.counts.Carried++
	d.counts.Bytes += uint64(len(w.frame))
	d.counts.Held += time.Since(w.came)
	if w.again {
		d.counts.Twice++
	}
	if w.nth < d.latest {
		d.counts.Overtaken++
	}
	d.latest = max(d.latest, w.nth)
}

// fate returns when a frame of so many bytes arrives, each time that it does.
func (d *direction) fate(now time.Time, size int, f *flow) (at [2]time.Time, times int) {
	l := &d.link
	// The same number of draws for each frame, so that one setting does not
	// change what the seed does to the others.
	lost, twice, late, jitter := d.rng.Float64(), d.rng.Float64(), d.rng.Float64(), d.rng.Float64()
	if l.Cut || lost < l.Loss || f.blocked(l.Blocked) {
		return at, 0
	}
	due := now
	if l.Bandwidth > 0 {
		if d.free.Before(now) {
			d.free = now
		}
		if d.free.Sub(now) > longestBacklog {
			return at, 0
		}
		d.free = d.free.Add(time.Duration(size) * time.Second / time.Duration(l.Bandwidth))
		due = d.free
	}
	due = due.Add(l.Delay + time.Duration(jitter*float64(l.Jitter)))
	if late < l.Reorder {
		by := l.ReorderBy
		if by == 0 {
			by = defaultReorderBy
		}
		due = due.Add(by)
	}
	at[0], times = due, 1
	if twice < l.Duplicate {
		at[1], times = due, 2
	}
	return at, times
}
