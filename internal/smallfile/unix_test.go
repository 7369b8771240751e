//go:build unix

package smallfile

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is not a file is refused at once: nobody waits for the other end of a pipe, and
// nothing is read without end.
func TestReadNeverWaits(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		pipe: "is a pipe; name a regular file", link: "is a pipe", socket: "is a socket", "/dev/zero": "is a device",
		"/dev/tty": "is a device", dir: "is a directory",
	} {
		if name == pipe || name == link { // it took the place of a file that was looked at
			if _, _, err := readOpened("rules file", name, 1000); err == nil || !strings.Contains(err.Error(), "is a pipe") {
				t.Errorf("%s, once it was looked at: %v", name, err)
			}
		}
		for what, read := range map[string]func() error{
			"Read":        func() error { _, err := Read("rules file", name, 1000); return err },
			"ReadSecret":  func() error { _, _, err := ReadSecret("rules file", name, 1000); return err },
			"ReadTrusted": func() error { _, err := ReadTrusted("rules file", name, 1000); return err },
		} {
			done := make(chan error, 1)
			go func() { done <- read() }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "rules file "+name+" "+want) {
					t.Errorf("%s: %s: %v", what, name, err)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("%s of %s waits", what, name)
			}
		}
	}
}

// A secret that anyone may write is refused, and of one that anyone may read people are
// warned.
func TestModesOfSecrets(t *testing.T) {
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o400: "", 0o440: "", 0o640: "", 0o660: "",
		0o644: "warned", 0o444: "warned", 0o604: "warned",
		0o666: "refused", 0o602: "refused", 0o646: "refused",
	} {
		name := write(t, mode, "s3cret")
		data, warning, err := ReadSecret("secret file", name, 100)
		switch want {
		case "refused":
			if err == nil || data != nil || !strings.Contains(err.Error(), "secret file "+name+" can be written by every user") {
				t.Errorf("%04o: %q, %v", mode, data, err)
			}
		case "warned":
			if err != nil || string(data) != "s3cret" || !strings.Contains(warning,
				"secret file "+name+" can be read by every user") {
				t.Errorf("%04o: %q, %q, %v", mode, data, warning, err)
			}
		default:
			if err != nil || string(data) != "s3cret" || warning != "" {
				t.Errorf("%04o: %q, %q, %v", mode, data, warning, err)
			}
		}
		_, err = ReadTrusted("certificate file", name, 100)
		if (err != nil) != (want == "refused") {
			t.Errorf("%04o, of a certificate: %v", mode, err)
		}
	}
	// As Kubernetes mounts it: a link through a link, of which neither has a mode.
	dir, real := t.TempDir(), write(t, 0o644, "s3cret")
	for _, l := range [][2]string{{filepath.Dir(real), "..data"},
		{filepath.Join("..data", filepath.Base(real)), "secret"}} {
		if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, warning, err := ReadSecret("secret file", filepath.Join(dir, "secret"), 100); err != nil ||
		!strings.Contains(warning, "mode 0644") {
		t.Errorf("behind links: %q, %v", warning, err)
	}
}

// TestWritable: a file that everyone may write is warned of, and no other.
func TestWritable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o644: false, 0o664: false, 0o666: true, 0o602: true} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		if w := Writable("rules file", name); (w != "") != want {
			t.Errorf("mode %04o: %q", mode, w)
		}
	}
	if w := Writable("rules file", name+".none"); w != "" {
		t.Error(w)
	}
}
