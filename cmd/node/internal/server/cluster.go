package server

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// clusterHelp adds to an error of opening a member the flags that can correct it.
func clusterHelp(err error, c *cluster.Config) error {
	var open *cluster.InsecureError
	if errors.As(err, &open) {
		flag := map[string]string{"PeerAddr": "peer-addr", "GossipAddr": "gossip-addr",
			"Advertise": "advertise"}[open.Setting]
		return fmt.Errorf("--%s %q can be reached from other machines, and %s: whoever reaches the ports, or the network "+
			"between members, could take part in the cluster. "+
			`Run "node keys DIR --authority AUTHORITY --member NAME,NAME", or make keys with "openssl rand -base64 32 `+
			`>DIR/secret" and the same for DIR/gossip.key, and certificates by an authority of your own. `+
			"Give all members the same two keys and each its certificate, and start each with --secret-file DIR/secret "+
			"--gossip-key-file DIR/gossip.key "+
			"--peer-cert DIR/NAME-peer.crt --peer-key DIR/NAME-peer.key --peer-ca DIR/peer-ca.crt; or give --insecure on a "+
			"network where every machine is trusted",
			flag, open.Addr, strings.Join(open.Lacks, " and "))
	}
	if c != nil && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) ||
		errors.Is(err, syscall.EACCES)) {
		return fmt.Errorf("%w; choose other addresses with --peer-addr and --gossip-addr", err)
	}
	return err
}

// readyEvery is how often readiness of a joining node is checked.
const readyEvery = 20 * time.Millisecond

// WhenReady calls f once the node is ready, in a goroutine of its own, unless the node
// is stopped first.
func (s *Server) WhenReady(f func()) {
	s.background.start("waiting for readiness", func() {
		tick := time.NewTicker(readyEvery)
		defer tick.Stop()
		for s.Ready() != nil {
			if s.stopping.Load() {
				return
			}
			<-tick.C
		}
		f()
	})
}
