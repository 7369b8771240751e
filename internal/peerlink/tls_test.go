package peerlink_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

var memberUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// showing makes a node show a certificate, which its own store does not judge, and accept
// those of an authority.
func showing(t *testing.T, ours, theirs *certstest.Authority, l certstest.Leaf) func(*peerlink.Config) {
	t.Helper()
	p := ours.Write(t, t.TempDir(), l)
	certstest.Replace(t, p.CA, theirs.PEM)
	now := time.Now
	if !l.Ends.IsZero() {
		now = func() time.Time { return l.Ends.Add(-time.Minute) } // this node does not notice
	}
	s, err := certs.Open(certs.Config{What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *peerlink.Config) { c.Certificates = s }
}

func member(t *testing.T, a *certstest.Authority, name string, optional bool) func(*peerlink.Config) {
	t.Helper()
	p := a.Write(t, t.TempDir(), certstest.Leaf{Name: name, URI: certs.MemberURI("test", name)})
	s, err := certs.Open(certs.Config{
		What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA, Usages: memberUsages, Own: true,
		Check: func(leaf *x509.Certificate) error { return certs.CheckMember(leaf, "test", name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *peerlink.Config) { c.Certificates, c.TLSOptional = s, optional }
}

// exchange fails unless both nodes get a check of the other.
func exchange(t *testing.T, a, b *node) {
	t.Helper()
	introduce(a, b)
	a.waitUp(t, b.self)
	b.waitUp(t, a.self)
	a.send(b.self, checks(1, 1))
	b.send(a.self, checks(1, 1))
	a.wait(t, "a check", func() bool { return len(a.got) == 1 })
	b.wait(t, "a check", func() bool { return len(b.got) == 1 })
}

// TestTLSModes pairs nodes as they meet while a cluster is restarted one by one, from off
// over optional to required, whichever of them dials.
func TestTLSModes(t *testing.T) {
	ca := certstest.New(t, "peers")
	off := func(string) func(*peerlink.Config) { return nil }
	optional := func(name string) func(*peerlink.Config) { return member(t, ca, name, true) }
	required := func(name string) func(*peerlink.Config) { return member(t, ca, name, false) }
	for name, x := range map[string][2]func(string) func(*peerlink.Config){
		"off, optional": {off, optional}, "optional, off": {optional, off}, "both optional": {optional, optional},
		"optional, required": {optional, required}, "required, optional": {required, optional},
		"both required": {required, required},
	} {
		t.Run(name, func(t *testing.T) {
			exchange(t, start(t, 1, "", x[0]("node-1")), start(t, 2, "", x[1]("node-2")))
		})
	}
}

// TestTLSByURI: members whose certificates have a URI by a template meet, and one with
// another URI, a second URI or the usual name does not become one.
func TestTLSByURI(t *testing.T) {
	const template = "spiffe://example.org/{cluster}/{name}"
	ca := certstest.New(t, "peers")
	with := func(leaf certstest.Leaf) func(*peerlink.Config) {
		p := ca.Write(t, t.TempDir(), leaf)
		s, err := certs.Open(certs.Config{What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA, MemberURI: template})
		if err != nil {
			t.Fatal(err)
		}
		return func(c *peerlink.Config) { c.Certificates = s }
	}
	a := start(t, 1, "", with(certstest.Leaf{URI: "spiffe://example.org/test/node-1"}))
	b := start(t, 2, "", with(certstest.Leaf{URI: "spiffe://example.org/test/node-2"}))
	exchange(t, a, b)
	for i, uri := range []string{"spiffe://example.org/test/node-1", "spiffe://example.com/test/node-3",
		certs.MemberURI("test", "node-3"), ""} {
		bad := start(t, peer.Instance(3+i), "", func(c *peerlink.Config) {
			c.Self.Name = "node-3"
			with(certstest.Leaf{Name: "node-3", URI: uri})(c)
		})
		bad.member.Name = "node-3"
		introduce(a, bad)
		a.send(bad.self, checks(1, 1))
		a.waitMore(t, "down "+bad.self.String(), 2)
		if a.tally("up "+bad.self.String()) != 0 {
			t.Errorf("%q is accepted for node-3", uri)
		}
		bad.stop(t)
	}
}

// TestTLSRefusals makes a node with a bad certificate, or none, meet one that requires TLS,
// from either side. It is refused, that is logged once for each side, and nothing arrives.
func TestTLSRefusals(t *testing.T) {
	ca, other := certstest.New(t, "peers"), certstest.New(t, "clients")
	leaf := func(change func(*certstest.Leaf)) certstest.Leaf {
		l := certstest.Leaf{Name: "node-1", URI: certs.MemberURI("test", "node-1")}
		change(&l)
		return l
	}
	for _, x := range []struct {
		name string
		bad  func(*peerlink.Config)
		want string // in the log of the node that requires TLS
	}{
		{"none", nil, "does not speak TLS"},
		{"a client's", showing(t, other, ca, certstest.Leaf{Name: "node-1", Usages: memberUsages[1:]}),
			"usage|unknown authority"},
		{"foreign", showing(t, other, ca, leaf(func(*certstest.Leaf) {})), "unknown authority"},
		{"for clients only", showing(t, ca, ca, leaf(func(l *certstest.Leaf) {
			l.Usages = memberUsages[1:]
		})), "serverAuth|usage"},
		{"for servers only", showing(t, ca, ca, leaf(func(l *certstest.Leaf) {
			l.Usages = memberUsages[:1]
		})), "clientAuth|usage"},
		{"expired", showing(t, ca, ca, leaf(func(l *certstest.Leaf) {
			l.Begins, l.Ends = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		})), "expired"},
		{"another member's", showing(t, ca, ca, certstest.Leaf{Name: "node-3", URI: certs.MemberURI("test", "node-3")}),
			"node-3"},
		{"another cluster's", showing(t, ca, ca, certstest.Leaf{Name: "node-1", URI: certs.MemberURI("prod", "node-1")}),
			"prod"},
	} {
		for _, ids := range [][2]peer.Instance{{1, 2}, {2, 1}} { // the lower one dials
			t.Run(x.name, func(t *testing.T) {
				good := start(t, ids[1], "", member(t, ca, "node-"+ids[1].String()[15:], false))
				bad := start(t, ids[0], "", func(c *peerlink.Config) {
					c.Self.Name = "node-1" // whichever instance it has
					if x.bad != nil {
						x.bad(c)
					}
				})
				bad.member.Name = "node-1"
				introduce(good, bad)
				good.send(bad.self, checks(1, 1))
				bad.send(good.self, checks(1, 1))
				good.waitMore(t, "down "+bad.self.String(), 2)
				bad.waitMore(t, "down "+good.self.String(), 2)
				if good.tally("up "+bad.self.String()) != 0 || bad.tally("up "+good.self.String()) != 0 {
					t.Error("it is up")
				}
				log, found := good.log.String(), false
				for _, w := range strings.Split(x.want, "|") {
					found = found || strings.Contains(log, w)
				}
				if !found {
					t.Errorf("the log says nothing of %q: %s", x.want, log)
				}
				if n := strings.Count(log, "\n"); n > 4 {
					t.Errorf("%d lines: %s", n, log)
				}
				if good.RefusedTLS() == 0 && bad.RefusedTLS() == 0 {
					t.Error("no refusal is counted")
				}
			})
		}
	}
}

// dialled returns a node with TLS, and a connection to it on which nothing was sent.
func dialled(t *testing.T) (*node, net.Conn) {
	t.Helper()
	n := start(t, 1, "", member(t, certstest.New(t, "peers"), "node-1", false))
	conn, err := net.Dial("tcp", n.member.PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return n, conn
}

// TestTLSBound sends a long handshake, as fast as the node reads it.
func TestTLSBound(t *testing.T) {
	n, conn := dialled(t)
	record := append([]byte{0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}, make([]byte, 0x4000-4)...)
	for range 64 {
		if _, err := conn.Write(record); err != nil {
			break
		}
		record = append([]byte{0x16, 3, 1, 0x40, 0}, make([]byte, 0x4000)...)
	}
	n.log.wait(t, "in the handshake of TLS")
}

// TestTLSGivenUp ends a connection in the handshake, as a member does that has waited too long. That is not
// taken for a judgement of the node's certificate, of which an alert tells.
func TestTLSGivenUp(t *testing.T) {
	n, conn := dialled(t)
	if err := tls.Client(halved{conn.(*net.TCPConn)}, &tls.Config{
		InsecureSkipVerify: true}).Handshake(); err == nil { //nolint:gosec // nothing is sent to it
		t.Fatal("the handshake is complete")
	}
	n.log.wait(t, "in the handshake of TLS")
	if log := n.log.String(); !strings.Contains(log, "without a reason") || strings.Contains(log, "certificate") {
		t.Errorf("the log says %s", log)
	}
}

// halved sends nothing after its first write.
type halved struct{ *net.TCPConn }

func (h halved) Write(b []byte) (int, error) {
	n, err := h.TCPConn.Write(b)
	return n, errors.Join(err, h.CloseWrite())
}

// TestTLSVersion shows that an older TLS is refused, also of a member.
func TestTLSVersion(t *testing.T) {
	ca := certstest.New(t, "peers")
	n := start(t, 1, "", member(t, ca, "node-1", false))
	cert, err := tls.X509KeyPair(ca.Issue(t, certstest.Leaf{Name: "node-2", URI: certs.MemberURI("test", "node-2"),
		Usages: memberUsages}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", n.member.PeerAddr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{cert}}) //nolint:gosec // it is to be refused
	if err == nil {
		_ = c.Close()
		t.Fatal("TLS 1.2 is accepted")
	}
}
