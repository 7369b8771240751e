package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
)

// The errors that [Node.Ready] wraps. Checks that a member does not accept wrap
// [ErrJoining] too.
var (
	// ErrJoining: the node is not in the cluster yet. Ask another member.
	ErrJoining = limiter.ErrJoining
	// ErrSettling: the node does not hold all the counters yet that it should hold. It
	// takes checks.
	ErrSettling = limiter.ErrSettling
	// ErrLeaving: the node is handing over its counters. It takes checks until it
	// stops.
	ErrLeaving = limiter.ErrLeaving
)

// ErrNoCluster is returned by the methods of [Cluster] for a node that was opened
// without [Config.Cluster].
var ErrNoCluster = errors.New("weir: the node is in no cluster: open it with Config.Cluster")

// ErrUnknownMember is wrapped by the error of Forget of [Cluster] if the name is not
// that of a dead member, and by that of Readmit if it is not that of an expelled one.
var ErrUnknownMember = errors.New("weir: no such member")

// ErrWait is wrapped by the error of [Node.Wait] if no wait helps: the cost is above what
// the rule ever admits, or the context ends before the check could be allowed.
var ErrWait = limiter.ErrWait

// ErrUnanswered is wrapped by the errors of [Node.Reset], [Node.Refund] and
// [Node.Explain] in a cluster if no member that holds the keys answered within the
// cluster's deadline.
var ErrUnanswered = limiter.ErrUnanswered

// ErrForbidden is wrapped by the error of [Node.Reset] in a cluster if a member that
// holds some of the keys accepts no resets from other members; see RefuseResets of
// cluster.Config.
var ErrForbidden = limiter.ErrForbidden

// ErrUnexplained is wrapped by the error of [Node.Explain] if the member that holds a
// key runs a version without Explain.
var ErrUnexplained = errors.New("weir: the member runs a version without Explain")

// Clustering makes a node a member of a cluster. Its only implementation is
// [*cluster.Config] of package github.com/weirlimit/weir/cluster. A program that does
// not import that package compiles none of the dependencies of a member: no gRPC, no
// gossip, no DNS.
type Clustering interface {
	// OpenMember is called by [Open].
	OpenMember(ctx context.Context, n *engine.Node) (engine.Decider, Cluster, error)
}

// Cluster is a node's view of its cluster, see [Node.Cluster]. It is safe for
// concurrent use.
type Cluster interface {
	// Members returns the members as this node sees them, ordered by name. Some fields
	// are known for the node itself only.
	Members() []Member
	// Stats returns the node's state in the cluster, and false if it is in none.
	Stats() (ClusterStats, bool)
	// Placement returns which member clients should ask for which counter, as this node
	// sees it now; nil if it does not know yet. It is computed anew after members or
	// rules have changed. Otherwise a call only reads two pointers.
	Placement() *Placement
	// Forget removes a dead member that will never come back, so that it no longer
	// counts towards all members or a majority. The other members are informed. If it
	// does come back, it is a member again. The error wraps [ErrUnknownMember], or
	// [ErrInvalid] for a live member, or is [ErrNoCluster] or [ErrClosed].
	Forget(name string) error
	// Expel throws a member out, live or dead, on all members: it has no connection to any,
	// counts for nothing, and what it says is ignored, until it is let in again with Readmit. The
	// other members are informed, and those that start later by any of them. What an
	// expelled member has said of others, expulsions too, ends with it. At most 256 names
	// are remembered. The error wraps [ErrInvalid] for this node's own name and at that
	// bound, or is [ErrNoCluster] or [ErrClosed].
	Expel(name string) error
	// Readmit ends what Expel did. The error wraps [ErrUnknownMember] if the member is not
	// expelled, or is as that of Expel.
	Readmit(name string) error
	// HandOver is the first half of Leave. The node hands over its counters and
	// continues to accept checks, which other members decide. A program stops its
	// servers between HandOver and Leave, so that no client is refused. A call while
	// another one runs waits for that one's end. The errors are those of Leave.
	HandOver(ctx context.Context) error
	// Leave stops the node in good order: it hands over its counters, announces its
	// exit to the other members and closes the node. Checks continue until then. It
	// takes a fraction of a second, and 14 seconds at most. If the context ends first,
	// or some counters could not be handed over, the node is closed nevertheless, the
	// others continue from the copies that they have, and the error says so. The error
	// is [ErrClosed] for a closed node. It is [ErrNoCluster] for a node without a
	// cluster, which stays open.
	Leave(ctx context.Context) error
}

// Member is a member of the cluster, as a node sees it.
type Member struct {
	// Name of the member, Address of its gossip, Instance of its current run.
	Name, Address, Instance string
	// State is "joining", "active", "leaving", "dead" or "expelled". Of one that is expelled
	// only the name is known.
	State string
	// GRPCAddr and HTTPAddr are its addresses for clients, empty if it publishes none.
	GRPCAddr, HTTPAddr string
	// AdminAddr is its address for operators, empty if it publishes none.
	AdminAddr string
	// Version of its program, and RulesHash of its rules.
	Version   string
	RulesHash uint64
	// ZoneData is the release of its time zone database, such as "2025c"; empty if its
	// program does not tell.
	ZoneData string
	// Unreachable reports that the node that was asked receives the member's gossip but
	// has no connection to its peer port. If that lasts, it is a fault. False for dead
	// members.
	Unreachable bool
	// Share is the fraction of the partitions, 0 to 1, that it should own.
	Share float64
	// SentFrames and SentBytes are what the node that was asked has sent to it, since it is known.
	SentFrames, SentBytes uint64
	// Self reports that this is the node that was asked. The fields below are set for
	// it only: ask each member for its own.
	Self bool
	// Keys is the number of counters that it holds, copies included. Checks is the
	// number of checks from its own clients since it was opened, ChecksPerSecond that
	// of the last second.
	Keys                    int
	Checks, ChecksPerSecond uint64
	// Lag is how long the oldest answer has waited for its copy. Unacknowledged is the
	// largest cost, of one key, that was answered but not copied yet.
	Lag            time.Duration
	Unacknowledged uint64
}

// ClusterStats is a node's state in the cluster, for metrics.
type ClusterStats struct {
	// Members counts the members that this node sees, itself included, by state:
	// "joining", "active", "leaving", "dead" or "expelled". Nodes that gossip reports and that have
	// not shown themselves on a connection are "unmet": without a gossip key strangers
	// can invent them.
	Members map[string]int
	// Unreachable counts the members, other than dead ones, to whose peer port this
	// node has no connection.
	Unreachable int
	// Share is the fraction of the partitions, 0 to 1, that this node should own.
	Share float64
	// Owned, Heirs, Copies and Sealed count partitions by the node's role in them. For
	// all other partitions it has no role.
	Owned, Heirs, Copies, Sealed int
	// Unsettled counts the partitions whose owner or heir is not yet as the membership
	// requires.
	Unsettled int
	// Withheld counts replies that wait for an heir. Parked counts checks that wait for
	// a partition to settle.
	Withheld, Parked int
	// Waiting counts checks and other operations that wait for other members. Queued
	// counts frames that no member has accepted yet. Fallback counts the counters of
	// fallback policies.
	Waiting, Queued, Fallback int
	// Links counts the instances of members for which messages are queued or kept.
	Links int
	// Lag is how long the oldest withheld reply has waited.
	Lag time.Duration
	// Unacknowledged is the largest cost, of one key, that was answered but not
	// acknowledged by its heir.
	Unacknowledged uint64
	// Events counts events of partitions since the node was opened, by name.
	Events map[string]uint64
	// RulesDiffer reports that some live member has other rules than this node.
	RulesDiffer bool
	// ZoneDataDiffers reports that live members have different releases of the time zone
	// database, so that they may differ about the windows of calendars.
	ZoneDataDiffers bool
	// ClockDifference is by how much at least the clock of another member differs from this node's, if that is more than
	// 250 ms; otherwise 0.
	ClockDifference time.Duration
	// Minority reports that this node sees, itself included, no more than half of the
	// members that count. Rules with on_unreachable: local then apply the part of their
	// limits that it sees of Counted members.
	Minority bool
	Counted  int
	// Store is the state of the node's store; nil without one.
	Store *StoreStats
	// CertificateBegins and CertificateExpires are when the certificate that this node shows
	// to members becomes valid and when it expires, AuthorityBegins and AuthorityExpires the
	// same of the first of their authorities to expire; zero without certificates.
	CertificateBegins, CertificateExpires time.Time
	AuthorityBegins, AuthorityExpires     time.Time
}

// StoreStats is the state of what keeps a node's counters beyond the end of all members.
type StoreStats struct {
	// Bytes is how many bytes it takes, Needed how many of them are needed, and Written how many were written since the
	// node was opened.
	Bytes, Needed, Written int64
	// SavedAt is when everything was saved last; zero before the first time.
	SavedAt time.Time
	// Failing reports that what changes cannot be saved now. Failures is how often that was so.
	Failing  bool
	Failures uint64
	// UnsavedGrants is how many claims of partitions of closed rules were granted without waiting any longer until the
	// grant was saved.
	UnsavedGrants uint64
}

// Placement is what a client needs to find the member to ask for a request; see
// [Cluster]. It is shared and must not be changed.
type Placement struct {
	// View identifies the content of all fields below; it is never 0. Members with the
	// same view of the cluster and the same rules have the same View.
	View uint64
	// Members are the joining, active and leaving members, ordered by name.
	Members []PlacementMember
	// Owners has one element for each partition of the key space: 1 + the index in
	// Members of the member that should own it, or 0 for none. The partition of a key
	// is table.PartitionOf modulo the length of Owners.
	Owners []uint16
	// Rules is the rules file in force. Seeds is the key of its hash of counters. With
	// the seeds one can construct two keys that share a counter.
	Rules, Seeds []byte
}

// PlacementMember is a member in a [Placement].
type PlacementMember struct {
	Name     string
	GRPCAddr string // address for clients, empty if it publishes none
}

// noCluster is the [Cluster] of a node that is in none.
type noCluster struct{}

func (noCluster) Members() []Member               { return nil }
func (noCluster) Stats() (s ClusterStats, _ bool) { return s, false }
func (noCluster) Placement() *Placement           { return nil }
func (noCluster) Forget(string) error             { return ErrNoCluster }
func (noCluster) Expel(string) error              { return ErrNoCluster }
func (noCluster) Readmit(string) error            { return ErrNoCluster }
func (noCluster) HandOver(context.Context) error  { return ErrNoCluster }
func (noCluster) Leave(context.Context) error     { return ErrNoCluster }
