package cluster

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/gossip"
)

// DefaultDeadline is [Config.Deadline] where that is 0.
const DefaultDeadline = 300 * time.Millisecond

// Config makes a node a member of a cluster: it is the Cluster of a [weir.Config], whose
// ClusterName and Secret must be the same on all members: who has others is refused.
type Config struct {
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
	// found out that it is the first), and checks return [weir.ErrJoining].
	Join []string
	// GossipKeys encrypt gossip, each of 16, 24 or 32 bytes: the first encrypts,
	// all decrypt. Default none: whoever reaches the port can join. They are required,
	// as is Secret of [weir.Config] of at least [MinSecretBytes], where PeerAddr, GossipAddr or
	// Advertise is not a loopback address: [weir.Open] returns an [*InsecureError].
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
	// that it holds: [weir.Node.Reset] of the other returns [weir.ErrForbidden]. Default false: they
	// are taken. [weir.Node.Reset] of this node resets what it holds itself, and asks the
	// others, who refuse or not by their own setting.
	RefuseResets bool
	// GRPCAddr and HTTPAddr are where clients ask this node, as host:port, told to
	// the others and to Members of [weir.Cluster]; default empty. Nothing is served there by
	// the node itself. A host that means every address is replaced by Advertise.
	GRPCAddr, HTTPAddr string
	// AdminAddr is where operators ask this node, as host:port, told in the same way;
	// default empty. One of loopback is told only if other members reach this one by
	// loopback too.
	AdminAddr string
	// Version of the program, told to people.
	Version string
	// Logger is told who comes and goes, and what happens to partitions; default
	// Logger of [weir.Config].
	Logger *slog.Logger
}

const (
	defaultPeerAddr   = "127.0.0.1:7947"
	defaultGossipAddr = "127.0.0.1:7946"
)

// CheckName says what is wrong with a name for [Config.Name], nil if nothing
// is. It has 1 to 128 bytes of UTF-8, of characters that can be seen, with spaces
// only between them. The error wraps [weir.ErrInvalid].
func CheckName(name string) error {
	if err := gossip.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", weir.ErrInvalid, err)
	}
	return nil
}

// withDefaults fills in what was left out, and says what cannot be.
func (c Config) withDefaults() (Config, error) {
	if c.Deadline < 0 || c.Deadline > time.Minute {
		return c, fmt.Errorf("%w: Cluster.Deadline %v is out of range: give up to 1m, or 0 for %v", weir.ErrInvalid, c.Deadline, DefaultDeadline)
	}
	if _, _, err := net.SplitHostPort(c.Advertise); err == nil {
		return c, fmt.Errorf("%w: Cluster.Advertise %q has a port: give the host alone; the ports are those of PeerAddr and GossipAddr", weir.ErrInvalid, c.Advertise)
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("%w: Cluster.Name is empty, and the machine has no name either: %w", weir.ErrInvalid, err)
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
	return c, nil
}
