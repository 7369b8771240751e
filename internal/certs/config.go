package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
)

// Server returns the configuration of a server, which has this side's certificate. auth
// says whether clients need a certificate: tls.NoClientCert, tls.VerifyClientCertIfGiven or
// tls.RequireAndVerifyClientCert; theirs come from the authorities. protocols are those of
// the layer above, "h2" and "http/1.1" by default. Unless nil, check judges each
// connection whose certificate is valid; without a certificate it gets none.
//
// Every connection is judged by what is in force when it is made. There are no session
// tickets, as these would outlive it.
func (s *Store) Server(auth tls.ClientAuthType, protocols []string,
	check func(leaf *x509.Certificate) error) *tls.Config {
	if len(protocols) == 0 {
		protocols = []string{"h2", "http/1.1"}
	}
	base := s.base(protocols)
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		l := s.current.Load()
		c := s.base(protocols)
		if l.certificate != nil {
			c.Certificates = []tls.Certificate{*l.certificate}
		}
		c.ClientAuth, c.ClientCAs = auth, l.authorities
		if c.ClientCAs == nil {
			c.ClientCAs = x509.NewCertPool() // not those of the system
		}
		c.VerifyConnection = func(now tls.ConnectionState) error {
			var leaf *x509.Certificate
			if len(now.PeerCertificates) > 0 {
				leaf = now.PeerCertificates[0]
				if err := usable(leaf, s.config.Usages); err != nil {
					return named(leaf, err)
				}
			}
			if check == nil {
				return nil
			}
			return check(leaf)
		}
		return c, nil
	}
	// The listener of the standard library wants to see a certificate.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.current.Load().certificate, nil }
	return base
}

// Client returns the configuration of a client, which shows this side's certificate, if it
// has one, to servers that ask for it. The server's certificate comes from the authorities,
// and is for the name, a host name or an IP address. If the name is "", it is the host name
// that the layer above connects to; for an IP address the name must be given. If check is
// not nil, the name is left to it.
func (s *Store) Client(name string, check func(leaf *x509.Certificate) error) *tls.Config {
	c := s.base(nil)
	c.ServerName = name
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if cert := s.current.Load().certificate; cert != nil {
			return cert, nil
		}
		return &tls.Certificate{}, nil
	}
	// VerifyConnection verifies instead, as the authorities change.
	c.InsecureSkipVerify = true //nolint:gosec // see above
	c.VerifyConnection = func(now tls.ConnectionState) error {
		if len(now.PeerCertificates) == 0 {
			return errNone
		}
		usages := s.config.Usages
		if len(usages) == 0 {
			usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}
		leaf := now.PeerCertificates[0]
		want := cmp.Or(name, now.ServerName)
		switch {
		case check != nil:
			want = ""
		case want == "":
			// Verify would accept any name. The name of a connection to an IP address is not
			// in its state.
			return errUnnamed
		}
		err := s.current.Load().verify(now.PeerCertificates, usages, want, s.config.Now())
		if err == nil && check != nil {
			err = check(leaf)
		}
		if err != nil {
			return named(leaf, &tls.CertificateVerificationError{UnverifiedCertificates: now.PeerCertificates, Err: err})
		}
		return nil
	}
	return c
}

// base returns what all configurations have.
func (s *Store) base(protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true, Time: s.config.Now,
		DynamicRecordSizingDisabled: true, // small records at first are for pages that a browser begins to show
	}
}
