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
	if out, err := run(ctx, 30*time.Second, "docker", "info"); err != nil {
		return nil, fmt.Errorf("%w: %w: %s: start one, or look whether this user may talk to it", ErrNoEngine, err,
			LastLine(out))
	}
	e := new(Engine)
	_, err := run(ctx, 30*time.Second, "docker", "buildx", "version")
	e.buildx = err == nil
	if _, err := run(ctx, 30*time.Second, "docker", "compose", "version"); err == nil {
		e.compose = []string{"docker", "compose"}
		return e, nil
	}
	path, err := exec.LookPath("docker-compose")
	if err != nil {
		return nil, errors.New("there is a Docker engine, but neither the compose plugin nor docker-compose: install one " +
			"of them")
	}
	e.compose = []string{path}
	return e, nil
}

// Run runs docker for at most a minute and returns what it prints, errors too.
func (e *Engine) Run(ctx context.Context, args ...string) (string, error) {
	return run(ctx, brief, "docker", args...)
}

// Output is Run without what docker prints as errors, which then are in the error.
func (e *Engine) Output(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, brief)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	var out []byte
	err := tied(cmd, func() (err error) { out, err = cmd.Output(); return err })
	if ctx.Err() != nil {
		return "", fmt.Errorf("docker %s: it was interrupted, or took longer than %v: %w", strings.Join(args, " "), brief,
			ctx.Err())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, LastLine(string(exit.Stderr)))
	}
	return string(out), err
}

// run runs a program with a bound. A signal for this process, as ^C in a terminal,
// does not reach it: what it is about is ended in good order. It is killed when this
// process is.
func run(ctx context.Context, most time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out []byte
	err := tied(cmd, func() (err error) { out, err = cmd.CombinedOutput(); return err })
	return string(out), err
}

// LastLine is the last line of what a program said, which mostly says why.
func LastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// Build builds an image by the Dockerfile of a directory, for at most 20 minutes. What
// the build says goes to a file, for Forget, and for a Guard should this process be
// killed. Modules come from where this machine has them from.
func (e *Engine) Build(ctx context.Context, dir, tag, version, log string) (err error) {
	args := []string{"build", "--tag", tag, "--build-arg", "VERSION=" + version, "--label", label + "=built"}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB"} {
		value, err := run(ctx, brief, "go", "env", name)
		if err != nil {
			return fmt.Errorf("go env %s: %w: %s", name, err, LastLine(value))
		}
		if value = strings.TrimSpace(value); value != "" {
			args = append(args, "--build-arg", name+"="+value)
		}
	}
	to, err := os.Create(log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", append(args, dir)...)
	cmd.Stdout, cmd.Stderr = to, to
	if !e.buildx {
		cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0") // the builder that every engine has
	}
	err = errors.Join(tied(cmd, cmd.Run), to.Close())
	if ctx.Err() != nil {
		return fmt.Errorf("docker build: it was interrupted, or took too long: %w", ctx.Err())
	}
	if err != nil {
		said, _ := os.ReadFile(log) // the error is what counts
		err = fmt.Errorf("docker build: %w\n%s", err, said)
	}
	return err
}

// forgetting removes images by their names and what a build, of which $1 is the log,
// left on the way: its containers, and its layers that have no name, the newest first,
// for the others are below it. What somebody uses is not removed. What the engine was
// making of a container when the build was interrupted comes seconds later, and without
// a word of it, but on top of a layer that is known.
const forgetting = `log=$1; shift
for c in $(sed -n 's/^ ---> Running in \([0-9a-f]*\)$/\1/p' "$log"); do docker rm -fv "$c" >/dev/null 2>&1; done
failed=0
for i in "$@"; do
  if docker image inspect "$i" >/dev/null 2>&1; then docker image rm "$i" || failed=1; fi
done
nameless() { [ "$(docker image inspect --format '{{len .RepoTags}}' "$1" 2>/dev/null)" = 0 ]; }
layers=
for l in $(sed -n 's/^ ---> \([0-9a-f]\{12\}\)$/\1/p' "$log"); do if nameless "$l"; then layers="$l $layers"; fi; done
left=$(grep -q '^Successfully built' "$log" || echo 20)
while [ -n "$layers" ] && [ "${left:-0}" -gt 0 ]; do
  for l in $(docker images -aq); do
    below=$(docker image inspect --format '{{.Parent}}' "$l" | sed 's/^sha256:\(.\{12\}\).*/\1/')
    case " $layers" in *" $l "*) continue;; esac
    case " $layers" in *" ${below:-none} "*) if nameless "$l"; then layers="$l $layers"; left=1; fi;; esac
  done
  left=$((left - 1)); if [ "$left" -gt 0 ]; then sleep 1; fi
done
for l in $layers; do docker image rm "$l" >/dev/null 2>&1; done
exit $failed`

// Forget removes images, if they are there, and what a build, which may have been
// interrupted, left on the way to them, to judge by what it said.
func (e *Engine) Forget(ctx context.Context, log string, images ...string) error {
	if _, err := os.Stat(log); err != nil {
		log = os.DevNull // nothing was built
	}
	out, err := run(ctx, 2*time.Minute, "sh", append([]string{"-c", forgetting, "sh", log}, images...)...)
	if err != nil {
		err = fmt.Errorf("not all of the images %s can be removed: %w: %s", strings.Join(images, ", "), err, LastLine(out))
	}
	return err
}
