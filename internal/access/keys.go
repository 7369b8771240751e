package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// maxKeysFile bounds a file of keys, and maxKeys how many it may have.
const (
	maxKeysFile = 256 << 10
	maxKeys     = 64
	maxRSABits  = 8192 // a larger one costs too much for each token
)

// keySet are the public keys of an issuer.
type keySet struct {
	byID map[string]any
	any  any // the only key, for tokens that name none; nil if there are several
}

func (k *keySet) find(id string) (any, error) {
	if key, ok := k.byID[id]; ok && id != "" {
		return key, nil
	}
	if k.any != nil && (id == "" || len(k.byID) == 0) {
		return k.any, nil
	}
	return nil, errors.New("the key that the token names (kid in its header) is not among the issuer's keys, or it " +
		"names none of several: get a new token; the operator must add keys to the file of keys before the issuer signs by " +
		"them")
}

func (k *keySet) all() []any {
	if k.any != nil {
		return []any{k.any}
	}
	return slices.Collect(maps.Values(k.byID))
}

// serves reports whether a key is for one of the algorithms. Not each algorithm needs a key:
// while an issuer changes to another, there may be keys for only one of them.
func (k *keySet) serves(algorithms []string) bool {
	return slices.ContainsFunc(k.all(), func(key any) bool {
		return slices.ContainsFunc(algorithms, func(a string) bool { return slices.Contains(algorithmsOf(key), a) })
	})
}

func (k *keySet) kinds() string {
	var out []string
	for _, key := range k.all() {
		out = append(out, "for "+strings.Join(algorithmsOf(key), ", "))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "; ")
}

// algorithmsOf returns the algorithms that a sound key is for.
func algorithmsOf(key any) []string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []string{"ES256"}
		case elliptic.P384():
			return []string{"ES384"}
		case elliptic.P521():
			return []string{"ES512"}
		}
		return nil // such as P-224, in a PEM file
	default:
		return []string{"EdDSA"}
	}
}

// parseKeys reads a JWKS or a PEM file. Secrets are refused: a file of a node has public
// keys only.
func parseKeys(data []byte) (*keySet, error) {
	set := &keySet{byID: map[string]any{}}
	var err error
	var n int
	if block, _ := pem.Decode(data); block != nil {
		n, err = set.readPEM(data)
	} else {
		n, err = set.readJWKS(data)
	}
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errors.New("it has no keys for signatures: give a JWKS, or PEM blocks PUBLIC KEY or CERTIFICATE")
	case n > 1:
		set.any = nil
	}
	return set, nil
}

func (k *keySet) readPEM(data []byte) (n int, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var key any
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "CERTIFICATE":
			var c *x509.Certificate
			if c, err = x509.ParseCertificate(block.Bytes); err == nil {
				key = c.PublicKey
			}
		default:
			return 0, fmt.Errorf("a PEM block %.40q is not a public key: give PUBLIC KEY or CERTIFICATE", block.Type)
		}
		if err == nil {
			err = sound(key)
		}
		if err != nil {
			return 0, err
		}
		if n++; n > 1 {
			return 0, errors.New("it has several PEM blocks, which tokens cannot tell apart: give a JWKS, where keys have a kid")
		}
		k.any = key
	}
	return n, nil
}

// webKey is a key of a JWKS (RFC 7517).
type webKey struct {
	Kty, Use, Kid, Crv, N, E, X, Y string
}

func (k *keySet) readJWKS(data []byte) (n int, err error) {
	var file struct{ Keys []webKey }
	if err := json.Unmarshal(data, &file); err != nil {
		return 0, fmt.Errorf("it is neither PEM nor a JWKS: %w", err)
	}
	if len(file.Keys) > maxKeys {
		return 0, fmt.Errorf("it has %d keys; at most %d are allowed", len(file.Keys), maxKeys)
	}
	for i := range file.Keys {
		w := &file.Keys[i]
		if w.Use == "enc" {
			continue
		}
		key, err := w.key()
		if err == nil {
			err = sound(key)
		}
		if err != nil {
			return 0, fmt.Errorf("key %d of the JWKS: %w", i, err)
		}
		if w.Kid != "" {
			if k.byID[w.Kid] != nil {
				return 0, fmt.Errorf("key %d of the JWKS has the kid of another", i)
			}
			k.byID[w.Kid] = key
		} else if len(file.Keys) > 1 {
			return 0, fmt.Errorf("key %d of the JWKS has no kid, and there are others", i)
		}
		k.any = key
		n++
	}
	return n, nil
}

func (w *webKey) key() (any, error) {
	switch w.Kty {
	case "RSA":
		n, err := number(w.N)
		if err != nil {
			return nil, err
		}
		e, err := number(w.E)
		if err != nil || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Int64()%2 == 0 {
			return nil, errors.New("its exponent e is not valid")
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
	case "EC":
		return w.curve()
	case "OKP":
		x, err := base64.RawURLEncoding.DecodeString(w.X)
		if err != nil || w.Crv != "Ed25519" || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("it is not a valid Ed25519 key")
		}
		return ed25519.PublicKey(x), nil
	case "oct":
		return nil, errors.New("it is a secret (oct); give public keys only")
	}
	return nil, fmt.Errorf("its type %.20q is not known: give RSA, EC or OKP", w.Kty)
}

func (w *webKey) curve() (any, error) {
	var c elliptic.Curve
	switch w.Crv {
	case "P-256":
		c = elliptic.P256()
	case "P-384":
		c = elliptic.P384()
	case "P-521":
		c = elliptic.P521()
	default:
		return nil, fmt.Errorf("its curve %.20q is not known: give P-256, P-384 or P-521", w.Crv)
	}
	x, errX := number(w.X)
	y, errY := number(w.Y)
	size := (c.Params().BitSize + 7) / 8
	if errX != nil || errY != nil || len(x.Bytes()) > size || len(y.Bytes()) > size {
		return nil, errors.New("its point is not valid")
	}
	point := make([]byte, 1+2*size)
	point[0] = 4 // uncompressed
	x.FillBytes(point[1 : 1+size])
	y.FillBytes(point[1+size:])
	return ecdsa.ParseUncompressedPublicKey(c, point)
}

func number(text string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > maxRSABits/8+1 {
		return nil, errors.New("a number of it is missing, too large, or not base64url")
	}
	return new(big.Int).SetBytes(b), nil
}

// sound returns an error for a key that is not of a kind for signatures.
func sound(key any) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < 2048 || n > maxRSABits {
			return fmt.Errorf("an RSA key of %d bits is not accepted: give 2048 to %d", n, maxRSABits)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("a key of type %T cannot verify tokens", key)
	}
	return nil
}
