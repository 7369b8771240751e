package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

var both = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

func open(t *testing.T, p certstest.Paths) *certs.Store {
	t.Helper()
	s, err := certs.Open(certs.Config{What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA, Usages: both,
		Own: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// meet makes a connection between two sides, and returns both ends and what each says.
func meet(t *testing.T, server, client *tls.Config) (s, c *tls.Conn, serverErr, clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close(); _ = listener.Close() })
	for _, x := range []net.Conn{a, b} {
		if err := x.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	s, c = tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err != nil {
			_ = a.Close()
		}
		done <- err
	}()
	if clientErr = c.Handshake(); clientErr != nil {
		_ = b.Close()
	}
	return s, c, <-done, clientErr
}

// carries fails unless a connection carries a byte.
func carries(t *testing.T, from, to *tls.Conn) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := from.Write([]byte{7})
		done <- err
	}()
	var b [1]byte
	if _, err := to.Read(b[:]); err != nil || b[0] != 7 {
		t.Errorf("the connection carries %v, %v", b, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestReload replaces an authority and all certificates in the order that is documented,
// while a connection lives.
func TestReload(t *testing.T) {
	first, second := certstest.New(t, "first"), certstest.New(t, "second")
	one, two := t.TempDir(), t.TempDir()
	ours, theirs := first.Write(t, one, certstest.Leaf{Name: "a", Hosts: []string{"a.example"}}),
		first.Write(t, two, certstest.Leaf{Name: "b"})
	server, client := open(t, ours), open(t, theirs)
	sc := server.Server(tls.RequireAndVerifyClientCert, nil, nil)
	cc := client.Client("a.example", nil)
	s1, c1, err1, err2 := meet(t, sc, cc)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if v := c1.ConnectionState().Version; v != tls.VersionTLS13 {
		t.Errorf("version %x", v)
	}

	poll := func(s *certs.Store) {
		t.Helper()
		if changed, err := s.Poll(); !changed || err != nil {
			t.Fatalf("poll: %v, %v", changed, err)
		}
	}
	bundle := append(bytes.Clone(first.PEM), second.PEM...)
	certstest.Replace(t, ours.CA, bundle)
	certstest.Replace(t, theirs.CA, bundle)
	poll(server)
	poll(client)
	before := server.Leaf().SerialNumber
	for _, x := range []struct {
		p certstest.Paths
		s *certs.Store
		l certstest.Leaf
	}{{ours, server, certstest.Leaf{Name: "a", Hosts: []string{"a.example"}}},
		{theirs, client, certstest.Leaf{Name: "b"}}} {
		cert, key := second.Issue(t, x.l)
		certstest.Replace(t, x.p.Cert, cert)
		// The key comes later: until then the old pair is in force, which is said once.
		if changed, err := x.s.Poll(); changed || err == nil || !strings.Contains(err.Error(), x.p.Key) {
			t.Fatalf("a certificate without its key: %v, %v", changed, err)
		}
		if changed, err := x.s.Poll(); changed || err != nil {
			t.Fatalf("said twice: %v, %v", changed, err)
		}
		if _, _, err1, err2 := meet(t, sc, cc); err1 != nil || err2 != nil {
			t.Fatal("between the two files:", err1, err2)
		}
		certstest.Replace(t, x.p.Key, key)
		poll(x.s)
		if _, _, err1, err2 := meet(t, sc, cc); err1 != nil || err2 != nil {
			t.Fatal("one side is new:", err1, err2)
		}
	}
	if server.Leaf().SerialNumber.Cmp(before) == 0 {
		t.Error("the old certificate is in force")
	}
	carries(t, s1, c1)
	carries(t, c1, s1)

	// Without the first authority its certificates are refused, by the same configurations.
	certstest.Replace(t, ours.CA, second.PEM)
	certstest.Replace(t, theirs.CA, second.PEM)
	poll(server)
	poll(client)
	if _, _, err1, err2 := meet(t, sc, cc); err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	old := open(t, first.Write(t, t.TempDir(), certstest.Leaf{Name: "a", Hosts: []string{"a.example"}}))
	if _, _, err, _ := meet(t, sc, insecure(old)); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a client of the old authority: %v", err)
	}
	if _, _, _, err := meet(t, old.Server(tls.RequestClientCert, nil, nil), cc); err == nil ||
		!strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a server of the old authority: %v", err)
	}
	carries(t, s1, c1)
}

// insecure is a client that shows its certificate and judges no server.
func insecure(s *certs.Store) *tls.Config {
	c := s.Client("", nil)
	c.VerifyConnection = nil
	return c
}

func TestServerRefuses(t *testing.T) {
	ca := certstest.New(t, "ours")
	server := open(t, ca.Write(t, t.TempDir(), certstest.Leaf{Name: "a"}))
	client := func(a *certstest.Authority, l certstest.Leaf) *tls.Config {
		cert, key := a.Issue(t, l)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // the server is under test
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	none := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // the server is under test
	past := client(ca, certstest.Leaf{Name: "b"})
	past.MaxVersion = tls.VersionTLS12
	judged := errors.New("judged")
	for _, x := range []struct {
		name   string
		client *tls.Config
		check  func(*x509.Certificate) error
		want   string
	}{
		{"valid", client(ca, certstest.Leaf{Name: "b"}), nil, ""},
		{"no certificate", none, nil, "didn't provide a certificate"},
		{"foreign", client(certstest.New(t, "ours"), certstest.Leaf{Name: "b"}), nil,
			"certificate signed by unknown authority"},
		{"expired", client(ca, certstest.Leaf{Name: "b", Ends: time.Now().Add(-time.Minute)}), nil, "expired"},
		{"for clients only", client(ca, certstest.Leaf{Name: "b", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}),
			nil, "serverAuth"},
		{"for servers only", client(ca, certstest.Leaf{Name: "b", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
			nil, "incompatible key usage"},
		{"an old version", past, nil, "version"},
		{"judged", client(ca, certstest.Leaf{Name: "b"}), func(*x509.Certificate) error { return judged }, "judged"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, _, err, _ := meet(t, server.Server(tls.RequireAndVerifyClientCert, nil, x.check), x.client)
			if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
}

func TestClientRefuses(t *testing.T) {
	ca := certstest.New(t, "ours")
	client, err := certs.Open(certs.Config{What: "server", CAFile: ca.Write(t, t.TempDir(), certstest.Leaf{Name: "c"}).CA})
	if err != nil {
		t.Fatal(err)
	}
	server := func(a *certstest.Authority, l certstest.Leaf) *tls.Config {
		cert, key := a.Issue(t, l)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	}
	here := certstest.Leaf{Hosts: []string{"127.0.0.1", "a.example"}}
	for _, x := range []struct {
		name   string
		server *tls.Config
		asked  string
		want   string
	}{
		{"name", server(ca, here), "a.example", ""},
		{"address", server(ca, here), "127.0.0.1", ""},
		{"another name", server(ca, here), "b.example", "b.example"},
		{"another address", server(ca, here), "127.0.0.2", "127.0.0.2"},
		{"no name", server(ca, here), "", "give the server's name"},
		{"foreign", server(certstest.New(t, "ours"), here), "a.example", "unknown authority"},
		{"expired", server(ca, certstest.Leaf{Hosts: here.Hosts, Ends: time.Now().Add(-time.Minute)}), "a.example",
			"expired"},
		{"for clients", server(ca, certstest.Leaf{Hosts: here.Hosts, Usages: both[1:]}), "a.example", "usage"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, _, _, err := meet(t, x.server, client.Client(x.asked, nil))
			if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
}

// TestFiles opens files that are no good, and puts each in the place of good ones: these
// stay in force.
func TestFiles(t *testing.T) {
	ca := certstest.New(t, "ours")
	cert, key := ca.Issue(t, certstest.Leaf{Name: "a"})
	_, otherKey := ca.Issue(t, certstest.Leaf{Name: "a"})
	foreign, foreignKey := certstest.New(t, "ours").Issue(t, certstest.Leaf{Name: "a"})
	old, oldKey := ca.Issue(t, certstest.Leaf{Name: "a", Begins: time.Now().Add(-time.Hour),
		Ends: time.Now().Add(-time.Minute)})
	early, earlyKey := ca.Issue(t, certstest.Leaf{Name: "a", Begins: time.Now().Add(time.Hour)})
	half, halfKey := ca.Issue(t, certstest.Leaf{Name: "a", Usages: both[:1]})
	for _, x := range []struct {
		name          string
		cert, key, ca []byte
		mode          os.FileMode // of the key
		want          []string
	}{
		{"another key", cert, otherKey, ca.PEM, 0, []string{"tls.key", "tls.crt", "does not fit"}},
		{"no key", cert, []byte("nothing"), ca.PEM, 0, []string{"tls.key"}},
		{"no certificate", []byte("nothing"), key, ca.PEM, 0, []string{"tls.crt", "has no certificate"}},
		{"broken certificate", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), key, ca.PEM, 0,
			[]string{"tls.crt", "certificate 1 is broken"}},
		{"no authority", cert, key, key, 0, []string{"ca.crt", "has no certificate"}},
		{"foreign", foreign, foreignKey, ca.PEM, 0, []string{"tls.crt", "ca.crt", "unknown authority"}},
		{"expired", old, oldKey, ca.PEM, 0, []string{"tls.crt", "expired at"}},
		{"not yet", early, earlyKey, ca.PEM, 0, []string{"tls.crt", "is not valid before"}},
		{"for servers only", half, halfKey, ca.PEM, 0, []string{"tls.crt", "clientAuth"}},
		{"anyone's key", cert, key, ca.PEM, 0o602, []string{"tls.key", "can be written by every user"}},
		{"huge key", cert, bytes.Repeat([]byte("k"), 1<<20), ca.PEM, 0, []string{"tls.key", "larger than 64 KiB"}},
		{"huge authorities", cert, key, bytes.Repeat([]byte("k"), 2<<20), 0, []string{"ca.crt", "larger than 1 MiB"}},
		{"many certificates", bytes.Repeat(cert, 17), key, ca.PEM, 0, []string{"tls.crt", "more than 16"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			p := ca.Write(t, dir, certstest.Leaf{Name: "a"})
			s := open(t, p)
			serial := s.Leaf().SerialNumber
			certstest.Replace(t, p.Cert, x.cert)
			certstest.Replace(t, p.CA, x.ca)
			certstest.Replace(t, p.Key, x.key)
			if x.mode != 0 {
				if err := os.Chmod(p.Key, x.mode); err != nil {
					t.Fatal(err)
				}
			}
			changed, err := s.Poll()
			_, openErr := certs.Open(certs.Config{What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA, Usages: both,
				Own: true})
			if changed || err == nil || openErr == nil {
				t.Fatalf("accepted: %v, %v, %v", changed, err, openErr)
			}
			for _, w := range x.want {
				if !strings.Contains(err.Error(), w) || !strings.Contains(openErr.Error(), w) {
					t.Errorf("%v; %v: want %q", err, openErr, w)
				}
			}
			if s.Leaf().SerialNumber.Cmp(serial) != 0 {
				t.Error("the old one is not in force")
			}
			if _, _, err1, err2 := meet(t, s.Server(tls.RequireAndVerifyClientCert, nil, nil),
				s.Client("", func(*x509.Certificate) error {
					return nil
				})); err1 != nil || err2 != nil {
				t.Error(err1, err2)
			}
		})
	}
}

// TestForServers: a certificate that is for clients only does not replace that of a server.
func TestForServers(t *testing.T) {
	ca := certstest.New(t, "ours")
	p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "a"})
	c := certs.Config{What: "server", CertFile: p.Cert, KeyFile: p.Key, Check: certs.ForServers}
	s, err := certs.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		usages []x509.ExtKeyUsage
		good   bool
	}{
		{both[:1], true},
		{[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, false},
		{[]x509.ExtKeyUsage{x509.ExtKeyUsageAny}, true},
		{[]x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}, false},
	} {
		cert, key := ca.Issue(t, certstest.Leaf{Name: "a", Usages: x.usages})
		certstest.Replace(t, p.Cert, cert)
		certstest.Replace(t, p.Key, key)
		changed, err := s.Poll()
		if _, openErr := certs.Open(c); changed != x.good || (err == nil) != x.good || (openErr == nil) != x.good {
			t.Errorf("for %v: %v, %v; at the start: %v", x.usages, changed, err, openErr)
		}
		if !x.good && (err == nil || !strings.Contains(err.Error(), "serverAuth")) {
			t.Errorf("for %v: %v", x.usages, err)
		}
	}
}

// TestLinks switches a directory's link, as Kubernetes does with a ConfigMap or Secret.
func TestLinks(t *testing.T) {
	ca := certstest.New(t, "ours")
	dir := t.TempDir()
	for _, d := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
		ca.Write(t, filepath.Join(dir, d), certstest.Leaf{Name: d})
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	for _, f := range []string{"tls.crt", "tls.key", "ca.crt"} {
		link(filepath.Join("..data", f), f)
	}
	s := open(t, certstest.Paths{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		CA: filepath.Join(dir, "ca.crt")})
	if changed, err := s.Poll(); changed || err != nil || s.Leaf().Subject.CommonName != "..1" {
		t.Fatal(changed, err, s.Leaf().Subject)
	}
	link("..2", "..data")
	if changed, err := s.Poll(); !changed || err != nil || s.Leaf().Subject.CommonName != "..2" {
		t.Fatal(changed, err, s.Leaf().Subject)
	}
}

// Whoever watches is told of files that were loaded again, once of such that are not valid, and
// of such that are valid again, with a line in the log for each.
func TestWatchTells(t *testing.T) {
	ca := certstest.New(t, "ours")
	p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "a"})
	s, err := certs.Open(certs.Config{What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA})
	if err != nil {
		t.Fatal(err)
	}
	tick := make(chan time.Time)
	ctx, cancel := context.WithCancel(context.Background())
	var told []error
	var log bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, tick, slog.New(slog.NewTextHandler(&log, nil)), func(err error) { told = append(told, err) })
	}()
	look := func() {
		tick <- time.Now()
		tick <- time.Now() // the look before has ended
	}
	look()
	other := certstest.New(t, "theirs")
	two := append(bytes.Clone(ca.PEM), other.PEM...)
	certstest.Replace(t, p.CA, two)
	look()
	certstest.Replace(t, p.CA, []byte("none"))
	look()
	certstest.Replace(t, p.CA, two)
	look()
	cancel()
	<-done
	if len(told) != 3 || told[0] != nil || told[1] == nil || told[2] != nil {
		t.Errorf("told of %v", told)
	}
	for _, once := range []string{"were loaded again", "are not valid", "the peer certificate files are valid again"} {
		if n := strings.Count(log.String(), once); n != 1 {
			t.Errorf("the log has %q %d times: %s", once, n, &log)
		}
	}
}

func TestWatchWarns(t *testing.T) {
	ca := certstest.New(t, "ours")
	ends := time.Now().Add(2 * time.Hour)
	p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "a", Begins: ends.Add(-3 * time.Hour), Ends: ends})
	now := ends.Add(-61 * time.Minute)
	s, err := certs.Open(certs.Config{What: "peer", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA, Now: func() time.Time {
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	if w := s.Warning(); w != "" {
		t.Error(w)
	}
	if begins, expires := s.Validity(); !expires.Equal(ends.Truncate(time.Second)) || !begins.Before(expires) {
		t.Error(begins, expires, ends)
	}
	now = ends.Add(-59 * time.Minute)
	var out bytes.Buffer
	tick := make(chan time.Time)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, tick, slog.New(slog.NewTextHandler(&out, nil)), nil)
	}()
	for range 3 {
		tick <- now
	}
	cancel()
	<-done
	if n := strings.Count(out.String(), "expires at"); n != 1 || !strings.Contains(out.String(), p.Cert) {
		t.Errorf("said %d times: %s", n, &out)
	}
	now = ends
	if w := s.Warning(); !strings.Contains(w, "expired at") {
		t.Error(w)
	}
}
