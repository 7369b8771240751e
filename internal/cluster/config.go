package cluster

import (
	"math/rand/v2"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Scheduler is time, as a node sees it.
type Scheduler interface {
	// Now returns the node's clock: it never steps back.
	Now() limiter.Tick
	// After calls f once, in a goroutine of its own or later in the caller's,
	// after the given span.
	After(span limiter.Tick, f func())
}

// Network carries frames. What there is for a member it takes by [Core.Take]
// and hands to that member's [Core.Deliver].
type Network interface {
	// Wake says that there is something to take for a member. It must not block.
	Wake(to peer.Instance)
}

// Ring names the owner of each partition among the active members, and who
// would own it without that owner, by index into the names that it was made of,
// sorted; -1 is nobody.
type Ring interface {
	Owner(partition int) int
	Successor(partition int) int
}

// Observer is told what is worth counting or saying. Its methods may be called
// from many goroutines, under a partition's lock, and must not call back.
type Observer interface {
	// Event tells that something happened to a partition, or, with -1, to the
	// node.
	Event(e Event, partition int)
}

// Config is what a [Core] needs. All fields but those that say so are required.
type Config struct {
	// Self is this node; its state is [peer.Joining] or [peer.Active].
	Self peer.Member
	// Table holds the counters that this node owns or has copies of, Fallback
	// those that a policy decides by.
	Table, Fallback *table.Table
	// Scheduler and Network: see there.
	Scheduler Scheduler
	Network   Network
	// Clock is the time that counters see, nil for the Scheduler's. Tests move it.
	Clock func() limiter.Tick
	// Rand is used under a lock, for pauses that must differ between nodes.
	Rand *rand.Rand
	// Rule returns the rule of that name in this node's rules file, or nil.
	Rule func(name string) *limiter.Rule
	// Deadline is how long a check waits for an owner or heir before the policy
	// of its rule answers; 0 means [DefaultDeadline].
	Deadline limiter.Tick
	// CachedDenials has the node refuse by itself, for a second at most, what the
	// owner of a key has just refused it: see [limiter.SourceCached].
	CachedDenials bool
	// RefuseResets has this node refuse the resets that other members pass on. Its own
	// are asked of the others all the same.
	RefuseResets bool
	// Seeds is the number of addresses that this node joins by, itself included,
	// 0 for a node that joins nobody. While it is joining, there are at least so
	// many members.
	Seeds int
	// Partitions lists those that are looked after, nil for all. It is for
	// simulations, in which few are enough.
	Partitions []int
	// Observer may be nil.
	Observer Observer
	// Panicked is told the value of each panic that the core has recovered from, in the
	// deferred function that did, so that the stack is the panic's. It may be called under
	// locks, from many goroutines, and must not call back. Nil: panics are not recovered
	// from, which is for tests.
	Panicked func(v any)
	// Fault, unless nil, is called under the lock of a partition, by its number, where
	// something of it is about to be done or is half done. It is for tests, which panic
	// there.
	Fault func(partition int)
}

// DefaultDeadline is how long a check waits before a policy answers.
const DefaultDeadline = 300 * limiter.Millisecond

// The times of the protocol.
const (
	tickEvery    = 5 * limiter.Millisecond   // while there is anything to watch
	batchEvery   = 10 * limiter.Millisecond  // a dirty key waits no longer for its batch
	lateAfter    = 50 * limiter.Millisecond  // a tick that comes, or goes on, so late means that the node itself stood still
	pulseEvery   = 16                        // partitions of a tick after which it looks at the time
	easeFor      = limiter.Second            // so long after it was late a node does not hurry others, nor take a heir's silence for its loss
	pingWithin   = 50 * limiter.Millisecond  // an heir acknowledges in this time, or the policy decides what may be answered
	suspectAfter = 30 * limiter.Millisecond  // a connection so long silent is helped by a relay
	probeEvery   = 20 * limiter.Millisecond  // a connection that seems broken is tried so often
	resendAfter  = 50 * limiter.Millisecond  // what is not answered is sent again
	shunAfter    = 120 * limiter.Millisecond // an heir so long silent, while replies wait, is given up
	shunBroken   = 40 * limiter.Millisecond  // the same, where the connection to it is broken too
	shunFor      = 3 * limiter.Second        // and not appointed again before
	silentAfter  = 80 * limiter.Millisecond  // an owner so long silent is unreachable
	claimWithin  = 100 * limiter.Millisecond // an available claim waits no longer for answers
	claimAgain   = 200 * limiter.Millisecond // a closed claim, or a question, is repeated
	claimPause   = 20 * limiter.Millisecond  // at most, before a refused claim tries a higher counter
	goneAfter    = limiter.Second            // an owner out of view is given up after so long a silence
	askSlowest   = limiter.Second            // questions are repeated at least so often
	backAfter    = 500 * limiter.Millisecond // a partition does not go back to its giver sooner
	forgetAfter  = limiter.Minute            // nothing is kept of an instance that is so long out of view and reach
	retryEvery   = 5 * limiter.Millisecond   // a check that found no owner tries again
)

// The bounds.
const (
	maxOps     = 1 << 17 // checks under way to one member
	maxParked  = 1 << 14 // checks that wait for a partition to be settled
	maxHeld    = 1 << 14 // replies that one partition withholds
	maxFrame   = 192 << 10
	maxBulk    = 48 << 10 // bytes of a frame of snapshots
	maxChecks  = 1000     // in one frame
	maxFrames  = 1 << 12  // that wait for one member
	maxRelays  = 3        // that are tried at once
	maxRelayed = 256      // that wait to be passed on to one member
	maxLinks   = 1024     // to instances that are not connected

	maxRelayedSize = 32 << 20 // bytes of those
	maxFramesSize  = 64 << 20 // bytes of control messages that wait for one member

	maxKept       = 1 << 13 // entries that a frame has room for when it is used again
	maxSnapshots  = 16      // on their way to one member
	maxForeign    = 4096    // definitions of other nodes' rules
	maxScaled     = 4096
	maxAttempts   = 64 // of one check
	maxRefusals   = 20 // of an appointment, before its epoch ends
	maxPeers      = 1024
	forgetGranted = 8
)

// Event is something that happened, for counting.
type Event uint8

// The events.
const (
	EventTakeover Event = iota
	EventRenewal
	EventHandoff
	EventReopened
	EventFenced
	EventMerged
	EventRecovered // the last resort: an old copy was all there was
	EventEmptied   // the last resort: there was nothing
	EventRelayed
	EventRaised // a policy let more out than the heir had acknowledged
	EventFallback
	EventLate
	EventBroken  // a panic: what was held of the partition was dropped
	EventGivenUp // a second one within a minute: nothing is held of it for a minute
	Events       // how many there are
)

// String returns the event's name in metrics.
func (e Event) String() string {
	names := [Events]string{"takeover", "renewal", "handoff", "reopened", "fenced", "merged", "recovered", "emptied", "relayed", "raised", "fallback", "late", "broken", "given_up"}
	if e < Events {
		return names[e]
	}
	return "unknown"
}
