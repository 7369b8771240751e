package console_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/certs/certstest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// called serves the site of a desk on a port, with TLS or not, and returns a client of gRPC.
func (d *desk) called(t *testing.T, secure bool) (weirv1.AdministrationClient, string) {
	t.Helper()
	with := insecure.NewCredentials()
	if d.options.TLS = nil; secure {
		cert, key := certstest.New(t, "operators").Issue(t, certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		d.options.TLS = &transport.TLS{Config: &tls.Config{Certificates: []tls.Certificate{pair}}}
		with = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a certificate of the test
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	site, ended := transport.NewAdmin(d.options), make(chan error, 1)
	go func() { ended <- site.Serve(l) }()
	t.Cleanup(func() {
		_ = site.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(with))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return weirv1.NewAdministrationClient(c), l.Addr().String()
}

func as(t *testing.T, who string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+who)
}

// TestOverridesOverGRPC: they are set, listed and removed at the port of the administration as over HTTP, with TLS and
// without, and the audit has them.
func TestOverridesOverGRPC(t *testing.T) {
	for _, secure := range []bool{false, true} {
		d := open(t, staff(), false)
		api, _ := d.called(t, secure)
		out, err := api.SetOverride(as(t, "operator"), &weirv1.SetOverrideRequest{Rule: "login", User: "ada",
			Decision: &weirv1.SetOverrideRequest_Deny{Deny: true}, ForUs: 7_200_000_000, Why: "a test, 100 %"})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(out.GetOverrides()); n != 1 {
			t.Fatalf("%d are in force", n)
		}
		o := out.GetOverrides()[0]
		if o.GetDecision() != "deny" || o.GetUser() != "ada" || o.GetBy() != "operator" || o.GetWhy() != "a test, 100 %" ||
			o.GetUntilUnixUs()-o.GetSetUnixUs() != 7_200_000_000 || out.GetOnly() != "" {
			t.Errorf("%v", out)
		}
		a, err := d.node.Check(t.Context(), weir.Request{Path: "/login", User: "ada"})
		if err != nil || a.Allowed {
			t.Errorf("a check after it: %+v, %v", a, err)
		}
		if out, err := api.ListOverrides(as(t, "bank"), &weirv1.ListOverridesRequest{}); err != nil ||
			len(out.GetOverrides()) != 0 {
			t.Errorf("an administrator of a tenant sees %v, %v", out, err)
		}
		out, err = api.RemoveOverride(as(t, "operator"), &weirv1.RemoveOverrideRequest{Rule: "login", User: "ada"})
		if err != nil || len(out.GetOverrides()) != 0 {
			t.Errorf("removed: %v, %v", out, err)
		}
		_, err = api.RemoveOverride(as(t, "operator"), &weirv1.RemoveOverrideRequest{Rule: "login", User: "ada"})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "weir override list") {
			t.Errorf("removed again: %v", err)
		}
		var told []string
		for _, e := range d.audit.all() {
			told = append(told, e.Action+" "+e.Caller+" "+e.Why)
		}
		if text := strings.Join(told, "\n"); !strings.Contains(text, "override operator deny for 2h0m0s: a test, 100 %\n") ||
			!strings.Contains(text, "override remove operator removed\n") {
			t.Errorf("the audit has %q", text)
		} else if strings.Contains(text, "override list") {
			t.Errorf("the audit has what was only read: %q", text)
		}
	}
}

// TestCallsNeedPermissions: whoever may not is told so by a status, and nothing changes.
func TestCallsNeedPermissions(t *testing.T) {
	d := open(t, staff(), false)
	api, at := d.called(t, false)
	set := &weirv1.SetOverrideRequest{Rule: "api", User: "ada", Why: "x",
		Decision: &weirv1.SetOverrideRequest_Unlimited{Unlimited: true}}
	for who, want := range map[string]codes.Code{"x": codes.Unauthenticated, "client": codes.PermissionDenied,
		"viewer": codes.PermissionDenied, "login": codes.PermissionDenied, "bank": codes.PermissionDenied} {
		if _, err := api.SetOverride(as(t, who), set); status.Code(err) != want {
			t.Errorf("%s sets: %v", who, err)
		}
	}
	for who, want := range map[string]codes.Code{"x": codes.Unauthenticated, "client": codes.PermissionDenied,
		"viewer": codes.OK} {
		if _, err := api.ListOverrides(as(t, who), &weirv1.ListOverridesRequest{}); status.Code(err) != want {
			t.Errorf("%s lists: %v", who, err)
		}
	}
	for what, m := range map[string]*weirv1.SetOverrideRequest{
		"nothing decided": {Rule: "api", User: "ada", Why: "x"},
		"for too long":    {Rule: "api", User: "ada", Why: "x", Decision: set.GetDecision(), ForUs: 1 << 60},
		"for no time":     {Rule: "api", User: "ada", Why: "x", Decision: set.GetDecision(), ForUs: -1},
		"no such rule":    {Rule: "y", User: "ada", Why: "x", Decision: set.GetDecision()},
	} {
		if _, err := api.SetOverride(as(t, "operator"), m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	long := &weirv1.SetOverrideRequest{Rule: "api", User: strings.Repeat("u", 20_000), Why: "x",
		Decision: set.GetDecision()}
	if _, err := api.SetOverride(as(t, "operator"), long); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message beyond the bound: %v", err)
	}
	if _, err := api.SetOverride(as(t, "operator"), set, grpc.UseCompressor("gzip")); err == nil {
		t.Error("a compressed message is taken")
	}
	if len(d.book.All()) != 0 {
		t.Error("there is an override")
	}
	refused := 0
	for _, e := range d.audit.all() {
		if e.Outcome == transport.AuditRefused {
			refused++
		}
	}
	if refused != 7 {
		t.Errorf("the audit has %d refusals, want 7", refused)
	}
	// Nothing else is served over HTTP/2, and pages of another site cannot call.
	via := &http.Transport{Protocols: new(http.Protocols)}
	via.Protocols.SetUnencryptedHTTP2(true)
	defer via.CloseIdleConnections()
	for path, want := range map[string]int{"/": http.StatusHTTPVersionNotSupported,
		"/v1/overrides": http.StatusHTTPVersionNotSupported, weirv1.Administration_SetOverride_FullMethodName: 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer operator")
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Origin", "https://example.com")
		res, err := (&http.Client{Transport: via, Timeout: time.Minute}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

// TestCallsKeepNobodyOut: connections of HTTP/2 whose calls do not end give way to others.
func TestCallsKeepNobodyOut(t *testing.T) {
	d := open(t, staff(), false)
	_, at := d.called(t, false)
	site := "http://" + at
	const path = weirv1.Administration_SetOverride_FullMethodName
	call := func(via *http.Transport, body io.Reader) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site+path, body)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/grpc")
		if res, err := via.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	var slow sync.WaitGroup
	t.Cleanup(slow.Wait)
	for range 12 { // more than one address may have
		via := &http.Transport{Protocols: new(http.Protocols)}
		via.Protocols.SetUnencryptedHTTP2(true)
		from, to := io.Pipe()
		slow.Go(func() { call(via, from) })
		t.Cleanup(func() { _ = to.Close(); via.CloseIdleConnections() })
		_, _ = to.Write([]byte{0})
		for range 3 {
			call(via, strings.NewReader(""))
		}
	}
	if got := d.at(t, site+"/v1/overrides", "operator"); got != http.StatusOK {
		t.Errorf("an operator gets %d", got)
	}
}

// at asks another address for something, on a connection of its own.
func (d *desk) at(t *testing.T, address, who string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+who)
	via := new(http.Transport)
	defer via.CloseIdleConnections()
	res, err := via.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}
