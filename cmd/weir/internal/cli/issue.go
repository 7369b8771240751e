package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	"github.com/weirlimit/weir/internal/smallfile"
)

// The planes that have an authority each.
const (
	peerPlane   = "peer"
	clientPlane = "client"
)

// begunBefore is how far a certificate begins in the past, for clocks that are behind.
const begunBefore = 5 * time.Minute

// made is a certificate and its key in PEM.
type made struct {
	cert, key []byte
	uri       string
	ends      time.Time
}

// leaf is a certificate that is to be made.
type leaf struct {
	kind, name     string
	hosts          []string
	server, client bool // what it is for
}

// authority signs certificates for one plane of one cluster.
type authority struct {
	cert    *x509.Certificate
	key     any
	cluster string
}

func newAuthority(plane, cluster string, now time.Time, valid time.Duration) (made, error) {
	return sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "weir " + plane + " authority", Organization: []string{"weir cluster " + cluster}},
		NotBefore: now.Add(-begunBefore), NotAfter: now.Add(valid),
		URIs: []*url.URL{{Scheme: "weir", Host: cluster, Path: "/authority/" + plane}},
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
}

// readAuthority reads an authority that newAuthority made, from a certificate and a key.
func readAuthority(at string) (*authority, error) {
	cert, err := smallfile.ReadTrusted("authority", at+".crt", smallfile.MaxSecret)
	if err != nil {
		return nil, fmt.Errorf("%w: \"weir cert authority\" makes one", err)
	}
	key, _, err := smallfile.ReadSecret("authority's key", at+".key", smallfile.MaxSecret)
	if err != nil {
		return nil, err
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("authority %s.crt cannot be used with %s.key: %w", at, at, err)
	}
	ca := both.Leaf
	if !ca.IsCA || len(ca.URIs) != 1 || ca.URIs[0].Scheme != "weir" || !certName.MatchString(ca.URIs[0].Host) {
		return nil, fmt.Errorf("%s.crt is not an authority that \"weir cert authority\" made: name another directory with --dir", at)
	}
	return &authority{ca, both.PrivateKey, ca.URIs[0].Host}, nil
}

// issue makes a certificate. It ends no later than the authority.
func (a *authority) issue(l leaf, now time.Time, valid time.Duration) (made, error) {
	if !now.Before(a.cert.NotAfter) {
		return made{}, fmt.Errorf("the authority expired at %s: make new ones with \"weir cert authority --force\"", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	c := &x509.Certificate{
		Subject:   pkix.Name{CommonName: l.name, Organization: []string{"weir cluster " + a.cluster}, OrganizationalUnit: []string{l.kind}},
		NotBefore: now.Add(-begunBefore), NotAfter: now.Add(valid),
		URIs:     []*url.URL{{Scheme: "weir", Host: a.cluster, Path: "/" + l.kind + "/" + l.name}},
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	if c.NotAfter.After(a.cert.NotAfter) {
		c.NotAfter = a.cert.NotAfter
	}
	if l.server {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.client {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, h := range l.hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return sign(c, a)
}

// sign makes a key for a certificate, which the authority signs; nil: it signs itself.
func sign(c *x509.Certificate, by *authority) (made, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return made{}, fmt.Errorf("the key cannot be made: %w", err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return made{}, fmt.Errorf("the serial number cannot be made: %w", err)
	}
	if by == nil {
		by = &authority{cert: c, key: private}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, public, by.key)
	if err != nil {
		return made{}, fmt.Errorf("the certificate cannot be made: %w", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return made{}, fmt.Errorf("the key cannot be written as PKCS #8: %w", err)
	}
	return made{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		uri:  c.URIs[0].String(), ends: c.NotAfter.Truncate(time.Second),
	}, nil
}
