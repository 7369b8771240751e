package redisstore

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"sync/atomic"
)

//go:embed lua/*.lua
var sources embed.FS

// script is a script and the hash by which Redis identifies it.
type script struct {
	text string
	sha  any // a string, boxed once
}

// families is a set of families, one bit for each. The bit of no family is set for a script
// that remembers ids.
type families uint8

const allFamilies families = 1<<(familyCalendar+1) - 2

func (f families) with(one family) families { return f | 1<<one }

// library makes the scripts. A script that decides contains only the functions for the
// limits of the check, since Lua runs all of a script at every call. The script that
// adopts contains all.
type library struct {
	decide          [1 << (familyCalendar + 1)]atomic.Pointer[script]
	adopt, adoptIDs *script
	refund, resets  *script
}

func newLibrary() (*library, error) {
	l := &library{}
	for _, made := range []struct {
		to    **script
		parts []string
	}{
		{&l.adopt, append(parts(allFamilies), "adopt", "decide")},
		{&l.adoptIDs, append(parts(allFamilies.with(withIDs)), "adopt", "decide")},
		{&l.refund, append(parts(allFamilies), "adopt", "refund")},
		{&l.resets, []string{"prelude", "reset"}},
	} {
		s, err := newScript(made.parts)
		if err != nil {
			return nil, err
		}
		*made.to = s
	}
	return l, nil
}

// parts lists the source files for some families.
func parts(f families) []string {
	out := []string{"prelude"}
	for _, p := range []struct {
		file string
		of   families
	}{
		{"windows", 1 << familyFixed},
		{"counter", 1 << familyCounter},
		{"lists", 1<<familyLog | 1<<familyWindow},
		{"buckets", 1 << familyBucket},
		{"drips", 1 << familyDrip},
		{"calendar", 1 << familyCalendar},
		{"ids", 1 << withIDs},
	} {
		if f&p.of != 0 {
			out = append(out, p.file)
		}
	}
	return out
}

// decider returns the script that decides limits of some families.
func (l *library) decider(f families) (*script, error) {
	if s := l.decide[f].Load(); s != nil {
		return s, nil
	}
	s, err := newScript(append(parts(f), "decide"))
	if err != nil {
		return nil, err
	}
	l.decide[f].Store(s)
	return s, nil
}

// newScript joins source files without their comments and blank lines, so that the text
// that is sent, and shown to people, is short and readable.
func newScript(parts []string) (*script, error) {
	var text []byte
	for _, p := range parts {
		source, err := sources.ReadFile("lua/" + p + ".lua")
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(source) {
			if code := bytes.TrimSpace(line); len(code) > 0 && !bytes.HasPrefix(code, []byte("--")) {
				text = append(text, line...)
			}
		}
	}
	sum := sha1.Sum(text) //nolint:gosec // see the import
	return &script{text: string(text), sha: hex.EncodeToString(sum[:])}, nil
}
