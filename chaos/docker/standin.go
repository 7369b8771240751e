package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/weirlimit/weir/chaos/tool"
)

// GoImage is what the Dockerfile builds with, RedisImage what docker-compose.yaml
// has for the profile redis.
const (
	GoImage    = "golang:1.26"
	RedisImage = "redis:7"
)

// Have makes sure that an image is there: it is, or is pulled, for at most five
// minutes, and then stays for the next time. An error is what pulling said.
func (e *Engine) Have(ctx context.Context, name string) error {
	mark, err := e.Output(ctx, "image", "inspect", "--format", `{{index .Config.Labels "`+label+`"}}`, name)
	if err == nil && strings.TrimSpace(mark) != "base" {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s is a stand-in that another run left behind, or still uses", name)
	}
	if out, err := run(ctx, 5*time.Minute, "docker", "pull", name); err != nil {
		return fmt.Errorf("%s cannot be pulled: %s", name, LastLine(out))
	}
	return nil
}

// StandIn gives the name GoImage or RedisImage to an image that is made of what
// this machine has. The caller removes it when it is done.
func (e *Engine) StandIn(ctx context.Context, name string) (err error) {
	lay, ok := map[string]func(context.Context, string) ([]string, error){GoImage: goStandIn,
		RedisImage: redisStandIn}[name]
	if !ok {
		return fmt.Errorf("there is no stand-in for %s", name)
	}
	scratch, err := tool.NewDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	dir := scratch.Path
	changes, err := lay(ctx, dir)
	if err != nil {
		return err
	}
	script := `tar -C "$1" -cf - . | docker import --change "LABEL ` + label + `=base"`
	for _, c := range changes {
		script += fmt.Sprintf(" --change %q", c)
	}
	_, err = shell(ctx, script+` - "$2"`, dir, name)
	return err
}

// Remove removes an image by its name.
func (e *Engine) Remove(ctx context.Context, name string) error {
	if out, err := e.Run(ctx, "image", "rm", name); err != nil {
		return fmt.Errorf("the image %s cannot be removed: %w: %s", name, err, LastLine(out))
	}
	return nil
}

// goStandIn is this machine's Go where the official image has it, certificates,
// and a shell.
func goStandIn(ctx context.Context, dir string) ([]string, error) {
	goroot, err := shell(ctx, "go env GOROOT")
	if err != nil {
		return nil, err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("%w: a stand-in for golang:1.26 needs a shell: install Debian's package busybox-static", err)
	}
	err = errors.Join(put(dir, busybox, "bin/sh"), put(dir, "/etc/ssl/certs/ca-certificates.crt",
		"etc/ssl/certs/ca-certificates.crt"))
	for _, d := range []string{"tmp", "root", "go", "usr/local/go"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	if err != nil {
		return nil, err
	}
	_, err = shell(ctx, `tar -C "$1" --exclude=./test --exclude=./doc --exclude=./api -cf - . | tar -C "$2" -xf -`,
		strings.TrimSpace(goroot), filepath.Join(dir, "usr/local/go"))
	return []string{"ENV PATH=/usr/local/go/bin:/bin", "ENV GOPATH=/go", "ENV GOTOOLCHAIN=local"}, err
}

// redisStandIn is this machine's redis-server with the libraries that it loads.
func redisStandIn(ctx context.Context, dir string) ([]string, error) {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: it stands in for redis:7: install Debian's package redis-server", err)
	}
	libraries, err := shell(ctx, `ldd "$1"`, server)
	if err != nil {
		return nil, err
	}
	err = put(dir, server, "bin/redis-server")
	for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(libraries, -1) {
		err = errors.Join(err, put(dir, m[1], m[1]))
	}
	err = errors.Join(err, os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	return []string{"ENV PATH=/bin", "WORKDIR /data", "VOLUME /data"}, err
}

// put copies a program or file into the root of an image.
func put(dir, from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	to = filepath.Join(dir, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// shell runs a script, any part of which may fail it, and returns what it prints.
func shell(ctx context.Context, script string, args ...string) (string, error) {
	out, err := run(ctx, 5*time.Minute, "bash", append([]string{"-euo", "pipefail", "-c", script, "bash"}, args...)...)
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", script, err, LastLine(out))
	}
	return out, nil
}
