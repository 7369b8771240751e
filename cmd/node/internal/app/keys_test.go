package app

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The keys are made once, for this user alone, and are what the flags take.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	if status, out, said := run(t, nil, "keys", dir); status != ExitOK || said != "" || strings.Count(out, "made "+dir) != 2 {
		t.Fatalf("%d %q %q", status, out, said)
	}
	made := map[string]string{}
	for _, name := range []string{"secret", "gossip.key"} {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if key, bad := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text))); bad != nil || len(key) != 32 || err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v: %v, %v", name, len(key), info.Mode(), bad, err)
		}
		made[name] = string(text)
	}
	if made["secret"] == made["gossip.key"] {
		t.Error("both are the same")
	}
	o := newOptions()
	o.member, o.secretFile, o.cluster.gossipKeyFile = true, filepath.Join(dir, "secret"), filepath.Join(dir, "gossip.key")
	if c, err := o.config(nil); err != nil || len(c.Secret) != 44 || len(c.Cluster.GossipKeys) != 1 {
		t.Errorf("%v", err)
	}

	// Existing files are kept, and missing ones created.
	if err := os.Remove(filepath.Join(dir, "gossip.key")); err != nil {
		t.Fatal(err)
	}
	if status, out, _ := run(t, nil, "keys", dir); status != ExitOK || !strings.Contains(out, "secret is there already, and stays\nmade ") {
		t.Errorf("%d %q", status, out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "secret")); err != nil || string(text) != made["secret"] {
		t.Errorf("the secret is now %q: %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Of many that make the keys at a time, all end up with the same.
func TestKeysMadeByMany(t *testing.T) {
	dir := t.TempDir()
	var made sync.Map
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			status, _, said := run(t, nil, "keys", dir)
			text, err := os.ReadFile(filepath.Join(dir, "secret"))
			if status != ExitOK || err != nil {
				t.Errorf("%d %s %v", status, said, err)
			}
			made.Store(string(text), true)
		})
	}
	all.Wait()
	n := 0
	made.Range(func(any, any) bool { n++; return true })
	if left, err := os.ReadDir(dir); n != 1 || err != nil || len(left) != 2 {
		t.Errorf("%d secrets; %v, %v", n, left, err)
	}
}

func TestKeysNotMade(t *testing.T) {
	empty := filepath.Dir(file(t, "secret", ""))
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no directory":        {[]string{"keys"}, ExitUsage, "give the one directory"},
		"two":                 {[]string{"keys", "a", "b"}, ExitUsage, "give the one directory"},
		"one that is missing": {[]string{"keys", filepath.Join(t.TempDir(), "none")}, ExitFailed, "none/secret cannot be made: no such file or directory; make the directory first: mkdir -p "},
		"an empty file":       {[]string{"keys", empty}, ExitFailed, "remove it"},
	} {
		if status, _, said := run(t, nil, c.args...); status != c.status || !strings.Contains(said, c.want) {
			t.Errorf("%s: %d %s", name, status, said)
		}
	}
}

// A member beyond loopback does not start without keys, and the error says what to do.
func TestMemberWithoutKeys(t *testing.T) {
	status, _, said := run(t, nil, free("--name", "node-1", "--gossip-addr", ":0")...)
	for _, want := range []string{`--gossip-addr \":0\" can be reached from other machines`, "node keys DIR", "openssl rand -base64 32 >DIR/secret",
		"--secret-file DIR/secret --gossip-key-file DIR/gossip.key", "--insecure"} {
		if status != ExitFailed || !strings.Contains(said, want) {
			t.Errorf("%d, and it does not say %q:\n%s", status, want, said)
		}
	}
}

// TestKeyHelp: the error names no file that the user did not name, and says what to do.
func TestKeyHelp(t *testing.T) {
	for err, want := range map[error]string{
		&fs.PathError{Op: "open", Path: "/d/secret123", Err: fs.ErrPermission}: "permission denied; choose a directory in which this user may write",
		&fs.PathError{Op: "open", Path: "/d/secret123", Err: fs.ErrNotExist}:   "file does not exist; make the directory first: mkdir -p /d",
		fs.ErrInvalid: "invalid argument",
	} {
		if got := keyHelp("/d", err); got.Error() != want || errors.Is(err, fs.ErrPermission) != errors.Is(got, fs.ErrPermission) {
			t.Errorf("%v became %q, want %q", err, got, want)
		}
	}
}
