// Package docker is a Docker engine as the tests and the chaos runs use it: the
// image of the Dockerfile, stand-ins for images that cannot be pulled, and
// projects of compose. All of it goes through the programs docker and compose,
// each with a bound.
package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// label marks images that are made here, so that one that an aborted run left
// behind is known: as a base that stands in for another, or by the run's name.
const label = "weir.stand-in"

// brief bounds a command that only asks, or ends something.
const brief = time.Minute

// ErrNoEngine is returned by Find where no engine answers.
var ErrNoEngine = errors.New("no Docker engine answers")

// Engine is a Docker engine that answers, and how compose is called. Its methods
// are safe for concurrent use.
type Engine struct {
	compose []string
	buildx  bool
}

// Find returns the engine that the program docker talks to. It fails where none
// answers, or where there is no compose: neither the plugin nor docker-compose.
func Find(ctx context.Context) (*Engine, error) {
	if out, err := run(ctx, 30*time.Second, nil, "docker", "info"); err != nil {
		return nil, fmt.Errorf("%w: %w: %s: start one, or look whether this user may talk to it", ErrNoEngine, err, LastLine(out))
	}
	e := new(Engine)
	_, err := run(ctx, 30*time.Second, nil, "docker", "buildx", "version")
	e.buildx = err == nil
	if _, err := run(ctx, 30*time.Second, nil, "docker", "compose", "version"); err == nil {
		e.compose = []string{"docker", "compose"}
		return e, nil
	}
	path, err := exec.LookPath("docker-compose")
	if err != nil {
		return nil, errors.New("there is a Docker engine, but neither the compose plugin nor docker-compose: install one of them")
	}
	e.compose = []string{path}
	return e, nil
}

// Run runs docker for at most a minute and returns what it prints, errors too.
func (e *Engine) Run(ctx context.Context, args ...string) (string, error) {
	return run(ctx, brief, nil, "docker", args...)
}

// Output is Run without what docker prints as errors, which then are in the error.
func (e *Engine) Output(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, brief)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	apart(cmd)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("docker %s: it was interrupted, or took longer than %v: %w", strings.Join(args, " "), brief, ctx.Err())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, LastLine(string(exit.Stderr)))
	}
	return string(out), err
}

// run runs a program with a bound. A signal for this process, as ^C in a terminal,
// does not reach it: what it is about is ended in good order.
func run(ctx context.Context, most time.Duration, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	apart(cmd)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// LastLine is the last line of what a program said, which mostly says why.
func LastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// Build builds an image by the Dockerfile of a directory, for at most 20 minutes,
// and returns what the build said, for Forget. Modules come from where this
// machine has them from.
func (e *Engine) Build(ctx context.Context, dir, tag, version string) (said string, err error) {
	args := []string{"build", "--tag", tag, "--build-arg", "VERSION=" + version, "--label", label + "=built"}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB"} {
		value, err := run(ctx, brief, nil, "go", "env", name)
		if err != nil {
			return "", fmt.Errorf("go env %s: %w: %s", name, err, LastLine(value))
		}
		if value = strings.TrimSpace(value); value != "" {
			args = append(args, "--build-arg", name+"="+value)
		}
	}
	var env []string
	if !e.buildx {
		env = []string{"DOCKER_BUILDKIT=0"} // the builder that every engine has
	}
	said, err = run(ctx, 20*time.Minute, env, "docker", append(args, dir)...)
	if err != nil {
		err = fmt.Errorf("docker build: %w\n%s", err, said)
	}
	return said, err
}

// Forget removes an image and what its build, to judge by what it said, left on
// the way to it.
func (e *Engine) Forget(ctx context.Context, tag, said string) error {
	out, err := e.Run(ctx, "image", "rm", tag)
	if err != nil {
		err = fmt.Errorf("the image %s cannot be removed: %w: %s", tag, err, LastLine(out))
	}
	var layers []string
	for _, m := range regexp.MustCompile(`(?m)^ ---> ([0-9a-f]{12})$`).FindAllStringSubmatch(said, -1) {
		layers = append(layers, m[1])
	}
	// The newest first, for the others are below it; a base image that has a name
	// stays, and so does what somebody else uses.
	for i := len(layers) - 1; i >= 0; i-- {
		if tags, err := e.Run(ctx, "image", "inspect", "--format", "{{len .RepoTags}}", layers[i]); err == nil && strings.TrimSpace(tags) == "0" {
			_, _ = e.Run(ctx, "image", "rm", layers[i]) // refused for one that is in use
		}
	}
	return err
}
