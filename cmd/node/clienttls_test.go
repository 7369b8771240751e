//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/certs/certstest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// changing is a client that is changed to TLS: connections that it makes from then on have it.
type changing struct {
	credentials.TransportCredentials
	secured credentials.TransportCredentials
	on      *atomic.Bool
}

func (c changing) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo,
	error) {
	if c.on.Load() {
		return c.secured.ClientHandshake(ctx, authority, conn)
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

func (c changing) Clone() credentials.TransportCredentials { return c }

// operator is the same over HTTP, for what asks the administration.
type operator struct {
	*http.Transport
	on *atomic.Bool
}

func (o operator) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.on.Load() {
		r = r.Clone(r.Context())
		r.URL.Scheme = "https"
	}
	return o.Transport.RoundTrip(r)
}

// TestClientsFromOpenToClosed restarts the members of a cluster one by one, from no TLS for
// clients over optional, in which clients are changed to TLS with certificates, to required,
// and then replaces the certificates. Clients that ask throughout get no error, and no count
// is lost.
func TestClientsFromOpenToClosed(t *testing.T) {
	ca := certstest.New(t, "clients")
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca.PEM)
	client := &tls.Config{
		RootCAs: trusted, MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1",
		Certificates: []tls.Certificate{*issue(t, ca, certstest.Leaf{Name: "shop"})},
	}
	on := new(atomic.Bool)
	plain := http.DefaultClient.Transport
	http.DefaultClient.Transport = operator{&http.Transport{TLSClientConfig: client.Clone(), DisableKeepAlives: true}, on}
	t.Cleanup(func() { http.DefaultClient.Transport = plain })
	all := places(t, 3, clusterRules, "--audit", "stderr")
	own := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	for _, s := range all {
		s.shown = changing{insecure.NewCredentials(), credentials.NewTLS(client), on}
	}
	surviving{3, func(t *testing.T, all []*seat) []*seat {
		t.Helper()
		again := func(flags ...string) {
			t.Helper()
			for _, s := range all {
				s.args = append(s.args, flags...)
				s.signal(syscall.SIGTERM)
				s.left(t)
				s.start(t)
				settle(t, all)
			}
		}
		again("--tls-cert", own.Cert, "--tls-key", own.Key, "--client-ca", own.CA, "--client-cert", "optional", "--tls",
			"optional")
		on.Store(true)
		again("--tls", "required", "--client-cert", "required")
		cert, key := ca.Issue(t, certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
		certstest.Replace(t, own.Cert, cert)
		certstest.Replace(t, own.Key, key)
		for _, s := range all {
			within(t, s, `"action":"certificates","outcome":"done","over":"file","subject":"clients"`, 1)
			open := *s
			open.shown = insecure.NewCredentials()
			bare := open
			bare.shown = credentials.NewTLS(&tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1"})
			for what, other := range map[string]*seat{"without TLS": &open, "without a certificate": &bare} {
				if _, err := newAsker(t, []*seat{other}).nodes[0].CheckBatch(t.Context(),
					&weirv1.CheckBatchRequest{}); status.Code(err) != codes.Unavailable {
					t.Errorf("%s is asked %s: %v", s.name, what, err)
				}
			}
		}
		return all
	}}.on(t, all).judge(t)
}
