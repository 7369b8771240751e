//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A cluster of the last version becomes one of this version, member by member, and goes back to
// it, while clients ask: no check fails, and every count is exact. testdata/last-version is the
// commit of the last version; whoever makes a release changes it.
func TestUpgrade(t *testing.T) {
	if os.Getenv("WEIR_UPGRADE") == "" {
		t.Skip("it builds the last version, for a minute or more: make upgrade-test runs it")
	}
	last := lastVersion(t)
	for name, c := range map[string]struct{ before, after string }{
		"up":   {last, program},
		"back": {program, last},
	} {
		t.Run(name, func(t *testing.T) {
			v := surviving{3, func(t *testing.T, all []*seat) []*seat {
				t.Helper()
				for _, s := range all {
					s.signal(syscall.SIGTERM)
					s.left(t)
					s.program = c.after
					s.start(t)
					settle(t, all) // the next one goes when this one is back
				}
				return all
			}}
			v.runFrom(t, c.before).judge(t)
		})
	}
}

// lastVersion builds the node of the last version from the repository's history.
func lastVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "last-version"))
	if err != nil {
		t.Fatal(err)
	}
	commit, dir := strings.TrimSpace(string(text)), t.TempDir()
	out, err := command(t, filepath.Join("..", ".."), nil, "git", "cat-file", "-e", commit+"^{commit}")
	if err != nil {
		t.Fatalf("the commit %s of the last version is not in this clone: get all of the history (git fetch --unshallow): %v\n%s", commit, err, out)
	}
	if out, err := command(t, filepath.Join("..", ".."), nil, "bash", "-euo", "pipefail", "-c", `git archive "$1" | tar -C "$2" -xf -`, "bash", commit, dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	node := filepath.Join(dir, "last-node")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", node, "./cmd/node")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", commit, err, out)
	}
	return node
}
