package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/diskstore"
	"github.com/weirlimit/weir/internal/built"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/smallfile"
)

type clusterOptions struct {
	name                 string
	join                 joinAddresses
	expect               int
	peerAddr, gossipAddr address
	advertise            string
	gossipKeyFile        string
	peerCert, peerKey    string
	peerCA, peerURI      string
	peerTLS              choice
	deadline             time.Duration
	replication          choice
	cachedDenials        bool
	insecure             bool
	dataDir              string
	persistInterval      time.Duration
	restoreWait          time.Duration
	discardData          bool
}

func newClusterOptions() clusterOptions {
	return clusterOptions{peerAddr: "127.0.0.1:7947", gossipAddr: "127.0.0.1:7946", deadline: cluster.DefaultDeadline,
		persistInterval: cluster.DefaultPersistInterval, restoreWait: cluster.DefaultRestoreWait,
		peerTLS:     choice{"required", []string{"required", "optional"}},
		replication: choice{"lag", []string{"lag", "strict", "off"}}}
}

func (o *clusterOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.name, "name", "", "be a member of a cluster under this `NAME`; keep it across restarts")
	f.Var(&o.join, "join", "join the member whose gossip address is `HOST:PORT`; several with commas; dns+HOST:PORT: all")
	f.IntVar(&o.expect, "expect", 0, "begin a cluster only with more than half of `N` members; 0: also alone")
	f.Var(&o.peerAddr, "peer-addr", "listen for other members at `HOST:PORT`, in a cluster")
	f.Var(&o.gossipAddr, "gossip-addr", "gossip with other members at `HOST:PORT`, in a cluster")
	f.StringVar(&o.advertise, "advertise", "", "`HOST` at which other members reach this one (default as --peer-addr)")
	f.StringVar(&o.gossipKeyFile, "gossip-key-file", "", "encrypt gossip with the keys in `FILE`, in base64, one per line")
	f.StringVar(&o.peerCert, "peer-cert", "", "show other members the certificate in `FILE`, in PEM; they need one too")
	f.StringVar(&o.peerKey, "peer-key", "", "`FILE` with the key of --peer-cert, in PEM")
	f.StringVar(&o.peerCA, "peer-ca", "", "`FILE` with the authorities of all members' certificates, in PEM")
	f.StringVar(&o.peerURI, "peer-uri", "", "`URI` of members' certificates, such as spiffe://example.org/weir/{name}")
	f.Var(&o.peerTLS, "peer-tls", "TLS with other members: `MODE` required or optional")
	f.BoolVar(&o.insecure, "insecure", false,
		"allow a member beyond loopback without keys or certificate: anyone can take part")
	f.DurationVar(&o.deadline, "deadline", o.deadline,
		"answer by policy if a key's owner has not answered after this long")
	f.Var(&o.replication, "replication", "copy counters by `MODE` if their rule sets none: lag, strict or off")
	f.StringVar(&o.dataDir, "data-dir", "", "keep counters in `DIR`, beyond the end of all members")
	f.DurationVar(&o.persistInterval, "persist-interval", o.persistInterval, "write changes to --data-dir this often")
	f.DurationVar(&o.restoreWait, "restore-wait", o.restoreWait,
		"wait this long, at a start, for other members' --data-dir")
	f.BoolVar(&o.discardData, "discard-data", false, "set aside what --data-dir has, and start without it")
	f.BoolVar(&o.cachedDenials, "cached-denials", false,
		"repeat an owner's denial for up to a second without asking it again")
}

func (o *clusterOptions) copying() weir.Replication {
	return weir.Replication(slices.Index(o.replication.all, o.replication.value)) //nolint:gosec // one of three
}

func (o *clusterOptions) wanted(cmd *cobra.Command) bool {
	f := cmd.Flags()
	return o.name != "" || len(o.join) > 0 || o.advertise != "" ||
		f.Changed("peer-addr") || f.Changed("gossip-addr") || o.gossipKeyFile != ""
}

// validate returns an error for an invalid combination of flags.
func (o *clusterOptions) validate(cmd *cobra.Command, redis bool) error {
	switch {
	case cmd.Flags().Lookup("join") == nil:
		return nil
	case !o.wanted(cmd):
		return o.alone(cmd)
	case redis:
		return usage(cmd, "--backend redis and the flags of a cluster are both given, but nodes that use one Redis share "+
			"counters without a cluster: leave out one of them")
	case o.peerAddr == "" || o.gossipAddr == "":
		return usage(cmd, "--peer-addr and --gossip-addr must not be empty: give HOST:PORT, such as 127.0.0.1:7947")
	case o.deadline < time.Millisecond || o.deadline > time.Minute:
		return usage(cmd, "--deadline %v is out of range: give 1ms to 1m", o.deadline)
	case o.persistInterval < time.Second || o.persistInterval > time.Hour:
		return usage(cmd, "--persist-interval %v is out of range: give 1s to 1h", o.persistInterval)
	case o.restoreWait <= 0 || o.restoreWait > time.Hour:
		return usage(cmd, "--restore-wait %v is out of range: give up to 1h", o.restoreWait)
	case o.dataDir == "" && o.discardData:
		return usage(cmd, "--discard-data is for --data-dir: give both")
	}
	named := slices.ContainsFunc(o.join, func(j string) bool { return strings.HasPrefix(j, cluster.NamePrefix) })
	switch {
	case o.expect < 0 || o.expect > cluster.MaxExpect:
		return usage(cmd, "--expect %d is out of range: give the number of members, up to %d", o.expect, cluster.MaxExpect)
	case o.expect > 0 && len(o.join) == 0:
		return usage(cmd, "--expect needs addresses to join by, or this node finds no other: give --join too")
	case named && o.expect == 0:
		return usage(cmd, "--join dns+HOST:PORT needs --expect, because a name that is empty or incomplete does not show "+
			"whether other members exist: give the number of members")
	}
	given := 0
	for _, file := range []string{o.peerCert, o.peerKey, o.peerCA} {
		if file != "" {
			given++
		}
	}
	if given != 0 && given != 3 || given == 0 && o.peerTLS.value == "optional" {
		return usage(cmd, "--peer-cert, --peer-key and --peer-ca belong together: give all three, or none and no "+
			"--peer-tls optional")
	}
	if o.peerURI != "" {
		if err := certs.CheckTemplate(o.peerURI); err != nil {
			return usage(cmd, "--peer-uri %w", err)
		}
		if given == 0 {
			return usage(cmd, "--peer-uri is for members with certificates: give --peer-cert, --peer-key and --peer-ca too")
		}
	}
	if err := cluster.CheckName(o.name); o.name != "" && err != nil {
		return usage(cmd, "--name cannot be that: %s", strings.TrimPrefix(err.Error(), weir.ErrInvalid.Error()+": "))
	}
	if _, _, err := net.SplitHostPort(o.advertise); err == nil {
		return usage(cmd, "--advertise %q has a port: give the host alone; the ports are those of --peer-addr and "+
			"--gossip-addr", o.advertise)
	}
	return nil
}

// alone returns an error for flags that only a member may have.
func (o *clusterOptions) alone(cmd *cobra.Command) error {
	for _, name := range []string{"deadline", "replication", "cached-denials", "insecure", "expect", "peer-cert",
		"peer-key", "peer-ca", "peer-uri", "peer-tls", "data-dir", "persist-interval", "restore-wait", "discard-data"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() != f.DefValue {
			return usage(cmd, "--%s is for a member of a cluster: give --name or --join too", name)
		}
	}
	return nil
}

// config returns the configuration of the member, nil if the node is to be none.
func (o *clusterOptions) config(log *slog.Logger, wanted bool) (*cluster.Config, error) {
	if !wanted {
		return nil, nil
	}
	c := &cluster.Config{
		Name: o.name, PeerAddr: string(o.peerAddr), GossipAddr: string(o.gossipAddr), Advertise: o.advertise,
		Join: o.join, Expect: o.expect, Deadline: o.deadline, CachedDenials: o.cachedDenials, Insecure: o.insecure,
		Version: built.Version(), Logger: log,
		PeerCertFile: o.peerCert, PeerKeyFile: o.peerKey, PeerCAFile: o.peerCA, PeerURI: o.peerURI,
		PeerTLSOptional: o.peerTLS.value == "optional", PersistInterval: o.persistInterval, RestoreWait: o.restoreWait,
	}
	if o.dataDir != "" {
		c.Store = diskstore.Dir{Path: o.dataDir, Discard: o.discardData}
		if w := smallfile.Writable("data directory", o.dataDir); w != "" {
			log.Warn(w)
		}
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("the machine has no name that the node could have: give --name: %w", err)
		}
		c.Name = host
	}
	if o.gossipKeyFile == "" {
		return c, nil
	}
	keys, warning, err := cluster.ReadGossipKeys(o.gossipKeyFile)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		log.Warn(warning)
	}
	c.GossipKeys, c.GossipKeyFile = keys, o.gossipKeyFile
	return c, nil
}

// joinAddresses is a flag with several host:port.
type joinAddresses []string

func (j *joinAddresses) String() string { return strings.Join(*j, ",") }
func (j *joinAddresses) Type() string   { return "HOST:PORT" }
func (j *joinAddresses) Set(text string) error {
	*j = nil
	if text == "" {
		return nil
	}
	for _, one := range strings.Split(text, ",") {
		var valid address
		one = strings.TrimSpace(one)
		at, named := strings.CutPrefix(one, cluster.NamePrefix)
		host, port, err := net.SplitHostPort(at)
		if valid.Set(at) != nil || err != nil || host == "" || port == "0" {
			return errors.New("give HOST:PORT of a member's gossip, such as node-1:7946, or several with commas between")
		}
		if named && net.ParseIP(host) != nil {
			return errors.New("dns+ is for a name that stands for all members: leave it out before an address")
		}
		*j = append(*j, one)
	}
	return nil
}
