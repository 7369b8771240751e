//go:build unix

package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// No file that is named to a node makes it wait: a pipe is refused at once, whichever file
// it stands for.
func TestPipesForFilesAreRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, more := range map[string]string{
		"--rules":               "",
		"--secret-file":         "",
		"--gossip-key-file":     "--name a",
		"--redis-password-file": "--backend redis --redis-addr 127.0.0.1:1",
		"--redis-ca-file":       "--backend redis --redis-addr 127.0.0.1:1 --redis-tls",
	} {
		type end struct {
			status int
			said   string
		}
		done := make(chan end, 1)
		go func() {
			status, _, said := run(t, nil, free(append(strings.Fields(more), flag, pipe)...)...)
			done <- end{status, said}
		}()
		select {
		case e := <-done:
			if e.status != ExitFailed || !strings.Contains(e.said, pipe+" is a pipe; name a regular file") {
				t.Errorf("%s: %d, %s", flag, e.status, e.said)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the node waits for somebody to write into a pipe", flag)
		}
	}
}

// A secret that every user of the machine may write is refused; one that they may read is
// warned of. So is a certificate that they may write.
func TestModesOfFilesWithSecrets(t *testing.T) {
	const key = "MDEyMzQ1Njc4OWFiY2RlZg=="
	named := func(mode os.FileMode) string {
		name := file(t, "secret", key+"\n")
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for flag, more := range map[string]string{
		"--secret-file":         "",
		"--gossip-key-file":     "--name a",
		"--redis-password-file": "--backend redis --redis-addr 127.0.0.1:1",
		"--redis-ca-file":       "--backend redis --redis-addr 127.0.0.1:1 --redis-tls",
	} {
		status, _, said := run(t, nil, free(append(strings.Fields(more), flag, named(0o646))...)...)
		if status != ExitFailed || !strings.Contains(said, "can be written by every user of this machine (mode 0646)") {
			t.Errorf("%s that anyone may write: %d, %s", flag, status, said)
		}
		if flag == "--redis-ca-file" {
			continue // anyone may read it
		}
		// Rules that are not there end the node, after it has read its secrets.
		readable := append(strings.Fields(more), flag, named(0o644), "--rules", filepath.Join(t.TempDir(), "none"))
		if _, _, said := run(t, nil, free(readable...)...); !strings.Contains(said,
			"can be read by every user of this machine (mode 0644)") {
			t.Errorf("%s that anyone may read: %s", flag, said)
		}
		readable[len(readable)-3] = named(0o440)
		if _, _, said := run(t, nil, free(readable...)...); strings.Contains(said, "by every user") {
			t.Errorf("%s of a group: %s", flag, said)
		}
	}
}

// Files that say what the node decides, and that every user of the machine may write, are warned of: the rules, their
// files of numbers, Envoy's descriptors, and the data directory. Each of these nodes ends as it has read them.
func TestModesOfFilesThatDecide(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml": "version: 1\nrules:\n  - {name: a, key: [user], limits: [{limit: {from: \"attr:plan\", of: {file: " +
			"plans.yaml}, else: 5}, window: 1m, colour: red}]}\n",
		"plans.yaml": "free: 5\n", "envoy/edge.yaml": "domain: [",
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, flags string }{
		{"rules.yaml", "--rules DIR/rules.yaml"}, {"plans.yaml", "--rules DIR/rules.yaml"},
		{"envoy/edge.yaml", "--envoy-addr 127.0.0.1:0 --envoy-config DIR/envoy"},
		{"data", "--name a --data-dir DIR/data --rules DIR/none"},
	} {
		for mode, want := range map[os.FileMode]bool{0o700: false, 0o702: true, 0o700 | 0o074: false} {
			name := filepath.Join(dir, c.file)
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
			status, _, said := run(t, nil, free(strings.Fields(strings.ReplaceAll(c.flags, "DIR", dir))...)...)
			if status != ExitFailed || strings.Contains(said, name+" can be written by every user") != want {
				t.Errorf("%s with mode %04o: %d, %s", c.file, mode, status, said)
			}
			if err := os.Chmod(name, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
}
