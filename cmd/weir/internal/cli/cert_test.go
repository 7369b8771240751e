package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var certNow = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

// cert runs "weir cert" at a time and returns its status and what it says.
func cert(t *testing.T, now time.Time, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	status = Run(context.Background(), append([]string{"cert"}, args...),
		Streams{In: strings.NewReader(""), Out: &o, Err: &e, Now: func() time.Time {
			return now
		}})
	return status, o.String(), e.String()
}

func mustCert(t *testing.T, args ...string) {
	t.Helper()
	if status, _, errs := cert(t, certNow, args...); status != ExitOK {
		t.Fatalf("cert %v: status %d: %s", args, status, errs)
	}
}

func readCert(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := pair.PrivateKey.(ed25519.PrivateKey); !ok {
		t.Errorf("%s has a key of type %T", name, pair.PrivateKey)
	}
	return pair.Leaf
}

// TestCerts makes one of each, and looks which authority vouches for which use of it.
func TestCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	mustCert(t, "authority", "--dir", dir, "--cluster", "prod")
	mustCert(t, "node", "node-1", "--dir", dir, "--host", "node-1.example,10.0.0.1")
	mustCert(t, "client", "shop", "--dir", dir)
	mustCert(t, "admin", "ada", "--dir", dir, "--valid", "8h")
	week, year := certNow.Add(7*24*time.Hour), certNow.Add(365*24*time.Hour)
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for _, x := range []struct {
		name, uri string
		ends      time.Time
		ca        string
		usages    []x509.ExtKeyUsage
		host      string
	}{
		{"peer-ca", "weir://prod/authority/peer", year, "peer-ca", nil, ""},
		{"client-ca", "weir://prod/authority/client", year, "client-ca", nil, ""},
		{"node-1-peer", "weir://prod/node/node-1", week, "peer-ca", []x509.ExtKeyUsage{server, client}, "10.0.0.1"},
		{"node-1-server", "weir://prod/node/node-1", week, "client-ca", []x509.ExtKeyUsage{server}, "node-1.example"},
		{"client-shop", "weir://prod/client/shop", week, "client-ca", []x509.ExtKeyUsage{client}, ""},
		{"admin-ada", "weir://prod/admin/ada", certNow.Add(8 * time.Hour), "client-ca", []x509.ExtKeyUsage{client}, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := readCert(t, dir, x.name)
			if len(c.URIs) != 1 || c.URIs[0].String() != x.uri || !c.NotAfter.Equal(x.ends) ||
				!slices.Equal(c.ExtKeyUsage, x.usages) {
				t.Errorf("%v until %v for %v", c.URIs, c.NotAfter, c.ExtKeyUsage)
			}
			if c.IsCA != strings.HasSuffix(x.name, "-ca") {
				t.Errorf("authority: %v", c.IsCA)
			}
			if runtime.GOOS != "windows" {
				if i, err := os.Stat(filepath.Join(dir, x.name+".key")); err != nil || i.Mode().Perm() != 0o600 {
					t.Errorf("the key's file: %v, %v", i.Mode(), err)
				}
			}
			for _, ca := range []string{"peer-ca", "client-ca"} {
				roots := x509.NewCertPool()
				roots.AddCert(readCert(t, dir, ca))
				_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: certNow, DNSName: x.host,
					KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
				if (err == nil) != (ca == x.ca) {
					t.Errorf("from %s: %v", ca, err)
				}
			}
		})
	}
}

// TestCertKeeps makes nothing where something is, unless told.
func TestCertKeeps(t *testing.T) {
	dir := t.TempDir()
	mustCert(t, "authority", "--dir", dir)
	mustCert(t, "client", "shop", "--dir", dir)
	before := readCert(t, dir, "client-shop").SerialNumber
	if err := os.Remove(filepath.Join(dir, "client-shop.key")); err != nil {
		t.Fatal(err)
	}
	status, _, errs := cert(t, certNow, "client", "shop", "--dir", dir)
	if status != ExitFailed || !strings.Contains(errs, "client-shop.crt exists") || !strings.Contains(errs, "--force") {
		t.Errorf("status %d: %s", status, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "client-shop.key")); err == nil {
		t.Error("half of it was made")
	}
	mustCert(t, "client", "shop", "--dir", dir, "--force")
	if readCert(t, dir, "client-shop").SerialNumber.Cmp(before) == 0 {
		t.Error("--force did not replace it")
	}
}

func TestCertRefuses(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	mustCert(t, "authority", "--dir", dir)
	mustCert(t, "client", "shop", "--dir", dir)
	foreign := t.TempDir()
	for _, f := range []string{".crt", ".key"} {
		data, err := os.ReadFile(filepath.Join(dir, "client-shop"+f))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(foreign, "client-ca"+f), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	late := certNow.Add(366 * 24 * time.Hour)
	for _, x := range []struct {
		name   string
		now    time.Time
		args   []string
		status int
		want   string
	}{
		{"no authority", certNow, []string{"client", "a", "--dir", empty}, ExitFailed, `"weir cert authority" makes one`},
		{"another authority", certNow, []string{"client", "a", "--dir", foreign}, ExitFailed, "is not an authority"},
		{"expired authority", late, []string{"client", "a", "--dir", dir}, ExitFailed, "expired at 2032-05-05"},
		{"path", certNow, []string{"client", "../a", "--dir", dir}, ExitUsage, "cannot be a name"},
		{"no name", certNow, []string{"admin", "--dir", dir}, ExitUsage, "give one NAME"},
		{"host with a port", certNow, []string{"node", "a", "--dir", dir, "--host", "a:80"}, ExitUsage, "without a port"},
		{"too short", certNow, []string{"node", "a", "--dir", dir, "--valid", "1s"}, ExitUsage, "out of range"},
		{"cluster", certNow, []string{"authority", "--dir", empty, "--cluster", "a/b"}, ExitUsage, "cannot be a name"},
		{"unknown", certNow, []string{"clientt"}, ExitUsage, `did you mean "client"?`},
	} {
		t.Run(x.name, func(t *testing.T) {
			status, out, errs := cert(t, x.now, x.args...)
			if status != x.status || !strings.Contains(errs, x.want) || out != "" {
				t.Errorf("status %d: %s%s", status, out, errs)
			}
		})
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("something was made: %v, %v", left, err)
	}
	// It does not outlive its authority.
	status, out, errs := cert(t, certNow.Add(364*24*time.Hour), "client", "a", "--dir", dir)
	if status != ExitOK || !strings.Contains(out, "2032-05-05") || !strings.Contains(errs, "expires with its authority") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}
