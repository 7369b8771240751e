package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/middleware/identity"
)

func tokens(t testing.TB, c identity.TokenConfig) *identity.Tokens {
	t.Helper()
	c.Now = at
	v, err := identity.NewTokens(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sign(t testing.TB, m jwt.SigningMethod, key any, claims jwt.MapClaims, head ...string) string {
	t.Helper()
	token := jwt.NewWithClaims(m, claims)
	for i := 0; i+1 < len(head); i += 2 {
		token.Header[head[i]] = head[i+1]
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// claims returns good claims, and changes of them: a nil value takes one out.
func claims(change ...any) jwt.MapClaims {
	c := jwt.MapClaims{"sub": "ada", "plan": "pro", "exp": at().Add(time.Minute).Unix()}
	for i := 0; i+1 < len(change); i += 2 {
		if c[change[i].(string)] = change[i+1]; change[i+1] == nil {
			delete(c, change[i].(string))
		}
	}
	return c
}

func rsaKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTokens(t *testing.T) {
	rsaKey := rsaKey(t)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method         jwt.SigningMethod
		private, known any
	}{
		{jwt.SigningMethodHS256, key(1), key(1)},
		{jwt.SigningMethodRS256, rsaKey, &rsaKey.PublicKey},
		{jwt.SigningMethodPS256, rsaKey, &rsaKey.PublicKey},
		{jwt.SigningMethodES256, ecKey, &ecKey.PublicKey},
		{jwt.SigningMethodEdDSA, edKey, edPublic},
	} {
		v := tokens(t, identity.TokenConfig{Algorithms: []string{c.method.Alg()}, Key: c.known})
		got, err := v.Verify(sign(t, c.method, c.private, claims()))
		if err != nil || got.Text("sub") != "ada" || got.Text("plan") != "pro" || got.Text("none") != "" {
			t.Errorf("%s: %v, %v", c.method.Alg(), got, err)
		}
		forged := sign(t, c.method, c.private, claims())
		i := strings.IndexByte(forged, '.')
		forged = forged[:i+1] + base64.RawURLEncoding.EncodeToString(
			[]byte(`{"sub":"eve","exp":9999999999}`)) + forged[strings.LastIndexByte(forged, '.'):]
		if got, err := v.Verify(forged); !errors.Is(err, identity.ErrUnverified) || got.Text("sub") != "" {
			t.Errorf("%s with other claims: %v, %v", c.method.Alg(), got, err)
		}
	}
}

func TestTokensRefused(t *testing.T) {
	rsaKey := rsaKey(t)
	public, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	hs := identity.TokenConfig{Algorithms: []string{"HS256"}, Key: key(1), Issuer: "me", Audience: "towns"}
	rs := identity.TokenConfig{Algorithms: []string{"RS256", "RS512"}, Key: &rsaKey.PublicKey}
	mine := func(change ...any) jwt.MapClaims {
		return claims(append([]any{"iss", "me", "aud", "towns"}, change...)...)
	}
	signed := func(c jwt.MapClaims, head ...string) string {
		return sign(t, jwt.SigningMethodHS256, key(1), c, head...)
	}
	none := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, mine())
	good := signed(mine())
	if _, err := tokens(t, hs).Verify(good); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	const (
		form, algorithm, signature = "is not a JSON Web Token", "not signed by an algorithm that is accepted here (",
			"signature does not fit"
		early, future, issuer = "not valid yet (nbf)", "issued in the future (iat)", "of another issuer (iss)"
		audience, claim       = "for another audience (aud)", "a claim of the token has the wrong type"
	)
	for _, c := range []struct {
		name        string
		with        identity.TokenConfig
		token, says string
	}{
		{"empty", hs, "", form},
		{"rubbish", hs, "hunter2.b.c", form},
		{"two parts", hs, "hunter2.b", form},
		{"no JSON in it", hs, base64.RawURLEncoding.EncodeToString([]byte("hunter2")) + good[strings.IndexByte(good, '.'):],
			form},
		{"unsigned", hs, none, algorithm + "HS256)"},
		{"none in other letters", hs,
			base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"nOnE"}`)) + none[strings.IndexByte(none, '.'):], algorithm},
		{"no algorithm", hs, base64.RawURLEncoding.EncodeToString([]byte(`{"hunter2":1}`)) + good[strings.IndexByte(good,
			'.'):], algorithm},
		{"signature taken off", hs, good[:strings.LastIndexByte(good, '.')+1], signature},
		{"another spelling of the signature", hs, respelled(good), form},
		{"another key", hs, sign(t, jwt.SigningMethodHS256, key(2), mine()), signature},
		{"another algorithm of the kind", hs, sign(t, jwt.SigningMethodHS512, key(1), mine()), algorithm},
		{"expired", hs, signed(mine("exp", at().Unix())), "has expired"},
		{"no expiry", hs, signed(mine("exp", nil)), "has no expiry (exp)"},
		{"an expiry that is no number", hs, signed(mine("exp", "hunter2")), claim},
		{"an expiry that no clock has", hs, signed(mine("exp", 1e300)), claim},
		{"not yet valid", hs, signed(mine("nbf", at().Add(time.Minute).Unix())), early},
		{"valid from when no clock has", hs, signed(mine("nbf", 1e300)), claim},
		{"issued in the future", hs, signed(mine("iat", at().Add(time.Second).Unix())), future},
		{"issued when no clock has", hs, signed(mine("iat", json.Number("1e400"))), claim},
		{"issued at a text", hs, signed(mine("iat", "hunter2")), claim},
		{"another issuer", hs, signed(mine("iss", "hunter2")), issuer},
		{"no issuer", hs, signed(mine("iss", nil)), issuer},
		{"an issuer that is a number", hs, signed(mine("iss", 7)), claim},
		{"another audience", hs, signed(mine("aud", []string{"hunter2"})), audience},
		{"no audience", hs, signed(mine("aud", nil)), audience},
		{"an audience that is a list of numbers", hs, signed(mine("aud", []int{7})), claim},
		{"a critical extension", hs, signed(mine(), "crit", "hunter2"), "has critical extensions (crit in its header)"},
		{"too long", hs, signed(mine("x", strings.Repeat("x", identity.DefaultMaxTokenBytes))), "too long"},
		{"the public key as a secret", rs, sign(t, jwt.SigningMethodHS256, public, claims()), algorithm},
		{"an algorithm that is not named", rs, sign(t, jwt.SigningMethodRS384, rsaKey, claims()),
			algorithm + "RS256, RS512)"},
		{"another padding", rs, sign(t, jwt.SigningMethodPS256, rsaKey, claims()), algorithm},
		{"none where RSA is wanted", rs, none, algorithm},
	} {
		got, err := tokens(t, c.with).Verify(c.token)
		if !errors.Is(err, identity.ErrUnverified) || got.Text("sub") != "" {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		text := fmt.Sprint(err)
		if !strings.HasPrefix(text, "not verified: ") || !strings.Contains(text, c.says) {
			t.Errorf("%s: %q, want %q", c.name, text, c.says)
		}
		for _, not := range []string{"hunter2", "keyfunc", "unverifiable", "base64 data", "character"} {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q has %q", c.name, text, not)
			}
		}
	}
	anybody := tokens(t, identity.TokenConfig{Algorithms: []string{"HS256"}, Key: key(1), Audience: "towns"})
	if _, err := anybody.Verify(signed(claims())); !strings.Contains(fmt.Sprint(err), audience) {
		t.Errorf("no audience, where any issuer is accepted: %v", err)
	}
}

// respelled changes the bits of the last character that encode nothing.
func respelled(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + string(alphabet[strings.IndexByte(alphabet, token[last])^1])
}

func TestTokenOptions(t *testing.T) {
	late := sign(t, jwt.SigningMethodHS256, key(1), claims("exp", at().Add(-30*time.Second).Unix()))
	v := tokens(t, identity.TokenConfig{Algorithms: []string{"HS256"}, Key: key(1), Leeway: time.Minute})
	if _, err := v.Verify(late); err != nil {
		t.Errorf("within the leeway: %v", err)
	}
	for ahead, good := range map[time.Duration]bool{time.Minute: true, 61 * time.Second: false} {
		token := sign(t, jwt.SigningMethodHS256, key(1), claims("iat", at().Add(ahead).Unix()))
		if _, err := v.Verify(token); (err == nil) != good {
			t.Errorf("issued %v ahead, with a leeway of a minute: %v", ahead, err)
		}
	}
	short := tokens(t, identity.TokenConfig{Algorithms: []string{"HS256"}, Key: key(1), MaxBytes: len(late) - 1})
	if _, err := short.Verify(late); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("over MaxBytes: %v", err)
	}

	rotating := tokens(t, identity.TokenConfig{Algorithms: []string{"HS256"}, Keys: func(id string) (any, error) {
		switch id {
		case "new":
			return key(2), nil
		case "short":
			return []byte{}, nil
		case "wrong":
			return "a string", nil
		}
		return nil, fmt.Errorf("no key %q", id)
	}})
	for _, c := range []struct {
		id   string
		by   byte
		good bool
	}{{"new", 2, true}, {"new", 1, false}, {"old", 1, false}, {"", 2, false}, {"wrong", 2, false}} {
		_, err := rotating.Verify(sign(t, jwt.SigningMethodHS256, key(c.by), claims(), "kid", c.id))
		if (err == nil) != c.good || err != nil && !errors.Is(err, identity.ErrUnverified) {
			t.Errorf("kid %q: %v", c.id, err)
		}
	}
	if _, err := rotating.Verify(sign(t, jwt.SigningMethodHS256, []byte{}, claims(), "kid", "short")); !errors.Is(err,
		identity.ErrUnverified) {
		t.Errorf("an empty secret: %v", err)
	}
}

func TestClaimsText(t *testing.T) {
	v := tokens(t, identity.TokenConfig{Algorithms: []string{"HS256"}, Key: key(1)})
	c, err := v.Verify(sign(t, jwt.SigningMethodHS256, key(1), claims(
		"id", 12345678901234567, "ok", true, "list", []string{"first", "second"}, "empty", []string{}, "deep",
		[]any{[]any{"x"}}, "object", map[string]any{"a": 1})))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sub": "ada", "id": "12345678901234567", "ok": "true", "list": "first", "empty": "", "deep": "", "object": "",
		"absent": "",
	} {
		if got := c.Text(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := (identity.Claims{}).Text("sub"); got != "" {
		t.Errorf("no claims: got %q", got)
	}
}

func TestTokensThatCannotBe(t *testing.T) {
	small := &rsaKey(t).PublicKey
	small.N.Rsh(small.N, 1024)
	var noKey crypto.PublicKey = (*rsa.PublicKey)(nil)
	for name, c := range map[string]identity.TokenConfig{
		"no algorithm":     {Key: key(1)},
		"none":             {Algorithms: []string{"none"}, Key: key(1)},
		"none, hidden":     {Algorithms: []string{"HS256", "none"}, Key: key(1)},
		"unknown":          {Algorithms: []string{"HS1"}, Key: key(1)},
		"lower case":       {Algorithms: []string{"hs256"}, Key: key(1)},
		"two kinds of key": {Algorithms: []string{"RS256", "HS256"}, Key: key(1)},
		"no key":           {Algorithms: []string{"HS256"}},
		"two ways to a key": {Algorithms: []string{"HS256"}, Key: key(1), Keys: func(string) (any, error) {
			return nil, nil
		}},
		"a short secret":     {Algorithms: []string{"HS256"}, Key: key(1)[1:]},
		"a small RSA key":    {Algorithms: []string{"RS256"}, Key: small},
		"no RSA key":         {Algorithms: []string{"RS256"}, Key: noKey},
		"a secret for RSA":   {Algorithms: []string{"RS256"}, Key: key(1)},
		"half an Ed25519":    {Algorithms: []string{"EdDSA"}, Key: ed25519.PublicKey(key(1)[:16])},
		"a negative leeway":  {Algorithms: []string{"HS256"}, Key: key(1), Leeway: -1},
		"a negative maximum": {Algorithms: []string{"HS256"}, Key: key(1), MaxBytes: -1},
	} {
		if _, err := identity.NewTokens(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzTokensVerify looks for tokens that are accepted without a signature, and for
// panics.
func FuzzTokensVerify(f *testing.F) {
	v := tokens(f, identity.TokenConfig{Algorithms: []string{"HS256"}, Key: key(1)})
	good := sign(f, jwt.SigningMethodHS256, key(1), claims())
	f.Add(good)
	f.Add(sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims()))
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := v.Verify(token)
		if (err == nil) != (token == good) {
			t.Fatalf("%q: %v, %v", token, c, err)
		}
		if err != nil && !errors.Is(err, identity.ErrUnverified) {
			t.Fatalf("%q: %v", token, err)
		}
	})
}

// A subject is a text, and the claims are all of their part of a token.
func TestSubjectsAndWhatFollowsClaims(t *testing.T) {
	v := tokens(t, identity.TokenConfig{Algorithms: []string{"HS256"}, Key: []byte(strings.Repeat("k", 32))})
	key := []byte(strings.Repeat("k", 32))
	after := func(text string) string {
		parts := strings.Split(sign(t, jwt.SigningMethodHS256, key, claims()), ".")
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		parts[1] = base64.RawURLEncoding.EncodeToString(append(payload, text...))
		signature, err := jwt.SigningMethodHS256.Sign(parts[0]+"."+parts[1], key)
		if err != nil {
			t.Fatal(err)
		}
		return parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(signature)
	}
	for want, token := range map[string]string{
		"":                          after(" \n"),
		"has text after its claims": after(`{"sub":"eve"}`),
		"text after its claims: ":   after("x"),
	} {
		if _, err := v.Verify(token); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, sub := range []any{[]string{"ada"}, 7, true, map[string]string{}} {
		token := sign(t, jwt.SigningMethodHS256, key, claims("sub", sub))
		if _, err := v.Verify(token); !errors.Is(err, identity.ErrUnverified) ||
			!strings.Contains(err.Error(), "iss and sub are texts") {
			t.Errorf("sub %v: %v", sub, err)
		}
	}
}
