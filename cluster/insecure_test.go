package cluster_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

// A member that other machines can reach does not start without a secret, a gossip key and
// a certificate, unless that is permitted. When it refuses to start, it has not listened on
// any port.
func TestMemberBeyondLoopback(t *testing.T) {
	secret, key := []byte("0123456789abcdef"), [][]byte{[]byte("0123456789abcdef")}
	files := certstest.New(t, "peers").Write(t, t.TempDir(),
		certstest.Leaf{Name: "node-1", URI: certs.MemberURI("weir", "node-1")})
	certify := func(c *weir.Config) {
		part(*c).PeerCertFile, part(*c).PeerKeyFile, part(*c).PeerCAFile = files.Cert, files.Key, files.CA
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func(*weir.Config)
		setting string // "" where it is let through, to find that the port is taken
		lacks   []string
	}{
		"every address": {func(c *weir.Config) {
			part(*c).PeerAddr = ":" + port
		}, "PeerAddr", []string{"there is no secret", "there is no gossip key", "there is no certificate"}},
		"every address of IPv6": {func(c *weir.Config) {
			part(*c).PeerAddr = "[::]:" + port
		}, "PeerAddr", []string{"there is no secret", "there is no gossip key", "there is no certificate"}},
		"a private address": {func(c *weir.Config) {
			part(*c).PeerAddr = "10.1.2.3:" + port
		}, "PeerAddr", []string{"there is no secret", "there is no gossip key", "there is no certificate"}},
		"gossip alone": {func(c *weir.Config) {
			part(*c).GossipAddr = "0.0.0.0:0"
		}, "GossipAddr", []string{"there is no secret", "there is no gossip key", "there is no certificate"}},
		"what is advertised": {func(c *weir.Config) {
			part(*c).Advertise = "10.1.2.3"
		}, "Advertise", []string{"there is no secret", "there is no gossip key", "there is no certificate"}},
		"a name of nothing": {func(c *weir.Config) {
			part(*c).Advertise = "node-1.invalid"
		}, "Advertise", []string{"there is no secret", "there is no gossip key", "there is no certificate"}},
		"a secret alone": {func(c *weir.Config) {
			part(*c).PeerAddr, c.Secret = ":"+port, secret
		}, "PeerAddr", []string{"there is no gossip key", "there is no certificate"}},
		"a key alone": {func(c *weir.Config) {
			part(*c).PeerAddr, part(*c).GossipKeys = ":"+port, key
		}, "PeerAddr", []string{"there is no secret", "there is no certificate"}},
		"a word": {func(c *weir.Config) {
			part(*c).PeerAddr, c.Secret, part(*c).GossipKeys = ":"+port, secret[:15], key
		}, "PeerAddr", []string{"the secret has 15 bytes of at least 16", "there is no certificate"}},
		"both keys": {func(c *weir.Config) {
			part(*c).PeerAddr, c.Secret, part(*c).GossipKeys = ":"+port, secret, key
		}, "PeerAddr", []string{"there is no certificate"}},
		"a certificate alone": {func(c *weir.Config) {
			part(*c).PeerAddr = ":" + port
			certify(c)
		}, "PeerAddr", []string{"there is no secret", "there is no gossip key"}},
		"all": {func(c *weir.Config) {
			part(*c).PeerAddr, c.Secret, part(*c).GossipKeys = ":"+port, secret, key
			certify(c)
		}, "", nil},
		"insecure":               {func(c *weir.Config) { part(*c).PeerAddr, part(*c).Insecure = ":"+port, true }, "", nil},
		"loopback":               {func(*weir.Config) {}, "", nil},
		"another loopback":       {func(c *weir.Config) { part(*c).Advertise = "127.9.9.9" }, "", nil},
		"a name of loopback":     {func(c *weir.Config) { part(*c).Advertise = "localhost" }, "", nil},
		"loopback of IPv6":       {func(c *weir.Config) { part(*c).Advertise = "::1" }, "", nil},
		"IPv4 loopback as IPv6":  {func(c *weir.Config) { part(*c).Advertise = "::ffff:127.0.0.1" }, "", nil},
		"a word, but on machine": {func(c *weir.Config) { c.Secret = secret[:3] }, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := memberConfig("node-1", "")
			part(config).PeerAddr = "127.0.0.1:" + port
			c.change(&config)
			n, err := weir.Open(t.Context(), config)
			if err == nil {
				_ = n.Close() // the failure is that there is one
				t.Fatal("it started on a port that is taken")
			}
			var open *cluster.InsecureError
			switch {
			case !errors.As(err, &open):
				if c.setting != "" || !strings.Contains(err.Error(), "cannot listen") {
					t.Errorf("%v", err)
				}
			case !errors.Is(err, cluster.ErrInsecure) || open.Setting != c.setting || !slices.Equal(open.Lacks, c.lacks):
				t.Errorf("%q: %v", open.Setting, err)
			}
		})
	}
}
