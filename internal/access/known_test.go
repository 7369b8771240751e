package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// known is the connection of a client with a certificate, and the node's permissions.
type known struct {
	file     string
	now      time.Time
	readings int // of the clock
	access   *Access
	shown    frontend.Credentials
}

func newKnown(tb testing.TB) *known {
	tb.Helper()
	k := &known{file: filepath.Join(tb.TempDir(), "permissions.yaml"), now: time.Unix(1000, 0)}
	k.write(tb, opsPermissions)
	var err error
	k.access, err = open(k.file, slog.New(slog.DiscardHandler), func() time.Time { k.readings++; return k.now })
	if err != nil {
		tb.Fatal(err)
	}
	k.shown = k.connection()
	return k
}

func (k *known) write(tb testing.TB, permissions string) {
	tb.Helper()
	if err := os.WriteFile(k.file, []byte(permissions), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// connection returns what one more connection shows.
func (k *known) connection() frontend.Credentials {
	c := &x509.Certificate{
		NotBefore: k.now.Add(-time.Hour), NotAfter: k.now.Add(time.Hour), Subject: pkix.Name{CommonName: "ops"},
		URIs: []*url.URL{{Scheme: "weir", Host: "prod", Path: "/client/ops"}},
	}
	return frontend.Credentials{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}},
		Known: new(frontend.Known)}
}

const opsPermissions = "identities:\n  - {name: ops, certificate: {uri: \"weir://prod/client/ops\"}, may: {check: " +
	"true}}\n"

// A message of a connection that is known reads the clock once, or never if the server has
// read it, and allocates nothing. It looks at no certificate: that takes longer.
func TestKnownConnectionsAreCheap(t *testing.T) {
	k := newKnown(t)
	if _, err := k.access.Identify(k.shown); err != nil {
		t.Fatal(err)
	}
	k.shown.TLS.VerifiedChains = nil
	for _, at := range []time.Time{{}, k.now} {
		k.readings, k.shown.At = 0, at
		if found, err := k.access.Identify(k.shown); err != nil || found.Name() != "ops" {
			t.Fatalf("%v %v", found, err)
		}
		want := 1
		if !at.IsZero() {
			want = 0
		}
		if k.readings != want {
			t.Errorf("a message with the time %v reads the clock %d times, want %d", at, k.readings, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = k.access.Identify(k.shown) }); n > 0 {
		t.Errorf("a message costs %v allocations", n)
	}
}

// What a connection is known by ends with its certificate, and with the permissions file.
func TestKnownConnectionsChange(t *testing.T) {
	k := newKnown(t)
	idle := k.connection()
	is := func(when, want string, kind error) {
		t.Helper()
		for name, c := range map[string]frontend.Credentials{"used": k.shown, "idle": idle, "not kept": {TLS: k.shown.TLS}} {
			found, err := k.access.Identify(c)
			if !errors.Is(err, kind) || kind == nil && found.Name() != want {
				t.Errorf("%s, %s: %v %v, want %q %v", when, name, found, err, want, kind)
			}
		}
	}
	reload := func(permissions string) {
		t.Helper()
		k.write(t, permissions)
		if err := k.access.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	is("at first", "ops", nil)
	reload("identities:\n  - {name: other, certificate: {cn: other}, may: {check: true}}\n")
	is("after it was removed", "", limiter.ErrForbidden)
	is("after it was refused", "", limiter.ErrForbidden)
	reload("identities:\n  - {name: renamed, certificate: {cn: ops}, may: {check: true}}\n")
	is("after another entry has its name", "renamed", nil)
	k.now = k.now.Add(time.Hour)
	is("at its last instant", "renamed", nil)
	k.now = k.now.Add(time.Second)
	is("after its end", "", frontend.ErrUnauthenticated)
	k.now = k.now.Add(-2*time.Hour - 2*time.Second)
	is("before its begin", "", frontend.ErrUnauthenticated)
}

// A connection that is idle does not keep an old file in memory.
func TestKnownConnectionsKeepNoPolicy(t *testing.T) {
	k := newKnown(t)
	if _, err := k.access.Identify(k.shown); err != nil {
		t.Fatal(err)
	}
	p, ok := k.shown.Known.Load().(*proof)
	if !ok || p.by != k.access.force.Load().mark {
		t.Fatalf("%+v, want the mark of the policy", p)
	}
	if err := k.access.Reload(); err != nil {
		t.Fatal(err)
	}
	if p.by == k.access.force.Load().mark {
		t.Error("two policies have one mark")
	}
}

// BenchmarkIdentify measures the identity of messages that come over 64 connections in
// turn, of which each has a certificate of its own in memory.
func BenchmarkIdentify(b *testing.B) {
	k := newKnown(b)
	k.access.now = time.Now
	k.now = time.Now()
	shown := make([]frontend.Credentials, 64)
	for i := range shown {
		shown[i] = k.connection()
	}
	for _, of := range []struct {
		name string
		at   time.Time
		keep bool
	}{{"known, with the time", k.now, true}, {"known", time.Time{}, true}, {"not kept", time.Time{}, false}} {
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c := shown[i%len(shown)]
				c.At = of.at
				if !of.keep {
					c.Known = nil
				}
				if _, err := k.access.Identify(c); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
