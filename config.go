package weir

import (
	"log/slog"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The words of a check, see package limiter.
type (
	// Request is what the asker knows of one check.
	Request = limiter.Request
	// Decision is the answer to one check.
	Decision = limiter.Decision
	// LimitDecision is the answer of one limit.
	LimitDecision = limiter.LimitDecision
	// Receipt names one charge, so that it can be refunded.
	Receipt = limiter.Receipt
	// Limit is a limit that comes with a request, see [NewLimit].
	Limit = limiter.Limit
	// Spec describes a limit to [NewLimit].
	Spec = limiter.Spec
	// Explanation is a decision with its reasons.
	Explanation = limiter.Explanation
	// Answer is a decision in the form of its JSON.
	Answer = limiter.Answer
	// Overflow says how new keys are decided when memory is full.
	Overflow = table.Overflow
	// Replication says how an owner's counters are copied to its heir.
	Replication = limiter.Replication
	// TopKey is a key in a list of top keys.
	TopKey = table.TopKey
	// Stats tells how much a node holds.
	Stats = table.Stats
	// Share is what the counters of a rule with a max_share take.
	Share = table.Share
)

// How new keys are decided when the node holds [Config.MaxKeys].
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

// ErrInvalid is wrapped by the errors of rules files and requests that the
// asker must mend. Nothing was decided or counted.
var ErrInvalid = limiter.ErrInvalid

// NewLimit returns a limit for [Request.Limits]. Make it once and use it for
// many requests: it is immutable and safe for concurrent use.
func NewLimit(s Spec) (*Limit, error) { return limiter.NewLimit(s) }

// Units returns a cost of n units for [Request.Cost]; 0 peeks.
func Units(n int64) limiter.Cost { return limiter.Units(n) }

// Config configures a node. The zero value is usable: a node without rules,
// which decides only requests that bring their limits.
type Config struct {
	// Rules is the contents of a rules file, in YAML or JSON. Empty means no
	// rules: every request that brings no limits is allowed, and the answer says
	// so. See [Node.SetRules] for changing them later.
	Rules []byte
	// RulesFile names the rules in errors; default "rules". It is not opened.
	RulesFile string
	// MaxKeys bounds how many counters, one for each key and limit, the node
	// holds; default 10,000,000, about 800 MB when full (80 bytes each). More take more memory;
	// fewer make a flood of keys meet Overflow sooner. A counter that has not
	// recovered is never dropped for another. A check needs as many as it has
	// limits, for each of its keys; below that every new key is denied.
	MaxKeys int
	// MaxBytes bounds the memory of counters, with what logs and sub-windows take beside
	// their 80 bytes; default 256 bytes for each of MaxKeys, so 2.56 GB, and 64 MiB at
	// least; a negative number for no bound. At the bound new keys are decided by
	// Overflow, and a log that would have to grow denies, whatever Overflow says: what it
	// does not count it cannot admit. The least is 8 MiB.
	MaxBytes int64
	// Overflow decides requests with new keys at those bounds: OverflowDeny
	// (default) or OverflowAllow.
	Overflow Overflow
	// Secret keys the hash of counters, so that nobody outside can construct two
	// keys that share a counter, or many that share a partition. A node of its own
	// draws one when it is opened, if none is given; for members of a cluster and
	// nodes with a backend the default is none. Give 32 random bytes: of anything that
	// can be guessed, a member's gossip and its peer port let anyone who reaches them
	// try guesses elsewhere. Nodes of one cluster need the same: [Open] fails where a
	// member that is there has another. Another one starts all counters afresh. A member
	// beyond loopback needs one, see GossipKeys of cluster.Config.
	Secret []byte
	// ClusterName is mixed into that hash; default "weir".
	ClusterName string
	// PathCacheEntries is how many paths are remembered with the rules that
	// match them; default 8192, negative for none. More help while more
	// different paths are asked for again and again; an entry takes about 150
	// bytes and the path.
	PathCacheEntries int
	// Replication is how the counters of rules that do not say it are copied, and
	// those of limits that come with a request: ReplicationLag (default) answers
	// before the copy is made, up to 5 % of the limit; ReplicationStrict waits for
	// it with every admission, a round trip; ReplicationOff never waits,
	// so that a crash may lose any count. What the rules file says wins. It matters in a
	// cluster only, whose nodes should have the same: it is part of RulesHash.
	Replication Replication
	// Backend decides in place of the node's own table, which then stays empty;
	// default nil: the node decides in memory. The node closes it when it is
	// closed itself. Package redisstore has one.
	Backend Backend
	// Logger is told what deserves an operator's attention: in the rules that come into
	// force each of [rules.Set.Warnings], and rules that the file no longer has. Default
	// nil: nobody is told.
	Logger *slog.Logger
	// Cluster makes the node a member of a cluster: a [*cluster.Config] of package
	// github.com/weirlimit/weir/cluster. Default nil: the node is on its own, runs no
	// goroutine and listens nowhere. It excludes Backend.
	Cluster Clustering
	// Observer is told what the node does, for metrics; default nil, which costs
	// nothing. One that is a [PanicObserver] too is told of panics that a member of a
	// cluster recovered from.
	Observer Observer
	// Now is the clock, for tests and for replaying the past; default the wall
	// clock at Open plus the monotonic time since, which never steps. If it goes back,
	// a counter that was charged later keeps that: an instant before its last charge
	// (of windows, before the window or sub-window of that) is taken as that one, and
	// its waits are reckoned from the instant given. Other counters notice nothing,
	// but those that had recovered by the latest instant may be forgotten. It is the
	// same in memory, in a cluster and in Redis. Now is called once for each check or
	// batch, from many goroutines.
	Now func() time.Time
}

// Observer is told what a node does. Its methods are called from many
// goroutines, on the path of every check: they must be quick and must not keep
// what they are given. Package metrics has one for Prometheus.
type Observer interface {
	// Checked is called for each decision, peeks included, with the rule that
	// decided, empty if none matched; once for n decisions of a batch that came
	// after one another and are alike in all of this.
	Checked(n int, rule string, source limiter.Source, allowed, shadowDenied bool)
	// Refused is called with each request that could not be decided.
	Refused(err error)
	// RulesSet is called when rules came into force, with their hash, and when
	// a file was refused, with the reason and the hash of those that stay.
	RulesSet(hash uint64, err error)
}

// PanicObserver is an [Observer] that is told of panics, too, which are defects of this
// module.
type PanicObserver interface {
	Observer
	// Panicked is called when a panic was recovered from: place is "cluster", "link" or
	// "gossip".
	Panicked(place string)
}
