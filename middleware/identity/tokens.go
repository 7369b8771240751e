package identity

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultMaxTokenBytes is the default of TokenConfig.MaxBytes.
const DefaultMaxTokenBytes = 8 << 10

// minRSABits is the smallest size of an RSA key that is accepted.
const minRSABits = 2048

// TokenConfig configures [Tokens]. Algorithms, and either Key or Keys, are required.
type TokenConfig struct {
	// Algorithms are the accepted signature algorithms, as in a token's header: HS256,
	// RS256, PS256, ES256 (or 384, 512 of these) and EdDSA. All must use the same kind
	// of key: a service that accepted HS256 besides RS256 would take the public key for
	// a secret. The algorithm none is refused.
	Algorithms []string
	// Key verifies every token: a []byte of at least [MinKeyBytes] for HS, an
	// *rsa.PublicKey of at least 2048 bits for RS and PS, an *ecdsa.PublicKey
	// for ES, an ed25519.PublicKey for EdDSA.
	Key any
	// Keys returns the key for the "kid" in a token's header, empty if it has none, for
	// services whose keys rotate. It is called for each token, from many goroutines.
	// The sender chooses keyID, so Keys must not fetch anything without a bound. An
	// error refuses the token.
	Keys func(keyID string) (any, error)
	// Issuer, if not empty, must equal the token's "iss".
	Issuer string
	// Audience, if not empty, must be among the token's "aud".
	Audience string
	// Leeway is the tolerated clock difference to the issuer, for "exp", "nbf" and "iat";
	// default none. A larger value lets expired tokens live longer.
	Leeway time.Duration
	// MaxBytes is the greatest length of a token; default [DefaultMaxTokenBytes].
	// Longer ones are refused without parsing.
	MaxBytes int
	// Now is the clock, for tests; default time.Now.
	Now func() time.Time
}

// Tokens verifies JSON Web Tokens (RFC 7519). A token must be signed with one of the
// configured algorithms, and must have an expiry that has not passed. If it says since when
// it is valid, or when it was issued, that must not be in the future. Tokens is safe for
// concurrent use.
type Tokens struct {
	parser     *jwt.Parser
	algorithms []string
	issuer     string // empty: any
	keys       func(keyID string) (any, error)
	fits       func(key any) error
	most       int
}

// NewTokens returns a verifier, or an error for an invalid configuration.
func NewTokens(c TokenConfig) (*Tokens, error) {
	fits, err := keyCheck(c.Algorithms)
	if err != nil {
		return nil, err
	}
	if (c.Key == nil) == (c.Keys == nil) {
		return nil, errors.New("tokens need either a Key or a function Keys to verify them with")
	}
	if c.MaxBytes < 0 || c.Leeway < 0 {
		return nil, fmt.Errorf("MaxBytes %d and Leeway %v of tokens must not be negative", c.MaxBytes, c.Leeway)
	}
	t := &Tokens{algorithms: slices.Clone(c.Algorithms), issuer: c.Issuer, keys: c.Keys, fits: fits, most: c.MaxBytes}
	t.most = cmp.Or(t.most, DefaultMaxTokenBytes)
	if c.Key != nil {
		if err := fits(c.Key); err != nil {
			return nil, err
		}
		t.keys = func(string) (any, error) { return c.Key, nil }
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(t.algorithms), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(c.Leeway), jwt.WithJSONNumber(), jwt.WithStrictDecoding(),
	}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	if c.Now != nil {
		options = append(options, jwt.WithTimeFunc(c.Now))
	}
	t.parser = jwt.NewParser(options...)
	return t, nil
}

// Verify returns the claims of a token. The error wraps [ErrUnverified] if the token is
// not signed as required, has expired, is not yet valid or was issued in the future, has
// another issuer or audience, a subject that is no string, or cannot be parsed. Its text has no part of the token,
// except what an error of TokenConfig.Keys has.
func (t *Tokens) Verify(token string) (Claims, error) {
	if len(token) > t.most {
		return Claims{}, fmt.Errorf("%w: a token of %d bytes is too long; at most %d are read", ErrUnverified, len(token),
			t.most)
	}
	claims := jwt.MapClaims{}
	parsed, err := t.parser.ParseWithClaims(token, claims, t.key)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrUnverified, t.reason(parsed, claims, err))
	}
	if _, isText := claims["sub"].(string); !isText && claims["sub"] != nil || !datesFit(claims) {
		return Claims{}, fmt.Errorf("%w: %w", ErrUnverified, errClaims)
	}
	if !t.whole(token) {
		return Claims{}, fmt.Errorf("%w: %w", ErrUnverified, errAfter)
	}
	return Claims{claims}, nil
}

// whole reports whether the claims of a token that was parsed are all of its second part. The library reads the
// first value there.
func (t *Tokens) whole(token string) bool {
	_, rest, _ := strings.Cut(token, ".")
	part, _, _ := strings.Cut(rest, ".")
	text, err := t.parser.DecodeSegment(part)
	return err == nil && json.Valid(text)
}

// key returns the key for a token whose algorithm is allowed.
func (t *Tokens) key(token *jwt.Token) (any, error) {
	if _, has := token.Header["crit"]; has {
		return nil, &keyError{errCritical}
	}
	id, _ := token.Header["kid"].(string)
	key, err := t.keys(id)
	if err == nil {
		err = t.fits(key)
	}
	if err != nil {
		return nil, &keyError{err}
	}
	return key, nil
}

// Claims are the claims of a verified token.
type Claims struct{ claims jwt.MapClaims }

// Text returns a claim as text: a string unchanged, a number as written, a boolean as
// true or false, and of a list the first element. Other claims, and missing ones, are
// empty.
func (c Claims) Text(name string) string {
	v := c.claims[name]
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	switch v := v.(type) {
	case string:
		return v
	case bool, fmt.Stringer: // a number is a json.Number
		return fmt.Sprint(v)
	}
	return ""
}

// keyCheck returns a function that checks whether a key fits the algorithms, which must
// all use the same kind of key.
func keyCheck(algorithms []string) (func(key any) error, error) {
	if len(algorithms) == 0 {
		return nil, errors.New("tokens need the Algorithms by which they may be signed, such as RS256")
	}
	first := kindOf(algorithms[0])
	for _, a := range algorithms {
		switch k := kindOf(a); {
		case k == "":
			return nil, fmt.Errorf("tokens cannot be signed by %q; name HS, RS, PS or ES with 256, 384 or 512, or EdDSA", a)
		case k != first:
			return nil, fmt.Errorf("tokens cannot be signed by both %s and %s: the key of one could pass for a key of the other",
				algorithms[0], a)
		}
	}
	return func(key any) error { return fits(first, key) }, nil
}

// kindOf returns the kind of key that an algorithm uses, empty for an unknown
// algorithm.
func kindOf(algorithm string) string {
	if algorithm == "EdDSA" {
		return "Ed25519"
	}
	if len(algorithm) == 5 && slices.Contains([]string{"256", "384", "512"}, algorithm[2:]) {
		switch algorithm[:2] {
		case "HS":
			return "HMAC"
		case "RS", "PS":
			return "RSA"
		case "ES":
			return "ECDSA"
		}
	}
	return ""
}

func fits(kind string, key any) error {
	switch k := key.(type) {
	case []byte:
		if kind == "HMAC" {
			if len(k) < MinKeyBytes {
				return fmt.Errorf("a secret of %d bytes is too short for tokens; use at least %d from crypto/rand", len(k),
					MinKeyBytes)
			}
			return nil
		}
	case *rsa.PublicKey:
		if kind == "RSA" && k != nil {
			if k.N == nil || k.N.BitLen() < minRSABits {
				return fmt.Errorf("an RSA key for tokens needs at least %d bits", minRSABits)
			}
			return nil
		}
	case *ecdsa.PublicKey:
		if kind == "ECDSA" && k != nil {
			return nil
		}
	case ed25519.PublicKey:
		if kind == "Ed25519" && len(k) == ed25519.PublicKeySize {
			return nil
		}
	}
	return fmt.Errorf("a key of type %T is not for tokens signed by %s", key, kind)
}
