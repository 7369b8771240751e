// Package certstest makes authorities and certificates for tests.
package certstest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
	// PEM is the authority's own certificate.
	PEM []byte
}

// Leaf describes a certificate. Its usages are serverAuth and clientAuth unless others are
// given.
type Leaf struct {
	Name   string // common name
	Hosts  []string
	URI    string
	Usages []x509.ExtKeyUsage
	// Begins and Ends default to an hour ago and a day from now.
	Begins, Ends time.Time
}

// New makes an authority.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	pub, key := keys(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(90 * 24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{cert: cert, key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Issue returns a certificate and its key in PEM.
func (a *Authority) Issue(t testing.TB, l Leaf) (cert, key []byte) {
	t.Helper()
	pub, private := keys(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: l.Name}, NotBefore: l.Begins, NotAfter: l.Ends,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.Usages, BasicConstraintsValid: true,
	}
	if l.Begins.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if l.Ends.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if l.Usages == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if l.URI != "" {
		u, err := url.Parse(l.URI)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, pub, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// Paths are the files that [Authority.Write] writes.
type Paths struct{ Cert, Key, CA string }

// Write issues a certificate, and writes it, its key and the authority into a directory as
// tls.crt, tls.key and ca.crt. Each replaces an earlier one by renaming.
func (a *Authority) Write(t testing.TB, dir string, l Leaf) Paths {
	t.Helper()
	cert, key := a.Issue(t, l)
	p := Paths{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
	Replace(t, p.Cert, cert)
	Replace(t, p.Key, key)
	Replace(t, p.CA, a.PEM)
	return p
}

// Replace writes a file that only the user may read, and renames it into its place.
func Replace(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func keys(t testing.TB) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pub, key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
