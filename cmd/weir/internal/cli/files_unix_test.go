//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe in place of a file is refused at once, not waited for.
func TestPipesForFilesAreRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	rules := file(t, "rules.yaml", townRules)
	for _, args := range [][]string{
		{"validate", pipe},
		{"check", "/towns", "--rules", pipe},
		{"replay", "--rules", pipe, "-"},
		{"check", "/towns", "--rules", rules, "--redis-addr", "127.0.0.1:1", "--redis-password-file", pipe},
		{"check", "/towns", "--rules", rules, "--redis-addr", "127.0.0.1:1", "--secret-file", pipe},
	} {
		done := make(chan outcome, 1)
		go func() { done <- person{}.run(t, args...) }()
		select {
		case got := <-done:
			if got.status != 1 || !strings.Contains(got.err, pipe+" is a pipe; name a regular file") {
				t.Errorf("%v: %+v", args, got)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%v waits for somebody to write into a pipe", args)
		}
	}
}

// A secret that anyone may write is refused, and one that anyone may read is noted.
func TestModesOfFilesWithSecrets(t *testing.T) {
	rules, secret := file(t, "rules.yaml", townRules), file(t, "secret", "s3cret")
	for mode, want := range map[os.FileMode]string{0o646: "can be written by every user",
		0o644: "note: secret file " + secret + " can be read by every user"} {
		if err := os.Chmod(secret, mode); err != nil {
			t.Fatal(err)
		}
		got := person{}.run(t, "check", "/towns", "--rules", rules, "--redis-addr", "127.0.0.1:1", "--secret-file", secret)
		if got.status == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%04o: %+v", mode, got)
		}
	}
}
