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
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\necho \"$@\" >> "+asked+"\n"+script),
		0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return asked
}

// Whoever has no engine is told so, and in whose words.
func TestNoEngine(t *testing.T) {
	fake(t, "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
	if _, err := Find(t.Context()); !errors.Is(err, ErrNoEngine) ||
		!strings.Contains(err.Error(), "Cannot connect to the Docker daemon") {
		t.Errorf("without an engine: %v", err)
	}
}

// An image that cannot be pulled is an error that says why.
func TestHave(t *testing.T) {
	asked := fake(t, `case "$1" in image) exit 1;; pull) echo "no such host" >&2; exit 1;; esac`)
	if err := new(Engine).Have(t.Context(), GoImage); err == nil ||
		!strings.Contains(err.Error(), "golang:1.26 cannot be pulled: no such host") {
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
// still there, of which the first has a name. One more was being made when it was
// interrupted, and another is on top of the one that has a name.
const left = `case "$1 $2 $3" in
"ps -aq --filter") echo c1;;
"network ls -q") echo n1;;
"images -aq ") printf '%s\n' cccccccccccc dddddddddddd bbbbbbbbbbbb eeeeeeeeeeee aaaaaaaaaaaa;;
"image inspect --format") case "$4 $5" in
  *RepoTags*aaaaaaaaaaaa) echo 1;;
  *RepoTags*) echo 0;;
  *dddddddddddd) echo sha256:cccccccccccc0123456789;;
  *eeeeeeeeeeee) echo sha256:aaaaaaaaaaaa0123456789;;
  esac;;
"image inspect weirchaos:2") exit 1;;
esac`

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
		g, err := Watch("weirchaos1", log, "weirchaos:1", "weirchaos:2")
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
		inOrder(t, string(text), "rm -fv c1", "network rm n1", "rm -fv 222222222222", "image rm weirchaos:1",
			"image rm dddddddddddd", "image rm cccccccccccc", "image rm bbbbbbbbbbbb")
		spared(t, string(text))
	}
}

// spared fails the test where what is not there, or is somebody else's, was removed.
func spared(t *testing.T, text string) {
	t.Helper()
	for _, what := range []string{"image rm aaaaaaaaaaaa", "image rm eeeeeeeeeeee", "image rm weirchaos:2"} {
		if strings.Contains(text, what) {
			t.Errorf("docker was asked\n%swith %q", text, what)
		}
	}
}

// What a build left that was interrupted is removed, also what came after its last
// word, and not what has a name.
func TestForget(t *testing.T) {
	log := filepath.Join(t.TempDir(), "build.log")
	asked := fake(t, left)
	if err := new(Engine).Forget(t.Context(), log, "weirchaos:2"); err != nil {
		t.Errorf("what was never built: %v", err)
	}
	if err := os.WriteFile(log, []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(Engine).Forget(t.Context(), log, "weirchaos:1", "weirchaos:2"); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, string(text), "rm -fv 222222222222", "image rm weirchaos:1", "image rm dddddddddddd",
		"image rm cccccccccccc", "image rm bbbbbbbbbbbb")
	spared(t, string(text))
	fake(t, `case "$1 $2" in "image rm") echo "it is in use" >&2; exit 1;; esac`)
	if err := new(Engine).Forget(t.Context(), log, "weirchaos:1"); err == nil ||
		!strings.Contains(err.Error(), "weirchaos:1 can be removed") || !strings.Contains(err.Error(), "it is in use") {
		t.Errorf("an image that stays: %v", err)
	}
}
