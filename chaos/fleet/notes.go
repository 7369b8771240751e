//go:build linux

package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// Down is a time in which a node was not to answer.
type Down struct {
	Node int
	// How it was brought to that: killed, paused, or told to leave.
	How string
	// Told is when that was about to be done, From when it was, Until when it was about to
	// be undone; zero: not yet.
	Told, From, Until time.Time
}

// Start is when a node was about to be started, for which run.
type Start struct {
	Node, Run int
	At        time.Time
}

// notes is what a fleet remembers of what was done to it, to be held against what was
// seen.
type notes struct {
	mu     sync.Mutex
	downs  []Down
	starts []Start
	doubts []error
	links  map[[2]int]netlab.Link
}

// stopped is how long a signal may take to stop all threads of a node.
const stopped = 10 * time.Millisecond

// down notes that a node was ended or paused just now, which was begun when it was told.
func (f *Fleet) down(node int, how string, told time.Time) {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	f.notes.downs = append(f.notes.downs, Down{Node: node, How: how, Told: told, From: time.Now().Add(stopped)})
}

// started notes that a node is about to be started.
func (f *Fleet) started(node, run int) {
	f.up(node)
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	f.notes.starts = append(f.notes.starts, Start{Node: node, Run: run, At: time.Now()})
}

// up notes that a node is about to go on.
func (f *Fleet) up(node int) {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	for i := range f.notes.downs {
		if d := &f.notes.downs[i]; d.Node == node && d.Until.IsZero() {
			d.Until = time.Now()
		}
	}
}

// Doubt notes that something which was to happen to the nodes cannot be seen to have
// happened. Nil is no doubt.
func (f *Fleet) Doubt(err error) {
	if err == nil {
		return
	}
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	f.notes.doubts = append(f.notes.doubts, err)
}

// Noted is what a fleet remembers of a time.
type Noted struct {
	// Downs are the times in which nodes were down: who is down still is so until now.
	Downs []Down
	// Starts are those that were made.
	Starts []Start
	// Doubts are joined, nil if there are none.
	Doubts error
}

// Notes returns what happened since it was called before.
func (f *Fleet) Notes() Noted {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	var out Noted
	now := time.Now()
	var open []Down
	for _, d := range f.notes.downs {
		if d.Until.IsZero() {
			open = append(open, d)
			d.Until = now
		}
		if d.From.After(d.Until) {
			d.From = d.Until
		}
		out.Downs = append(out.Downs, d)
	}
	out.Starts, out.Doubts = f.notes.starts, errors.Join(f.notes.doubts...)
	f.notes.downs, f.notes.starts, f.notes.doubts = open, nil, nil
	return out
}

// Link is what was last said of what one node sends another.
func (f *Fleet) Link(from, to int) netlab.Link {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	return f.notes.links[[2]int{from, to}]
}

// said notes what is said of a link.
func (f *Fleet) said(from, to int, l netlab.Link) {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	if f.notes.links == nil {
		f.notes.links = make(map[[2]int]netlab.Link)
	}
	f.notes.links[[2]int{from, to}] = l
}

// Counts tells what became so far of what one node sent another. Containers know only
// of links that are broken, since when they are.
func (f *Fleet) Counts(ctx context.Context, from, to int) (netlab.Counts, error) {
	return f.site.counts(ctx, from, to)
}
