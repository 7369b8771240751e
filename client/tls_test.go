package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"crypto/tls"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// doorkeeper admits callers by the name in their certificate or by their token, and
// remembers whom it saw.
type doorkeeper struct {
	mu     sync.Mutex
	seen   map[string]int
	refuse string
}

func (d *doorkeeper) Identify(c transport.Credentials) (transport.Caller, error) {
	name := strings.Join(c.Authorization, ",")
	if name == "" && c.TLS != nil && len(c.TLS.PeerCertificates) > 0 {
		name = c.TLS.PeerCertificates[0].Subject.CommonName
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[string]int{}
	}
	if name == d.refuse {
		return nil, transport.ErrUnauthenticated
	}
	d.seen[name]++
	return anyone{}, nil
}

func (d *doorkeeper) saw(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[name] > 0
}

// anyone may do everything.
type anyone struct{}

func (anyone) Name() string                                { return "anyone" }
func (anyone) Spend(int, int) error                        { return nil }
func (anyone) OpenStream() error                           { return nil }
func (anyone) CloseStream()                                {}
func (anyone) Tenant() string                              { return "" }
func (anyone) May(transport.Action) (limiter.Scope, error) { return nil, nil }

// secure serves a node with TLS that requires certificates of clients. It returns the
// address, and the authority of both sides.
func secure(t *testing.T, d *doorkeeper) (addr string, ca *certstest.Authority) {
	t.Helper()
	ca = certstest.New(t, "authority")
	p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1", "node.test"}})
	store, err := certs.Open(certs.Config{What: "server", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, newNode(t, hour), "", func(o *options) {
		o.TLS = &transport.TLS{Config: store.Server(tls.RequireAndVerifyClientCert, nil, nil)}
		o.Access = d
	})
	return s.addr, ca
}

// TestTLS: a client shows its certificate, and believes a node that has one of its
// authority and of its name only.
func TestTLS(t *testing.T) {
	addr, ca := secure(t, &doorkeeper{})
	own := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "billing"})
	other := certstest.New(t, "another").Write(t, t.TempDir(), certstest.Leaf{Name: "billing"})
	for name, c := range map[string]struct {
		tls  *client.TLS
		want string // of the error; "" for none
	}{
		"certificate": {&client.TLS{CAFile: own.CA, CertFile: own.Cert, KeyFile: own.Key}, ""},
		"name of the node": {&client.TLS{CAFile: own.CA, CertFile: own.Cert, KeyFile: own.Key,
			ServerName: "node.test"}, ""},
		"another name": {&client.TLS{CAFile: own.CA, CertFile: own.Cert, KeyFile: own.Key,
			ServerName: "elsewhere.test"}, "elsewhere.test"},
		"no certificate": {&client.TLS{CAFile: own.CA}, "certificate required"},
		"certificate of another": {&client.TLS{CAFile: own.CA, CertFile: other.Cert, KeyFile: other.Key},
			"unknown certificate authority"},
		"authority of another":    {&client.TLS{CAFile: other.CA, CertFile: own.Cert, KeyFile: own.Key}, "unknown authority"},
		"authority of the system": {&client.TLS{}, "unknown authority"},
		"no TLS":                  {nil, "no node is available"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := open(t, client.Config{Addrs: []string{addr}, TLS: c.tls, Timeout: long})
			var d limiter.Decision
			var err error
			for { // the first attempts to connect may not have ended
				if err = cl.CheckInto(t.Context(), request("ada"), &d); err == nil ||
					c.want != "" && strings.Contains(err.Error(), c.want) {
					break
				}
				if t.Context().Err() != nil {
					break
				}
			}
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestFilesOfAnother: files that do not fit are refused when the client is opened.
func TestFilesOfAnother(t *testing.T) {
	ca := certstest.New(t, "authority")
	own, other := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "a"}), ca.Write(t, t.TempDir(), certstest.Leaf{Name: "b"})
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(full, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]client.Config{
		"does not fit the certificate":         {TLS: &client.TLS{CertFile: own.Cert, KeyFile: other.Key}},
		"belong together":                      {TLS: &client.TLS{CertFile: own.Cert}},
		"is empty":                             {TokenFile: empty},
		"token is not sent to another machine": {TokenFile: full, Addrs: []string{"192.0.2.1:1"}},
	} {
		if c.Addrs == nil {
			c.Addrs = []string{"127.0.0.1:1"}
		}
		if cl, err := client.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
			if err == nil {
				_ = cl.Close()
			}
		}
	}
}

// TestCertificateIsReplaced: a client whose files change connects again, while it is used,
// and no check fails.
func TestCertificateIsReplaced(t *testing.T) {
	d := &doorkeeper{}
	addr, ca := secure(t, d)
	dir := t.TempDir()
	p := ca.Write(t, dir, certstest.Leaf{Name: "before"})
	cl := open(t, client.WithPoll(client.Config{
		Addrs: []string{addr}, Timeout: long, TLS: &client.TLS{CAFile: p.CA, CertFile: p.Cert, KeyFile: p.Key},
	}, 20*time.Millisecond))
	check(t, cl)
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asked := make(chan error, 4)
	for range 4 {
		asking.Go(func() {
			var d limiter.Decision
			for ctx.Err() == nil {
				if err := cl.CheckInto(t.Context(), request("ada"), &d); err != nil {
					asked <- err
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	ca.Write(t, dir, certstest.Leaf{Name: "after"})
	eventually(t, "the node sees the new certificate", func() bool { return d.saw("after") })
	check(t, cl)
	if _, err := cl.Reset(t.Context(), *request("ada")); err != nil {
		t.Errorf("a call of its own: %v", err)
	}
	stop()
	asking.Wait()
	close(asked)
	for err := range asked {
		t.Errorf("a check failed: %v", err)
	}
}

// TestIdleClientReconnects: the same of a client that is asked nothing meanwhile.
func TestIdleClientReconnects(t *testing.T) {
	d := &doorkeeper{}
	addr, ca := secure(t, d)
	dir := t.TempDir()
	p := ca.Write(t, dir, certstest.Leaf{Name: "before"})
	cl := open(t, client.WithPoll(client.Config{
		Addrs: []string{addr}, Timeout: long, TLS: &client.TLS{CAFile: p.CA, CertFile: p.Cert, KeyFile: p.Key},
	}, 20*time.Millisecond))
	check(t, cl)
	ca.Write(t, dir, certstest.Leaf{Name: "after"})
	eventually(t, "the node sees the new certificate", func() bool { return d.saw("after") })
	check(t, cl)
}

// TestTokenFile: the token goes with each stream and call. After the node has refused one
// that expired, the client shows the new one.
func TestTokenFile(t *testing.T) {
	d := &doorkeeper{}
	s := serve(t, newNode(t, hour), "", func(o *options) { o.Access = d })
	name := filepath.Join(t.TempDir(), "token")
	certstest.Replace(t, name, []byte("one\n"))
	cl := open(t, client.Config{Addrs: []string{s.addr}, TokenFile: name, Timeout: long})
	check(t, cl)
	if !d.saw("Bearer one") {
		t.Fatal("the node has not seen the token")
	}
	d.mu.Lock()
	d.refuse = "Bearer one"
	d.mu.Unlock()
	var decision limiter.Decision
	if err := cl.CheckInto(t.Context(), request("ada"), &decision); !errors.Is(err, client.ErrUnavailable) ||
		!strings.Contains(err.Error(), "not identified") {
		t.Errorf("with a token that is refused: %v", err)
	}
	if _, err := cl.Reset(t.Context(), *request("ada")); !errors.Is(err, client.ErrDenied) &&
		!errors.Is(err, client.ErrUnavailable) {
		t.Errorf("a call of its own with that token: %v", err)
	}
	certstest.Replace(t, name, []byte("two\n"))
	eventually(t, "a check is decided again", func() bool {
		return cl.CheckInto(t.Context(), request("ada"), &decision) == nil
	})
	if !d.saw("Bearer two") {
		t.Error("the node has not seen the new token")
	}
}

// check checks until the first answer.
func check(t *testing.T, cl *client.Client) {
	t.Helper()
	var d limiter.Decision
	eventually(t, "a check is decided", func() bool { return cl.CheckInto(t.Context(), request("ada"), &d) == nil })
}
