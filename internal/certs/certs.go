// Package certs keeps the certificate, the key and the authorities of one side of TLS
// connections, as files hold them. It loads them again when the files change, all of them
// or none: files that do not fit leave those that were read before in force. Connections
// that are made later use the new ones; those that exist stay.
package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/smallfile"
)

// Config names the files of a [Store]. Each may be a symbolic link, as in a ConfigMap.
type Config struct {
	// What says for errors and logs what the certificate is for: "peer", "client". It
	// begins the names of the files: "peer certificate".
	What string
	// CertFile and KeyFile hold, in PEM, a certificate with the intermediate ones after it,
	// and its key. Both or neither are given.
	CertFile, KeyFile string
	// CAFile holds, in PEM, the authorities that the other side's certificate must come
	// from. Default none: a client uses those of the system, a server accepts no
	// certificate of clients.
	CAFile string
	// Usages are what this side's certificate must be for, and each certificate that comes
	// from the authorities: see [Store.Server] and [Store.Client]. Default: whatever TLS
	// asks of a server and of a client.
	Usages []x509.ExtKeyUsage
	// Own means that this side's certificate must come from CAFile too, as where both sides
	// of all connections have one authority.
	Own bool
	// System means that no file at all is needed: for a client that shows no certificate, and
	// believes the authorities of the system.
	System bool
	// MemberURI is the URI that a member's certificate must have, with {cluster} and {name} in
	// place of those, for [Store.CheckMember]; default that of [CheckMember].
	MemberURI string
	// Check, unless nil, judges this side's certificate when it is loaded.
	Check func(leaf *x509.Certificate) error
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Store has what was loaded last. It is safe for concurrent use.
type Store struct {
	config  Config
	current atomic.Pointer[loaded]

	mu      sync.Mutex
	problem string // the last that Poll returned, "" if the files are those in force
}

type files struct {
	cert, key, ca []byte
	warning       string // about the mode of the key
}

func (f *files) equal(o *files) bool {
	return bytes.Equal(f.cert, o.cert) && bytes.Equal(f.key, o.key) && bytes.Equal(f.ca, o.ca)
}

// loaded is what is in force. It is not changed.
type loaded struct {
	files       files
	certificate *tls.Certificate // nil: none
	authorities *x509.CertPool   // nil: none
	expires     time.Time        // of the certificate and those that come with it
	begins      time.Time
	// caBegins and caExpires are those of the authority that expires first.
	caBegins, caExpires time.Time
}

// Open loads the files.
func Open(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case (c.CertFile == "") != (c.KeyFile == ""):
		return nil, fmt.Errorf("a %s certificate and its key belong together: give both files or neither", c.What)
	case c.CertFile == "" && c.CAFile == "" && !c.System:
		return nil, fmt.Errorf("there is neither a %s certificate nor an authority: give the files", c.What)
	}
	s := &Store{config: c}
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	l, err := s.load(f)
	if err != nil {
		return nil, err
	}
	s.current.Store(l)
	return s, nil
}

// Poll reads the files, and puts them into force if they have changed and are valid.
// changed reports that. An error says why files that have changed are not in force; each
// is returned once, not at each call, until there is another or the files are in force.
func (s *Store) Poll() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.read()
	if err == nil {
		if f.equal(&s.current.Load().files) {
			s.problem = ""
			return false, nil
		}
		var l *loaded
		if l, err = s.load(f); err == nil {
			s.problem = ""
			s.current.Store(l)
			return true, nil
		}
	}
	if s.problem == err.Error() {
		return false, nil
	}
	s.problem = err.Error()
	return false, err
}

// Problem returns why files that have changed are not in force, as Poll found them last; ""
// if they are.
func (s *Store) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Validity returns when the certificate that is in force becomes valid, and when it expires,
// or one that it is sent with; zero times if there is none.
func (s *Store) Validity() (begins, expires time.Time) {
	l := s.current.Load()
	return l.begins, l.expires
}

// AuthoritiesValidity returns when the first to expire of the authorities that are in force
// becomes valid and when it expires; zero times if there is none.
func (s *Store) AuthoritiesValidity() (begins, expires time.Time) {
	l := s.current.Load()
	return l.caBegins, l.caExpires
}

// Leaf returns the certificate that is in force, nil if there is none.
func (s *Store) Leaf() *x509.Certificate {
	if c := s.current.Load().certificate; c != nil {
		return c.Leaf
	}
	return nil
}

// KeyWarning says that others can read the key; "" if not.
func (s *Store) KeyWarning() string { return s.current.Load().files.warning }

const (
	// warnAhead is the longest time before the end of a certificate at which that is said.
	// A certificate for a shorter time is warned of after two thirds of it.
	warnAhead = 30 * 24 * time.Hour
	// maxChain and maxAuthorities bound the certificates of a file.
	maxChain       = 16
	maxAuthorities = 1024
)

// Warning says that what is in force expires soon or has expired; "" if it does not.
func (s *Store) Warning() string {
	l, now := s.current.Load(), s.config.Now()
	if l.certificate != nil {
		left := l.expires.Sub(now)
		switch {
		case left <= 0:
			return fmt.Sprintf("the %s certificate in %s expired at %s, and the other side of new connections refuses it: "+
				"replace it and its key",
				s.config.What, s.config.CertFile, stamp(l.expires))
		case left <= min(warnAhead, l.expires.Sub(l.begins)/3):
			return fmt.Sprintf("the %s certificate in %s expires at %s: replace it and its key",
				s.config.What, s.config.CertFile, stamp(l.expires))
		}
	}
	if l.authorities != nil && l.caExpires.Sub(now) <= warnAhead {
		return fmt.Sprintf("an authority in %s expires at %s: add the next one to the file, then renew the certificates "+
			"that come from it",
			s.config.CAFile, stamp(l.caExpires))
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (s *Store) read() (f *files, err error) {
	c, f := &s.config, &files{}
	if c.CertFile != "" {
		if f.cert, err = smallfile.ReadTrusted(c.What+" certificate", c.CertFile, smallfile.MaxCertificates); err != nil {
			return nil, err
		}
		if f.key, f.warning, err = smallfile.ReadSecret(c.What+" key", c.KeyFile, smallfile.MaxSecret); err != nil {
			return nil, err
		}
	}
	if c.CAFile != "" {
		if f.ca, err = smallfile.ReadTrusted(c.What+" authorities", c.CAFile, smallfile.MaxCertificates); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// load makes of the files what can be in force.
func (s *Store) load(f *files) (*loaded, error) {
	c, l := &s.config, &loaded{files: *f}
	if c.CAFile != "" {
		all, err := parse(c.What+" authorities", c.CAFile, f.ca, maxAuthorities)
		if err != nil {
			return nil, err
		}
		l.authorities = x509.NewCertPool()
		for i, a := range all {
			l.authorities.AddCert(a)
			if i == 0 || a.NotAfter.Before(l.caExpires) {
				l.caBegins, l.caExpires = a.NotBefore, a.NotAfter
			}
		}
	}
	if c.CertFile == "" {
		return l, nil
	}
	chain, err := parse(c.What+" certificate", c.CertFile, f.cert, maxChain)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("the %s key in %s does not fit the certificate in %s, or is no key in PEM: %w: replace both "+
			"files",
			c.What, c.KeyFile, c.CertFile, err)
	}
	pair.Leaf = chain[0]
	l.certificate = &pair
	l.begins, l.expires = chain[0].NotBefore, chain[0].NotAfter
	for _, one := range chain[1:] {
		if one.NotAfter.Before(l.expires) {
			l.expires = one.NotAfter
		}
	}
	if err := s.judge(l, chain); err != nil {
		return nil, fmt.Errorf("the %s certificate in %s %w", c.What, c.CertFile, err)
	}
	return l, nil
}

// judge returns nil if this side's certificate can be used now.
func (s *Store) judge(l *loaded, chain []*x509.Certificate) error {
	c, leaf, now := &s.config, chain[0], s.config.Now()
	switch {
	case !now.Before(l.expires):
		return fmt.Errorf("expired at %s: give one that is valid", stamp(l.expires))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("is not valid before %s: look at this machine's clock, or wait", stamp(leaf.NotBefore))
	}
	if err := usable(leaf, c.Usages); err != nil {
		return err
	}
	if c.Own && l.authorities != nil {
		if err := l.verify(chain, c.Usages, "", now); err != nil {
			return fmt.Errorf("does not come from the authorities in %s: %w: add its authority there first", c.CAFile, err)
		}
	}
	if c.Check != nil {
		return c.Check(leaf)
	}
	return nil
}

// verify returns nil if a chain comes from the authorities, or from the system's if there
// are none.
func (l *loaded) verify(chain []*x509.Certificate, usages []x509.ExtKeyUsage, name string, now time.Time) error {
	between := x509.NewCertPool()
	for _, one := range chain[1:] {
		between.AddCert(one)
	}
	// Verify is content with one of the usages; usable wants them all.
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: l.authorities, Intermediates: between, DNSName: name, CurrentTime: now, KeyUsages: usages,
	})
	if err != nil {
		return err
	}
	return usable(chain[0], usages)
}

// usable returns nil if a certificate is for all these usages.
func usable(leaf *x509.Certificate, usages []x509.ExtKeyUsage) error {
	for _, want := range usages {
		if !slices.Contains(leaf.ExtKeyUsage, want) {
			return fmt.Errorf("is not for the extended key usage %s: make one that has it", usageName(want))
		}
	}
	return nil
}

// ForServers is a [Config.Check] for the certificate of a server whose clients have other usages:
// it is for servers, or does not say what it is for. Each client would refuse another one.
func ForServers(leaf *x509.Certificate) error {
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return nil
	}
	return usable(leaf, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth})
}

func usageName(u x509.ExtKeyUsage) string {
	switch u {
	case x509.ExtKeyUsageServerAuth:
		return "serverAuth"
	case x509.ExtKeyUsageClientAuth:
		return "clientAuth"
	default:
		return fmt.Sprint(int(u))
	}
}

var (
	errNone    = errors.New("the other side has sent no certificate")
	errUnnamed = errors.New("it is not known which name the other side's certificate must have: give the server's name")
)
