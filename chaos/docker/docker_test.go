package docker

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fake puts a program docker first in PATH, which writes down what it is asked,
// and returns where.
func fake(t *testing.T, script string) (asked string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the stand-in for docker is a shell script")
	}
	dir := t.TempDir()
	asked = filepath.Join(dir, "asked")
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\necho \"$@\" >> "+asked+"\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return asked
}

// Whoever has no engine is told so, and in whose words.
func TestNoEngine(t *testing.T) {
	fake(t, "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
	if _, err := Find(t.Context()); !errors.Is(err, ErrNoEngine) || !strings.Contains(err.Error(), "Cannot connect to the Docker daemon") {
		t.Errorf("without an engine: %v", err)
	}
}

// An image that cannot be pulled is an error that says why.
func TestHave(t *testing.T) {
	asked := fake(t, `case "$1" in image) exit 1;; pull) echo "no such host" >&2; exit 1;; esac`)
	if err := new(Engine).Have(t.Context(), GoImage); err == nil || !strings.Contains(err.Error(), "golang:1.26 cannot be pulled: no such host") {
		t.Errorf("what cannot be pulled: %v", err)
	}
	if text, err := os.ReadFile(asked); err != nil || !strings.Contains(string(text), "pull golang:1.26\n") {
		t.Errorf("docker was asked %q, %v", text, err)
	}
}

// When the process that holds a guard is gone, what it left is removed; when it
// let go of the guard, nothing is.
func TestGuard(t *testing.T) {
	for _, killed := range []bool{true, false} {
		asked := fake(t, `case "$1 $2 $3" in "ps -aq --filter") echo c1;; "network ls -q") echo n1;; esac`)
		g, err := Watch("weirchaos1", "weirchaos:1")
		if err != nil {
			t.Fatal(err)
		}
		if killed {
			err = errors.Join(g.in.Close(), g.cmd.Wait())
		} else {
			err = g.Release()
		}
		if err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(asked)
		if !killed {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("docker was asked %q, %v, and nothing was to be removed", text, err)
			}
			continue
		}
		for _, want := range []string{"label=com.docker.compose.project=weirchaos1", "rm -fv c1\n", "network rm n1\n", "image rm weirchaos:1\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("docker was asked\n%swithout %q", text, want)
			}
		}
	}
}
