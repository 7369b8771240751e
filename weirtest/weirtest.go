// Package weirtest is for the unit tests of programs that embed Weir: a node whose clock
// the test moves, so that no test waits for a window to end.
//
//	func TestLimit(t *testing.T) {
//		node := weirtest.New(t, `
//	version: 1
//	rules: [{name: all, limits: [{limit: 1, window: minute, algorithm: gcra}]}]
//	`)
//		handler := NewHandler(node)  // the program's own, with a middleware of Weir
//		... the first request gets 200, the second 429
//		node.Advance(time.Minute)
//		... the next request gets 200
//	}
//
// The node decides in memory, by the same code as in production. It decides at the
// instant of its clock, so the test can check the exact waits of decisions.
package weirtest

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// TB is what this package needs of a test: [*testing.T], [*testing.B] and [*testing.F]
// have it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// Start returns the instant at which the clock of a new node stands: Thursday, 1
// January 2026, 12:00 UTC. It begins a minute and an hour of windows that are aligned
// to the epoch.
func Start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// Node is a [weir.Node] with a clock that stands still until the test moves it. It is
// safe for concurrent use.
type Node struct {
	*weir.Node

	mu sync.Mutex
	at time.Time
}

// New opens a node with these rules, in YAML or JSON, and closes it when the test ends.
// Rules that are not valid fail the test.
func New(tb TB, rules string) *Node {
	tb.Helper()
	return Open(tb, weir.Config{Rules: []byte(rules)})
}

// Open opens a node as [weir.Open] does, with the clock of the test in place of
// [weir.Config.Now], and closes it when the test ends. A configuration that is not
// valid fails the test.
func Open(tb TB, c weir.Config) *Node {
	tb.Helper()
	n := &Node{at: Start()}
	c.Now = n.Now
	var err error
	if n.Node, err = weir.Open(context.Background(), c); err != nil {
		tb.Fatalf("weirtest: %v", err)
		return nil
	}
	tb.Cleanup(func() { _ = n.Close() })
	return n
}

// Now returns the present time of the clock.
func (n *Node) Now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at
}

// Advance moves the clock by d. It may go back.
func (n *Node) Advance(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = n.at.Add(d)
}

// SetTime sets the clock.
func (n *Node) SetTime(t time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = t
}
