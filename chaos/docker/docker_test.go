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

// said is what a build says that was interrupted in its last step.
const said = `Step 1/4 : FROM golang:1.26 AS build
 ---> aaaaaaaaaaaa
Step 2/4 : RUN go mod download
 ---> Running in 111111111111
 ---> Removed intermediate container 111111111111
 ---> bbbbbbbbbbbb
Step 3/4 : COPY . .
 ---> cccccccccccc
Step 4/4 : RUN go build
 ---> Running in 222222222222
`

// left is docker for which one project, its network, and the layers of a build are
// still there, of which the first has a name.
const left = `case "$1 $2 $3" in "ps -aq --filter") echo c1;; "network ls -q") echo n1;; "image inspect "*) case "$*" in *aaaaaaaaaaaa) echo 1;; *) echo 0;; esac;; esac`

// inOrder fails the test unless a text has the lines, in their order.
func inOrder(t *testing.T, text string, lines ...string) {
	t.Helper()
	at := 0
	for _, line := range lines {
		i := strings.Index(text[at:], line+"\n")
		if i < 0 {
			t.Errorf("docker was asked\n%swithout %q where it is due", text, line)
			return
		}
		at += i + len(line)
	}
}

// When the process that holds a guard is gone, what it left is removed; when it
// let go of the guard, nothing is.
func TestGuard(t *testing.T) {
	log := filepath.Join(t.TempDir(), "build.log")
	if err := os.WriteFile(log, []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, killed := range []bool{true, false} {
		asked := fake(t, left)
		g, err := Watch("weirchaos1", log, "weirchaos:1")
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
		if !strings.Contains(string(text), "label=com.docker.compose.project=weirchaos1") {
			t.Errorf("docker was asked\n%snot of the project", text)
		}
		inOrder(t, string(text), "rm -fv c1", "network rm n1", "rm -fv 222222222222", "image rm weirchaos:1", "image rm cccccccccccc", "image rm bbbbbbbbbbbb")
		if strings.Contains(string(text), "image rm aaaaaaaaaaaa") {
			t.Error("an image that has a name is removed")
		}
	}
}

// What a build left that was interrupted is removed, and not what has a name.
func TestForget(t *testing.T) {
	log := filepath.Join(t.TempDir(), "build.log")
	if err := new(Engine).Forget(t.Context(), "weirchaos:1", log); err != nil {
		t.Errorf("what was never built: %v", err)
	}
	if err := os.WriteFile(log, []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := fake(t, `case "$3" in weirchaos:1) exit 1;; esac; `+left)
	if err := new(Engine).Forget(t.Context(), "weirchaos:1", log); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, string(text), "rm -fv 222222222222", "image rm cccccccccccc", "image rm bbbbbbbbbbbb")
	for _, named := range []string{"image rm aaaaaaaaaaaa", "image rm weirchaos:1"} {
		if strings.Contains(string(text), named) {
			t.Errorf("docker was asked\n%swith %q", text, named)
		}
	}
}
