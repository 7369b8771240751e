package identity_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/middleware/identity"
)

// A token is verified with the configured algorithms, whatever its header says: none in
// any spelling, a public key used as a secret, another algorithm of the same key,
// another kind of key.
func TestAlgorithmsOfTokensArePinned(t *testing.T) {
	rsaKey := rsaKey(t)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	secrets := [][]byte{der, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), edPublic,
		x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey)}
	none := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims())
	forged := map[string]string{"none": none}
	for _, alg := range []string{"None", "NONE", "nOnE", "", "hs256", "HS256 ", "RS256\u0000"} {
		head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + alg + `","typ":"JWT"}`))
		forged["alg "+alg] = head + none[strings.IndexByte(none, '.'):]
	}
	forged["no alg"] = base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT"}`)) + none[strings.IndexByte(none, '.'):]
	for i, s := range secrets {
		for _, m := range []*jwt.SigningMethodHMAC{jwt.SigningMethodHS256, jwt.SigningMethodHS384, jwt.SigningMethodHS512} {
			forged["public key "+string(rune('1'+i))+" as a secret for "+m.Alg()] = sign(t, m, s, claims())
		}
	}
	methods := []struct {
		jwt.SigningMethod
		private any
	}{
		{jwt.SigningMethodHS256, key(1)}, {jwt.SigningMethodHS384, key(1)}, {jwt.SigningMethodRS256, rsaKey},
		{jwt.SigningMethodRS512, rsaKey},
		{jwt.SigningMethodPS256, rsaKey}, {jwt.SigningMethodES256, ecKey}, {jwt.SigningMethodEdDSA, edKey},
	}
	public := map[string]any{"HS": key(1), "RS": &rsaKey.PublicKey, "PS": &rsaKey.PublicKey, "ES": &ecKey.PublicKey,
		"Ed": edPublic}
	for _, want := range methods {
		known := public[want.Alg()[:2]]
		for how, c := range map[string]identity.TokenConfig{
			"one key":        {Algorithms: []string{want.Alg()}, Key: known},
			"a key by kid":   {Algorithms: []string{want.Alg()}, Keys: func(string) (any, error) { return known, nil }},
			"a key of bytes": {Algorithms: []string{want.Alg()}, Keys: func(string) (any, error) { return secrets[0], nil }},
		} {
			v := tokens(t, c)
			for _, m := range methods {
				got, err := v.Verify(sign(t, m.SigningMethod, m.private, claims()))
				if good := m.Alg() == want.Alg() && how != "a key of bytes"; good != (err == nil) ||
					good != (got.Text("sub") == "ada") {
					t.Errorf("%s, %s: a token by %s: %v", want.Alg(), how, m.Alg(), err)
				}
			}
			for what, token := range forged {
				if how == "a key of bytes" && want.Alg()[:2] == "HS" {
					continue // then these bytes are the secret
				}
				if got, err := v.Verify(token); !errors.Is(err, identity.ErrUnverified) || got.Text("sub") != "" {
					t.Errorf("%s, %s: a token with %s is believed: %v", want.Alg(), how, what, err)
				}
			}
		}
	}
	// A key that is found later is held against the same as one that is given.
	short := []byte("guess me")
	v := tokens(t, identity.TokenConfig{Algorithms: []string{"HS256"}, Keys: func(string) (any, error) {
		return short, nil
	}})
	if got, err := v.Verify(sign(t, jwt.SigningMethodHS256, short, claims())); !errors.Is(err, identity.ErrUnverified) ||
		got.Text("sub") != "" {
		t.Errorf("a short secret is taken: %v", err)
	}
	// Nor can a configuration allow both a secret and a public key, or none.
	for _, algorithms := range [][]string{{"none"}, {"HS256", "none"}, {"RS256", "HS256"}, {"HS256", "ES256"},
		{"EdDSA", "RS256"}, nil} {
		if _, err := identity.NewTokens(identity.TokenConfig{Algorithms: algorithms, Key: key(1)}); err == nil {
			t.Errorf("%q are taken", algorithms)
		}
	}
}
