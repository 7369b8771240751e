package replica

import (
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Node is what the replicas of one node share. Its interfaces are called in the middle
// of a step, under the lock that the shell holds for the partition, so they must not
// enter a replica.
type Node struct {
	// Self is the instance of this node.
	Self peer.Instance
	// Seeds is the number of addresses to join by. While the node is joining, majorities
	// are counted of at least as many members.
	Seeds int
	Store Store
	Peers Peers
	Pace  Pace
	// Staged counts the bytes of incomplete snapshots, and Prepared the charges that are
	// in doubt or late, of all replicas of the node. *atomic.Int64 is a Counter.
	Staged, Prepared Counter
	// SaveEvery is how often a disk saves what this node holds, see [OnDisk.Save]; 0 if there is none.
	SaveEvery limiter.Tick
	// RestoreUntil is until when an available partition waits for members that are not back
	// before it starts from the best copy: the time of the scheduler, 0 if it does not.
	RestoreUntil limiter.Tick
	// Ended is the node's instance of before, if that ended in good order with all that it had on the disk; else 0.
	Ended peer.Instance
	// Random returns a number from 0 up to, but not including, below.
	Random func(below limiter.Tick) limiter.Tick
	// Fault, unless nil, is called with the partition's number before and in the middle
	// of changes. Tests panic in it.
	Fault func(partition uint16)
}

// Store holds the counters of all partitions. [table.Table] is one.
type Store interface {
	Count(partition int) int
	Drop(partition int)
	Export(partition int, now limiter.Tick, visit func(table.Entry))
	ExportIDs(partition int, after uint64, now limiter.Tick, visit func(table.ID)) (came uint64)
	ImportIDs(partition int, now limiter.Tick, from uint8, ids []table.ID) error
	Import(partition int, now limiter.Tick, entries []table.Entry, mode table.ImportMode) error
	ReplaceKey(partition int, hi uint64, now limiter.Tick, entries []table.Entry) error
	UndoIn(partition int, now limiter.Tick, c *arith.Charge, r limiter.Receipt) int
	UndoSettled(partition int, now limiter.Tick, c *arith.Charge, at limiter.Tick)
	TakeBack(now limiter.Tick, c *arith.Charge, x table.Extension) bool
	ForgetID(now limiter.Tick, c *arith.Charge, i int, at limiter.Tick) bool
	SetCopy(partition int, copied bool)
}

// Peers is what a node knows of its connections to other members.
type Peers interface {
	// Reachable reports whether there is a direct connection to a member.
	Reachable(i peer.Instance) bool
	// Patience returns span, or three round trips to a member if that is longer.
	Patience(to peer.Instance, span limiter.Tick) limiter.Tick
	// Measured records the time of a round trip.
	Measured(to peer.Instance, took limiter.Tick)
	// BeginSnapshot counts a snapshot of so many counters to a member. It reports false,
	// and counts nothing, if too much is under way to it. EndSnapshot makes room for others.
	BeginSnapshot(to peer.Instance, counters int) bool
	EndSnapshot(to peer.Instance, counters int)
	// LeftView returns when an instance left the view; 0 if it is in the view or was
	// never seen.
	LeftView(i peer.Instance) limiter.Tick
	// Counts reports whether an instance that is not in the view is a member that counts.
	Counts(i peer.Instance) bool
	// Told returns how many more members those in the view tell of, by too few words for them to count.
	Told() int
	// Nearby returns the members that count, are not in the view, and have a direct
	// connection to this node. all is false if any other member outside the view counts.
	Nearby(v *view.View) (near []peer.Instance, all bool)
}

// Pace is what a node knows of its own delays, and the numbers of its messages.
type Pace interface {
	// Stretched returns the wait before a message is sent again: span, or more for a while
	// after this node was paused.
	Stretched(span limiter.Tick) limiter.Tick
	// Awake returns the start of the time in which this node is known to have run
	// without a pause, and the last ping sent before that.
	Awake() (since limiter.Tick, ping uint32)
	// NextPing numbers a message that is to be answered, of all replicas of the node. It
	// is never 0. LastPing returns the last number.
	NextPing() uint32
	LastPing() uint32
}

// Counter is a sum that several replicas share. Add returns the new sum. It must be safe
// for concurrent use.
type Counter interface{ Add(delta int64) int64 }

// The times of the protocol, in the scheduler's time.
const (
	// TickEvery is the interval at which the shell calls [Replica.Tick] while the replica
	// is watched.
	TickEvery = 5 * limiter.Millisecond
	// EaseFor is how long a node that was paused does not trust its heir's silence.
	EaseFor = limiter.Second
	// GoneAfter is when an owner that is out of the view and silent is treated as gone.
	GoneAfter = limiter.Second

	batchEvery = 10 * limiter.Millisecond // longest wait of a changed key for its batch
	// An heir that does not acknowledge in this time lets the policy decide what may be answered.
	pingWithin    = 50 * limiter.Millisecond
	resendAfter   = 50 * limiter.Millisecond  // first wait before an unanswered message is sent again
	suspendAfter  = 120 * limiter.Millisecond // an heir silent this long, while replies wait, is suspended
	suspendBroken = 40 * limiter.Millisecond  // the same if the connection to it is down too
	suspendFor    = 3 * limiter.Second        // how long a suspended heir is not appointed again
	// The longest wait of an available partition's claim for answers, and of a closed one's for the last owner's.
	claimWithin = 100 * limiter.Millisecond
	claimAgain  = 200 * limiter.Millisecond // interval after which a question is asked again
	// The unit of the pause before a refused claim is repeated under a higher counter.
	claimPause = 20 * limiter.Millisecond
	askSlowest = limiter.Second            // longest back-off between questions about a partition without owner
	backAfter  = 500 * limiter.Millisecond // a partition is not handed back to its giver before this
)

// The bounds of what a replica keeps.
const (
	maxParked   = 1 << 14 // requests that wait until the partition has an owner
	maxWithheld = 1 << 14 // replies that are withheld, and those that later attempts wait for
	maxChanged  = 1 << 14 // changed keys with which a check with an id is decided: each adds one
	maxRefusals = 20      // refusals of an appointment in a row before the owner renews its epoch
)
