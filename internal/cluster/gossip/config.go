package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// The refusals. [Open] returns one, wrapped, if a node to be joined refuses this node
// and none lets it in. Later refusals are logged.
var (
	// ErrOtherCluster: the other side belongs to a cluster of another name.
	ErrOtherCluster = errors.New("another cluster")
	// ErrOtherRing: the other side computes owners differently, so the two would never
	// agree on them.
	ErrOtherRing = errors.New("another ring configuration")
	// ErrOtherSecret: the other side has another secret, so the two would refuse each
	// other's links, and count under different hashes.
	ErrOtherSecret = errors.New("another secret")
	// ErrNameTaken: a live node has this node's name.
	ErrNameTaken = errors.New("the name is taken")
	// ErrOtherKey: the other side encrypts with another key, or one of the two
	// does not encrypt.
	ErrOtherKey = errors.New("another gossip key")
	// ErrFull: there are [MaxMembers] live nodes.
	ErrFull = errors.New("the cluster is full")
	// ErrLoopback: one of the two sides advertises a loopback address, with which the other
	// would reach itself.
	ErrLoopback = errors.New("a loopback address")
	// ErrForeign: the address is not the gossip port of a Weir node.
	ErrForeign = errors.New("not a gossip port")
)

var (
	// ErrClosed is returned by the methods of a [Gossip] that has left or is closed.
	ErrClosed = errors.New("gossip: closed")
	// ErrMeta is returned by [Open] and [Gossip.Update] if the metadata of this node
	// exceeds the 512 bytes that memberlist allows.
	ErrMeta = errors.New("gossip: too much to say")
	// ErrAlive is returned by [Gossip.Forget] for a live member. Such a member must
	// leave instead.
	ErrAlive = errors.New("gossip: the member is alive")
	// ErrUnknown is returned by [Gossip.Forget] for a name that is not known.
	ErrUnknown = errors.New("gossip: no such member")
)

const (
	// MaxMembers is the most live members. It is also the most that a ring can have.
	MaxMembers = 256
	// MaxJoin is the most addresses to join by.
	MaxJoin = 64
	// maxName and maxCluster bound names, in bytes.
	maxName, maxCluster = 128, 64
)

// Config configures a [Gossip]. Name, Instance, ClusterName, BindAddr and Logger are
// required.
type Config struct {
	// Name is unique in the cluster and stays the same when the node restarts; see
	// [CheckName]. A second live node of one name is refused.
	Name string
	// Instance identifies this run of the node.
	Instance peer.Instance
	// ClusterName and RingConfig must be the same on all nodes; ClusterName has at
	// most 64 bytes.
	ClusterName string
	RingConfig  uint64
	// SecretMark is the result of [SecretMark] for the secret that all nodes share, 0 if
	// there is none. It must be the same on all nodes.
	SecretMark uint64
	// SecondMark is that of another secret that other nodes may have; 0 for none.
	SecondMark uint64
	// BindAddr is the host:port to listen on, over TCP and UDP. Port 0 selects a free
	// port. Without a host it listens on all addresses.
	BindAddr string
	// Advertise is the host, or host:port, by which others reach this node. Default the
	// address it is bound to or, if that is every address, a private address of this
	// machine.
	Advertise string
	// Join are addresses, host:port, of nodes that may be running already. A host name
	// with several addresses stands for all of them, and this node's own address may be
	// among them. It is resolved again before each attempt. [NamePrefix] before it means
	// the same, and that it is a name. There are at most [MaxJoin]. Default none: this
	// node waits to be joined.
	Join []string
	// Keys encrypt gossip. Each has 16, 24 or 32 bytes. The first encrypts, all decrypt.
	// Default none: anyone who reaches the port can take part, and impersonate others.
	Keys [][]byte
	// Meta, unless nil, returns what this node tells the others about itself, given the host
	// of its GossipAddr. Open calls it once, before others hear of the node. Name, Instance
	// and GossipAddr are filled in.
	Meta func(host string) peer.Member
	// Logger receives problems, and changes of members. It is called from a goroutine of
	// its own. At most 256 lines wait for it; further ones are dropped and counted.
	Logger *slog.Logger
	// OnMembers, unless nil, receives the members whenever something about them changed:
	// the live ones and the dead that are not forgotten, this node included, sorted by
	// name. It is called by one goroutine that holds no lock; changes during a call are
	// combined into the next call. A node that restarted has the same name and another
	// instance. OnMembers must not call [Gossip.Close].
	OnMembers func([]peer.Member)
	// Vouched, unless nil, reports whether to believe what is said of a member that is
	// not live: that it is a member or, if k.Gone, that it left or was forgotten. What
	// it rejects is neither remembered nor passed on. If it is nil, everything is
	// believed. It is called under locks, so it must be quick and must not call the
	// Gossip.
	Vouched func(peer.Known) bool
	// Refused, unless nil, receives what this node has refused: its address, and why. That is
	// input that no node with a key of this one's sends, nodes that are kept out, and without
	// Keys what Vouched has not confirmed in time, once a minute for each host and reason. It
	// is called under locks, so it must be quick.
	Refused func(from, why string)
	// Panicked, unless nil, receives the value of each panic that was recovered from
	// while input of another node was processed. It is called by the deferred function
	// that recovered, so debug.Stack shows the panic's stack. It is called under locks
	// and must not call the Gossip. If it is nil, panics are not recovered from.
	Panicked catcher
	// Resolve, unless nil, looks up the addresses of a host. Default the machine's
	// resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Listen, unless nil, replaces the machine's network, for tests in virtual time. addr
	// is BindAddr.
	Listen Listen

	// wrap lets tests intercept the traffic between memberlist and the network.
	wrap func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
}

// Listen returns a transport of memberlist that listens on an address.
type Listen func(addr netip.AddrPort) (memberlist.NodeAwareTransport, error)

// check returns all errors of a configuration, joined.
func (c *Config) check() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf("gossip: "+format, args...)) }
	if err := CheckName(c.Name); err != nil {
		say("%w", err)
	}
	if c.Instance == 0 {
		say("the node has no instance: draw one at random at each start")
	}
	if c.ClusterName == "" || len(c.ClusterName) > maxCluster || !utf8.ValidString(c.ClusterName) {
		say("the cluster's name %q must have 1 to %d bytes of UTF-8", c.ClusterName, maxCluster)
	}
	if c.Logger == nil {
		say("there is no logger")
	}
	if len(c.Join) > MaxJoin {
		say("%d addresses to join by, and %d are the most: use a name that has many", len(c.Join), MaxJoin)
	}
	for _, j := range c.Join {
		if _, _, err := splitAddr(j); err != nil {
			say("cannot join %q: %w", j, err)
		}
	}
	if err := checkKeys(c.Keys); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// CheckName returns an error if a member's name is not valid. A valid name has 1 to 128
// bytes of UTF-8, of visible characters, with spaces only between them, because people
// type names and read them in logs.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxName || !utf8.ValidString(name):
		return fmt.Errorf("the name %q must have 1 to %d bytes of UTF-8", clip(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the name %q has a character that cannot be seen, such as a tab or the end of a line: leave it out",
			name)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("the name %q begins or ends with a space: leave it out", name)
	}
	return nil
}

// NamePrefix says, before an address to join by, that it is a name that stands for the
// members, and whose addresses change.
const NamePrefix = "dns+"

// splitAddr splits host:port, which may follow [NamePrefix]. The port must be a number
// other than 0.
func splitAddr(addr string) (host string, port uint16, err error) {
	addr, named := strings.CutPrefix(addr, NamePrefix)
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("it must be host:port: %w", err)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, errors.New("it must be host:port with a port from 1 to 65535")
	}
	if _, err := netip.ParseAddr(host); named && err == nil {
		return "", 0, errors.New("an address is not resolved: leave out " + NamePrefix)
	}
	return host, uint16(n), nil
}

// The pace of gossip. A death is known after a failed probe (up to one round of 200 ms
// probes later) and an unanswered suspicion (0.6 s if another member confirms it or no
// other is left to do so, 1.8 s at most).
const (
	probeInterval = 200 * time.Millisecond
	pushPull      = 5 * time.Second
	// streamTimeout bounds dialling, and each exchange of views.
	streamTimeout = time.Second
	// reclaimAfter is how long after a member's death a node at another address can take
	// its name. With the time until the death is known, and until the next attempt to
	// join, a node that was killed and restarted elsewhere is a member again after about
	// 5 s.
	reclaimAfter = 2 * time.Second
)

// profile returns memberlist's configuration, without the settings of one node.
func profile() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.ProbeInterval, c.ProbeTimeout = probeInterval, 100*time.Millisecond
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 3, 3
	// A slow node distrusts itself, and probes up to 3 times more slowly.
	c.AwarenessMaxMultiplier = 3
	c.GossipInterval, c.GossipNodes = 50*time.Millisecond, 3
	c.PushPullInterval = pushPull
	c.DeadNodeReclaimTime = reclaimAfter
	c.TCPTimeout = streamTimeout
	// Packets are small, and compressing one costs more than sending it.
	c.EnableCompression = false
	return c
}

// tells returns what this node tells the others about itself first; addr is its GossipAddr.
func (c *Config) tells(addr string) peer.Member {
	if c.Meta == nil {
		return peer.Member{}
	}
	host, _, _ := net.SplitHostPort(addr) // net.JoinHostPort made it
	return c.Meta(host)
}

// listen returns a transport for memberlist, which is listening, and its port.
func (c *Config) listen(ctx context.Context, conf *memberlist.Config) (memberlist.NodeAwareTransport, int, error) {
	host, portText, err := net.SplitHostPort(c.BindAddr)
	if err != nil {
		return nil, 0, fmt.Errorf("gossip: cannot listen on %q: it must be host:port: %w", c.BindAddr, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("gossip: cannot listen on %q: it must be host:port: %w", c.BindAddr, err)
	}
	ip := netip.IPv4Unspecified()
	if host != "" {
		if ip, err = c.lookup(ctx, host); err != nil {
			return nil, 0, fmt.Errorf("gossip: cannot listen on %q: %w", c.BindAddr, err)
		}
	}
	if c.Listen != nil {
		t, err := c.Listen(netip.AddrPortFrom(ip, uint16(port)))
		return t, int(port), err
	}
	// The port that the kernel chose for TCP may be taken for UDP.
	for range 10 {
		var n *network
		n, err = listenOn(netip.AddrPortFrom(ip, uint16(port)), func(what string, err error) {
			conf.Logger.Printf("[ERR] memberlist: %s: %v", what, err)
		})
		if err == nil {
			return n, n.port(), nil
		}
		if port != 0 {
			break
		}
	}
	return nil, 0, fmt.Errorf("gossip: cannot listen on %q: %w", c.BindAddr, err)
}

// advertised returns the address that others are told; port is 0 if it is the bound
// port.
func (c *Config) advertised(ctx context.Context) (ip string, port int, err error) {
	if c.Advertise == "" {
		return "", 0, nil
	}
	host := c.Advertise
	if h, p, err := net.SplitHostPort(c.Advertise); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return "", 0, fmt.Errorf("gossip: cannot advertise %q: the port is not valid: want a number up to 65535",
				c.Advertise)
		}
		host, port = h, int(n)
	}
	addr, err := c.lookup(ctx, host)
	if err != nil {
		return "", 0, fmt.Errorf("gossip: cannot advertise %q: %w", c.Advertise, err)
	}
	if addr.IsUnspecified() {
		return "", 0, fmt.Errorf("gossip: cannot advertise %q: no other node can connect to it: give an address of this "+
			"machine", c.Advertise)
	}
	return addr.String(), port, nil
}

// lookup returns the first address of a host, preferably an IPv4 address.
func (c *Config) lookup(ctx context.Context, host string) (netip.Addr, error) {
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return netip.Addr{}, err
	}
	if i := slices.IndexFunc(addrs, netip.Addr.Is4); i >= 0 {
		return addrs[i], nil
	}
	return addrs[0], nil
}

// resolve returns all addresses of a host, at least one, within 2 s.
func (c *Config) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	look := c.Resolve
	if look == nil {
		look = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	addrs, err := look(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot resolve %q: %w", host, err)
	}
	out := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		out[i] = a.Unmap()
	}
	return out, nil
}
