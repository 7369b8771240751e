package peerlink_test

import (
	"crypto/x509"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

// TestReplacedAuthorityEndsLinks: when the authority of the members is replaced, links whose
// other side showed a certificate of the old one end, and those of the new one stay. A
// certificate that has merely expired ends no link.
func TestReplacedAuthorityEndsLinks(t *testing.T) {
	past, next := certstest.New(t, "past"), certstest.New(t, "next")
	both := append(append([]byte{}, past.PEM...), next.PEM...)
	var late atomic.Bool
	of := func(ca *certstest.Authority, name string) (certstest.Paths, *certs.Store) {
		p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: name, URI: certs.MemberURI("test", name)})
		certstest.Replace(t, p.CA, both)
		s, err := certs.Open(certs.Config{
			What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA, Usages: memberUsages,
			Check: func(leaf *x509.Certificate) error { return certs.CheckMember(leaf, "test", name) },
			Now: func() time.Time {
				if name == "node-1" && late.Load() {
					return time.Now().Add(48 * time.Hour)
				}
				return time.Now()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return p, s
	}
	with := func(s *certs.Store) func(*peerlink.Config) { return func(c *peerlink.Config) { c.Certificates = s } }
	files, store := of(next, "node-1")
	_, old := of(past, "node-2")
	_, fresh := of(next, "node-3")
	a, b, c := start(t, 1, "", with(store)), start(t, 2, "", with(old)), start(t, 3, "", with(fresh))
	introduce(a, b, c)
	a.waitUp(t, b.self)
	a.waitUp(t, c.self)
	late.Store(true)
	a.Recheck(true)
	late.Store(false)
	certstest.Replace(t, files.CA, next.PEM)
	if changed, err := store.Poll(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	a.Recheck(true)
	a.waitMore(t, "down "+b.self.String(), 3) // and it is not let in again
	if a.tally("up "+b.self.String()) != 1 || a.tally("down "+c.self.String()) != 0 {
		t.Errorf("up with the old one %d times, the new one was down %d times", a.tally("up "+b.self.String()),
			a.tally("down "+c.self.String()))
	}
}

// TestExpelledMemberHasNoLink: the link to a member that is expelled ends, whoever dialled it,
// and is not made again until the member is let in.
func TestExpelledMemberHasNoLink(t *testing.T) {
	for name, id := range map[string]peer.Instance{"it was dialled": 5, "it dials": 2} {
		t.Run(name, func(t *testing.T) {
			var out atomic.Value
			out.Store("")
			a := start(t, 3, "", func(c *peerlink.Config) { c.Expelled = func(name string) bool { return out.Load() == name } })
			m := start(t, id, "", nil)
			introduce(a, m)
			a.waitUp(t, m.self)
			out.Store(m.member.Name)
			a.Recheck(false)
			a.waitMore(t, "down "+m.self.String(), 1)
			m.waitMore(t, "down "+a.self.String(), 4)
			if n := m.tally("up " + a.self.String()); n != 1 {
				t.Errorf("it was up %d times", n)
			}
			out.Store("")
			m.waitMore(t, "up "+a.self.String(), 1)
		})
	}
}
