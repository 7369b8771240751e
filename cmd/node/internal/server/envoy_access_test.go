package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/internal/envoy"
)

const envoyPermissions = `
tokens:
  - {issuer: "https://id.example.com", audience: weir, algorithms: [ES256], keys: keys.pem}
identities:
  - {name: shop, certificate: {cn: shop}, token: {subject: shop}, tenant: shop, may: {check: [ed], peek: [ed], refund: [ed]}}
  - {name: bank, certificate: {cn: bank}, tenant: bank, may: {check: true, limits: true}}
  - {name: other, certificate: {cn: other}, may: {check: [x]}}
  - {name: lends, certificate: {cn: lends}, may: {check: [ed], lease: [ed]}}
  - {name: looks, certificate: {cn: looks}, may: {peek: true}}
  - {name: sees, certificate: {cn: sees}, may: {check: true, peek: true}}
  - {name: little, certificate: {cn: little}, may: {check: true}, budget: {checks: 1}}
  - {name: inventor, certificate: {cn: inventor}, may: {check: true}, budget: {keys: 1}}
  - {name: ops, token: {subject: ops}, may: {admin: true}}
`

// issuer signs tokens.
type issuer struct {
	t   *testing.T
	key *ecdsa.PrivateKey
}

// newIssuer writes the issuer's public key beside a permissions file.
func newIssuer(t *testing.T, permissions string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(filepath.Dir(permissions), "keys.pem")
	if err := os.WriteFile(keys, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &issuer{t, key}
}

func (i *issuer) token(subject string) string {
	i.t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": "https://id.example.com", "aud": "weir", "sub": subject, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// auditFile is an audit that is read line by line.
type auditFile struct {
	t    *testing.T
	name string
	read int
}

func newAuditFile(t *testing.T) *auditFile {
	t.Helper()
	return &auditFile{t: t, name: filepath.Join(t.TempDir(), "audit.jsonl")}
}

// line waits for the next line.
func (a *auditFile) line() (out map[string]any) {
	a.t.Helper()
	eventually(a.t, "the audit has a line", func() bool {
		data, err := os.ReadFile(a.name)
		if err != nil {
			a.t.Fatal(err)
		}
		text, _, whole := strings.Cut(string(data[a.read:]), "\n")
		if !whole {
			return false
		}
		a.read += len(text) + 1
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			a.t.Fatalf("%q: %v", text, err)
		}
		return true
	})
	return out
}

// envoyGate is a node that serves Envoy with TLS, permissions and an audit.
type envoyGate struct {
	*Server
	*issuer
	*auditFile
	t  *testing.T
	ca *certstest.Authority
}

func newEnvoyGate(t *testing.T, mode envoy.Mode) *envoyGate {
	t.Helper()
	g := &envoyGate{t: t, ca: certstest.New(t, "clients"), auditFile: newAuditFile(t)}
	paths := g.ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	c, _ := plain()
	c.Permissions, c.Audit = file(t, envoyPermissions), g.auditFile.name
	g.issuer = newIssuer(t, c.Permissions)
	c.TLS = &TLSConfig{CertFile: paths.Cert, KeyFile: paths.Key, ClientCAFile: paths.CA,
		ClientCert: tls.VerifyClientCertIfGiven}
	c.Envoy, _ = envoyConfig(t, envoyFile+
		"  - {key: model, rate_limit: {unit: year, requests_per_unit: 3}, metadata: {weir: {estimate: 2}}}\n"+
		"  - {key: pool, rate_limit: {unit: minute, requests_per_unit: 60000}}\n")
	c.Envoy.QuotaAddr = "127.0.0.1:0"
	c.Envoy.HTTPAddrs, c.Envoy.Options.Mode = []string{"127.0.0.1:0"}, mode
	c.Envoy.Options.ID = "request_id"
	g.Server = start(t, c)
	return g
}

// as connects with the certificate of a name, "" for none.
func (g *envoyGate) as(name string) rls.RateLimitServiceClient {
	g.t.Helper()
	return rls.NewRateLimitServiceClient(g.dial(g.Addresses().Envoy, name))
}

// dial connects to an address with the certificate of a name.
func (g *envoyGate) dial(addr, name string) *grpc.ClientConn {
	g.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.ca.PEM)
	c := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	if name != "" {
		pair, err := tls.X509KeyPair(g.ca.Issue(g.t, certstest.Leaf{Name: name}))
		if err != nil {
			g.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Who asks at Envoy's port is identified as any client: by its certificate or token. What it
// may not do is refused, with a line in the audit, and counts nothing. Tenants have counters
// of their own.
func TestEnvoyIdentities(t *testing.T) {
	for mode, name := range []string{"compat", "atomic"} {
		t.Run(name, func(t *testing.T) { testEnvoyIdentities(t, newEnvoyGate(t, envoy.Mode(mode))) })
	}
}

func testEnvoyIdentities(t *testing.T, g *envoyGate) {
	user := func(change func(*ratelimit.RateLimitDescriptor)) *ratelimit.RateLimitDescriptor {
		d := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}}
		if change != nil {
			change(d)
		}
		return d
	}
	hits := func(n uint64) func(*ratelimit.RateLimitDescriptor) {
		return func(d *ratelimit.RateLimitDescriptor) { d.HitsAddend = wrapperspb.UInt64(n) }
	}
	back := func(d *ratelimit.RateLimitDescriptor) { d.IsNegativeHits = true }
	own := func(d *ratelimit.RateLimitDescriptor) {
		d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: typev3.RateLimitUnit_YEAR}
	}
	reserve := func(d *ratelimit.RateLimitDescriptor) {
		hits(0)(d)
		d.Entries[0].Key = "model"
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: "request_id", Value: "1"})
	}
	ask := func(as, token, domain string, d ...*ratelimit.RateLimitDescriptor) (*rls.RateLimitResponse, error) {
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		return g.as(as).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: domain, Descriptors: d})
	}
	remains := func(as, token string, want uint32, d ...*ratelimit.RateLimitDescriptor) {
		t.Helper()
		out, err := ask(as, token, "edge", d...)
		if err != nil || out.GetStatuses()[0].GetLimitRemaining() != want {
			t.Errorf("%s: %v, %v, want %d left", as, out, err, want)
		}
	}
	remains("shop", "", 2, user(nil))
	keys := g.Node().Stats().Keys
	for what, x := range map[string]struct {
		as, token, domain string
		d                 *ratelimit.RateLimitDescriptor
		code              codes.Code
		want              string // in the error and the audit
		line              map[string]string
	}{
		"nobody": {"", "", "edge", user(nil), codes.Unauthenticated, "send a client certificate, or a token",
			map[string]string{"action": "check"}},
		"a bad token": {"shop", "a.b.c", "edge", user(nil), codes.Unauthenticated, "not identified",
			map[string]string{"action": "check"}},
		"a stranger": {"stranger", "", "edge", user(nil), codes.PermissionDenied, "stranger",
			map[string]string{"action": "check"}},
		"another domain": {"other", "", "edge", user(nil), codes.PermissionDenied, `the domain "edge"`,
			map[string]string{"action": "check", "caller": "other"}},
		"one who only looks": {"looks", "", "edge", user(nil), codes.PermissionDenied, `"check"`,
			map[string]string{"action": "check", "caller": "looks"}},
		"a look of one who may not look": {"bank", "", "edge", user(hits(0)), codes.PermissionDenied, `"peek"`,
			map[string]string{"action": "check", "caller": "bank", "tenant": "bank"}},
		"a reservation of one who only looks": {"looks", "", "edge", user(reserve), codes.PermissionDenied, `"check"`,
			map[string]string{"action": "check", "caller": "looks"}},
		"a reservation of one who may not refund": {"sees", "", "edge", user(reserve), codes.PermissionDenied, `"refund"`,
			map[string]string{"action": "check", "caller": "sees"}},
		"hits taken back by one who may not": {"bank", "", "edge", user(back), codes.PermissionDenied, `"refund"`,
			map[string]string{"action": "refund", "caller": "bank", "tenant": "bank"}},
		"a limit of its own": {"shop", "", "edge", user(own), codes.PermissionDenied, `"limits"`,
			map[string]string{"action": "check", "caller": "shop", "tenant": "shop"}},
		"a limit by token": {"", g.token("shop"), "edge", user(own), codes.PermissionDenied, `"limits"`,
			map[string]string{"action": "check", "caller": "shop"}},
	} {
		out, err := ask(x.as, x.token, x.domain, x.d)
		if status.Code(err) != x.code || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, %v", what, out, err)
			continue
		}
		line := g.line()
		if line["outcome"] != "refused" || line["over"] != "envoy" || !strings.Contains(fmt.Sprint(line["why"]), x.want) ||
			!strings.HasPrefix(fmt.Sprint(line["from"]), "127.0.0.1:") {
			t.Errorf("%s: audited as %v", what, line)
		}
		for field, want := range x.line {
			if line[field] != want {
				t.Errorf("%s: the audit has %s %v, want %q", what, field, line[field], want)
			}
		}
		if n := g.Node().Stats().Keys; n != keys {
			t.Errorf("%s: there are %d counters, and were %d", what, n, keys)
		}
	}
	// Envoy would let the requests of an error pass, and their number is up to its clients.
	over := rls.RateLimitResponse_OVER_LIMIT
	if out, err := ask("little", "", "edge", user(nil), user(nil)); err != nil || out.GetOverallCode() != over ||
		len(out.GetStatuses()) != 2 {
		t.Errorf("two descriptors with a budget of one: %v, %v", out, err)
	}
	remains("inventor", "", 2, user(nil))
	invent := func(name string) (*rls.RateLimitResponse, error) {
		return ask("inventor", "", "edge",
			&ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: name}}},
			&ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: name + "2"}}})
	}
	out, err := invent("a")
	for n := 0; err == nil && out.GetOverallCode() == rls.RateLimitResponse_OK && n < 100; n++ {
		out, err = invent(fmt.Sprint("b", n))
	}
	if err != nil || out.GetOverallCode() != over {
		t.Errorf("ever new users: %v, %v", out, err)
	}

	remains("shop", "", 2, user(hits(0)))
	remains("bank", "", 2, user(nil)) // a counter of its own
	remains("", g.token("shop"), 1, user(nil))
	remains("bank", "", 8, user(own))
	remains("shop", "", 2, user(back)) // of the two that were charged
	if line := g.line(); line["action"] != "refund" || line["outcome"] != "done" || line["caller"] != "shop" ||
		line["tenant"] != "shop" {
		t.Errorf("hits that were taken back are audited as %v", line)
	}
	remains("bank", "", 1, user(nil))
	remains("shop", "", 1, user(reserve))
}

// Over HTTP the same identities hold, and what shows the configuration needs an administrator.
func TestEnvoyIdentitiesOverHTTP(t *testing.T) {
	g := newEnvoyGate(t, envoy.Compat)
	const body = `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}`
	ask := func(method, path, token string) (int, string) {
		t.Helper()
		return answerTo(t, method, "http://"+g.Addresses().EnvoyHTTP[0]+path, body, bearer(token)...)
	}
	for _, x := range []struct {
		method, path, subject string
		status                int
		want                  string
		action                string // audited; "" if it is not
	}{
		{"POST", "/json", "", 401, "not identified", "check"},
		{"POST", "/json", "ops", 403, `must allow \"check\"`, "check"},
		{"POST", "/json", "shop", 200, `"limitRemaining":2`, ""},
		{"GET", "/rlconfig", "", 401, "not identified", "rlconfig"},
		{"GET", "/rlconfig", "shop", 403, `must allow \"admin\"`, "rlconfig"},
		{"GET", "/rlconfig", "ops", 200, "edge", ""},
		{"GET", "/metrics", "shop", 403, `must allow \"admin\"`, "metrics"},
		{"GET", "/metrics", "ops", 200, "weir_", ""},
		{"GET", "/healthcheck", "", 200, "OK", ""},
	} {
		token := ""
		if x.subject != "" {
			token = g.token(x.subject)
		}
		code, text := ask(x.method, x.path, token)
		if code != x.status || !strings.Contains(strings.ReplaceAll(text, `": `, `":`), x.want) {
			t.Errorf("%s of %q: %d %s", x.path, x.subject, code, text)
			continue
		}
		if x.action == "" {
			continue
		}
		if line := g.line(); line["action"] != x.action || line["outcome"] != "refused" || line["over"] != "envoy" ||
			line["why"] == nil || (x.subject != "") != (line["caller"] == x.subject) {
			t.Errorf("%s of %q: audited as %v", x.path, x.subject, line)
		}
	}
}

// A handshake that fails at Envoy's port, or at that of the Redis protocol, is in the audit.
func TestHandshakesAtOtherPorts(t *testing.T) {
	ca := certstest.New(t, "clients")
	paths := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	c, log := plain()
	c.TLS = &TLSConfig{CertFile: paths.Cert, KeyFile: paths.Key, ClientCAFile: paths.CA,
		ClientCert: tls.RequireAndVerifyClientCert}
	audit := newAuditFile(t)
	c.Audit, c.RedisListen = audit.name, "127.0.0.1:0"
	c.Envoy, _ = envoyConfig(t, envoyFile)
	s := start(t, c)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	for over, at := range map[string]string{"grpc": s.Addresses().Envoy, "redis": s.Addresses().Redis} {
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
		if over == "grpc" {
			config.NextProtos = []string{"h2"}
		}
		conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", at)
		if err == nil { // in TLS 1.3 the client learns of it when it reads
			_, err = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("%s without a certificate: %v", over, err)
		}
		if line := audit.line(); line["action"] != "connect" || line["outcome"] != "refused" || line["over"] != over ||
			!strings.Contains(fmt.Sprint(line["why"]), "didn't provide a certificate") {
			t.Errorf("%s: audited as %v", over, line)
		}
	}
	eventually(t, "the log has both refusals", func() bool {
		return strings.Contains(log.String(), "protocol=gRPC") && strings.Contains(log.String(), "protocol=Redis")
	})
}

// Envoy sends on what its own clients put into fields, such as tracestate. So as many of these as it takes by default
// end neither the call, whose request Envoy would let pass, nor the connection with the calls of others.
func TestEnvoysCallsHaveLongHeaders(t *testing.T) {
	g := newEnvoyGate(t, envoy.Compat)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tracestate", strings.Repeat("a=b,", 15<<10))
	out, err := g.as("sees").ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "edge",
		Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{
			{Key: "user", Value: "ada"}}}}})
	if err != nil || len(out.GetStatuses()) != 1 {
		t.Errorf("%v, %v", out, err)
	}
}
