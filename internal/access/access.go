package access

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/identity"
)

// MaxToken is the greatest length of a token, in bytes.
const MaxToken = 8 << 10

// maxCached is how many verified tokens are remembered: each takes some kilobytes.
const maxCached = 8192

// interval is how often the files are read again.
const interval = time.Second

// Access identifies callers by a permissions file. It implements [frontend.Access].
type Access struct {
	name  string
	log   *slog.Logger
	now   func() time.Time
	force atomic.Pointer[policy]

	loading sync.Mutex
	files   []source          // that were read last
	have    [sha256.Size]byte // of the files that were tried last
	seen    [sha256.Size]byte // of the files when they were looked at last
	failed  string            // why they were refused last; "" if they were not

	// Changed is called after the files were read again, with why they are not in force,
	// nil if they are. Set it before Follow and Reload are called; default nil.
	Changed func(err error)
	// CertificateFlag is the flag that lets the node ask clients for certificates, if it does not: the
	// error for a caller that shows nothing names it. Empty: they are asked for. Set it before
	// Identify is called.
	CertificateFlag string
}

func (a *Access) changed(err error) {
	if a.Changed != nil {
		a.Changed(err)
	}
}

// Open reads a permissions file and the files of keys that it names.
func Open(name string, log *slog.Logger) (*Access, error) {
	return open(name, log, time.Now)
}

func open(name string, log *slog.Logger, now func() time.Time) (*Access, error) {
	a := &Access{name: name, log: log, now: now}
	p, err := a.load(&a.have)
	if err != nil {
		return nil, err
	}
	a.seen = a.have
	p.adopt(nil, now)
	a.force.Store(p)
	return a, nil
}

// load reads the files, and sets the sum of what is in them.
func (a *Access) load(to *[sha256.Size]byte) (*policy, error) {
	sum := sha256.New()
	a.files = a.files[:0]
	p, err := load(a.name, a.now, func(f source, data []byte) {
		a.files = append(a.files, f)
		sum.Write(sha(data))
	})
	sum.Sum(to[:0])
	return p, err
}

// unchanged reports whether what is in the files is in force already. To know that costs far less
// than to read a long file as permissions each second.
func (a *Access) unchanged() bool {
	if a.failed != "" || a.seen != a.have {
		return false
	}
	sum := sha256.New()
	for _, f := range a.files {
		data, err := f.read()
		if err != nil {
			return false
		}
		sum.Write(sha(data))
	}
	return [sha256.Size]byte(sum.Sum(nil)) == a.have
}

func sha(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

// Follow reads the files again when they have changed, until the context ends. A change is
// put into force once the files have been the same for a second, so that no file is used
// that is half written.
func (a *Access) Follow(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = a.look(false) // it is logged
		}
	}
}

// Reload reads the files again, even if they have not changed. After an error the old
// permissions are in force.
func (a *Access) Reload() error { return a.look(true) }

func (a *Access) look(asked bool) error {
	a.loading.Lock()
	defer a.loading.Unlock()
	if !asked && a.unchanged() {
		return nil
	}
	before := a.seen
	p, err := a.load(&a.seen)
	text := ""
	if err != nil {
		text = err.Error() // a file that cannot be read changes the error, and not the sum
	}
	if !asked && (a.seen != before || a.seen == a.have && text == a.failed) {
		return nil
	}
	if a.have, a.failed = a.seen, text; err != nil {
		a.log.Error("permissions refused; the old ones stay in force", "file", a.name, "problems", strings.Split(text, "\n"))
		a.changed(err)
		return err
	}
	p.adopt(a.force.Load(), a.now)
	a.force.Store(p)
	a.changed(nil)
	a.log.Info("permissions are in force", "file", a.name, "identities", p.identities())
	return nil
}

// Identify implements [frontend.Access]. A token decides if there is one, else a verified
// certificate. A caller with neither is anonymous.
func (a *Access) Identify(c frontend.Credentials) (frontend.Caller, error) {
	return a.identify(&c, a.CertificateFlag)
}

func (a *Access) identify(c *frontend.Credentials, flag string) (frontend.Caller, error) {
	p := a.force.Load()
	found, err := p.identify(c, a.now)
	switch {
	case !errors.Is(err, errNothingShown):
	case flag == "" && c.TLS == nil:
		err = unproved(`send a token as "Authorization: Bearer TOKEN", or connect with TLS and a client certificate`)
	case flag == "":
		err = unproved(`send a client certificate, or a token as "Authorization: Bearer TOKEN"`)
	default:
		err = unproved(`send a token as "Authorization: Bearer TOKEN"; this address asks for no client certificate: a node ` +
			`with ` + flag + " optional does")
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// errNothingShown is the error for a caller that shows nothing, where nobody is anonymous.
var errNothingShown = errors.New("the caller shows nothing")

// At returns an Access with the same permissions, for listeners with another CertificateFlag.
func (a *Access) At(certificateFlag string) frontend.Access { return elsewhere{a, certificateFlag} }

// elsewhere identifies callers as access does, and names another flag to those who show nothing.
type elsewhere struct {
	access *Access
	flag   string
}

func (e elsewhere) Identify(c frontend.Credentials) (frontend.Caller, error) {
	return e.access.identify(&c, e.flag)
}

func (p *policy) identify(c *frontend.Credentials, now func() time.Time) (*caller, error) {
	switch {
	case len(c.Authorization) > 1:
		return nil, unproved("it sends several authorizations: send one")
	case len(c.Authorization) == 1:
		return p.ofToken(c.Authorization[0], now)
	case c.TLS != nil:
		if k := p.proves(c); k != nil {
			return k.at(c, now)
		}
	}
	if p.anonymous != nil {
		return p.anonymous, nil
	}
	return nil, errNothingShown
}

// ofToken returns the identity of the bearer of a token.
func (p *policy) ofToken(authorization string, now func() time.Time) (*caller, error) {
	if len(authorization) > MaxToken+16 {
		return nil, unproved(fmt.Sprintf("its token has %d bytes; at most %d are read", len(authorization), MaxToken))
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, unproved(`its authorization is not "Bearer TOKEN"`)
	}
	sum := sha256.Sum256([]byte(token))
	if found := p.verified.get(sum, now()); found != nil {
		return found, nil
	}
	by, err := p.issuerOf(token)
	if err != nil {
		return nil, err
	}
	claims, err := by.tokens.Verify(token)
	if err != nil {
		return nil, unproved(strings.TrimPrefix(err.Error(), identity.ErrUnverified.Error()+": "))
	}
	subject := claims.Text("sub")
	found := p.callers[bySubject(by.name, subject)]
	if found == nil || subject == "" {
		return nil, &refusal{fmt.Sprintf("the subject %.100q of the token is not one of an identity: the operator must add "+
			"it to the permissions file", subject), limiter.ErrForbidden}
	}
	if exp, err := strconv.ParseFloat(claims.Text("exp"), 64); err == nil {
		p.verified.put(sum, found, exp, now())
	}
	return found, nil
}

// issuerOf returns the issuer that must have signed a token: of several the one that it names, which is to be
// verified. One that cannot be read has the first.
func (p *policy) issuerOf(token string) (*issuer, error) {
	switch len(p.issuers) {
	case 0:
		return nil, unproved("tokens are not accepted here: the permissions file names no issuer")
	case 1:
		return &p.issuers[0], nil
	}
	claims, readable := claimsOf(token)
	if !readable {
		return &p.issuers[0], nil // which says what is wrong
	}
	for i := range p.issuers {
		if claims["iss"] == p.issuers[i].name {
			return &p.issuers[i], nil
		}
	}
	return nil, unproved("the token is of another issuer (iss) than those that are accepted here, or names none: get " +
		"one from one of them")
}

// claimsOf returns the claims of a token, which is not verified.
func claimsOf(token string) (claims map[string]any, readable bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	readable = err == nil && json.Unmarshal(text, &claims) == nil
	return claims, readable
}

// unproved returns the error for a caller that has not proved who it is.
func unproved(why string) error {
	return &refusal{frontend.ErrUnauthenticated.Error() + ": " + why, frontend.ErrUnauthenticated}
}

// cache remembers verified tokens by their hashes, until they expire. The zero value is
// empty.
type cache struct {
	lock sync.RWMutex
	of   map[[sha256.Size]byte]verified
}

type verified struct {
	caller *caller
	until  float64 // in seconds since 1970, as in the token
}

func (c *cache) get(sum [sha256.Size]byte, now time.Time) *caller {
	c.lock.RLock()
	v, ok := c.of[sum]
	c.lock.RUnlock()
	if !ok || seconds(now) >= v.until {
		return nil
	}
	return v.caller
}

func (c *cache) put(sum [sha256.Size]byte, of *caller, until float64, now time.Time) {
	if seconds(now) >= until {
		return // within the leeway
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.of == nil {
		c.of = map[[sha256.Size]byte]verified{}
	}
	for old := range c.of { // of an arbitrary order
		if len(c.of) < maxCached {
			break
		}
		delete(c.of, old)
	}
	c.of[sum] = verified{of, until}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
