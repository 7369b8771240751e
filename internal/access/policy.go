package access

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/identity"
)

// Bounds of a permissions file.
const (
	maxIdentities = 10000
	maxIssuers    = 4 // each may verify a token that is not proved yet
	maxPrefixes   = 100
	maxTenants    = maxIdentities
	maxName       = 64
	maxText       = 1024
)

// leeway is the tolerated difference of clocks to an issuer of tokens.
const leeway = 30 * time.Second

// policy is a permissions file that is read. Only its cache changes.
type policy struct {
	issuers   []issuer
	callers   map[string]*caller // by how they are proved, see the functions below
	anonymous *caller            // nil: none
	shares    map[string]int     // of tables, in thousandths, by tenant; 0: what every tenant has
	verified  cache
	mark      *mark
}

type issuer struct {
	name   string
	tokens *identity.Tokens
}

// The keys of policy.callers.
func byURI(uri string) string             { return "uri " + uri }
func byDNS(name string) string            { return "dns " + strings.ToLower(name) }
func byCN(name string) string             { return "cn " + name }
func bySubject(issuer, sub string) string { return "token " + issuer + "\x00" + sub }

// caller is one identity. It implements [frontend.Caller].
type caller struct {
	name, tenant string
	may          [frontend.Actions]permission
	budget       budget
}

// permission is whether an action is allowed, and to which rules.
type permission struct {
	allowed bool
	scope   limiter.Scope // nil: all rules
}

func (c *caller) Name() string { return c.name }

func (c *caller) Tenant() string { return c.tenant }

func (c *caller) May(a frontend.Action) (limiter.Scope, error) {
	if a < frontend.Actions && c.may[a].allowed {
		return c.may[a].scope, nil
	}
	return nil, &refusal{fmt.Sprintf("caller %q may not do this: the operator must allow %q to it in the permissions file",
		c.name, a), limiter.ErrForbidden}
}

// prefixes are the rules whose names begin with one of some texts.
type prefixes struct{ list []string }

// Permits implements [limiter.Scope].
func (p *prefixes) Permits(rule string) bool {
	for _, prefix := range p.list { // a third faster than ContainsFunc, and asked for each check
		if strings.HasPrefix(rule, prefix) {
			return true
		}
	}
	return false
}

// refusal is why a caller is refused.
type refusal struct {
	text string
	kind error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

type loader struct {
	problems
	policy *policy
	names  map[string]bool
	dir    string
	now    func() time.Time
	read   func(path string) ([]byte, error)
}

// Check returns what is wrong with a permissions file, and with the files of keys that it
// names, nil if nothing is.
func Check(name string) error {
	_, err := load(name, time.Now, nil)
	return err
}

// source is a file that a policy comes from.
type source struct {
	kind, path string
	most       int // bytes
}

func (f source) read() ([]byte, error) { return smallfile.ReadTrusted(f.kind, f.path, f.most) }

// load reads a permissions file. note, if not nil, receives every file with its contents.
func load(name string, now func() time.Time, note func(f source, data []byte)) (*policy, error) {
	own := source{"permissions file", name, MaxFile}
	data, err := own.read()
	if err != nil {
		return nil, err
	}
	if note == nil {
		note = func(source, []byte) {}
	}
	note(own, data)
	return parse(name, data, now, func(path string) ([]byte, error) {
		of := source{"file of keys", path, maxKeysFile}
		keys, err := of.read()
		note(of, keys)
		return keys, err
	})
}

func parse(name string, data []byte, now func() time.Time, read func(string) ([]byte, error)) (*policy, error) {
	l := &loader{
		policy: &policy{callers: map[string]*caller{}, mark: new(mark)},
		names:  map[string]bool{}, dir: filepath.Dir(name), now: now, read: read,
	}
	root := readTree(data, &l.problems)
	if root != nil && len(l.list) == 0 {
		var identities, tenants []*node
		l.fields(root, "the file", map[string]func(*node){
			"tokens":     l.each("tokens", maxIssuers, l.issuer),
			"identities": l.each("identities", maxIdentities, func(n *node) { identities = append(identities, n) }),
			"tenants":    l.each("tenants", maxTenants, func(n *node) { tenants = append(tenants, n) }),
			"anonymous":  l.anonymous,
		})
		for _, n := range identities { // after the issuers, which they name
			l.identity(n)
		}
		l.policy.shares = l.policy.tenants()
		for _, n := range tenants { // after the identities, which have them
			l.tenant(n)
		}
		if len(identities) == 0 && l.policy.anonymous == nil && len(l.list) == 0 {
			l.add(root, "nobody could ask anything: list identities, or give anonymous")
		}
	}
	if err := l.error(name); err != nil {
		return nil, err
	}
	return l.policy, nil
}

// identities returns how many identities the file has. One may be proved in several ways.
func (p *policy) identities() int {
	all := map[*caller]bool{}
	for _, c := range p.callers {
		all[c] = true
	}
	return len(all)
}

func (l *loader) issuer(n *node) {
	var c identity.TokenConfig
	var keys string
	keysAt := n
	l.fields(n, "an issuer of tokens", map[string]func(*node){
		"issuer":   l.text("issuer", maxText, &c.Issuer),
		"audience": l.text("audience", maxText, &c.Audience),
		"keys": func(n *node) {
			keysAt = n
			l.text("keys", maxText, &keys)(n)
		},
		"algorithms": l.each("algorithms", 16, func(n *node) {
			a := ""
			if l.text("an algorithm", 16, &a)(n); strings.HasPrefix(a, "HS") {
				l.add(n, "%s needs a secret; name an algorithm with public keys, such as RS256, ES256 or EdDSA", a)
			}
			c.Algorithms = append(c.Algorithms, a)
		}),
	})
	if c.Issuer == "" || c.Audience == "" || keys == "" || len(c.Algorithms) == 0 {
		l.add(n, "an issuer of tokens needs issuer, audience, algorithms and keys")
		return
	}
	if slices.ContainsFunc(l.policy.issuers, func(i issuer) bool { return i.name == c.Issuer }) {
		l.add(n, "issuer %q is given twice", c.Issuer)
		return
	}
	if !filepath.IsAbs(keys) {
		keys = filepath.Join(l.dir, keys)
	}
	data, err := l.read(keys)
	if err != nil {
		l.add(keysAt, "%v", err)
		return
	}
	set, err := parseKeys(data)
	if err != nil {
		l.add(keysAt, "file of keys %s: %v", keys, err)
		return
	}
	c.Keys, c.Leeway, c.Now, c.MaxBytes = set.find, leeway, l.now, MaxToken
	tokens, err := identity.NewTokens(c)
	if err != nil {
		l.add(n, "%v", err)
		return
	}
	if !set.serves(c.Algorithms) {
		l.add(keysAt, "file of keys %s: none of its keys is for an algorithm of this issuer (%s), so every token would be "+
			"refused: its keys are %s",
			keys, strings.Join(c.Algorithms, ", "), set.kinds())
		return
	}
	l.policy.issuers = append(l.policy.issuers, issuer{c.Issuer, tokens})
}

// anonymous reads what callers without credentials may do.
func (l *loader) anonymous(n *node) {
	c := &caller{name: "anonymous"}
	l.fields(n, "anonymous", map[string]func(*node){
		"tenant": l.text("tenant", limiter.MaxTenantBytes, &c.tenant), "may": l.may(c), "budget": l.budget(c),
	})
	if c.may[frontend.ActionAdmin].allowed {
		l.add(n, "anonymous callers cannot have admin: give it to an identity, or use the Unix socket of --admin-addr")
	}
	if c.may[frontend.ActionOverride].allowed {
		l.add(n, "anonymous callers cannot have override: give it to an identity, or use the Unix socket of --admin-addr")
	}
	l.policy.anonymous = c
}

func (l *loader) identity(n *node) {
	c := &caller{}
	var proofs []string
	l.fields(n, "an identity", map[string]func(*node){
		"name":   l.text("name", maxName, &c.name),
		"tenant": l.text("tenant", limiter.MaxTenantBytes, &c.tenant),
		"may":    l.may(c),
		"budget": l.budget(c),
		"certificate": func(n *node) {
			var cn, dns, uri string
			l.fields(n, "a certificate", map[string]func(*node){
				"cn": l.text("cn", maxText, &cn), "dns": l.text("dns", maxText, &dns), "uri": l.text("uri", maxText, &uri),
			})
			switch {
			case cn != "" && dns == "" && uri == "":
				proofs = append(proofs, byCN(cn))
			case dns != "" && cn == "" && uri == "":
				proofs = append(proofs, byDNS(dns))
			case uri != "" && cn == "" && dns == "":
				proofs = append(proofs, byURI(uri))
			default:
				l.add(n, "a certificate is named by one of cn, dns and uri")
			}
		},
		"token": func(n *node) { proofs = append(proofs, l.token(n)...) },
	})
	switch {
	case c.name == "":
		l.add(n, "an identity needs a name")
	case l.names[c.name] || c.name == "anonymous":
		l.add(n, "the name %q is taken: names of identities differ", c.name)
	case len(proofs) == 0:
		l.add(n, "identity %q needs a certificate or a token", c.name)
	}
	l.names[c.name] = true
	for _, proof := range proofs {
		if other := l.policy.callers[proof]; other != nil {
			l.add(n, "identities %q and %q have the same certificate or token", other.name, c.name)
		}
		l.policy.callers[proof] = c
	}
}

// token reads which token an identity has.
func (l *loader) token(n *node) []string {
	var from, subject string
	l.fields(n, "a token", map[string]func(*node){
		"issuer": l.text("issuer", maxText, &from), "subject": l.text("subject", maxText, &subject),
	})
	if from == "" && len(l.policy.issuers) == 1 {
		from = l.policy.issuers[0].name
	}
	switch {
	case subject == "":
		l.add(n, "a token needs a subject")
	case !slices.ContainsFunc(l.policy.issuers, func(i issuer) bool { return i.name == from }):
		l.add(n, "a token needs the issuer: one of those under tokens, with no mistake in it")
	default:
		return []string{bySubject(from, subject)}
	}
	return nil
}

// may returns a reader of permissions.
func (l *loader) may(c *caller) func(*node) {
	return func(n *node) {
		readers := map[string]func(*node){}
		for a := range frontend.Actions {
			readers[a.String()] = func(n *node) { c.may[a] = l.permission(n, a) }
		}
		l.fields(n, "may", readers)
	}
}

// permission reads one permission: true, false, or a list of prefixes of rules.
func (l *loader) permission(n *node, a frontend.Action) permission {
	switch {
	case n.Kind == yamltree.Scalar && (n.Text == "true" || n.Text == "false"):
		return permission{allowed: n.Text == "true"}
	case n.Kind != yamltree.List || len(n.Items) == 0:
		l.add(n, "%s must be true, false, or a list of prefixes of rules", a)
	case a == frontend.ActionLimits || a == frontend.ActionRing || a == frontend.ActionAdmin:
		l.add(n, "%s is about no rule: give true or false", a)
	default:
		p := new(prefixes)
		l.each(a.String(), maxPrefixes, func(n *node) {
			prefix := ""
			l.text("a prefix", maxText, &prefix)(n)
			p.list = append(p.list, prefix)
		})(n)
		return permission{true, p}
	}
	return permission{}
}

// mark is how a connection knows a policy. A pointer to the policy itself would keep an old
// file in memory while the connection is idle.
type mark struct{ _ byte }

// proof is what the certificate of a connection proves by a policy.
type proof struct {
	by          *mark
	caller      *caller // nil: the policy does not list it
	from, until time.Time
}

// proves returns what the certificate of a connection proves, nil if it has none. It is
// worked out once for each connection that can keep it: reading a certificate takes longer
// than the rest.
func (p *policy) proves(c *frontend.Credentials) *proof {
	if c.Known != nil {
		if k, ok := c.Known.Load().(*proof); ok && k.by == p.mark {
			return k
		}
	}
	leaf := leafOf(c)
	if leaf == nil {
		return nil
	}
	k := &proof{p.mark, p.named(leaf), leaf.NotBefore, leaf.NotAfter}
	if c.Known != nil {
		c.Known.Store(k)
	}
	return k
}

// leafOf returns the certificate that a client was verified by, nil if there is none.
func leafOf(c *frontend.Credentials) *x509.Certificate {
	if len(c.TLS.VerifiedChains) == 0 || len(c.TLS.VerifiedChains[0]) == 0 {
		return nil
	}
	return c.TLS.VerifiedChains[0][0]
}

// at returns the caller, unless the certificate has expired since the connection was made.
func (k *proof) at(c *frontend.Credentials, now func() time.Time) (*caller, error) {
	t := c.At
	if t.IsZero() {
		t = now()
	}
	if t.After(k.until) || t.Before(k.from) {
		return nil, unproved("its certificate has expired: connect again with a new one")
	}
	if k.caller == nil {
		return nil, &refusal{fmt.Sprintf("the certificate of %.100q is not one of an identity: the operator must add it to "+
			"the permissions file",
			leafOf(c).Subject.CommonName), limiter.ErrForbidden}
	}
	return k.caller, nil
}

// named returns the identity of which a certificate has a name, nil if it has none: by its
// URIs, or else by its DNS names, or else by its common name.
func (p *policy) named(c *x509.Certificate) *caller {
	for _, u := range c.URIs {
		if found := p.callers[byURI(u.String())]; found != nil {
			return found
		}
	}
	for _, name := range c.DNSNames {
		if found := p.callers[byDNS(name)]; found != nil {
			return found
		}
	}
	return p.callers[byCN(c.Subject.CommonName)]
}
