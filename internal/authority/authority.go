// Package authority makes certificates: an authority of members or of clients, and the
// certificates that come from it. Keys are ed25519.
package authority

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"regexp"
	"time"

	"github.com/weirlimit/weir/internal/smallfile"
)

// The planes that have an authority each.
const (
	Peers   = "peer"
	Clients = "client"
)

// begunBefore is how far a certificate begins in the past, for clocks that are behind.
const begunBefore = 5 * time.Minute

// Made is a certificate and its key in PEM.
type Made struct {
	Cert, Key []byte
	// URI is the name in the certificate, and Ends when it expires.
	URI  string
	Ends time.Time
}

// Leaf is a certificate that is to be made.
type Leaf struct {
	// Kind is node, client or admin, and Name a name that [ValidName] accepts. Together they
	// are the path of the certificate's URI.
	Kind, Name string
	// Hosts are the DNS names and addresses of a server.
	Hosts []string
	// Server and Client say what the certificate is for.
	Server, Client bool
	// Key is its key; nil: a new one.
	Key ed25519.PrivateKey
}

// Authority signs certificates for one plane of one cluster.
type Authority struct {
	cert    *x509.Certificate
	key     any
	cluster string
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidName reports whether a cluster, a member or a caller may have a name: it becomes the
// name of files and a part of a URI.
func ValidName(name string) bool { return validName.MatchString(name) }

// New makes the authority of a plane, which signs itself. A nil key is a new one.
func New(plane, cluster string, key ed25519.PrivateKey, now time.Time, valid time.Duration) (Made, error) {
	return sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "weir " + plane + " authority", Organization: []string{"weir cluster " + cluster}},
		NotBefore: now.Add(-begunBefore), NotAfter: now.Add(valid),
		URIs: []*url.URL{{Scheme: "weir", Host: cluster, Path: "/authority/" + plane}},
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}, key, nil)
}

// Read reads an authority that [New] made, from the files at.crt and at.key.
func Read(at string) (*Authority, error) {
	cert, err := smallfile.ReadTrusted("authority", at+".crt", smallfile.MaxSecret)
	if err != nil {
		return nil, fmt.Errorf("%w: \"weir cert authority\" makes one", err)
	}
	key, _, err := smallfile.ReadSecret("authority's key", at+".key", smallfile.MaxSecret)
	if err != nil {
		return nil, err
	}
	return parse(at, cert, key)
}

func parse(at string, cert, key []byte) (*Authority, error) {
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("authority %s.crt cannot be used with %s.key: %w", at, at, err)
	}
	ca := both.Leaf
	if !ca.IsCA || len(ca.URIs) != 1 || ca.URIs[0].Scheme != "weir" || !ValidName(ca.URIs[0].Host) {
		return nil, fmt.Errorf("%s.crt is not an authority that \"weir cert authority\" or \"node keys\" made: name "+
			"another directory", at)
	}
	return &Authority{ca, both.PrivateKey, ca.URIs[0].Host}, nil
}

// Cluster returns the name of the authority's cluster.
func (a *Authority) Cluster() string { return a.cluster }

// Issued reports whether a certificate, in PEM, is one that this authority made for a leaf
// with this key, and valid until an instant.
func (a *Authority) Issued(text []byte, l Leaf, until time.Time) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil || c.CheckSignatureFrom(a.cert) != nil || len(c.URIs) != 1 || c.URIs[0].String() != a.uri(l).String() {
		return false
	}
	public, ok := c.PublicKey.(ed25519.PublicKey)
	return ok && public.Equal(l.Key.Public()) && until.Before(c.NotAfter)
}

func (a *Authority) uri(l Leaf) *url.URL {
	return &url.URL{Scheme: "weir", Host: a.cluster, Path: "/" + l.Kind + "/" + l.Name}
}

// ExpiredError is the error of an authority that makes no more certificates.
type ExpiredError struct{ At time.Time }

func (e *ExpiredError) Error() string {
	return "the authority expired at " + e.At.UTC().Format(time.RFC3339)
}

// Issue makes a certificate. It ends no later than the authority. The error is an
// [ExpiredError] if that has ended.
func (a *Authority) Issue(l Leaf, now time.Time, valid time.Duration) (Made, error) {
	if !now.Before(a.cert.NotAfter) {
		return Made{}, &ExpiredError{a.cert.NotAfter}
	}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: l.Name, Organization: []string{"weir cluster " + a.cluster},
			OrganizationalUnit: []string{l.Kind}},
		NotBefore: now.Add(-begunBefore), NotAfter: now.Add(valid),
		URIs:     []*url.URL{a.uri(l)},
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	if c.NotAfter.After(a.cert.NotAfter) {
		c.NotAfter = a.cert.NotAfter
	}
	if l.Server {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return sign(c, l.Key, a)
}

// NewKey makes a key.
func NewKey() ed25519.PrivateKey {
	_, key, _ := ed25519.GenerateKey(rand.Reader) // it does not fail: that reader ends the program instead
	return key
}

// MarshalKey returns a key in PEM.
func MarshalKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be written as PKCS #8: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseKey reads a key that [MarshalKey] wrote.
func ParseKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errNoKey
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if own, ok := key.(ed25519.PrivateKey); err == nil && ok {
		return own, nil
	}
	return nil, errNoKey
}

var errNoKey = errors.New("it has no ed25519 key in PEM")

// sign makes a certificate for a key, nil for a new one. The authority signs it; nil: it
// signs itself.
func sign(c *x509.Certificate, key ed25519.PrivateKey, by *Authority) (Made, error) {
	if key == nil {
		key = NewKey()
	}
	var err error
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Made{}, fmt.Errorf("the serial number cannot be made: %w", err)
	}
	if by == nil {
		by = &Authority{cert: c, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, key.Public(), by.key)
	if err != nil {
		return Made{}, fmt.Errorf("the certificate cannot be made: %w", err)
	}
	text, err := MarshalKey(key)
	if err != nil {
		return Made{}, err
	}
	return Made{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: text,
		URI: c.URIs[0].String(), Ends: c.NotAfter.Truncate(time.Second),
	}, nil
}
