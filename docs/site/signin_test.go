package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const signInPermissions = `tokens: [{issuer: "https://id.example", audience: weir, algorithms: [EdDSA], keys: issuer.pem}]
identities:
  - {name: shop, token: {subject: shop}, may: {check: true}}
  - {name: ops, token: {subject: ops}, may: {admin: true, explain: true}}
`

// TestSignIn: a browser without an identity, or with that of one who may not administrate, sees nothing of the node;
// one who may look has grey buttons, and sees nothing more after signing out.
func TestSignIn(t *testing.T) {
	for _, program := range []string{"chromium", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v: scripts/deps.sh installs it", err)
			}
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "./cmd/node")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	token := issuer(t, dir)
	for name, text := range map[string]string{"rules.yaml": consoleRules, "permissions.yaml": signInPermissions} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := ports(t, 3)
	admin := free[1].addr()
	node := exec.Command("./node", "serve", "--rules", "rules.yaml", "--http-addr", free[0].addr(), "--grpc-addr",
		free[2].addr(), "--admin-addr", admin, "--health-addr", "off", "--permissions", "permissions.yaml",
		"--tls-cert", "tls.pem", "--tls-key", "tls.key", "--tls", "optional")
	out := new(bytes.Buffer)
	node.Dir, node.Stdout, node.Stderr = dir, out, out
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		_ = node.Wait()
		if t.Failed() {
			t.Logf("%.3000s", out)
		}
	})
	until(t, "the node is ready", func() bool { return status(free[0].addr(), "/readyz") == http.StatusOK })

	b := looking(t, false)
	read := func(expression string) string { // empty while a page goes and the next one comes
		v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
		if err != nil {
			return ""
		}
		return v
	}
	text := func() string { return read("document.body.innerText") }
	sign := func(with string) {
		b.do(t, chromedp.Navigate("https://"+admin+"/"), chromedp.WaitVisible("#token"),
			chromedp.SetValue("#token", with), chromedp.Click("main form button"))
	}
	why := func() string { return read("(document.querySelector('.note.bad')||{}).innerText||''") }
	b.do(t, chromedp.Navigate("https://"+admin+"/"), chromedp.WaitVisible("#token"))
	first := why()
	const now = "(() => { const x = new XMLHttpRequest(); " +
		"x.open('GET', '/now.json', false); x.send(); return x.status })()"
	for name, with := range map[string]string{"a client": token("shop"), "a stranger": token("nobody")} {
		sign(with)
		until(t, "the page says why "+name+" may not", func() bool { return why() != "" && why() != first })
		t.Logf("%s is told: %s", name, why())
		if seen := text(); seen == "" || strings.Contains(seen, "Is anything wrong?") || strings.Contains(seen, "login") ||
			is[int](t, b, "document.querySelectorAll('#facts a').length") != 0 {
			t.Errorf("%s sees %q", name, seen)
		}
		if got := is[int](t, b, now); got != http.StatusUnauthorized {
			t.Errorf("%s gets data: %d", name, got)
		}
	}
	sign(token("ops"))
	until(t, "the operator is in", func() bool { return strings.Contains(text(), "Is anything wrong?") })
	b.do(t, chromedp.Navigate("https://"+admin+"/why?path=/login&method=POST&user=ada"), chromedp.WaitVisible("#set"))
	if !is[bool](t, b, "document.getElementById('set').disabled") {
		t.Error("one without the permission to override is offered to")
	}
	if is[string](t, b, "document.cookie") != "" {
		t.Error("a script sees the cookie")
	}
	b.do(t, chromedp.Click(".who button"), chromedp.WaitVisible("#token"))
	until(t, "the page is there", func() bool { return text() != "" })
	if seen := text(); seen == "" || strings.Contains(seen, "ada") {
		t.Errorf("after signing out the page has %q", seen)
	}
}

// issuer makes the key of an issuer of tokens, and a certificate for the node, in a directory. It returns what makes
// tokens.
func issuer(t *testing.T, dir string) (token func(subject string) string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, kind string, der []byte, err error) {
		t.Helper()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	put("issuer.pem", "PUBLIC KEY", der, err)
	server, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // browsers have no Ed25519 for TLS
	if err != nil {
		t.Fatal(err)
	}
	der, err = x509.MarshalPKCS8PrivateKey(server)
	put("tls.key", "PRIVATE KEY", der, err)
	of := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err = x509.CreateCertificate(rand.Reader, &of, &of, server.Public(), server)
	put("tls.pem", "CERTIFICATE", der, err)
	return func(subject string) string {
		part := func(v any) string {
			text, _ := json.Marshal(v)
			return base64.RawURLEncoding.EncodeToString(text)
		}
		signed := part(map[string]string{"alg": "EdDSA", "typ": "JWT"}) + "." + part(map[string]any{
			"iss": "https://id.example", "aud": "weir", "sub": subject, "exp": time.Now().Add(time.Hour).Unix()})
		return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(signed)))
	}
}
