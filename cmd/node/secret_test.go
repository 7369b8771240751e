//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAnotherSecret gives the members of a cluster another secret, one after the other, as
// docs/cluster.md says, while they are asked: no count is lost and no check fails. Each takes up its data directory,
// which is written under the secret that came first.
func TestAnotherSecret(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	before, after := file("before", "the secret that was before 32 b.\n"),
		file("after", "the secret that comes then 32 b.\n")
	all := places(t, 3, clusterRules, "--deadline", "3s") // two owners of each check are asked, on a busy machine
	for _, s := range all {
		s.args = append(s.args, "--secret-file", before, "--data-dir", filepath.Join(dir, s.name))
	}
	surviving{3, func(t *testing.T, all []*seat) []*seat {
		t.Helper()
		for _, args := range [][]string{{"--second-secret-file", after},
			{"--secret-file", after, "--second-secret-file", before}} {
			for _, s := range all {
				s.args = append(s.args, args...)
				s.signal(syscall.SIGTERM)
				s.left(t)
				s.start(t)
				settle(t, all)
			}
		}
		return all
	}}.on(t, all).judge(t)
}
