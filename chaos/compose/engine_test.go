package compose

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// label marks images that stand in for those that cannot be pulled, so that one
// that an aborted run left behind is known.
const label = "weir.stand-in"

// engine is a Docker engine that answers, and how compose is called.
type engine struct {
	compose []string
}

// needEngine skips the test, aloud, where there is no Docker engine.
func needEngine(t *testing.T) *engine {
	t.Helper()
	if os.Getenv("WEIR_COMPOSE") == "" {
		t.Skip("it builds an image, for a minute or more: make compose-test runs it")
	}
	skip := func(why string) {
		aloud("\n*** %s is NOT run: %s ***\n\n", t.Name(), why)
		t.Skip(why)
	}
	if out, err := docker(30*time.Second, nil, "info"); err != nil {
		skip(fmt.Sprintf("no Docker engine answers: %v: %s", err, lastLine(out)))
	}
	e := &engine{}
	if _, err := docker(30*time.Second, nil, "compose", "version"); err == nil {
		e.compose = []string{"docker", "compose"}
	} else if path, err := exec.LookPath("docker-compose"); err == nil {
		e.compose = []string{path}
	} else {
		skip("there is a Docker engine, but neither the compose plugin nor docker-compose")
	}
	return e
}

// aloud writes past the test's log, which go test shows of failures only.
func aloud(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stdout, format, args...) // nobody to tell where that fails
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// docker runs the client with a bound, also after the test's context has ended.
func docker(most time.Duration, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (e *engine) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := docker(time.Minute, nil, args...)
	if err != nil {
		t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
	return out
}

// tag names the image of this run of the tests.
func (e *engine) tag() string { return fmt.Sprintf("weirtest:%d", os.Getpid()) }

// image builds the image by the Dockerfile of the clean tree.
func (e *engine) image(t *testing.T) {
	t.Helper()
	e.base(t, "golang:1.26", goStandIn)
	args := []string{"build", "--tag", e.tag(), "--build-arg", "VERSION=v0.0.0-test", "--label", label + "=test"}
	// Modules come from where this machine has them from.
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB"} {
		if value := strings.TrimSpace(shell(t, `go env "$1"`, name)); value != "" {
			args = append(args, "--build-arg", name+"="+value)
		}
	}
	began := time.Now()
	var env []string
	if _, err := docker(time.Minute, nil, "buildx", "version"); err != nil {
		env = []string{"DOCKER_BUILDKIT=0"} // the builder that every engine has
	}
	out, err := docker(20*time.Minute, env, append(args, e.tree(t))...)
	t.Cleanup(func() { e.forget(t, out) })
	if err != nil {
		t.Fatalf("docker build: %v\n%s", err, out)
	}
	t.Logf("the image took %v", time.Since(began).Round(time.Second))
}

// forget removes the image and what the build, to judge by what it said, left on
// the way to it.
func (e *engine) forget(t *testing.T, built string) {
	if out, err := docker(time.Minute, nil, "image", "rm", e.tag()); err != nil {
		t.Errorf("image rm: %v\n%s", err, out)
	}
	var layers []string
	for _, m := range regexp.MustCompile(`(?m)^ ---> ([0-9a-f]{12})$`).FindAllStringSubmatch(built, -1) {
		layers = append(layers, m[1])
	}
	// The newest first, for the others are below it; a base image that has a name
	// stays, and so does what somebody else uses.
	for i := len(layers) - 1; i >= 0; i-- {
		if tags, err := docker(time.Minute, nil, "image", "inspect", "--format", "{{len .RepoTags}}", layers[i]); err == nil && strings.TrimSpace(tags) == "0" {
			_, _ = docker(time.Minute, nil, "image", "rm", layers[i]) // refused for one that is in use
		}
	}
}
