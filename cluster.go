package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
)

// The reasons of [Node.Ready] and of checks that a node of a cluster does not
// take, wrapped.
var (
	// ErrJoining: the node has not seen the cluster yet. Ask another one.
	ErrJoining = limiter.ErrJoining
	// ErrSettling: the node does not hold yet what it should; checks go on.
	ErrSettling = limiter.ErrSettling
	// ErrLeaving: the node hands over what it holds; checks go on until it is gone.
	ErrLeaving = limiter.ErrLeaving
)

// ErrNoCluster is returned by what is about a cluster, of a node that was opened
// without [Config.Cluster].
var ErrNoCluster = errors.New("weir: the node is in no cluster: open it with Config.Cluster")

// ErrUnknownMember is wrapped by the error of Forget of [Cluster] for a name that is
// not that of a dead member.
var ErrUnknownMember = errors.New("weir: no dead member of that name")

// ErrUnanswered is wrapped by the errors of [Node.Reset], [Node.Refund] and
// [Node.Explain] in a cluster, where nobody who holds the keys has answered within
// the cluster's deadline.
var ErrUnanswered = limiter.ErrUnanswered

// ErrForbidden is wrapped by the error of [Node.Reset] in a cluster, where a member that
// holds some of the keys takes no resets from other members: see RefuseResets of
// cluster.Config.
var ErrForbidden = limiter.ErrForbidden

// ErrUnexplained is wrapped by the error of [Node.Explain] where the member that holds
// a key answered, and runs a version that does not explain.
var ErrUnexplained = errors.New("weir: it is not explained")

// Clustering makes a node a member of a cluster. It is a [*cluster.Config] of package
// github.com/weirlimit/weir/cluster, and for nobody else to implement. A program that
// does not import that package compiles nothing of what members need: no gRPC, no
// gossip, no DNS.
type Clustering interface {
	// OpenMember is called by [Open].
	OpenMember(ctx context.Context, n *engine.Node) (engine.Decider, Cluster, error)
}

// Cluster is a node's part in a cluster, see [Node.Cluster]. It is safe for concurrent
// use.
type Cluster interface {
	// Members returns the members as this node sees them, by name. Of itself it tells
	// more than of the others.
	Members() []Member
	// Stats returns what the node is to the cluster; false where it is in none.
	Stats() (ClusterStats, bool)
	// Placement returns which member should be asked for what, as this node sees it
	// now; nil where it knows nothing yet. It is made anew when the members or the rules
	// have changed, and otherwise is two looks at pointers.
	Placement() *Placement
	// Forget has a dead member count no more, for whatever asks for every member or
	// a majority: for one that will never come back. The others hear of it. If it
	// does come back it is a member again. The error wraps [ErrUnknownMember] or
	// [ErrInvalid], the latter for a live member, or is [ErrNoCluster] or
	// [ErrClosed].
	Forget(name string) error
	// HandOver is the first half of Leave: the node hands over what it holds,
	// and goes on to take checks, which others decide. A program ends its servers
	// between HandOver and Leave, so that nobody is turned away. Called while it is
	// under way it waits for the same end. The errors are those of Leave.
	HandOver(ctx context.Context) error
	// Leave ends the node in good order: it hands over what it holds, says goodbye
	// to the other members, and closes the node. Until then checks go on. It takes a
	// fraction of a second, and 14 seconds at most. If the context ends before, or not all
	// could be handed over, the node is closed all the same, the others go on from
	// the copies that they have, and the error says so. It is [ErrClosed] where the
	// node is closed, and [ErrNoCluster] where it is in none, which is then not closed.
	Leave(ctx context.Context) error
}

// Member is a member of the cluster as a node sees it.
type Member struct {
	// Name of the member, Address of its gossip, Instance of its present run.
	Name, Address, Instance string
	// State is "joining", "active", "leaving" or "dead".
	State string
	// GRPCAddr and HTTPAddr are where clients ask it, empty if it does not say.
	GRPCAddr, HTTPAddr string
	// AdminAddr is where operators ask it, empty if it does not say.
	AdminAddr string
	// Version of its program, and the hash of its rules.
	Version   string
	RulesHash uint64
	// Unreachable tells that the node that was asked sees its gossip, and has no
	// connection to its peer port, which is a fault if it stays so; false of the dead.
	Unreachable bool
	// Share is the part of the partitions, 0 to 1, that it should own.
	Share float64
	// Self tells that it is the node that was asked. The fields that follow are
	// known of it alone: ask each member for its own.
	Self bool
	// Keys is how many counters it holds, copies included, Checks how many it has
	// taken from its own clients since it was opened, and in the last second.
	Keys                    int
	Checks, ChecksPerSecond uint64
	// Lag is how long the oldest answer has waited for its copy, Unacknowledged
	// the largest cost of one key that was answered and has no copy yet.
	Lag            time.Duration
	Unacknowledged uint64
}

// ClusterStats tells what a node is to the cluster, for metrics.
type ClusterStats struct {
	// Members counts those that this node sees, by state, itself included.
	Members map[string]int
	// Unreachable counts those of them, the dead apart, to whose peer port this node
	// has no connection.
	Unreachable int
	// Share is the part of the partitions that this node should own.
	Share float64
	// Owned, Heirs, Copies and Sealed count partitions by what the node is to
	// them; it is nothing to the others.
	Owned, Heirs, Copies, Sealed int
	// Unsettled are those that are not as the members call for.
	Unsettled int
	// Withheld are replies that wait for an heir, Parked checks that wait for a
	// partition to be settled.
	Withheld, Parked int
	// Waiting are checks and other operations that wait for other members, Queued
	// frames that wait until one takes them, and Fallback the counters of policies.
	Waiting, Queued, Fallback int
	// Links counts the runs of members for which something is kept that is to be said
	// to them.
	Links int
	// Lag is how long the oldest withheld reply has waited.
	Lag time.Duration
	// Unacknowledged is the largest cost that a key has answered and its heir not
	// acknowledged.
	Unacknowledged uint64
	// Events counts what happened to partitions since the node was opened, by
	// name.
	Events map[string]uint64
	// RulesDiffer tells that some live member has other rules than this node.
	RulesDiffer bool
}

// Placement is what a client needs to find out which member should be asked about a
// request: see [Cluster]. It is shared and must not be changed.
type Placement struct {
	// View is a number of all that follows, not 0. Members that see the same, and have
	// the same rules, have the same number.
	View uint64
	// Members are those that are joining, active or leaving, by name.
	Members []PlacementMember
	// Owners has, for each partition of the key space, 1 + the index in Members of
	// the one that should own it, 0 for nobody. Partitions are counted as
	// table.PartitionOf does, modulo their number.
	Owners []uint16
	// Rules is the rules file in force, and Seeds what keys the hash of its counters.
	// Whoever has the seeds can construct two keys that share a counter.
	Rules, Seeds []byte
}

// PlacementMember is a member in a [Placement].
type PlacementMember struct {
	Name     string
	GRPCAddr string // where clients ask it, empty if it does not say
}

// noCluster is the part in a cluster of a node that is in none.
type noCluster struct{}

func (noCluster) Members() []Member               { return nil }
func (noCluster) Stats() (s ClusterStats, _ bool) { return s, false }
func (noCluster) Placement() *Placement           { return nil }
func (noCluster) Forget(string) error             { return ErrNoCluster }
func (noCluster) HandOver(context.Context) error  { return ErrNoCluster }
func (noCluster) Leave(context.Context) error     { return ErrNoCluster }
