package app

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs"
)

// The keys are made once, for this user alone, and are what the flags take.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	if status, out, said := run(t, nil, "keys", dir); status != ExitOK || said != "" ||
		strings.Count(out, "made "+dir) != 2 {
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
		if key, bad := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text))); bad != nil || len(key) != 32 ||
			err != nil || info.Mode() != 0o600 {
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
	if status, out, _ := run(t, nil, "keys", dir); status != ExitOK ||
		!strings.Contains(out, "secret is there already, and stays\nmade ") {
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

// memberOf loads a member's certificate, which must be of the authority in the directory.
func memberOf(t *testing.T, dir, name string, at time.Time) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+"-peer.crt"), filepath.Join(dir, name+"-peer.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "peer-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := certs.CheckMember(pair.Leaf, "prod", name); err != nil {
		t.Error(err)
	}
	return pair.Leaf
}

// An authority whose key is lost is named, and no key takes its place: it would fit no certificate.
func TestAnAuthorityWithoutItsKey(t *testing.T) {
	dir := t.TempDir()
	args := []string{"keys", dir, "--member", "node-1"}
	if status, _, said := run(t, nil, args...); status != ExitOK {
		t.Fatalf("%d %q", status, said)
	}
	key := filepath.Join(dir, "peer-ca.key")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if status, _, said := run(t, nil, args...); status != ExitFailed ||
		!strings.Contains(said, "peer-ca.crt is there without its key, ") || !strings.Contains(said, "put the key back") {
		t.Errorf("%d %q", status, said)
	}
	if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key is there: %v", err)
	}
}

// Certificates are made once, and their authority's key is kept where no member reads. Those
// of members are renewed when half of their time is over; their keys stay.
func TestCertificatesOfMembers(t *testing.T) {
	dir, away := t.TempDir(), t.TempDir()
	args := []string{"keys", dir, "--authority", away, "--member", "node-1,node-2", "--cluster-name", "prod"}
	if status, out, said := run(t, nil, args...); status != ExitOK || said != "" || strings.Count(out, "made ") != 9 {
		t.Fatalf("%d %q %q", status, out, said)
	}
	now := time.Now()
	first := memberOf(t, dir, "node-1", now)
	memberOf(t, dir, "node-2", now)
	for name, mode := range map[string]fs.FileMode{
		filepath.Join(dir, "peer-ca.crt"): 0o644, filepath.Join(dir, "node-1-peer.crt"): 0o644,
		filepath.Join(dir, "node-1-peer.key"): 0o600,
		filepath.Join(away, "peer-ca.crt"):    0o644, filepath.Join(away, "peer-ca.key"): 0o600,
	} {
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "peer-ca.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the authority's key is where members are: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 7 {
		t.Errorf("%v, %v", left, err)
	}

	later := func(at time.Time) (said string) {
		var out bytes.Buffer
		o := keyOptions{members: []string{"node-1", "node-2", "node-3"}, authority: away, cluster: "prod",
			now: func() time.Time {
				return at
			}}
		if err := (&app{World{Out: &out}}).keys(&o, dir); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	// A further member joins; the others stay as they are.
	if out := later(now.Add(100 * 24 * time.Hour)); strings.Count(out, "made ") != 2 ||
		strings.Count(out, "node-3-peer") != 2 {
		t.Errorf("%s", out)
	}
	half := now.Add(200 * 24 * time.Hour)
	if out := later(half); strings.Count(out, "made ") != 2 ||
		!strings.Contains(out, "made "+filepath.Join(dir, "node-1-peer.crt")) {
		t.Errorf("%s", out)
	}
	renewed := memberOf(t, dir, "node-1", half)
	if !renewed.NotAfter.After(first.NotAfter) || !bytes.Equal(renewed.RawSubjectPublicKeyInfo,
		first.RawSubjectPublicKeyInfo) {
		t.Errorf("renewed until %v, was until %v", renewed.NotAfter, first.NotAfter)
	}
	// One of another authority is none.
	if err := os.WriteFile(filepath.Join(dir, "node-2-peer.crt"),
		[]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	later(half)
	memberOf(t, dir, "node-2", half)
	if status, _, said := run(t, nil, "keys", dir, "--authority", away, "--member", "node-1"); status != ExitFailed ||
		!strings.Contains(said, `is the authority of the cluster "prod", not of "weir"`) {
		t.Errorf("another cluster: %d %s", status, said)
	}
}

// Of many that make certificates at a time, all end up with ones that fit.
func TestCertificatesMadeByMany(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if status, _, said := run(t, nil, "keys", dir, "--member", "node-1,node-2", "--cluster-name",
				"prod"); status != ExitOK {
				t.Errorf("%d %s", status, said)
			}
		})
	}
	all.Wait()
	memberOf(t, dir, "node-1", time.Now())
	memberOf(t, dir, "node-2", time.Now())
	if left, err := os.ReadDir(dir); err != nil || len(left) != 8 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Apart, each member has the common keys and its own certificate, and none of another's or of the
// authority's. Made again, all stay as they are.
func TestKeysApart(t *testing.T) {
	dir, authority := t.TempDir(), t.TempDir()
	args := []string{"keys", dir, "--apart", "--authority", authority, "--member", "a,b"}
	if status, _, said := run(t, nil, args...); status != ExitOK || said != "" {
		t.Fatalf("%d %q", status, said)
	}
	read := func() map[string]string {
		files := map[string]string{}
		for _, member := range []string{"a", "b"} {
			found, err := os.ReadDir(filepath.Join(dir, member))
			if err != nil || len(found) != 5 {
				t.Fatalf("%s has %v, %v", member, found, err)
			}
			for _, f := range found {
				text, err := os.ReadFile(filepath.Join(dir, member, f.Name()))
				if err != nil {
					t.Fatal(err)
				}
				files[member+"/"+f.Name()] = string(text)
			}
		}
		return files
	}
	files := read()
	for _, name := range []string{"secret", "gossip.key", "peer-ca.crt"} {
		if files["a/"+name] == "" || files["a/"+name] != files["b/"+name] {
			t.Errorf("%s differs, or is missing", name)
		}
	}
	for _, member := range []string{"a", "b"} {
		if files[member+"/"+member+"-peer.crt"] == "" || files[member+"/"+member+"-peer.key"] == "" {
			t.Errorf("%s has no certificate of its own", member)
		}
	}
	if status, out, _ := run(t, nil, args...); status != ExitOK || strings.Contains(out, "made ") ||
		!maps.Equal(files, read()) {
		t.Errorf("%d %q", status, out)
	}
	if status, _, said := run(t, nil, "keys", dir, "--apart", "--member", "a"); status != ExitUsage ||
		!strings.Contains(said, "--authority") {
		t.Errorf("%d %q", status, said)
	}
}

func TestKeysNotMade(t *testing.T) {
	empty := filepath.Dir(file(t, "secret", ""))
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no directory": {[]string{"keys"}, ExitUsage, "give the one directory"},
		"two":          {[]string{"keys", "a", "b"}, ExitUsage, "give the one directory"},
		"one that is missing": {[]string{"keys", filepath.Join(t.TempDir(), "none")}, ExitFailed,
			"none/secret cannot be made: no such file or directory; make the directory first: mkdir -p "},
		"a cluster without members": {[]string{"keys", "a", "--cluster-name", "prod"}, ExitUsage, "give --member too"},
		"a path as a name":          {[]string{"keys", "a", "--member", "../b"}, ExitUsage, `"../b" cannot be a name`},
		"an empty file":             {[]string{"keys", empty}, ExitFailed, "remove it"},
	} {
		if status, _, said := run(t, nil, c.args...); status != c.status || !strings.Contains(said, c.want) {
			t.Errorf("%s: %d %s", name, status, said)
		}
	}
}

// A member beyond loopback does not start without keys, and the error says what to do.
func TestMemberWithoutKeys(t *testing.T) {
	status, _, said := run(t, nil, free("--name", "node-1", "--gossip-addr", ":0")...)
	for _, want := range []string{`--gossip-addr \":0\" can be reached from other machines`, "node keys DIR",
		"openssl rand -base64 32 >DIR/secret",
		"--member NAME", "--secret-file DIR/secret --gossip-key-file DIR/gossip.key --peer-cert DIR/NAME-peer.crt",
		"--insecure"} {
		if status != ExitFailed || !strings.Contains(said, want) {
			t.Errorf("%d, and it does not say %q:\n%s", status, want, said)
		}
	}
}

// TestKeyHelp: the error names no file that the user did not name, and says what to do.
func TestKeyHelp(t *testing.T) {
	for err, want := range map[error]string{
		&fs.PathError{Op: "open", Path: "/d/secret123",
			Err: fs.ErrPermission}: "permission denied; choose a directory in which this user may write",
		&fs.PathError{Op: "open", Path: "/d/secret123",
			Err: fs.ErrNotExist}: "file does not exist; make the directory first: mkdir -p /d",
		fs.ErrInvalid: "invalid argument",
	} {
		if got := keyHelp("/d", err); got.Error() != want ||
			errors.Is(err, fs.ErrPermission) != errors.Is(got, fs.ErrPermission) {
			t.Errorf("%v became %q, want %q", err, got, want)
		}
	}
}
