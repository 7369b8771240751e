package identity_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/middleware/identity"
)

func at() time.Time { return time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC) }

func key(b byte) []byte { return bytes.Repeat([]byte{b}, identity.MinKeyBytes) }

func sessions(t testing.TB, keys ...[]byte) *identity.Sessions {
	t.Helper()
	s, err := identity.NewSessions(identity.SessionConfig{Name: "session", Keys: keys, Now: at})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func seal(t testing.TB, s *identity.Sessions, who identity.Session) string {
	t.Helper()
	v, err := s.Seal(who)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ada() identity.Session {
	return identity.Session{User: "ada", Group: "admin", Expires: at().Add(time.Hour)}
}

func TestSessions(t *testing.T) {
	s := sessions(t, key(1))
	for _, who := range []identity.Session{
		ada(),
		{User: "ada", Expires: at().Add(time.Second)},
		{User: "Łukasz \x00;,=\"", Group: "\xff", Expires: at().Add(1000 * time.Hour)},
		{User: strings.Repeat("x", identity.MaxSessionBytes), Expires: at().Add(time.Hour)},
	} {
		v := seal(t, s, who)
		if strings.Trim(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			t.Errorf("%q is not for a cookie", v)
		}
		got, err := s.Open(v)
		if err != nil || got.User != who.User || got.Group != who.Group || !got.Expires.Equal(who.Expires) {
			t.Errorf("%+v reads as %+v, %v", who, got, err)
		}
	}
}

// A session is refused for any change of any byte, for any other key or name,
// and from the instant at which it ends.
func TestSessionsRefused(t *testing.T) {
	s := sessions(t, key(1))
	good := seal(t, s, ada())
	text, mac, _ := strings.Cut(good, ".")

	other, err := identity.NewSessions(identity.SessionConfig{Name: "Session", Keys: [][]byte{key(1)}, Now: at})
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"empty":                 "",
		"a dot":                 ".",
		"no signature":          text,
		"an empty signature":    text + ".",
		"half a signature":      text + "." + mac[:21],
		"a longer signature":    good + "AAAA",
		"padding":               good + "=",
		"another key's":         seal(t, sessions(t, key(2)), ada()),
		"another name's":        seal(t, other, ada()),
		"a part of the payload": text[:len(text)-4] + "." + mac,
		"rubbish":               "\x00\xff",
		"not base64":            "!" + good[1:],
		"too long":              good + strings.Repeat("A", 1000),
		"an unsigned session": base64.RawURLEncoding.EncodeToString(
			[]byte("\x01\x00\x00\x00\x00\xff\xff\xff\xff\x00\x03ada")) + "." + mac,
	}
	for i := range good {
		for _, c := range []byte("A_.") {
			if good[i] != c {
				bad[fmt.Sprintf("byte %d made %c", i, c)] = good[:i] + string(c) + good[i+1:]
			}
		}
	}
	for name, v := range bad {
		if who, err := s.Open(v); !errors.Is(err, identity.ErrUnverified) || who != (identity.Session{}) {
			t.Errorf("%s: got %+v, %v", name, who, err)
		}
	}

	if _, err := s.Open(good + strings.Repeat("A", 1000)); err == nil || !strings.Contains(err.Error(), "cannot have 1") {
		t.Errorf("too long to be looked at: %v", err)
	}

	now := at()
	moving, err := identity.NewSessions(identity.SessionConfig{Name: "session", Keys: [][]byte{key(1)},
		Now: func() time.Time {
			return now
		}})
	if err != nil {
		t.Fatal(err)
	}
	now = ada().Expires.Add(-1)
	if _, err := moving.Open(good); err != nil {
		t.Errorf("before its end: %v", err)
	}
	now = ada().Expires
	if _, err := moving.Open(good); !errors.Is(err, identity.ErrUnverified) {
		t.Errorf("at its end: %v", err)
	}
}

func TestSessionKeysRotate(t *testing.T) {
	s := sessions(t, key(1))
	first := seal(t, s, ada())
	if err := s.SetKeys(key(2), key(1)); err != nil {
		t.Fatal(err)
	}
	second := seal(t, s, ada())
	for _, v := range []string{first, second} {
		if _, err := s.Open(v); err != nil {
			t.Errorf("while both keys are in force: %v", err)
		}
	}
	if err := s.SetKeys(key(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(first); !errors.Is(err, identity.ErrUnverified) {
		t.Errorf("signed by a key that is gone: %v", err)
	}
	if _, err := s.Open(second); err != nil {
		t.Errorf("signed by the key that stays: %v", err)
	}
	if err := s.SetKeys(key(3), []byte("short")); err == nil {
		t.Error("a short key was taken")
	}
	if _, err := s.Open(second); err != nil {
		t.Errorf("after keys that could not be used: %v", err)
	}
	k := key(4)
	if err := s.SetKeys(k); err != nil {
		t.Fatal(err)
	}
	third := seal(t, s, ada())
	clear(k)
	if _, err := s.Open(third); err != nil {
		t.Errorf("the keys are the caller's to use again: %v", err)
	}
}

func TestSessionsThatCannotBe(t *testing.T) {
	many := make([][]byte, identity.MaxSessionKeys+1)
	for i := range many {
		many[i] = key(byte(i))
	}
	for name, c := range map[string]identity.SessionConfig{
		"no name":  {Keys: [][]byte{key(1)}},
		"no key":   {Name: "session"},
		"short":    {Name: "session", Keys: [][]byte{key(1), key(1)[1:]}},
		"too many": {Name: "session", Keys: many},
	} {
		if _, err := identity.NewSessions(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s := sessions(t, key(1))
	for name, who := range map[string]identity.Session{
		"nobody":       {Group: "admin", Expires: at().Add(time.Hour)},
		"no end":       {User: "ada"},
		"past":         {User: "ada", Expires: at()},
		"long":         {User: "ada", Group: strings.Repeat("x", identity.MaxSessionBytes-2), Expires: at().Add(time.Hour)},
		"wraps around": {User: strings.Repeat("x", 1<<16+3), Expires: at().Add(time.Hour)},
	} {
		if v, err := s.Seal(who); err == nil {
			t.Errorf("%s: sealed as %s", name, v)
		}
	}
	real, err := identity.NewSessions(identity.SessionConfig{Name: "session", Keys: [][]byte{key(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := real.Open(seal(t, real, identity.Session{User: "ada", Expires: time.Now().Add(time.Hour)})); err != nil {
		t.Errorf("by the wall clock: %v", err)
	}
}

// FuzzSessionsOpen looks for values that are believed although they were not
// sealed, and for panics.
func FuzzSessionsOpen(f *testing.F) {
	s := sessions(f, key(1), key(2))
	good := seal(f, s, ada())
	f.Add(good)
	f.Add(".")
	f.Add("AQAAAAD_____AANhZGE." + strings.Repeat("A", 43))
	f.Add(good[:len(good)-3] + "\n" + good[len(good)-3:])
	f.Add("\r" + good)
	f.Fuzz(func(t *testing.T, v string) {
		who, err := s.Open(v)
		if (err == nil) != (v == good) {
			t.Fatalf("%q: %+v, %v", v, who, err)
		}
		if err != nil && !errors.Is(err, identity.ErrUnverified) {
			t.Fatalf("%q: %v", v, err)
		}
	})
}
