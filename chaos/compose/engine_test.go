package compose

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/docker"
)

// engine is a Docker engine that answers.
type engine struct {
	*docker.Engine
}

// needEngine skips the test, aloud, where there is no Docker engine.
func needEngine(t *testing.T) *engine {
	t.Helper()
	if os.Getenv("WEIR_COMPOSE") == "" {
		t.Skip("it builds an image, for a minute or more: make compose-test runs it")
	}
	e, err := docker.Find(t.Context())
	if err != nil {
		aloud("\n*** %s is NOT run: %v ***\n\n", t.Name(), err)
		t.Skip(err)
	}
	return &engine{e}
}

// aloud writes past the test's log, which go test shows of failures only.
func aloud(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stdout, format, args...) // nobody to tell where that fails
}

// run runs docker, also after the test's context has ended.
func (e *engine) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.Run(context.Background(), args...)
	if err != nil {
		t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
	return out
}

// base makes sure that an image is there: it is, or is pulled, or gets a
// stand-in, which is removed at the end.
func (e *engine) base(t *testing.T, name string) {
	t.Helper()
	err := e.Have(t.Context(), name)
	if err == nil {
		return
	}
	t.Logf("%v: a stand-in is made from this machine's own", err)
	if err := e.StandIn(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
}

// tag names the image of this run of the tests.
func (e *engine) tag() string { return fmt.Sprintf("weirtest:%d", os.Getpid()) }

// image builds the image by the Dockerfile of the clean tree.
func (e *engine) image(t *testing.T) {
	t.Helper()
	e.base(t, docker.GoImage)
	began := time.Now()
	log := filepath.Join(t.TempDir(), "build.log")
	t.Cleanup(func() {
		if err := e.Forget(context.Background(), log, e.tag()); err != nil {
			t.Error(err)
		}
	})
	err := e.Build(t.Context(), e.tree(t), e.tag(), "v0.0.0-test", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the image took %v", time.Since(began).Round(time.Second))
}

// tree unpacks what is committed: HEAD, or the tree that WEIR_COMPOSE_TREE names.
func (e *engine) tree(t *testing.T) string {
	t.Helper()
	rev := os.Getenv("WEIR_COMPOSE_TREE")
	if rev == "" {
		rev = "HEAD"
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", `git archive "$1" | tar -C "$2" -xf -`,
		"bash", rev, dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(errors.Join(err, errors.New(string(out))))
	}
	return dir
}
