package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// Why a token is refused. The library's own texts may have parts of the token.
var (
	errForm = errors.New("the token is not a JSON Web Token, three parts in base64url with dots between them: send " +
		"it as its issuer gave it")
	errCritical = errors.New("the token has critical extensions (crit in its header), and none is supported: get a " +
		"token without them from its issuer")
	errSignature = errors.New("the token's signature does not fit its issuer's key: get a token from the issuer that is " +
		"accepted here, and send it unchanged")
	errClaims = errors.New("a claim of the token has the wrong type (exp, nbf and iat are seconds since 1970 as " +
		"numbers, iss and sub are texts, aud a text or a list of them): its issuer must follow RFC 7519")
	errAfter    = errors.New("the token has text after its claims: its issuer must send one object of JSON")
	errNoExpiry = errors.New("the token has no expiry (exp): its issuer must give it one")
	errExpired  = errors.New("the token has expired (exp): get a new one; if this one is new, set the clocks of the " +
		"issuer and of this machine")
	errEarly = errors.New("the token is not valid yet (nbf): use it later, or set the clocks of the issuer and of " +
		"this machine")
	errFuture = errors.New("the token was issued in the future (iat): set the clocks of the issuer and of this machine")
	errIssuer = errors.New("the token is of another issuer (iss) than the one that is accepted here, or names none: " +
		"get one from that issuer")
	errAudience = errors.New("the token is for another audience (aud), or names none: get one for this service from " +
		"its issuer")
)

// keyError is an error that says itself why no key can verify a token.
type keyError struct{ err error }

func (e *keyError) Error() string { return e.err.Error() }

// reason returns why a token is refused, in place of an error of the library.
func (t *Tokens) reason(token *jwt.Token, claims jwt.MapClaims, err error) error {
	if own, ok := errors.AsType[*keyError](err); ok {
		return own.err
	}
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed), token == nil:
		return errForm
	case errors.Is(err, jwt.ErrTokenInvalidClaims):
		return t.reasonOfClaims(claims, err)
	case token.Method == nil || !slices.Contains(t.algorithms, token.Method.Alg()):
		return fmt.Errorf("the token is not signed by an algorithm that is accepted here (%s): get one that is from its "+
			"issuer", strings.Join(t.algorithms, ", "))
	}
	return errSignature
}

// reasonOfClaims returns why a token with a good signature is refused.
func (t *Tokens) reasonOfClaims(claims jwt.MapClaims, err error) error {
	_, expires := claims["exp"]
	issuer, _ := claims["iss"].(string)
	switch {
	case errors.Is(err, jwt.ErrInvalidType), !datesFit(claims):
		return errClaims
	case !expires:
		return errNoExpiry
	case errors.Is(err, jwt.ErrTokenExpired):
		return errExpired
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errEarly
	case errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return errFuture
	case issuer != t.issuer && t.issuer != "":
		return errIssuer
	}
	return errAudience
}

// maxDate bounds dates in claims, in seconds. The library would convert a number that has no place
// in 64 bits to one that depends on the processor.
const maxDate = 1 << 53

// datesFit reports whether the dates of a token are of a size that can be compared.
func datesFit(claims jwt.MapClaims) bool {
	for _, name := range []string{"exp", "nbf", "iat"} {
		date, given := claims[name].(json.Number)
		if !given {
			continue // absent, or refused as of a wrong type
		}
		if v, err := date.Float64(); err != nil || v > maxDate || v < -maxDate {
			return false
		}
	}
	return true
}
