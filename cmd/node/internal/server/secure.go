package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/transport"
)

// TLSConfig is how a node serves with TLS.
type TLSConfig struct {
	// CertFile and KeyFile are the node's certificate, for clients and operators.
	CertFile, KeyFile string
	// ClientCAFile is the authority of clients, AdminCAFile that of operators; empty:
	// none, or for operators that of clients.
	ClientCAFile, AdminCAFile string
	// ClientCert and AdminCert say whether a client, or an operator, needs a certificate.
	ClientCert, AdminCert tls.ClientAuthType
	// Optional serves clients and operators without TLS too, on the same ports.
	Optional bool
}

// secured is the certificates of a node. Its zero value has none.
type secured struct {
	config         *TLSConfig
	clients, admin *certs.Store
}

func openTLS(c *TLSConfig) (s secured, err error) {
	if c == nil {
		return s, nil
	}
	s.config = c
	if s.clients, err = certs.Open(certs.Config{
		What: "server", CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.ClientCAFile, Check: certs.ForServers,
	}); err != nil {
		return s, err
	}
	s.admin, err = certs.Open(certs.Config{
		What: "administration", CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: cmp.Or(c.AdminCAFile, c.ClientCAFile),
		Check: certs.ForServers,
	})
	return s, err
}

// forClients and forAdmin are what the listeners serve with, nil for no TLS.
func (s *secured) forClients() *transport.TLS {
	if s.clients == nil {
		return nil
	}
	return &transport.TLS{Config: s.clients.Server(s.config.ClientCert, nil, nil), Optional: s.config.Optional}
}

func (s *secured) forAdmin() *transport.TLS {
	if s.admin == nil {
		return nil
	}
	return &transport.TLS{Config: s.admin.Server(s.config.AdminCert, nil, nil), Optional: s.config.Optional}
}

func (s *secured) run(ctx context.Context, in *background, log *slog.Logger, audit accounts) {
	for name, store := range map[string]*certs.Store{"clients": s.clients, "administration": s.admin} {
		if store == nil {
			continue
		}
		in.start("reading of the certificates for "+name, func() {
			tick := time.NewTicker(certs.Every)
			defer tick.Stop()
			store.Watch(ctx, tick.C, log, audit.certificatesChanged(name))
		})
	}
}

// Flags of the node that a refused caller is told of.
const (
	clientCertFlag = "--client-cert"
	adminCertFlag  = "--admin-client-cert"
)

// unasked returns one of these flags if its listeners ask for no certificates, otherwise nothing.
func (c *TLSConfig) unasked(flag string) string {
	mode := tls.NoClientCert
	switch {
	case c == nil:
	case flag == adminCertFlag:
		mode = c.AdminCert
	default:
		mode = c.ClientCert
	}
	if mode != tls.NoClientCert {
		return ""
	}
	return flag
}

// validities returns how long the certificates in force are valid, by plane.
func (s *secured) validities() map[string]metrics.Validity {
	out := make(map[string]metrics.Validity)
	for plane, store := range map[string]*certs.Store{"client": s.clients, "admin": s.admin} {
		if store == nil {
			continue
		}
		begins, expires := store.Validity()
		out[plane] = metrics.Validity{Begins: begins, Expires: expires}
		if begins, expires = store.AuthoritiesValidity(); !expires.IsZero() {
			out[plane+"_authority"] = metrics.Validity{Begins: begins, Expires: expires}
		}
	}
	return out
}
