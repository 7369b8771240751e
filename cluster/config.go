package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/engine"
)

// DefaultDeadline is used if [Config.Deadline] is 0.
const DefaultDeadline = 300 * time.Millisecond

// Config makes a node a member of a cluster. It is the Cluster field of a [weir.Config].
// The ClusterName and Secret of the [weir.Config] must be the same on all members; a
// node with others is refused.
type Config struct {
	// Name is the node's name, unique in the cluster; default the machine's name. See
	// [CheckName]. The ring is made of the names, so a node that restarts under its name
	// owns the same keys.
	Name string
	// PeerAddr is the host:port on which the node serves other members; default
	// 127.0.0.1:7947. Port 0 selects a free port. It is never the port for clients. If PeerAddr,
	// GossipAddr or Advertise is a loopback address and Join has another machine, Open returns an
	// error: no other member would reach this one.
	PeerAddr string
	// GossipAddr is the host:port, over TCP and UDP, at which members find each other;
	// default 127.0.0.1:7946. Port 0 selects a free port.
	GossipAddr string
	// Advertise is the host name or address by which others reach this node; default the
	// host of PeerAddr or, if that means every address, a private address of this
	// machine.
	Advertise string
	// Join are gossip addresses, host:port, of members that may be running already. A
	// name with several addresses stands for all of them, and this node's own address
	// may be among them. Default none: the node starts a cluster, and others join it.
	// Otherwise the node is joining until it has found the others, or found out that it
	// is the first; until then checks return [weir.ErrJoining]. A name after "dns+", such
	// as dns+weir.example:7946, stands for all members and may be empty, incomplete or
	// outdated: it needs Expect.
	Join []string
	// Expect is the number of members with which the cluster begins, this node included.
	// A node that joins then becomes active only once it has a connection to an active
	// member, or to so many others that it has met more than half of Expect. So members
	// that start together begin one cluster, however late they find each other, if all
	// have the same Expect and no more than Expect names exist. Default 0: a node that no
	// other answers for 10 seconds starts alone. It is at most 256, and needs Join.
	Expect int
	// GossipKeys encrypt gossip. Each has 16, 24 or 32 bytes. The first encrypts, all
	// decrypt. Default none: anyone who reaches the port can take part in gossip. Gossip
	// keys, a Secret of [weir.Config] of at least [MinSecretBytes], and PeerCertFile are
	// required if PeerAddr, GossipAddr or Advertise is not a loopback address: otherwise
	// [weir.Open] returns an [*InsecureError].
	GossipKeys [][]byte
	// GossipKeyFile is a file with such keys, in base64, one a line. They replace GossipKeys.
	// The file is read again every 5 seconds: keys that have changed are put into force, at
	// least one and at most 8; a file that does not fit leaves those before in force, which
	// is logged. To change the key of a running cluster, put the new key behind the old one
	// in the files of all members, then before it, then alone, each time after all members
	// have loaded the step before. Default none.
	GossipKeyFile string
	// PeerCertFile, PeerKeyFile and PeerCAFile are files in PEM with this member's
	// certificate, its key, and the authorities of all members' certificates. With them
	// members speak TLS 1.3 with each other, and each must show a certificate for its name
	// and cluster: the URI weir://CLUSTER/node/NAME as an alternative name, or the common
	// name NAME with CLUSTER as an organization, for the extended key usages serverAuth and
	// clientAuth. The files are read again when they change; files that do not fit leave
	// those before in force, which is logged. All three are given or none; default none.
	PeerCertFile, PeerKeyFile, PeerCAFile string
	// PeerURI is the URI that members' certificates have in place of that one, such as a
	// SPIFFE ID: "spiffe://example.org/weir/{name}". {name} and {cluster} stand for those of
	// the member, and {name} must be there. A certificate may have no other URI then. All
	// members need the same. Default empty: as above.
	PeerURI string
	// PeerTLSOptional makes a member with these files also accept members that do not speak
	// TLS, and speak without it to those. It is for the time in which the members of a
	// running cluster are restarted with certificates. Default false.
	PeerTLSOptional bool
	// PeerRefused, unless nil, receives each connection of a member, or of who wants to pass
	// for one, that this member refuses: its address, and why. Once a minute for each host and
	// reason it also receives gossip that this member refuses, what gossip without keys says
	// and no link confirms, and parts of members' frames that are impossible. It is called
	// from many goroutines, also under locks, and must not wait.
	PeerRefused func(from, why string)
	// FilesChanged, unless nil, is called when "certificates" for members or "gossip keys"
	// have changed in their files and were put into force, and with the error if they are not
	// valid, so that those before stay. It must not wait.
	FilesChanged func(what string, err error)
	// Notes, unless nil, are how the program asks those of other members. One value is for one member.
	Notes *Notes
	// Insecure permits a member beyond loopback without them. The log then has a warning
	// once a minute. Default false.
	Insecure bool
	// Deadline is how long a check waits for the key's owner or its heir before the
	// policy of its rule answers; default [DefaultDeadline], at most one minute. A lower
	// value answers faster while a member is down, and more often by policy.
	Deadline time.Duration
	// CachedDenials makes the node repeat a denial that the owner of a key has just
	// given, for the same check of one key, until it could be allowed, for at most a
	// second. It saves the owner, and the network, the checks of clients that keep
	// asking. In exchange a reset or a refund by another node, or limits that were
	// raised there, may take effect up to a second late. Default false: the owner is
	// asked each time.
	CachedDenials bool
	// RefuseResets makes this node refuse resets of keys that it holds if another member
	// asks for them: [weir.Node.Reset] of that member returns [weir.ErrForbidden].
	// [weir.Node.Reset] of this node still resets what it holds itself, and asks the
	// other members, which follow their own setting. Default false: resets are accepted.
	RefuseResets bool
	// GRPCAddr and HTTPAddr are the addresses for clients, as host:port. The node does
	// not listen on them; it tells them to the other members, and Members of
	// [weir.Cluster] returns them. Default empty. A host that means every address is
	// replaced by Advertise.
	GRPCAddr, HTTPAddr string
	// AdminAddr is the address for operators, as host:port. It is told to others like
	// GRPCAddr; default empty. A loopback address is told only if other members reach
	// this one over loopback too.
	AdminAddr string
	// Store keeps counters beyond the end of all members, such as a [github.com/weirlimit/weir/diskstore.Dir]. No check
	// waits for it. Default nil: what all members had is lost when the last one ends.
	Store Store
	// PersistInterval is how often changes are written to Store: what was granted since is granted again if all members
	// end at once. Default 5s; 1s to 1h.
	PersistInterval time.Duration
	// Kept, unless nil, is what the program keeps in Store beside counters. One value is for one member.
	Kept *Kept
	// RestoreWait is for how long, once Store was read, partitions of available rules wait for members that are not back
	// yet before they start from the best copy. Checks are answered by policy meanwhile. Those of closed rules wait until
	// all members are back or forgotten. Default 30s; at most 1h.
	RestoreWait time.Duration
	// Tracer records spans of checks that are traced; default nil, which costs nothing.
	Tracer Tracer
	// Version is the version of the program, shown to people.
	Version string
	// Logger receives changes of members and of partitions; default Logger of
	// [weir.Config].
	Logger *slog.Logger
}

const (
	// NamePrefix says, before an address of [Config.Join], that it is a name that stands
	// for all members and whose addresses change.
	NamePrefix = gossip.NamePrefix
	// MaxExpect is the highest [Config.Expect].
	MaxExpect = gossip.MaxMembers

	defaultPeerAddr   = "127.0.0.1:7947"
	defaultGossipAddr = "127.0.0.1:7946"
)

// CheckName returns an error if a name is not valid for [Config.Name]. A valid name has
// 1 to 128 bytes of UTF-8, of visible characters, with spaces only between them. The
// error wraps [weir.ErrInvalid].
func CheckName(name string) error {
	if err := gossip.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", weir.ErrInvalid, err)
	}
	return nil
}

// OpenMember implements [weir.Clustering]. It returns when the member is listening and
// has tried the addresses to join once.
func (c *Config) OpenMember(ctx context.Context, n *engine.Node) (engine.Decider, weir.Cluster, error) {
	if c == nil {
		return nil, nil, fmt.Errorf("%w: Cluster is a nil *cluster.Config: give &cluster.Config{}, or leave Cluster out",
			weir.ErrInvalid)
	}
	if whole, err := c.withDefaults(); err == nil { // open returns the error
		if err := whole.unreached(ctx); err != nil {
			return nil, nil, err
		}
	}
	m, err := c.open(ctx, n, network{})
	if err != nil {
		return nil, nil, err
	}
	return m.decider, m, nil
}

// withDefaults fills in defaults, and returns an error for values that are not valid.
func (c Config) withDefaults() (Config, error) {
	if c.Deadline < 0 || c.Deadline > time.Minute {
		return c, fmt.Errorf("%w: Cluster.Deadline %v is out of range: give up to 1m, or 0 for %v", weir.ErrInvalid,
			c.Deadline, DefaultDeadline)
	}
	if _, _, err := net.SplitHostPort(c.Advertise); err == nil {
		return c, fmt.Errorf("%w: Cluster.Advertise %q has a port: give the host alone; the ports are those of PeerAddr "+
			"and GossipAddr", weir.ErrInvalid, c.Advertise)
	}
	if err := errors.Join(c.checkExpect(), c.checkStore()); err != nil {
		return c, err
	}
	if n := countGiven(c.PeerCertFile, c.PeerKeyFile, c.PeerCAFile); n != 0 && n != 3 || n == 0 && c.PeerTLSOptional {
		return c, fmt.Errorf("%w: Cluster.PeerCertFile, PeerKeyFile and PeerCAFile belong together: give all three, or "+
			"none and no PeerTLSOptional", weir.ErrInvalid)
	}
	if c.PeerURI != "" {
		if err := certs.CheckTemplate(c.PeerURI); err != nil {
			return c, fmt.Errorf("%w: Cluster.PeerURI: %w", weir.ErrInvalid, err)
		}
		if c.PeerCertFile == "" {
			return c, fmt.Errorf("%w: Cluster.PeerURI is for members with certificates: give PeerCertFile too", weir.ErrInvalid)
		}
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
	c.PeerAddr = cmp.Or(c.PeerAddr, defaultPeerAddr)
	c.GossipAddr = cmp.Or(c.GossipAddr, defaultGossipAddr)
	c.Deadline = cmp.Or(c.Deadline, DefaultDeadline)
	return c, nil
}

// checkExpect returns an error if Expect does not fit Join.
func (c *Config) checkExpect() error {
	switch named := slices.IndexFunc(c.Join, func(j string) bool { return strings.HasPrefix(j, NamePrefix) }); {
	case c.Expect < 0 || c.Expect > MaxExpect:
		return fmt.Errorf("%w: Cluster.Expect %d is out of range: give the number of members, up to %d, or 0",
			weir.ErrInvalid, c.Expect, MaxExpect)
	case c.Expect > 0 && len(c.Join) == 0:
		return fmt.Errorf("%w: Cluster.Expect %d needs addresses to join by, or this node finds no other: give Cluster.Join",
			weir.ErrInvalid, c.Expect)
	case c.Expect == 0 && named >= 0:
		return fmt.Errorf("%w: Cluster.Join %q needs Cluster.Expect, because a name that is empty or incomplete does not "+
			"show whether other members exist: give the number of members", weir.ErrInvalid, c.Join[named])
	}
	return nil
}
