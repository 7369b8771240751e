package weir

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/gossip"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/peer"
)

// The reasons of [Node.Ready] and of checks that a node of a cluster does not
// take, wrapped.
var (
	// ErrJoining: the node has not seen the cluster yet. Ask another one.
	ErrJoining = cluster.ErrJoining
	// ErrSettling: the node does not hold yet what it should; checks go on.
	ErrSettling = cluster.ErrSettling
	// ErrLeaving: the node hands over what it holds; checks go on until it is gone.
	ErrLeaving = cluster.ErrLeaving
)

// ErrNoCluster is returned by the methods that are about a cluster, of a node
// that was opened without [Config.Cluster].
var ErrNoCluster = errors.New("weir: the node is in no cluster: open it with Config.Cluster")

// ErrUnknownMember is wrapped by the error of [Node.Forget] for a name that is
// not that of a dead member.
var ErrUnknownMember = errors.New("weir: no dead member of that name")

// ErrUnanswered is wrapped by the errors of [Node.Reset], [Node.Refund] and
// [Node.Explain] in a cluster, where nobody who holds the keys has answered within
// [ClusterConfig.Deadline].
var ErrUnanswered = limiter.ErrUnanswered

// ErrForbidden is wrapped by the error of [Node.Reset] in a cluster, where a member that
// holds some of the keys takes no resets from other members: see
// [ClusterConfig.RefuseResets].
var ErrForbidden = limiter.ErrForbidden

// DefaultDeadline is [ClusterConfig.Deadline] where that is 0.
const DefaultDeadline = 300 * time.Millisecond

// ClusterConfig makes a node a member of a cluster, in which each key is counted
// by one member, wherever it is asked for. [Config.ClusterName] and
// [Config.Secret] must be the same on all members: who has others is refused.
type ClusterConfig struct {
	// Name is unique in the cluster and stays when the node restarts; default the
	// machine's name. See [CheckName]. The ring is made of the names, so a node that
	// comes back under its name owns the same keys.
	Name string
	// PeerAddr is the host:port where other members ask this one; default
	// 127.0.0.1:7947. Port 0 takes a free one. It is never the port that clients
	// ask.
	PeerAddr string
	// GossipAddr is the host:port, over TCP and UDP, by which members find each
	// other; default 127.0.0.1:7946. Port 0 takes a free one.
	GossipAddr string
	// Advertise is the host by which the others reach this node, a name or an
	// address; default that of PeerAddr, or, if that is every address, a private
	// one of this machine.
	Advertise string
	// Join are gossip addresses, host:port, of members that may be there already;
	// a name that has many addresses stands for all of them, and this node's own
	// may be among them. Default none: the node starts a cluster, and waits to be
	// joined. With some, the node is joining until it has found the others (or
	// found out that it is the first), and checks return [ErrJoining].
	Join []string
	// GossipKeys encrypt gossip, each of 16, 24 or 32 bytes: the first encrypts,
	// all decrypt. Default none: whoever reaches the port can join. They are required,
	// as is [Config.Secret] of at least [MinSecretBytes], where PeerAddr, GossipAddr or
	// Advertise is not a loopback address: [Open] returns an [*InsecureError].
	GossipKeys [][]byte
	// Insecure permits a member beyond loopback without them. The log then warns once
	// a minute.
	Insecure bool
	// Deadline is how long a check waits for the key's owner, or its heir, before
	// the policy of its rule answers; default [DefaultDeadline]. Lower answers
	// faster while a member is down, and by policy more often.
	Deadline time.Duration
	// CachedDenials has the node refuse by itself what the owner of a key refused it
	// a moment before: the same check of one key, until it could be allowed, for a
	// second at most. Default false: the owner is asked each time. It spares the
	// owner, and the way to it, those who go on asking. In exchange a reset or a
	// refund by way of another node may be seen up to a second late, and so may
	// limits that were raised there.
	CachedDenials bool
	// RefuseResets has this node refuse resets that other members ask of it, of keys
	// that it holds: [Node.Reset] of the other returns [ErrForbidden]. Default false: they
	// are taken. [Node.Reset] of this node resets what it holds itself, and asks the
	// others, who refuse or not by their own setting.
	RefuseResets bool
	// GRPCAddr and HTTPAddr are where clients ask this node, as host:port, told to
	// the others and to [Node.Members]; default empty. Nothing is served there by
	// the node itself. A host that means every address is replaced by Advertise.
	GRPCAddr, HTTPAddr string
	// AdminAddr is where operators ask this node, as host:port, told in the same way;
	// default empty. One of loopback is told only if other members reach this one by
	// loopback too.
	AdminAddr string
	// Version of the program, told to people.
	Version string
	// Logger is told who comes and goes, and what happens to partitions; default
	// nowhere.
	Logger *slog.Logger
}

const (
	defaultPeerAddr   = "127.0.0.1:7947"
	defaultGossipAddr = "127.0.0.1:7946"
)

// CheckName says what is wrong with a name for [ClusterConfig.Name], nil if nothing
// is. It has 1 to 128 bytes of UTF-8, of characters that can be seen, with spaces
// only between them. The error wraps [ErrInvalid].
func CheckName(name string) error {
	if err := gossip.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// withDefaults fills in what was left out, and says what cannot be.
func (c ClusterConfig) withDefaults() (ClusterConfig, error) {
	if c.Deadline < 0 || c.Deadline > time.Minute {
		return c, fmt.Errorf("%w: Cluster.Deadline %v is out of range: give up to 1m, or 0 for %v", ErrInvalid, c.Deadline, DefaultDeadline)
	}
	if _, _, err := net.SplitHostPort(c.Advertise); err == nil {
		return c, fmt.Errorf("%w: Cluster.Advertise %q has a port: give the host alone; the ports are those of PeerAddr and GossipAddr", ErrInvalid, c.Advertise)
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("%w: Cluster.Name is empty, and the machine has no name either: %w", ErrInvalid, err)
		}
		c.Name = host
	}
	if err := CheckName(c.Name); err != nil {
		return c, fmt.Errorf("%w (Cluster.Name)", err)
	}
	if c.PeerAddr == "" {
		c.PeerAddr = defaultPeerAddr
	}
	if c.GossipAddr == "" {
		c.GossipAddr = defaultGossipAddr
	}
	if c.Deadline == 0 {
		c.Deadline = DefaultDeadline
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// MemberInfo is a member of the cluster as a node sees it.
type MemberInfo struct {
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
	// Summary is what it holds.
	cluster.Summary
	// Events counts what happened to partitions since the node was opened, by
	// name.
	Events map[string]uint64
	// RulesDiffer tells that some live member has other rules than this node.
	RulesDiffer bool
}

// reachable returns an address that others can be told: a host that means every
// address is replaced.
func reachable(addr, host string) string {
	h, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return addr
	}
	if ip := net.ParseIP(h); h == "" || ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort(host, port)
	}
	return addr
}

// reachableAdmin is as reachable, and empty for an address of loopback that is told to
// others who reach this member by another: they would ask themselves there.
func reachableAdmin(addr, host string) string {
	addr = reachable(addr, host)
	if h, _, err := net.SplitHostPort(addr); err == nil && local(h) && host != "" && !local(host) {
		return ""
	}
	return addr
}

// local reports whether a host is this machine, wherever it is said.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// rulesOf describes which rules members have, where they differ; "" where they
// do not.
func rulesOf(members []peer.Member) string {
	var of []string
	var first uint64 // hash of the first that lives
	differ := false
	for i := range members {
		m := &members[i]
		if m.State == peer.Dead {
			continue
		}
		if len(of) == 0 {
			first = m.RulesHash
		}
		of = append(of, fmt.Sprintf("%s %016x", m.Name, m.RulesHash))
		differ = differ || m.RulesHash != first
	}
	if !differ {
		return ""
	}
	return strings.Join(of, ", ")
}
