package weir

import (
	"log/slog"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The types of a check; see package limiter.
type (
	// Request is what the caller knows about one check.
	Request = limiter.Request
	// Decision is the result of one check.
	Decision = limiter.Decision
	// LimitDecision is the result of one limit.
	LimitDecision = limiter.LimitDecision
	// Receipt names one charge, so that it can be refunded.
	Receipt = limiter.Receipt
	// Observer is a set of functions that learn what a node does, see [Config.Observer].
	Observer = limiter.Observer
	// Limit is a limit that a request brings along, see [NewLimit].
	Limit = limiter.Limit
	// Spec describes a limit to [NewLimit].
	Spec = limiter.Spec
	// Explanation is a decision with its reasons.
	Explanation = limiter.Explanation
	// BatchError is returned by [Node.CheckBatch] and [Node.CheckBatchInto] if some of
	// the requests could not be decided. The others were.
	BatchError = limiter.BatchError
	// Answer is a decision in the form of its JSON.
	Answer = limiter.Answer
	// Overflow is how requests with new keys are decided when memory is full.
	Overflow = table.Overflow
	// Replication is how an owner's counters are copied to its heir.
	Replication = limiter.Replication
	// TopKey is an entry in a list of top keys.
	TopKey = table.TopKey
	// Stats are the number of counters of a node and their memory.
	Stats = table.Stats
	// Share is the usage of a rule that has a max_share.
	Share = table.Share
)

// How requests with new keys are decided when the node holds [Config.MaxKeys] counters.
const (
	OverflowDeny  = table.OverflowDeny
	OverflowAllow = table.OverflowAllow
)

// How an owner's counters are copied to its heir, see [Config.Replication].
const (
	ReplicationLag    = limiter.ReplicationLag
	ReplicationStrict = limiter.ReplicationStrict
	ReplicationOff    = limiter.ReplicationOff
)

// ErrInvalid is wrapped by the errors of rules files and requests that are invalid and
// that the caller must correct. Nothing was decided or counted.
var ErrInvalid = limiter.ErrInvalid

// NewLimit returns a limit for [Request.Limits]. It is immutable and safe for
// concurrent use, so make it once and use it for many requests.
func NewLimit(s Spec) (*Limit, error) { return limiter.NewLimit(s) }

// Units returns a cost of n units for [Request.Cost]. A cost of 0 is a peek.
func Units(n int64) limiter.Cost { return limiter.Units(n) }

// Config configures a node. The zero value is usable: such a node has no rules and
// decides only requests that bring their own limits.
type Config struct {
	// Rules is the contents of a rules file, in YAML or JSON. Empty means no rules:
	// every request without limits of its own is allowed, and its answer says so.
	// [Node.SetRules] replaces them later.
	Rules []byte
	// RulesName is what errors and logs call the rules, such as the name of the file
	// that Rules was read from; default "rules".
	RulesName string
	// MaxKeys bounds the counters that the node holds, one for each key and limit;
	// default 10,000,000, about 800 MB when full (80 bytes each). A higher bound takes
	// more memory. With a lower one a flood of keys reaches the bound sooner, and
	// Overflow then decides. A counter that has not recovered is never evicted for
	// another. One check needs a counter for each of its limits and keys. If MaxKeys is
	// below that, every new key is denied.
	MaxKeys int
	// MaxBytes bounds the memory of all counters, including that of logs and
	// sub-windows beside their 80 bytes; default 256 bytes for each of MaxKeys, which
	// is 2.56 GB for the default, and at least 64 MiB. A negative number means no
	// bound; the smallest bound is 8 MiB. At the bound Overflow decides requests with
	// new keys. A log that would have to grow denies, whatever Overflow says, because
	// it cannot admit what it cannot count.
	MaxBytes int64
	// Overflow decides requests with new keys at the bound of MaxKeys or MaxBytes:
	// OverflowDeny (default) or OverflowAllow.
	Overflow Overflow
	// Secret is the key of the hash that places counters. With it nobody outside can
	// construct two keys that share a counter, or many keys that share a partition.
	// Default: a node on its own draws a random one when it is opened; members of a
	// cluster and nodes with a backend have none.
	//
	// Give 32 random bytes. A secret that can be guessed can be tested offline by
	// anyone who reaches a member's gossip or peer port. All members of a cluster need
	// the same secret: [Open] fails if a present member has another one. A new secret
	// starts all counters afresh. A member that listens beyond loopback needs a secret;
	// see GossipKeys of cluster.Config.
	Secret []byte
	// SecondSecret, if not empty, is the secret that is to replace Secret, or the one that it
	// has replaced. Each check is then counted under both, and admitted if both admit it, so
	// that no count is lost while the members of a cluster get another secret, one after the
	// other. It costs twice as much, and a check has half of the keys at most. Give all
	// members both, then exchange the two, and leave out the old one when the longest window
	// of the rules has passed since all had both. It differs from Secret, which must not be
	// empty.
	SecondSecret []byte
	// ClusterName is mixed into the hash of Secret; default "weir".
	ClusterName string
	// StrictRules refuses a rules file with warnings, see [rules.Set.Warnings]. By default
	// they are logged.
	StrictRules bool
	// PathCacheEntries is how many paths are cached with the rules that match them;
	// default 8192, negative for none. A larger cache helps if more different paths
	// recur. An entry takes about 150 bytes plus the path.
	PathCacheEntries int
	// Replication is how counters are copied if their rule does not set it, and for
	// limits that come with a request. The rules file takes precedence. ReplicationLag
	// (default) answers before the copy is made, for up to 5 % of the limit.
	// ReplicationStrict waits for the copy on every admission, which costs a round
	// trip. ReplicationOff never waits, so a crash may lose any number of counts. It
	// has an effect in a cluster only. Members should have the same value; it is part
	// of RulesHash.
	Replication Replication
	// Backend decides in place of the node's own table, which then stays empty, but for
	// what a backend counts in it; default nil: the node decides in memory. It is
	// for one node: [Node.Close] closes it. Package redisstore has one.
	Backend Backend
	// Logger receives, when rules come into force, each of [rules.Set.Warnings] and the
	// names of rules that the file no longer has. A member of a cluster logs to it too,
	// unless cluster.Config has a Logger. Default nil: warnings and errors go to [slog.Default]; for silence give
	// slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Cluster makes the node a member of a cluster: a [*cluster.Config] of package
	// github.com/weirlimit/weir/cluster. Default nil: the node is on its own, runs no
	// goroutine and listens on no port. Cluster and Backend exclude each other.
	Cluster Clustering
	// Observer receives events for metrics; default nil, which costs nothing. [Open] copies it.
	Observer *Observer
	// Now is the clock, for tests and for replaying the past; default the wall clock at
	// Open plus the monotonic time since then, which never goes back. Now is called
	// once for each check or batch, from many goroutines.
	//
	// If Now goes back, a counter that was charged later keeps its time: an instant
	// before its last charge is treated as the instant of that charge (for windows: the
	// start of the window or sub-window of that charge), and waits are calculated from
	// the instant given. Other counters are not affected, except that those that had
	// recovered by the latest instant may be gone. This holds in memory, in a cluster
	// and in Redis.
	Now func() time.Time
}
