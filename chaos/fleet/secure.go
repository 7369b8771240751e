//go:build linux

package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/internal/authority"
)

// certified is how long the certificates of a fleet are valid.
const certified = 30 * 24 * time.Hour

// certificates are the files by which the nodes of a fleet use TLS: with each other, each
// side with a certificate, and with clients. Nil is without TLS.
type certificates struct {
	dir    string
	client *tls.Config // of clients
}

// certify makes certificates for nodes with these names, whose clients reach them at these
// hosts, in a directory.
func certify(dir string, names []string, hosts func(node int) []string) (*certificates, error) {
	c := &certificates{dir: dir}
	now := time.Now()
	var signers [2]*authority.Authority
	for i, plane := range []string{authority.Peers, authority.Clients} {
		ca, err := authority.New(plane, "weir", nil, now, certified)
		if err == nil {
			err = c.keep(plane+"-ca", ca)
		}
		if err == nil {
			signers[i], err = authority.Read(c.file(plane + "-ca"))
		}
		if err != nil {
			return nil, err
		}
		if plane == authority.Clients {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(ca.Cert)
			c.client = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
		}
	}
	for i, name := range names {
		peer, err := signers[0].Issue(authority.Leaf{Kind: "node", Name: name, Server: true, Client: true}, now, certified)
		if err != nil {
			return nil, err
		}
		server, err := signers[1].Issue(authority.Leaf{Kind: "node", Name: name, Hosts: hosts(i), Server: true}, now,
			certified)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(c.keep(name+"-peer", peer), c.keep(name+"-server", server)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// file is where a certificate and its key are, without .crt and .key.
func (c *certificates) file(name string) string { return filepath.Join(c.dir, name) }

func (c *certificates) keep(name string, m authority.Made) error {
	return errors.Join(os.WriteFile(c.file(name)+".crt", m.Cert, 0o600), os.WriteFile(c.file(name)+".key", m.Key, 0o600))
}

// flags are those of a node.
func (c *certificates) flags(name string, member bool) []string {
	if c == nil {
		return nil
	}
	server, peer := c.file(name+"-server"), c.file(name+"-peer")
	flags := []string{"--tls-cert", server + ".crt", "--tls-key", server + ".key"}
	if member {
		flags = append(flags, "--peer-cert", peer+".crt", "--peer-key", peer+".key", "--peer-ca",
			c.file(authority.Peers+"-ca")+".crt")
	}
	return flags
}

// tls is what clients need, nil without TLS.
func (c *certificates) tls() *tls.Config {
	if c == nil {
		return nil
	}
	return c.client
}

// scheme is how URLs of nodes begin.
func (c *certificates) scheme() string {
	if c == nil {
		return "http://"
	}
	return "https://"
}
