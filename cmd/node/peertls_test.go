//go:build unix

package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

// certified gives each seat the flags of a certificate, besides those that it has.
func certified(t *testing.T, ca *certstest.Authority, all []*seat) (files []certstest.Paths) {
	t.Helper()
	for _, s := range all {
		p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: s.name, URI: certs.MemberURI("weir", s.name)})
		s.args = append(s.args, "--peer-cert", p.Cert, "--peer-key", p.Key, "--peer-ca", p.CA)
		files = append(files, p)
	}
	return files
}

// judge fails for wrongs that no lack of CPU explains.
func (w wrongs) judge(t *testing.T) {
	t.Helper()
	switch {
	case len(w.what) == 0:
	case w.pauses == 0:
		t.Fatal(w.what)
	case len(w.beyond) > 0:
		t.Fatal(w.beyond)
	default:
		t.Logf("nodes stood still %d times for want of CPU, so what is promised is what so many pauses cost: %v", w.pauses,
			w.what)
	}
}

// TestPeersFromOpenToClosed restarts the members of a cluster one by one from no TLS over
// optional to required, while they are asked.
func TestPeersFromOpenToClosed(t *testing.T) {
	ca := certstest.New(t, "peers")
	surviving{3, func(t *testing.T, all []*seat) []*seat {
		t.Helper()
		certified(t, ca, all)
		for _, mode := range []string{"optional", "required"} {
			for _, s := range all {
				s.args = append(s.args, "--peer-tls", mode)
				s.signal(syscall.SIGTERM)
				s.left(t)
				s.start(t)
				settle(t, all)
			}
		}
		return all
	}}.run(t).judge(t)
}

// TestPeerURIs starts members whose certificates have URIs by a template. One with the usual
// URI, or with another member's, does not start beside them.
func TestPeerURIs(t *testing.T) {
	ca := certstest.New(t, "peers")
	all := places(t, 3, clusterRules, "--peer-uri", "spiffe://example.org/{cluster}/{name}")
	show := func(s *seat, uri string) *seat {
		p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: s.name, URI: uri})
		shown := *s
		shown.args = slices.Concat(s.args, []string{"--peer-cert", p.Cert, "--peer-key", p.Key, "--peer-ca", p.CA})
		return &shown
	}
	there := []*seat{show(all[0], "spiffe://example.org/weir/node-1"), show(all[1], "spiffe://example.org/weir/node-2")}
	for _, s := range there {
		s.start(t)
	}
	settle(t, there)
	for _, uri := range []string{certs.MemberURI("weir", "node-3"), "spiffe://example.org/weir/node-2",
		"spiffe://example.org/prod/node-3"} {
		s := show(all[2], uri)
		s.start(t)
		within(t, s, "is not this member's", 1)
		<-s.done
	}
	third := show(all[2], "spiffe://example.org/weir/node-3")
	third.start(t)
	settle(t, append(there, third))
}

// TestPeerCertificatesReplaced replaces the authority and all certificates of three
// members, while they are asked, and has each make its connections anew.
func TestPeerCertificatesReplaced(t *testing.T) {
	first, second := certstest.New(t, "first"), certstest.New(t, "second")
	const loaded = "the peer certificate files were loaded again"
	all := places(t, 3, clusterRules)
	files := certified(t, first, all)
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	a := newAsker(t, all)
	const half = clusterLimit / 2
	var before, during, after counts
	before.times(t, half, a, "half")
	stop := steady(t, a, "full", &during)
	reloads := 0
	wait := func() {
		t.Helper()
		reloads++
		for _, s := range all {
			within(t, s, loaded, reloads)
		}
	}
	replace := func(name func(certstest.Paths) string, data []byte) {
		for _, p := range files {
			certstest.Replace(t, name(p), data)
		}
	}
	ofCA := func(p certstest.Paths) string { return p.CA }
	replace(ofCA, append(append([]byte{}, first.PEM...), second.PEM...))
	wait()
	for i, s := range all {
		cert, key := second.Issue(t, certstest.Leaf{Name: s.name, URI: certs.MemberURI("weir", s.name)})
		certstest.Replace(t, files[i].Cert, cert)
		certstest.Replace(t, files[i].Key, key)
	}
	wait()
	replace(ofCA, second.PEM)
	wait()
	// A member that starts now makes all its links with the new certificates.
	for _, s := range all {
		s.signal(syscall.SIGTERM)
		s.left(t)
		s.start(t)
		settle(t, all)
	}
	stop()
	after.times(t, clusterLimit, a, "half")
	if keys := after.besides(half, half); len(keys) > 0 && events(t, all, "takeover", "fenced", "fallback") == 0 {
		t.Errorf("%d keys were not admitted the rest: %v", len(keys), keys)
	}
	for _, c := range []*counts{&before, &during, &after} {
		if len(c.errs) > 0 {
			t.Errorf("%d errors, the first: %v", len(c.errs), c.errs[0])
		}
	}
}

// within waits until a text is in a node's log so many times.
func within(t *testing.T, s *seat, text string, times int) {
	t.Helper()
	deadline := time.After(soon)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for strings.Count(s.log.String(), text) < times {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%q is not %d times in the log of %s:\n%s", text, times, s.name, s.log)
		}
	}
}

// TestPeerStrangers starts nodes with bad certificates beside a cluster: none becomes a
// member, and that is logged a few times.
func TestPeerStrangers(t *testing.T) {
	ca, other := certstest.New(t, "peers"), certstest.New(t, "clients")
	all := places(t, 2, clusterRules)
	certified(t, ca, all)
	own := *all[1]
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	all[0].args = append(all[0].args, "--audit", audit)
	all[0].start(t)
	all[0].until(all[0].log, "the node is ready")
	for name, x := range map[string]struct {
		ca   *certstest.Authority
		leaf *certstest.Leaf
		want string // in the node's log that is to be refused, or in the other's
	}{
		"none": {nil, nil, "does not speak TLS"},
		"another's": {other, &certstest.Leaf{Name: own.name, URI: certs.MemberURI("weir", own.name)},
			"unknown authority"},
		"of another name": {ca, &certstest.Leaf{Name: "node-9", URI: certs.MemberURI("weir", "node-9")},
			"is not this member's"},
		"of a client": {ca, &certstest.Leaf{Name: "weir", URI: "weir://weir/client/node-2"}, "is not this member's"},
		"that has expired": {ca, &certstest.Leaf{Name: own.name, URI: certs.MemberURI("weir", own.name),
			Begins: time.Now().Add(-2 * time.Hour), Ends: time.Now().Add(-time.Hour)}, "expired at"},
	} {
		t.Run(name, func(t *testing.T) {
			s := own
			s.args = s.args[: len(s.args)-6 : len(s.args)-6]
			if x.leaf != nil {
				p := x.ca.Write(t, t.TempDir(), *x.leaf)
				s.args = append(s.args, "--peer-cert", p.Cert, "--peer-key", p.Key, "--peer-ca",
					filepath.Join(filepath.Dir(p.Cert), "ca.crt"))
			}
			s.start(t)
			deadline := time.After(soon)
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for !strings.Contains(s.log.String()+all[0].log.String(), x.want) {
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatalf("%q is in neither log", x.want)
				}
			}
			if _, body := get(t, http.DefaultClient, "http://"+all[0].admin+"/metrics"); strings.Contains(body,
				`weir_members{state="active"} 2`) {
				t.Error("it is a member")
			}
			if !strings.Contains(s.log.String(), "the node cannot start") {
				s.signal(syscall.SIGKILL)
			}
			select {
			case <-s.done:
			case <-deadline:
				t.Error("it has not ended")
			}
		})
	}
	// A client's certificate, shown at the port of members.
	cert := issue(t, other, certstest.Leaf{Name: "shop", URI: "weir://weir/client/shop"})
	conn, err := tls.Dial("tcp", all[0].peers, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*cert}}) //nolint:gosec // the node is to judge
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(soon))
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the node speaks with a client at the port of members")
		}
		_ = conn.Close()
	}
	for deadline := time.Now().Add(soon); ; time.Sleep(50 * time.Millisecond) {
		lines, err := os.ReadFile(audit)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(lines), `"action":"connect","outcome":"refused"`) &&
			strings.Contains(string(lines), `"over":"peer"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no refusal is in the audit: %s", lines)
		}
	}
}
