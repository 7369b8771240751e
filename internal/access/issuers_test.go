package access

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// trailing signs the claims of a token again, with text after them.
func trailing(t *testing.T, key any, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	text := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(string(claims)+`{"sub":"x"}`))
	signature, err := jwt.SigningMethodES256.Sign(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// Of several issuers the one that a token names verifies it, and says why it is refused.
func TestSeveralIssuers(t *testing.T) {
	w := newWorld(t, permissions)
	other, public := newKey(t)
	w.write("other.pem", string(public))
	two := strings.Replace(permissions, "identities:",
		`  - {issuer: "https://second.example.com", audience: weir, algorithms: [ES256], keys: other.pem}
identities:`, 1)
	two = strings.ReplaceAll(two, "{subject: ", `{issuer: "https://second.example.com", subject: `)
	two = strings.Replace(two, `{issuer: "https://second.example.com", subject: shop}`,
		`{issuer: "`+issuerName+`", subject: shop}`, 1)
	w.write("permissions.yaml", two)
	if err := w.access.Reload(); err != nil {
		t.Fatal(err)
	}
	of := func(issuer, sub string, key any, expires time.Duration) string {
		c := w.claims(sub)
		c["iss"], c["exp"] = issuer, w.now.Add(expires).Unix()
		return w.sign(jwt.SigningMethodES256, key, c)
	}
	const second = "https://second.example.com"
	for what, x := range map[string]struct {
		token  string
		status int
		want   string
	}{
		// it is known, and may not use all rules
		"the first":          {of(issuerName, "shop", w.key, time.Hour), 403, "not one that the caller may use"},
		"the second":         {of(second, "bank", other, time.Hour), 200, ""},
		"the first expired":  {of(issuerName, "shop", w.key, -time.Hour), 401, "the token has expired"},
		"the second expired": {of(second, "bank", other, -time.Hour), 401, "the token has expired"},
		"another key":        {of(issuerName, "shop", other, time.Hour), 401, "signature does not fit"},
		"a third": {of("https://third.example.com", "bank", other, time.Hour), 401,
			"another issuer (iss) than those that are accepted here"},
		"no token":          {"a.b.c", 401, "not a JSON Web Token"},
		"another's subject": {of(second, "shop", other, time.Hour), 403, "not one of an identity"},
	} {
		code, text, _ := w.ask("GET", w.http+"/v1/check?path=/pay&user=ada", x.token, "")
		if code != x.status || code != http.StatusOK && !strings.Contains(text, x.want) {
			t.Errorf("%s: %d %s, want %d %s", what, code, text, x.status, x.want)
		}
	}
}
