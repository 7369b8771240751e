package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

const (
	// MinSecretBytes is the least length of Secret of [weir.Config] for a member that
	// other machines can reach. Members show a mark of the secret, against which a short
	// secret can be guessed.
	MinSecretBytes = 16
	// insecureEvery is the interval of the warning that a node is insecure on purpose.
	insecureEvery = time.Minute
	// resolveWithin bounds the lookup of a name, to see whether it is on loopback.
	resolveWithin = 2 * time.Second
)

// ErrInsecure is wrapped by every [*InsecureError].
var ErrInsecure = errors.New("a member beyond loopback needs a secret, a gossip key and a certificate")

// InsecureError is returned by [weir.Open] for a member whose ports other machines can
// reach and that lacks the means to keep strangers out, or from reading and changing what
// members tell each other. [Config.Insecure] permits it.
type InsecureError struct {
	// Setting is the field of [Config] whose value, Addr, is not a loopback address.
	Setting, Addr string
	// Lacks lists what is missing, in words: "there is no secret".
	Lacks []string
}

// Error implements error.
func (e *InsecureError) Error() string {
	return fmt.Sprintf("weir: Cluster.%s %q can be reached from other machines, and %s: whoever reaches the ports, or "+
		"the network between members, could take part in the cluster. "+
		"Give all members the same 32 random bytes as Config.Secret, 32 others in Cluster.GossipKeys, and each a "+
		"certificate in Cluster.PeerCertFile; "+
		"or set Cluster.Insecure on a network where every machine is trusted", e.Setting, e.Addr,
		strings.Join(e.Lacks, " and "))
}

// Unwrap returns ErrInsecure.
func (*InsecureError) Unwrap() error { return ErrInsecure }

// insecure returns what a member lacks that other machines can reach; nil if it lacks
// nothing or is on loopback only.
func (c *Config) insecure(ctx context.Context, secret []byte) *InsecureError {
	e := &InsecureError{}
	switch n := len(secret); {
	case n == 0:
		e.Lacks = append(e.Lacks, "there is no secret")
	case n < MinSecretBytes:
		e.Lacks = append(e.Lacks, fmt.Sprintf("the secret has %d bytes of at least %d", n, MinSecretBytes))
	}
	if len(c.GossipKeys) == 0 {
		e.Lacks = append(e.Lacks, "there is no gossip key")
	}
	if c.PeerCertFile == "" {
		e.Lacks = append(e.Lacks, "there is no certificate")
	}
	if len(e.Lacks) == 0 {
		return nil
	}
	for _, at := range []struct{ setting, addr string }{{"PeerAddr", c.PeerAddr}, {"GossipAddr", c.GossipAddr},
		{"Advertise", c.Advertise}} {
		host := at.addr
		if h, _, err := net.SplitHostPort(at.addr); err == nil {
			host = h
		}
		if at.setting == "Advertise" && host == "" {
			continue // it defaults to PeerAddr's host, which is checked
		}
		if !onLoopback(ctx, host) {
			e.Setting, e.Addr = at.setting, at.addr
			return e
		}
	}
	return nil
}

// unreached returns an error for a member that no other machine can reach although it joins members there: it would
// start a cluster of its own, and each machine would grant the whole limit.
func (c *Config) unreached(ctx context.Context) error {
	host := func(addr string) string {
		if h, _, err := net.SplitHostPort(addr); err == nil {
			return h
		}
		return addr
	}
	setting, addr := "", ""
	for _, at := range []struct{ setting, addr string }{{"Advertise", c.Advertise}, {"PeerAddr", c.PeerAddr},
		{"GossipAddr", c.GossipAddr}} {
		if h := host(at.addr); h != "" && onLoopback(ctx, h) {
			setting, addr = at.setting, at.addr
			break
		}
	}
	if setting == "" {
		return nil
	}
	for _, join := range c.Join {
		if h := host(strings.TrimPrefix(join, NamePrefix)); !onLoopback(ctx, h) {
			return fmt.Errorf("%w: Cluster.%s is %s, which no other machine reaches, and Cluster.Join has %s, which is on "+
				"another one: "+
				"give addresses that the others reach, such as PeerAddr \":7947\" and GossipAddr \":7946\" "+
				"(a node's --peer-addr and --gossip-addr), or join members at loopback only",
				weir.ErrInvalid, setting, addr, join)
		}
	}
	return nil
}

// onLoopback reports whether a host can only be reached from its own machine. For a
// name, all its addresses must be loopback addresses; a name that cannot be resolved is
// not.
func onLoopback(ctx context.Context, host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	if host == "" {
		return false // an empty host means every address
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err == nil && len(addrs) > 0 &&
		!slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() })
}

// warnInsecure logs what the member lacks, now and once a minute.
func (p *protection) warnInsecure() {
	m := p.member
	m.log.Warn("others on the network can take part in the cluster, as Insecure permits: give all members a secret, a "+
		"gossip key and certificates",
		"because", p.lacks.Setting+" "+p.lacks.Addr, "lacks", p.lacks.Lacks)
	m.sched.After(limiter.Tick(insecureEvery/limiter.TickDuration), p.warnInsecure)
}
