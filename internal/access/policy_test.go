package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// check returns what is wrong with a permissions file.
func check(t *testing.T, text string) error {
	t.Helper()
	dir := t.TempDir()
	_, public := newKey(t)
	for name, data := range map[string]string{"p.yaml": text, "keys.pem": string(public),
		"secret.json": `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Check(filepath.Join(dir, "p.yaml"))
}

func TestFilesThatAreRefused(t *testing.T) {
	const head = "tokens:\n  - {issuer: a, audience: b, algorithms: [ES256], keys: keys.pem}\n"
	for text, want := range map[string]string{
		"":                                   "1:1: the file is empty",
		"identities: []\n":                   "nobody could ask anything",
		"identites: []\n":                    `1:1: unknown field "identites" of the file; did you mean "identities"?`,
		"identities: [\n":                    "YAML cannot be read",
		"anonymous: &a {may: {}}\n":          "not supported",
		"anonymous: {may: {check: maybe}}\n": "1:26: check must be true, false, or a list",
		"anonymous: {may: {admin: true}}\n":  "anonymous callers cannot have admin",
		"anonymous: {may: {limits: [a]}}\n":  "limits is about no rule",
		"anonymous: {may: {chek: true}}\n":   `did you mean "check"?`,
		"anonymous: {tenant: " + strings.Repeat("t", 65) +
			"}\n": "tenant has 65 bytes; at most 64",
		"anonymous: {may: {}, may: {}}\n":                         "given twice",
		"identities: [{name: a, may: {}}]\n":                      "needs a certificate or a token",
		"identities: [{name: a, token: {subject: s}}]\n":          "a token needs the issuer",
		"identities: [{name: a, certificate: {cn: a, dns: b}}]\n": "named by one of cn, dns and uri",
		"identities: [{name: a, certificate: {cn: x}}, {name: b, certificate: {cn: x}}]\n": `identities "a" and "b" have ` +
			`the same`,
		"identities: [{name: a, certificate: {cn: x}}, {name: a, certificate: {cn: y}}]\n": "is taken",
		"tokens: [{issuer: a, audience: b, algorithms: [HS256], keys: keys.pem}]\n":        "HS256 needs a secret",
		"tokens: [{issuer: a, audience: b, algorithms: [none], keys: keys.pem}]\n":         "none",
		"tokens: [{issuer: a, algorithms: [ES256], keys: keys.pem}]\n":                     "needs issuer, audience",
		"tokens: [{issuer: a, audience: b, algorithms: [ES256], keys: gone.pem}]\n":        "gone.pem cannot be opened",
		"tokens: [{issuer: a, audience: b, algorithms: [ES256], keys: secret.json}]\n":     "it is a secret (oct)",
		"tokens: [{issuer: a, audience: b, algorithms: [RS256, RS384], keys: keys.pem}]\n": "keys.pem: none of its keys is " +
			"for an algorithm of this issuer (RS256, RS384), so every token would be refused: its keys are for ES256",
		"tokens: [{issuer: a, audience: b, algorithms: [ES384], keys: keys.pem}]\n": "its keys are for ES256",
		"tokens: [{issuer: a, audience: b, algorithms: [EdDSA], keys: keys.pem}]\n": "its keys are for ES256",
		head +
			"identities: [{name: a, token: {subject: s}, teant: x}]\n": `did you mean "tenant"?`,
		"anonymous: {budget: {checks: 0}}\n": "checks must be a whole number " +
			"from 1 to 4294967295",
		"anonymous: {budget: {streams: many}}\n": "streams must be a whole number",
		"anonymous: {may: {check: ['']}}\n":      "1:27: a prefix is an empty text",
		"anonymous: {budget: {new_keys: 5}}\n":   `unknown field "new_keys" of a budget`,
		"anonymous: {tenant: a, may: {check: " +
			"true}}\ntenants: [{name: b}]\n": `no identity has the tenant "b"`,
		"anonymous: {tenant: a, may: {check: " +
			"true}}\ntenants: [{name: a, max_share: 60}]\n": `max_share "60" is not a share of the table`,
		"anonymous: {tenant: a, may: {check: " +
			"true}}\ntenants: [{name: a, max_share: 0%}]\n": `max_share "0%" is not a share of the table`,
		"anonymous: {tenant: a, may: {check: true}}\ntenants: [{name: a, max_share: 1%}, {name: a}]\n": "given twice",
		"anonymous: {may: {check: " +
			"true}}\ntenants: [{max_share: 60%}]\n": "a tenant needs a name",
		strings.Repeat("[", 5000): "nested more than 16 levels deep",
	} {
		err := check(t, text)
		if !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	if err := check(t, head+"identities: [{name: a, token: {subject: s}}]\n"); err != nil {
		t.Errorf("a valid file: %v", err)
	}
	other := strings.Replace(head, "[ES256]", "[ES384, ES256]", 1) // while the issuer changes to another
	if err := check(t, other+"identities: [{name: a, token: {subject: s}}]\n"); err != nil {
		t.Errorf("an algorithm without a key beside one with: %v", err)
	}
}

// All problems are told at once, in the order of their lines.
func TestAllProblemsAtOnce(t *testing.T) {
	err := check(t, "identities:\n  - {name: a}\n  - {nam: b, certificate: {cn: x}}\nanonymous: {may: 3}\n")
	bad, ok := errors.AsType[*Error](err)
	if !ok || len(bad.Problems) != 4 {
		t.Fatalf("%v", err)
	}
	for i, line := range []int{2, 3, 3, 4} {
		if bad.Problems[i].Line != line {
			t.Errorf("problem %d: %+v, want line %d", i, bad.Problems[i], line)
		}
	}
}

func TestKeys(t *testing.T) {
	// of RFC 7517
	const x, y = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"
	good := `{"kty":"EC","crv":"P-256","kid":"a","x":"` + x + `","y":"` + y + `"}`
	set, err := parseKeys([]byte(`{"keys":[` + good +
		`,{"kty":"OKP","crv":"Ed25519","kid":"b","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for id, ok := range map[string]bool{"a": true, "b": true, "c": false, "": false} {
		if _, err := set.find(id); (err == nil) != ok {
			t.Errorf("key %q: %v", id, err)
		}
	}
	for text, want := range map[string]string{
		`{}`:                                   "no keys",
		`[`:                                    "neither PEM nor a JWKS",
		`{"keys":[` + good + `,` + good + `]}`: "has the kid of another",
		`{"keys":[{"kty":"EC","crv":"P-256","x":"` + x + `","y":"` + x + `"}]}`: "key 0",
		`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`:                        "RSA key of",
		`{"keys":[{"kty":"RSA","n":"AQAB","e":"Ag"}]}`:                          "exponent",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n":        "not a public key",
	} {
		if _, err := parseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
}

// What a key is for follows from its kind, and of an elliptic curve from the curve.
func TestWhatKeysAreFor(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve := func(c elliptic.Curve) any {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return &key.PublicKey
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set := &keySet{byID: map[string]any{"a": &small.PublicKey, "b": curve(elliptic.P384()), "c": public,
		"d": curve(elliptic.P224())}}
	for algorithm, want := range map[string]bool{
		"RS256": true, "RS512": true, "PS384": true, "ES384": true, "EdDSA": true, "ES256": false, "ES512": false,
		"HS256": false, "none": false,
	} {
		if got := set.serves([]string{algorithm}); got != want {
			t.Errorf("%s: %v", algorithm, got)
		}
	}
	if got := algorithmsOf(curve(elliptic.P521())); !slices.Equal(got, []string{"ES512"}) {
		t.Errorf("P-521 is for %v", got)
	}
}
