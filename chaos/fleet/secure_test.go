//go:build linux

package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/certs"
)

// A node has a certificate for clients, who reach it at its addresses, and one that names it
// for other members. One that counts in Redis has no other members.
func TestCertificates(t *testing.T) {
	c, err := certify(t.TempDir(), []string{"node-1", "node-2"}, func(node int) []string {
		return [][]string{{"127.0.0.1"}, {"127.0.0.1", "10.78.1.2"}}[node]
	})
	if err != nil {
		t.Fatal(err)
	}
	load := func(name string) *x509.Certificate {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(c.file(name)+".crt", c.file(name)+".key")
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	server, peer := load("node-2-server"), load("node-2-peer")
	for _, host := range []string{"127.0.0.1", "10.78.1.2"} {
		if _, err := server.Verify(x509.VerifyOptions{Roots: c.tls().RootCAs, DNSName: host}); err != nil {
			t.Error(err)
		}
	}
	if _, err := peer.Verify(x509.VerifyOptions{Roots: c.tls().RootCAs,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("clients take a member's certificate for a server's")
	}
	if err := certs.CheckMember(peer, "weir", "node-2"); err != nil {
		t.Error(err)
	}
	if all, alone := c.flags("node-1", true), c.flags("node-1", false); !slices.Contains(all, "--peer-ca") ||
		slices.Contains(alone, "--peer-ca") || !slices.Contains(alone, "--tls-cert") {
		t.Errorf("%q, %q", all, alone)
	}
	var none *certificates
	if none.flags("node-1", true) != nil || none.tls() != nil || none.scheme() != "http://" || c.scheme() != "https://" {
		t.Error("a fleet without TLS has some")
	}
}
