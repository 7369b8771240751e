package access

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

const issuerName = "https://id.example.com"

const permissions = `
tokens:
  - {issuer: "https://id.example.com", audience: weir, algorithms: [ES256], keys: keys.pem}
identities:
  - name: shop
    token: {subject: shop}
    certificate: {uri: "spiffe://example.org/shop"}
    tenant: shop
    may: {check: [shop-], peek: [shop-], rule: [shop-]}
  - name: bank
    token: {subject: bank}
    certificate: {dns: bank.example.org}
    tenant: bank
    may: {check: true, peek: true, reset: true, refund: true, limits: true, rule: true, explain: true}
  - name: ops
    token: {subject: ops}
    certificate: {cn: ops}
    may: {admin: true, ring: true}
`

const rulesText = `version: 1
rules:
  - {name: shop-cart, match: {path: "^/cart"}, key: [user], limits: [{limit: 3, window: 1d, algorithm: fixed_window, align: first_hit}]}
  - {name: bank-pay, match: {path: "^/pay"}, key: [user], limits: [{limit: 3, window: 1d, algorithm: fixed_window, align: first_hit}]}
`

// world is a node over real listeners with a permissions file.
type world struct {
	t          *testing.T
	key        *ecdsa.PrivateKey
	public     []byte // as PEM
	file       string
	log        *bytes.Buffer
	access     *Access
	http, ops  string
	grpc       weirv1.LimiterClient
	at         string // the address of gRPC
	now        time.Time
	dir        string
	node       *weir.Node
	httpClient *http.Client

	lock   sync.Mutex
	events []transport.AuditEvent
	users  int // that were asked for
}

// Audited implements [transport.Auditor].
func (w *world) Audited(e transport.AuditEvent) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.events = append(w.events, e)
}

// audited returns the events since the last call.
func (w *world) audited() []transport.AuditEvent {
	w.lock.Lock()
	defer w.lock.Unlock()
	out := w.events
	w.events = nil
	return out
}

func newWorld(t *testing.T, text string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), log: new(bytes.Buffer), now: time.Now(),
		httpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	w.key, w.public = newKey(t)
	w.write("keys.pem", string(w.public))
	w.file = w.write("permissions.yaml", text)
	var err error
	w.access, err = open(w.file, slog.New(slog.NewTextHandler(w.log, nil)), func() time.Time { return w.now })
	if err != nil {
		t.Fatal(err)
	}
	w.node, err = weir.Open(t.Context(), weir.Config{Rules: []byte(rulesText)})
	if err != nil {
		t.Fatal(err)
	}
	server, err := transport.NewServer(transport.Options{Decider: w.node, Access: w.access, Audit: w})
	if err != nil {
		t.Fatal(err)
	}
	admin := transport.NewAdmin(transport.AdminOptions{Access: w.access, Audit: w,
		Reload: func(context.Context) (transport.Reloaded, error) {
			return transport.Reloaded{RulesHash: "abc", Rules: 2}, nil
		}})
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	g, h, a := listen(), listen(), listen()
	served := make(chan error, 2)
	go func() { served <- server.Serve(g, h) }()
	go func() { served <- admin.Serve(a) }()
	w.http, w.ops = "http://"+h.Addr().String(), "http://"+a.Addr().String()
	conn, err := grpc.NewClient(g.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	w.grpc, w.at = weirv1.NewLimiterClient(conn), g.Addr().String()
	t.Cleanup(func() {
		_ = conn.Close()
		err := errors.Join(server.Shutdown(context.Background()), admin.Close(), <-served, <-served, w.node.Close())
		if err != nil {
			t.Error(err)
		}
	})
	return w
}

func newKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	name = filepath.Join(w.dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return name
}

// claims returns the claims of a valid token.
func (w *world) claims(sub string) jwt.MapClaims {
	return jwt.MapClaims{"iss": issuerName, "aud": "weir", "sub": sub, "exp": w.now.Add(time.Hour).Unix()}
}

func (w *world) sign(method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	w.t.Helper()
	text, err := jwt.NewWithClaims(method, c).SignedString(key)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

func (w *world) token(sub string) string {
	return w.sign(jwt.SigningMethodES256, w.key, w.claims(sub))
}

// ask sends an HTTP request, with a token unless that is empty.
func (w *world) ask(method, address, token, body string) (int, string, http.Header) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := w.httpClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

func (w *world) bearer(token string) context.Context {
	if token == "" {
		return w.t.Context()
	}
	return metadata.AppendToOutgoingContext(w.t.Context(), "authorization", "Bearer "+token)
}

// nothingCounted fails if any counter exists.
func (w *world) nothingCounted() {
	w.t.Helper()
	if n := w.node.Stats().Keys; n != 0 {
		w.t.Errorf("%d counters exist after refusals", n)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	w := newWorld(t, permissions)
	foreign, _ := newKey(t)
	with := func(field string, value any) jwt.MapClaims {
		c := w.claims("bank")
		c[field] = value
		return c
	}
	es := func(c jwt.MapClaims) string { return w.sign(jwt.SigningMethodES256, w.key, c) }
	noExpiry := w.claims("bank")
	delete(noExpiry, "exp")
	for name, token := range map[string]string{
		"none given":         "",
		"alg none":           w.sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, w.claims("bank")),
		"wrong audience":     es(with("aud", "other")),
		"wrong issuer":       es(with("iss", "https://evil.example.com")),
		"expired":            es(with("exp", w.now.Add(-time.Minute).Unix())),
		"no expiry":          es(noExpiry),
		"not yet valid":      es(with("nbf", w.now.Add(time.Minute).Unix())),
		"of the future":      es(with("iat", w.now.Add(time.Minute).Unix())),
		"HS by public key":   w.sign(jwt.SigningMethodHS256, w.public, w.claims("bank")),
		"foreign key":        w.sign(jwt.SigningMethodES256, foreign, w.claims("bank")),
		"algorithm not told": w.sign(jwt.SigningMethodHS512, []byte(strings.Repeat("k", 64)), w.claims("bank")),
		"huge":               es(with("pad", strings.Repeat("x", 9000))),
		"garbage":            "a.b.c",
		"subject in a list":  es(with("sub", []string{"bank"})),
		"subject a number":   es(with("sub", 7)),
		"subject a boolean":  es(with("sub", true)),
		"text after claims":  trailing(t, w.key, es(w.claims("bank"))),
	} {
		code, text, header := w.ask("GET", w.http+"/v1/check?path=/pay&user=ada", token, "")
		if code != http.StatusUnauthorized || header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %d %s", name, code, text)
		}
		if token != "" && strings.Contains(text, token) {
			t.Errorf("%s: the answer has the token", name)
		}
		if token != "" && (!strings.Contains(text, `"detail":"the caller is not identified: `) ||
			!strings.Contains(text, "token")) {
			t.Errorf("%s: the answer is %s", name, text)
		}
		if code, _, _ := w.ask("GET", w.ops+"/openapi.yaml", token, ""); code != http.StatusUnauthorized {
			t.Errorf("%s: the administration answers %d", name, code)
		}
		ctx := w.bearer(token)
		_, err := w.grpc.Check(ctx, &weirv1.CheckRequest{Path: "/pay", User: "ada"})
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: unary: %v", name, err)
		}
		_, err = w.grpc.CheckBatch(ctx,
			&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{Path: "/pay", User: "ada"}}})
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: batch: %v", name, err)
		}
		stream, err := w.grpc.CheckStream(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: stream: %v", name, err)
		}
	}
	if code, text, _ := w.ask("GET", w.http+"/v1/check?path=/pay&user=ada", w.token("stranger"),
		""); code != http.StatusForbidden {
		t.Errorf("a subject without an entry: %d %s", code, text)
	}
	w.nothingCounted()
	if code, text, _ := w.ask("GET", w.http+"/v1/check?path=/pay&user=ada", w.token("bank"), ""); code != http.StatusOK {
		t.Errorf("a good token: %d %s", code, text)
	}
	if n := w.node.Stats().Keys; n != 1 {
		t.Errorf("a good check made %d counters, so the other results say nothing", n)
	}
}

func TestWhatCallersMayDo(t *testing.T) {
	w := newWorld(t, permissions)
	shop, ops := w.token("shop"), w.token("ops")
	own := `"limits":[{"limit":1,"window":"1s"}]`
	for _, c := range []struct{ what, token, path, body string }{
		{"another's rule", shop, "/v1/check", `{"path":"/pay","user":"ada"}`},
		{"another's rule by name", shop, "/v1/check", `{"rule":"bank-pay","user":"ada"}`},
		{"a peek of another's rule", shop, "/v1/check", `{"path":"/pay","user":"ada","peek":true}`},
		{"limits", shop, "/v1/check", `{"path":"/cart","user":"ada",` + own + `}`},
		{"a receipt", shop, "/v1/check", `{"path":"/cart","user":"ada","receipt":true}`},
		{"an explanation", shop, "/v1/explain", `{"path":"/cart","user":"ada"}`},
		{"a reset", shop, "/v1/reset", `{"path":"/cart","user":"ada"}`},
		{"a refund", shop, "/v1/refund", `{"path":"/cart","user":"ada","receipt":"x"}`},
		{"a check by an operator", ops, "/v1/check", `{"path":"/cart","user":"ada"}`},
	} {
		if code, text, _ := w.ask("POST", w.http+c.path, c.token, c.body); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", c.what, code, text)
		}
	}
	ctx := w.bearer(shop)
	for what, ask := range map[string]func() error{
		"another's rule": func() error {
			_, err := w.grpc.Check(ctx, &weirv1.CheckRequest{Path: "/pay", User: "ada"})
			return err
		},
		"limits": func() error {
			_, err := w.grpc.Check(ctx, &weirv1.CheckRequest{Path: "/cart", User: "ada",
				Limits: []*weirv1.Limit{{Limit: 1, WindowUs: 1e6}}})
			return err
		},
		"explain": func() error {
			_, err := w.grpc.Explain(ctx, &weirv1.CheckRequest{Path: "/cart", User: "ada"})
			return err
		},
		"reset": func() error {
			_, err := w.grpc.Reset(ctx, &weirv1.ResetRequest{Path: "/cart", User: "ada"})
			return err
		},
		"refund": func() error {
			_, err := w.grpc.Refund(ctx, &weirv1.RefundRequest{Path: "/cart", User: "ada", Receipt: "x"})
			return err
		},
		"ring": func() error { _, err := w.grpc.Ring(ctx, &weirv1.RingRequest{}); return err },
	} {
		if err := ask(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("over gRPC, %s: %v", what, err)
		}
	}
	if code, _, _ := w.ask("GET", w.ops+"/openapi.yaml", shop, ""); code != http.StatusForbidden {
		t.Errorf("the administration answers a client with %d", code)
	}
	if code, _, _ := w.ask("GET", w.ops+"/openapi.yaml", ops, ""); code != http.StatusOK {
		t.Errorf("the administration answers an operator with %d", code)
	}
	if code, _, _ := w.ask("GET", w.http+"/healthz", "", ""); code != http.StatusOK {
		t.Errorf("a probe is answered with %d", code)
	}
	w.nothingCounted()
}

// Of a batch and of a message of columns only the checks of other tenants' rules are refused.
func TestPermissionOfEachCheck(t *testing.T) {
	w := newWorld(t, permissions)
	ctx := w.bearer(w.token("shop"))
	limits := []*weirv1.Limit{{Limit: 1, WindowUs: 1e6}}
	out, err := w.grpc.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{
		{Path: "/cart", User: "ada", Limits: limits}, {Path: "/pay", User: "ada"}, {Path: "/cart", User: "ada"},
		{Rule: "bank-pay", User: "ada"}, {Path: "/cart", User: "ada", Peek: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, refused := range []bool{true, true, false, true, false} {
		r := out.GetResults()[i]
		if got := r.GetError().GetCode() == uint32(codes.PermissionDenied); got != refused ||
			(r.GetDecision() != nil) == refused {
			t.Errorf("check %d of the batch: %v", i, r)
		}
		if named := i == 3; strings.Contains(r.GetError().GetMessage(), "bank-pay") != named {
			t.Errorf("check %d of the batch: %v, and it names the rule: %v", i, r, named)
		}
	}
	if n := w.node.Stats().Keys; n != 1 {
		t.Errorf("the batch made %d counters, want 1", n)
	}
	stream, err := w.grpc.CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&weirv1.CheckColumns{Id: 7, Keys: []byte("/cart/pay"), PathLengths: []uint32{5, 4}})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if e := reply.GetErrors(); len(e) != 1 || !strings.Contains(fmt.Sprint(e), "a rule that matches") ||
		strings.Contains(fmt.Sprint(e), "bank-pay") {
		t.Errorf("the reply has the errors %v", e)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}

// Two tenants with the same user have counters of their own, which none of their calls
// reaches at the other.
func TestTenantsShareNoCounter(t *testing.T) {
	text := strings.ReplaceAll(permissions, "[shop-]", "true")
	w := newWorld(t, strings.Replace(text, "tenant: shop\n    may: {", "tenant: shop\n    may: {reset: true, ", 1))
	shop, bank := w.token("shop"), w.token("bank")
	check := func(token string) int {
		code, _, _ := w.ask("GET", w.http+"/v1/check?path=/pay&user=ada", token, "")
		return code
	}
	for i := range 4 {
		if code := check(shop); (code == http.StatusTooManyRequests) != (i == 3) {
			t.Errorf("check %d: %d", i, code)
		}
	}
	if _, text, _ := w.ask("GET", w.http+"/v1/check?path=/pay&user=ada&peek=true", bank, ""); !strings.Contains(text,
		`"remaining":3`) {
		t.Errorf("another tenant sees %s", text)
	}
	if _, text, _ := w.ask("POST", w.http+"/v1/explain", bank, `{"path":"/pay","user":"ada"}`); !strings.Contains(text,
		`"known":false`) {
		t.Errorf("another tenant's explanation is %s", text)
	}
	if code := check(bank); code != http.StatusOK {
		t.Errorf("another tenant is answered with %d", code)
	}
	if _, text, _ := w.ask("POST", w.http+"/v1/reset", bank, `{"path":"/pay","user":"ada"}`); !strings.Contains(text,
		`"counters":1`) {
		t.Errorf("a reset: %s", text)
	}
	if code := check(shop); code != http.StatusTooManyRequests {
		t.Errorf("another tenant's reset changed the counter: %d", code)
	}
}

func TestReload(t *testing.T) {
	w := newWorld(t, permissions)
	bank := w.token("bank")
	check := func() int {
		code, _, _ := w.ask("GET", w.http+"/v1/check?path=/pay&user=ada", bank, "")
		return code
	}
	if code := check(); code != http.StatusOK {
		t.Fatalf("before: %d", code)
	}
	w.write("permissions.yaml", "identities: [")
	if err := w.access.Reload(); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("a broken file: %v", err)
	}
	if code := check(); code != http.StatusOK {
		t.Errorf("with a broken file the old one should be in force: %d", code)
	}
	w.log.Reset()
	w.write("permissions.yaml", permissions) // as it was
	_, _ = w.access.look(false), w.access.look(false)
	if n := strings.Count(w.log.String(), "permissions are in force"); n != 1 ||
		!strings.Contains(w.log.String(), "identities=3") {
		t.Errorf("after the broken file was replaced by the one before, the log says %d times that it is in force: %s", n,
			w.log)
	}
	w.write("permissions.yaml", strings.Replace(permissions, "subject: bank", "subject: other", 1))
	_ = w.access.look(false) // it may be half written
	if code := check(); code != http.StatusOK {
		t.Errorf("it is in force before it is known to be whole: %d", code)
	}
	if err := w.access.look(false); err != nil {
		t.Fatal(err)
	}
	if code := check(); code != http.StatusForbidden {
		t.Errorf("after: %d, though its token is cached", code)
	}
	_, public := newKey(t)
	w.write("keys.pem", string(public))
	_ = w.access.look(false)
	if err := w.access.look(false); err != nil {
		t.Fatal(err)
	}
	if code := check(); code != http.StatusUnauthorized {
		t.Errorf("after its key was replaced: %d", code)
	}
}

// Files that are in force are not read as permissions again, until one of them changes, or is
// gone.
func TestUnchanged(t *testing.T) {
	w := newWorld(t, permissions)
	if !w.access.unchanged() {
		t.Error("files that were just read have changed")
	}
	_, public := newKey(t)
	for name, text := range map[string]string{"keys.pem": string(public), "permissions.yaml": permissions + "\n# more\n"} {
		w.write(name, text)
		if w.access.unchanged() {
			t.Errorf("%s has not changed", name)
		}
		_ = w.access.look(false)
		if w.access.unchanged() {
			t.Errorf("%s is not in force yet", name)
		}
		if err := w.access.look(false); err != nil {
			t.Fatal(err)
		}
		if !w.access.unchanged() {
			t.Errorf("%s is in force, and has changed", name)
		}
	}
	if err := os.Remove(w.write("keys.pem", string(public))); err != nil {
		t.Fatal(err)
	}
	if w.access.unchanged() {
		t.Error("a file that is gone has not changed")
	}
	for range 2 {
		if err := os.Remove(w.write("permissions.yaml", permissions)); err != nil {
			t.Fatal(err)
		}
		_ = w.access.look(false)
	}
	w.write("keys.pem", string(public))
	w.write("permissions.yaml", permissions)
	for range 2 {
		_ = w.access.look(false)
	}
	if w.access.failed != "" || !w.access.unchanged() || !strings.Contains(lastLine(w.log), "are in force") {
		t.Errorf("files that are back are not in force, or the log does not say so: %s %s", w.access.failed, w.log)
	}
}

// lastLine returns the last line of a log.
func lastLine(log *bytes.Buffer) string {
	text := strings.TrimSuffix(log.String(), "\n")
	return text[strings.LastIndex(text, "\n")+1:]
}

// A token that is remembered is not accepted beyond its expiry and the leeway.
func TestCachedTokenExpires(t *testing.T) {
	w := newWorld(t, permissions)
	c := transport.Credentials{Authorization: []string{"Bearer " + w.token("bank")}}
	for range 2 {
		if _, err := w.access.Identify(c); err != nil {
			t.Fatal(err)
		}
	}
	w.now = w.now.Add(time.Hour + leeway + time.Second)
	if _, err := w.access.Identify(c); !errors.Is(err, transport.ErrUnauthenticated) {
		t.Errorf("after its expiry: %v", err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	var c cache
	now := time.Unix(1000, 0)
	for i := range maxCached + 100 {
		c.put([32]byte{byte(i), byte(i >> 8)}, &caller{}, 2000, now)
	}
	if len(c.of) != maxCached {
		t.Errorf("%d tokens are remembered, want %d", len(c.of), maxCached)
	}
}

func TestCertificates(t *testing.T) {
	w := newWorld(t, permissions)
	spiffe, err := url.Parse("spiffe://example.org/shop")
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(change func(*x509.Certificate)) *tls.ConnectionState {
		c := &x509.Certificate{NotBefore: w.now.Add(-time.Hour), NotAfter: w.now.Add(time.Hour)}
		change(c)
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}
	for name, c := range map[string]struct {
		state *tls.ConnectionState
		want  string
		err   error
	}{
		"uri": {leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{spiffe} }), "shop", nil},
		"dns": {leaf(func(c *x509.Certificate) {
			c.DNSNames = []string{"x", "Bank.example.org"}
		}), "bank", nil},
		"cn": {leaf(func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "ops"} }), "ops", nil},
		"unknown": {leaf(func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "x"}
		}), "", limiter.ErrForbidden},
		"a dns name is no cn": {leaf(func(c *x509.Certificate) { c.DNSNames = []string{"ops"} }), "", limiter.ErrForbidden},
		"expired": {leaf(func(c *x509.Certificate) {
			c.Subject, c.NotAfter = pkix.Name{CommonName: "ops"}, w.now.Add(-time.Second)
		}), "", transport.ErrUnauthenticated},
		"unverified": {&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "ops"}}}},
			"", transport.ErrUnauthenticated},
		"none": {&tls.ConnectionState{}, "", transport.ErrUnauthenticated},
	} {
		found, err := w.access.Identify(transport.Credentials{TLS: c.state})
		if !errors.Is(err, c.err) || c.err == nil && found.(*caller).name != c.want {
			t.Errorf("%s: %v %v, want %q %v", name, found, err, c.want, c.err)
		}
	}
}

func TestAnonymous(t *testing.T) {
	w := newWorld(t, permissions+"anonymous:\n  tenant: public\n  may: {check: [bank-]}\n")
	for path, want := range map[string]int{"/pay": http.StatusOK, "/cart": http.StatusForbidden} {
		if code, text, _ := w.ask("GET", w.http+"/v1/check?user=ada&path="+path, "", ""); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, _, _ := w.ask("GET", w.ops+"/openapi.yaml", "", ""); code != http.StatusForbidden {
		t.Errorf("the administration answers with %d", code)
	}
	if code, _, _ := w.ask("GET", w.http+"/v1/check?user=ada&path=/pay", "a.b.c", ""); code != http.StatusUnauthorized {
		t.Errorf("a bad token is answered with %d, and must not count as none", code)
	}
}
