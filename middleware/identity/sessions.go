package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// ErrUnverified is wrapped by the errors of [Sessions.Open] and [Tokens.Verify] for any
// value that does not prove its sender.
var ErrUnverified = errors.New("not verified")

// Bounds of sessions.
const (
	// MinKeyBytes is the shortest key: as long as the hash, so that guessing the key is
	// no easier than forging a signature.
	MinKeyBytes = sha256.Size
	// MaxSessionKeys is the most keys in force at once.
	MaxSessionKeys = 8
	// MaxSessionBytes is the greatest length of user and group together, in bytes. A
	// key of a limit may have 256.
	MaxSessionBytes = 256
)

const (
	sessionVersion = 1
	sessionHead    = 1 + 8 + 2 // version, expiry, length of the user
	// maxSealedBytes bounds the length of values that Open accepts.
	maxSealedBytes = (sessionHead+MaxSessionBytes)*4/3 + 1 + 1 + sha256.Size*4/3 + 2
)

// Session is the content of a signed value.
type Session struct {
	// User must not be empty.
	User string
	// Group may be empty, which means the default group.
	Group string
	// Expires is when the session ends, in whole seconds.
	Expires time.Time
}

// SessionConfig configures [Sessions].
type SessionConfig struct {
	// Name is the purpose of the values, such as the cookie's name. It is signed with
	// them, so a value for one purpose is not valid for another under the same key. It
	// must not be empty.
	Name string
	// Keys are secrets of at least [MinKeyBytes], from crypto/rand. The first one
	// signs; values signed by any of them are valid. To rotate keys, put a new one in
	// front, and remove the old one when its sessions have expired. See
	// [Sessions.SetKeys].
	Keys [][]byte
	// Now is the clock, for tests; default time.Now.
	Now func() time.Time
}

// Sessions signs and verifies the values of session cookies, with HMAC-SHA256. Values
// are not encrypted: their bearer can read them. Sessions is safe for concurrent use.
type Sessions struct {
	name string
	keys atomic.Pointer[[][]byte]
	now  func() time.Time
}

// NewSessions returns sessions, or an error for an invalid configuration. The keys are
// copied.
func NewSessions(c SessionConfig) (*Sessions, error) {
	if c.Name == "" || len(c.Name) > MaxSessionBytes {
		return nil, fmt.Errorf("sessions need a name of 1 to %d bytes, such as the cookie's; it has %d", MaxSessionBytes,
			len(c.Name))
	}
	s := &Sessions{name: c.Name, now: c.Now}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.SetKeys(c.Keys...); err != nil {
		return nil, err
	}
	return s, nil
}

// SetKeys replaces the keys while sessions are in use, see [SessionConfig.Keys]. They
// are copied. If one is not valid, SetKeys returns an error and the old ones stay.
func (s *Sessions) SetKeys(keys ...[]byte) error {
	if len(keys) == 0 || len(keys) > MaxSessionKeys {
		return fmt.Errorf("sessions need 1 to %d keys; there are %d", MaxSessionKeys, len(keys))
	}
	own := make([][]byte, len(keys))
	for i, k := range keys {
		if len(k) < MinKeyBytes {
			return fmt.Errorf("session key %d has %d bytes; at least %d from crypto/rand are needed", i, len(k), MinKeyBytes)
		}
		own[i] = append([]byte(nil), k...)
	}
	s.keys.Store(&own)
	return nil
}

// Seal returns a signed value for a session, made of characters that a cookie need not
// quote. It returns an error if the session has no user, is too long, or ends in the
// past.
func (s *Sessions) Seal(who Session) (string, error) {
	end := who.Expires.Unix()
	switch {
	case who.User == "":
		return "", errors.New("a session needs a user: without one a request is counted by its address")
	case end <= s.now().Unix():
		return "", fmt.Errorf("the session would end at %v, which is in the past", who.Expires)
	case len(who.User)+len(who.Group) > MaxSessionBytes:
		return "", fmt.Errorf("user and group have %d bytes together; at most %d fit a session", len(who.User)+len(who.Group),
			MaxSessionBytes)
	}
	b := make([]byte, sessionHead, sessionHead+len(who.User)+len(who.Group))
	b[0] = sessionVersion
	binary.BigEndian.PutUint64(b[1:], uint64(end))
	binary.BigEndian.PutUint16(b[9:], uint16(len(who.User)))
	b = append(append(b, who.User...), who.Group...)
	e := encoding()
	return e.EncodeToString(b) + "." + e.EncodeToString(s.sum((*s.keys.Load())[0], b)), nil
}

// Open returns the session that a value was sealed from. The error wraps
// [ErrUnverified] if the value was not sealed here, was changed, is for another name,
// was signed with a key that has been removed, or has expired. Signatures are compared
// in constant time.
func (s *Sessions) Open(value string) (Session, error) {
	if len(value) > maxSealedBytes {
		return Session{}, fmt.Errorf("%w: a session cannot have %d bytes", ErrUnverified, len(value))
	}
	text, mac, _ := strings.Cut(value, ".")
	e := encoding()
	b, err := e.DecodeString(text)
	if err != nil || len(b) < sessionHead || strings.ContainsAny(value, "\r\n") { // base64 passes over line ends
		return Session{}, fmt.Errorf("%w: this is not the form of a session", ErrUnverified)
	}
	sum, err := e.DecodeString(mac)
	if err != nil || len(sum) != sha256.Size || !s.signed(b, sum) {
		return Session{}, fmt.Errorf("%w: the session's signature is wrong", ErrUnverified)
	}
	n := int(binary.BigEndian.Uint16(b[9:]))
	if b[0] != sessionVersion || n == 0 || sessionHead+n > len(b) {
		return Session{}, fmt.Errorf("%w: the session is of another version", ErrUnverified)
	}
	who := Session{
		User:    string(b[sessionHead : sessionHead+n]),
		Group:   string(b[sessionHead+n:]),
		Expires: time.Unix(int64(binary.BigEndian.Uint64(b[1:])), 0),
	}
	if !s.now().Before(who.Expires) {
		return Session{}, fmt.Errorf("%w: the session expired at %v", ErrUnverified, who.Expires)
	}
	return who, nil
}

// signed reports whether sum was made with any of the keys. It always tries all of
// them.
func (s *Sessions) signed(b, sum []byte) bool {
	ok := false
	for _, k := range *s.keys.Load() {
		if hmac.Equal(s.sum(k, b), sum) {
			ok = true
		}
	}
	return ok
}

// sum signs a payload together with its purpose. The length separates the end of the
// name from the payload.
func (s *Sessions) sum(key, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("weir session\x00"))
	h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(s.name))))
	h.Write([]byte(s.name))
	h.Write(b)
	return h.Sum(nil)
}

// encoding returns a strict encoding, so that a session has only one spelling.
func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }
