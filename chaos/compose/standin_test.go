package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// standIn lays out the root of an image in dir, and returns changes for docker
// import.
type standIn func(t *testing.T, dir string) (changes []string)

// base makes sure that an image is there: it is, or is pulled, or gets a
// stand-in that is made of what this machine has, and removed at the end.
func (e *engine) base(t *testing.T, name string, build standIn) {
	t.Helper()
	mark, err := docker(time.Minute, nil, "image", "inspect", "--format", `{{index .Config.Labels "`+label+`"}}`, name)
	if err == nil && strings.TrimSpace(mark) != "base" {
		return
	}
	if err != nil {
		out, err := docker(5*time.Minute, nil, "pull", name)
		if err == nil {
			return // it stays, for the next time
		}
		t.Logf("%s cannot be pulled (%s): a stand-in is made from this machine's own", name, lastLine(out))
	}
	dir := t.TempDir()
	script := `tar -C "$1" -cf - . | docker import --change "LABEL ` + label + `=base"`
	for _, c := range build(t, dir) {
		script += fmt.Sprintf(" --change %q", c)
	}
	t.Cleanup(func() {
		if out, err := docker(time.Minute, nil, "image", "rm", name); err != nil {
			t.Errorf("image rm: %v\n%s", err, out)
		}
	})
	shell(t, script+` - "$2"`, dir, name)
}

// goStandIn is this machine's Go where the official image has it, certificates,
// and a shell.
func goStandIn(t *testing.T, dir string) []string {
	goroot := strings.TrimSpace(shell(t, "go env GOROOT"))
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: a stand-in for golang:1.26 needs a shell: install Debian's package busybox-static", err)
	}
	put(t, dir, busybox, "bin/sh")
	put(t, dir, "/etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/ca-certificates.crt")
	for _, d := range []string{"tmp", "root", "go", "usr/local/go"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, `tar -C "$1" --exclude=./test --exclude=./doc --exclude=./api -cf - . | tar -C "$2" -xf -`, goroot, filepath.Join(dir, "usr/local/go"))
	return []string{"ENV PATH=/usr/local/go/bin:/bin", "ENV GOPATH=/go", "ENV GOTOOLCHAIN=local"}
}

// redisStandIn is this machine's redis-server with the libraries that it loads.
func redisStandIn(t *testing.T, dir string) []string {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("%v: it stands in for redis:7: install Debian's package redis-server", err)
	}
	put(t, dir, server, "bin/redis-server")
	for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(shell(t, `ldd "$1"`, server), -1) {
		put(t, dir, m[1], m[1])
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"ENV PATH=/bin", "WORKDIR /data", "VOLUME /data"}
}

// put copies a program or file into the root of an image.
func put(t *testing.T, dir, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to = filepath.Join(dir, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// shell runs a script, any part of which may fail it, and returns what it prints.
func shell(t *testing.T, script string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-euo", "pipefail", "-c", script, "bash"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}
