package redisstore

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// script is a script and the hash by which Redis identifies it.
type script struct {
	text string
	sha  any // a string, boxed once
}

// families is a set of families, one bit for each. Bits of no family are set for a script
// that remembers ids or knows holds.
type families uint16

const allFamilies families = 1<<(familySlots+1) - 2

func (f families) with(one family) families { return f | 1<<one }

// library makes the scripts. A script that decides contains only the functions for the
// limits of the check, since Lua runs all of a script at every call. The script that
// adopts contains all.
type library struct {
	decide          [2][1 << (familySlots + 1)]atomic.Pointer[script] // without and with holds
	adopt, adoptIDs *script
	refund, resets  *script
	amend, probe    *script

	mu   sync.Mutex
	used []*script // those that were sent, in the order in which they were first
}

// note adds scripts to those in use, and returns all that are.
func (l *library) note(more ...*script) []*script {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range more {
		if !slices.Contains(l.used, s) {
			l.used = append(l.used, s)
		}
	}
	return slices.Clone(l.used)
}

// load loads the scripts in use over a new connection: the server may have been started since, or be
// another one. A server that refuses is not asked again: calls then find their script missing.
func (l *library) load(ctx context.Context, conn *redis.Conn) error {
	pipe := conn.Pipeline()
	for _, script := range l.note() {
		pipe.ScriptLoad(ctx, script.text)
	}
	done, _ := pipe.Exec(ctx) // each has its own error
	for _, d := range done {
		err := d.Err()
		if _, is := said(err); err != nil && !is {
			return err
		}
	}
	return nil
}

func newLibrary() (*library, error) {
	l := &library{}
	for _, made := range []struct {
		to    **script
		parts []string
	}{
		{&l.adopt, append(parts(allFamilies.with(withHolds)), "adopt", "decide")},
		{&l.adoptIDs, append(parts(allFamilies.with(withHolds).with(withIDs)), "adopt", "decide")},
		{&l.refund, append(parts(allFamilies.with(withHolds)), "adopt", "refund")},
		{&l.amend, append(parts(allFamilies.with(withHolds).with(withIDs)), "adopt", "amend")},
		{&l.resets, []string{"prelude", "reset"}},
		{&l.probe, []string{"probe"}},
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
		{"back", 1 << withHolds},
		{"ids", 1 << withIDs},
		{"hits", 1 << withHolds},
		{"since", 1 << withHolds},
		{"holds", 1 << withHolds},
		{"concurrency", 1 << familySlots},
	} {
		if f&p.of != 0 {
			out = append(out, p.file)
		}
	}
	return out
}

// decider returns the script that decides limits of some families.
func (l *library) decider(f families) (*script, error) {
	made := &l.decide[f>>withHolds][f&^(1<<withHolds)]
	if s := made.Load(); s != nil {
		return s, nil
	}
	s, err := newScript(append(parts(f), "decide"))
	if err != nil {
		return nil, err
	}
	made.Store(s)
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
