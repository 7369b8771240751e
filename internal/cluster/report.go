package cluster

import (
	"errors"
	"fmt"
	"github.com/weirlimit/weir/internal/cluster/route"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// reports counts the events of a core, and passes events and problems on.
type reports struct {
	observer Observer // nil if no one listens
	events   [Events]atomic.Uint64
}

// event counts an event of a partition, -1 for the whole node.
func (r *reports) event(e Event, partition int) {
	r.events[e].Add(1)
	if r.observer != nil {
		r.observer.Event(e, partition)
	}
}

// Count returns how often an event has happened since the core was created.
func (r *reports) Count(e Event) uint64 { return r.events[e].Load() }

// problem passes on what failed, and why.
func (r *reports) problem(what string, err error) {
	if r.observer != nil {
		r.observer.Problem(what, err)
	}
}

var errNotCredible = errors.New("a member, or somebody in its name, sent an impossible value")

// NotCredibleError is the problem of a part of a frame that was ignored.
type NotCredibleError struct {
	From peer.Instance
	What string // the part, such as "a claim"
}

func (e *NotCredibleError) Error() string {
	return fmt.Sprintf("%v: %s of %s", errNotCredible, e.What, e.From)
}
func (e *NotCredibleError) Unwrap() error { return errNotCredible }

func (r *reports) distrust(from peer.Instance, what string) {
	r.problem("a part of a frame was ignored", &NotCredibleError{from, what})
}

// ClocksDiffer is by how much members' clocks may differ before a node says so.
const ClocksDiffer = route.ClocksDiffer

// ClockDifference returns the member whose clock differs most from this node's, if one is seen to differ by more than
// [ClocksDiffer], and by how much at least; otherwise 0.
func (c *Core) ClockDifference() (of peer.Instance, by limiter.Tick) {
	now := c.config.Scheduler.Now()
	if c.config.Clock != nil {
		now = c.config.Clock(now)
	}
	return c.calls.ClockDifference(now)
}
