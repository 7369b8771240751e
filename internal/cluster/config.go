package cluster

import (
	"math/rand/v2"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Scheduler is a node's clock and its timers. Its methods may be called from many
// goroutines.
type Scheduler interface {
	// Now returns the present time of the node's clock. It never goes back.
	Now() limiter.Tick
	// After calls f once, span from now: in a goroutine of its own, or later in the
	// caller's. It never calls f before it returns.
	After(span limiter.Tick, f func())
}

// Network carries frames to other members. It takes the frames for a member with
// [Core.Take] and hands them to [Core.Deliver] of that member.
type Network interface {
	// Wake reports that there are frames for a member. It must not block.
	Wake(to peer.Instance)
}

// Observer receives events and problems for metrics and logs. Its methods may be called from many
// goroutines, under a partition's lock, and must not call the core.
type Observer interface {
	// Event reports an event of a partition, or of the whole node if partition is -1.
	Event(e Event, partition int)
	// Problem reports what failed, and why. what is one of few texts.
	Problem(what string, err error)
}

// Config configures a [Core]. All fields are required unless their comment says
// otherwise.
type Config struct {
	// Self is this node. Its state is [peer.Joining] or [peer.Active].
	Self peer.Member
	// Table holds the counters of the partitions that this node owns or has copies of.
	// Fallback holds the counters that policies decide by.
	Table, Fallback *table.Table
	// Scheduler is the node's clock and its timers, Network its way to other members.
	Scheduler Scheduler
	Network   Network
	// Clock returns what the clock of the counters shows when the Scheduler's shows now, for an embedder or a test that
	// moves it; nil means the same.
	Clock func(now limiter.Tick) limiter.Tick
	// Rand makes pauses that must differ between nodes. The core uses it under a lock.
	Rand *rand.Rand
	// Rule returns the rule with that name in this node's rules file, nil if there is
	// none. It may be called from many goroutines.
	Rule func(name string) *limiter.Rule
	// Deadline is how long a check waits for an owner or heir before the policy of its
	// rule answers; 0 means [DefaultDeadline].
	Deadline limiter.Tick
	// CachedDenials makes this node repeat a denial that the owner of a key has just
	// given, without asking again, for at most a second: see [limiter.SourceCached].
	CachedDenials bool
	// RefuseResets makes this node refuse resets that other members ask of it. It still
	// asks other members for the resets of its own callers.
	RefuseResets bool
	// Seeds is the number of addresses that this node joins by, its own included; 0 if
	// it joins no cluster. While the node is joining, majorities are counted of at least
	// this many members.
	Seeds int
	// Partitions lists the partitions that this core manages; nil means all. Simulations
	// use it because few partitions are enough for them.
	Partitions []int
	// SaveEvery is how often [Disk.Save] is called; 0 if it is not. Promises, unless nil, keeps what this node grants of
	// closed partitions before it answers. RestoreWait is for how long available partitions wait, from the start on, for
	// members that are not back.
	SaveEvery   limiter.Tick
	Promises    Promises
	RestoreWait limiter.Tick
	// Observer may be nil.
	Observer Observer
	// Tracer records spans of the checks that are traced. It may be nil if no charge has a
	// Trace; traces of other members are then ignored.
	Tracer Tracer
	// Note receives what the programs of other members say, on their own connections; nil: it is
	// ignored. It must not wait, nor call the core.
	Note func(from peer.Instance, n peer.Note)
	// Panicked receives the value of each panic that the core recovers from. It is
	// called by the deferred function that recovered, so debug.Stack shows the panic's
	// stack. It may be called under locks and from many goroutines, and must not call
	// the core. If it is nil, the core does not recover from panics; that is for tests.
	Panicked func(v any)
	// Fault, unless nil, is called with a partition's number, under the partition's
	// lock, before and in the middle of changes to it. Tests panic in it.
	Fault func(partition int)
}

// DefaultDeadline is the default of [Config.Deadline].
const DefaultDeadline = 300 * limiter.Millisecond

// The times of the protocol, in the scheduler's time.
const (
	// A tick this late, or without progress this long, means that the node itself was paused.
	lateAfter  = 50 * limiter.Millisecond
	pulseEvery = 16 // a tick reads the clock after this many partitions
)

// Event is a kind of event that is counted.
type Event uint8

// The events.
const (
	EventTakeover Event = iota
	EventRenewal
	EventHandoff
	EventReopened
	EventFenced
	EventMerged
	EventRecovered // the last resort took the best old copy
	EventEmptied   // the last resort started the partition empty
	EventRelayed
	EventRaised // a policy raised what an owner may answer without its heir's acknowledgement
	EventFallback
	EventLate
	EventBroken  // a panic broke a partition and its state was dropped
	EventGivenUp // a partition broke twice within a minute and is not held for a minute
	Events       // number of events
)

// String returns the event's name in metrics; "unknown" for an invalid value.
func (e Event) String() string {
	names := [Events]string{"takeover", "renewal", "handoff", "reopened", "fenced", "merged", "recovered", "emptied",
		"relayed", "raised", "fallback", "late", "broken", "given_up"}
	if e < Events {
		return names[e]
	}
	return "unknown"
}
