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
	// From is when it was done, Until when it was about to be undone; zero: not yet.
	From, Until time.Time
}

// notes is what a fleet remembers of what was done to it, to be held against what was
// seen.
type notes struct {
	mu     sync.Mutex
	downs  []Down
	doubts []error
	links  map[[2]int]netlab.Link
}

// stopped is how long a signal may take to stop all threads of a node.
const stopped = 10 * time.Millisecond

// down notes that a node was ended or paused just now.
func (f *Fleet) down(node int, how string) {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	f.notes.downs = append(f.notes.downs, Down{Node: node, How: how, From: time.Now().Add(stopped)})
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

// Notes returns the times in which nodes were down, and the doubts, since it was
// called before. Who is down still is so until now.
func (f *Fleet) Notes() (downs []Down, doubts error) {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	now := time.Now()
	var open []Down
	for _, d := range f.notes.downs {
		if d.Until.IsZero() {
			open = append(open, d)
			d.Until = now
		}
		if d.From.Before(d.Until) {
			downs = append(downs, d)
		}
	}
	doubts = errors.Join(f.notes.doubts...)
	f.notes.downs, f.notes.doubts = open, nil
	return downs, doubts
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
