package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// badge admits who has the certificate of "ada" or the token "secret".
type badge struct{}

func (badge) Identify(c transport.Credentials) (transport.Caller, error) {
	byName := c.TLS != nil && len(c.TLS.VerifiedChains) > 0 && c.TLS.VerifiedChains[0][0].Subject.CommonName == "ada"
	byToken := len(c.Authorization) == 1 && c.Authorization[0] == "Bearer secret"
	if !byName && !byToken {
		return nil, transport.ErrUnauthenticated
	}
	return badge{}, nil
}
func (badge) Name() string                                { return "ada" }
func (badge) Spend(int, int) error                        { return nil }
func (badge) OpenStream() error                           { return nil }
func (badge) CloseStream()                                {}
func (badge) Tenant() string                              { return "" }
func (badge) May(transport.Action) (limiter.Scope, error) { return nil, nil }

// closedNode serves a node with TLS that asks for certificates and admits a badge.
func closedNode(t *testing.T, ca *certstest.Authority) (overGRPC, overHTTP, admin string) {
	t.Helper()
	node, err := weir.Open(t.Context(), weir.Config{Rules: []byte(townRules)})
	if err != nil {
		t.Fatal(err)
	}
	p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	store, err := certs.Open(certs.Config{What: "server", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA})
	if err != nil {
		t.Fatal(err)
	}
	secure := &transport.TLS{Config: store.Server(tls.VerifyClientCertIfGiven, nil, nil)}
	s, err := transport.NewServer(transport.Options{Decider: node, TLS: secure, Access: badge{}})
	if err != nil {
		t.Fatal(err)
	}
	site := transport.NewAdmin(transport.AdminOptions{
		TLS: secure, Access: badge{}, Top: func(string, int) (hot, denied []transport.TopKey) { return nil, nil },
	})
	forGRPC, forHTTP, forAdmin := listen(t), listen(t), listen(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(forGRPC, forHTTP); err != nil {
			t.Error(err)
		}
	})
	serving.Go(func() {
		if err := site.Serve(forAdmin); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), site.Close(), node.Close()); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return forGRPC.Addr().String(), forHTTP.Addr().String(), forAdmin.Addr().String()
}

// TestCredentials: the tool asks nodes and their administration with TLS, and shows a
// certificate or a token.
func TestCredentials(t *testing.T) {
	ca := certstest.New(t, "authority")
	overGRPC, overHTTP, admin := closedNode(t, ca)
	own := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "ada"})
	foreign := certstest.New(t, "other").Write(t, t.TempDir(), certstest.Leaf{Name: "ada"})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert := []string{"--ca", own.CA, "--cert", own.Cert, "--key", own.Key}
	check := []string{"check", "/towns", "--user", "ada", "--cost", "0", "--server"}
	top := []string{"top", "--server"}
	env := map[string]string{"WEIR_TOOL_CA": own.CA, "WEIR_TOOL_CERT": own.Cert, "WEIR_TOOL_KEY": own.Key}
	tokenEnv := map[string]string{"WEIR_TOOL_CA": own.CA, "WEIR_TOOL_TOKEN_FILE": token}
	for name, c := range map[string]struct {
		args   []string
		env    map[string]string
		status int
		err    string
	}{
		"gRPC by certificate":           {with(check, with([]string{overGRPC}, cert...)...), nil, 0, ""},
		"HTTP by certificate":           {with(check, with([]string{"https://" + overHTTP}, cert...)...), nil, 0, ""},
		"administration by certificate": {with(top, with([]string{admin}, cert...)...), nil, 0, ""},
		"explain by certificate":        {with(check, with([]string{overGRPC, "--explain"}, cert...)...), nil, 0, ""},
		"gRPC by environment":           {with(check, overGRPC), env, 0, ""},
		"administration by environment": {with(top, admin), env, 0, ""},
		"gRPC by token":                 {with(check, overGRPC, "--ca", own.CA, "--token-file", token), nil, 0, ""},
		"HTTP by token":                 {with(check, "https://"+overHTTP), tokenEnv, 0, ""},
		"administration by token":       {with(top, admin), tokenEnv, 0, ""},
		"flag before environment": {with(check, overGRPC, "--token-file", token),
			map[string]string{"WEIR_TOOL_CA": own.CA, "WEIR_TOOL_TOKEN_FILE": "/nowhere"}, 0, ""},
		"nothing is shown": {with(check, overGRPC, "--ca", own.CA), nil, 1, "the caller is not identified"},
		"nothing is shown to its HTTP": {with(check, "https://"+overHTTP, "--ca", own.CA), nil, 1,
			"the caller is not identified"},
		"nothing is shown to operators'": {with(top, admin, "--ca", own.CA), nil, 1, "the caller is not identified"},
		"without TLS":                    {with(check, overGRPC), nil, 2, "give --ca FILE"},
		"without TLS to its HTTP":        {with(check, "http://"+overHTTP), nil, 2, "give --ca FILE"},
		"administration without TLS":     {with(top, admin), nil, 2, "give --ca FILE"},
		"authorities of the system":      {with(check, overGRPC, "--tls"), nil, 2, "unknown authority"},
		"of another authority": {with(check, overGRPC, "--ca", own.CA, "--cert", foreign.Cert, "--key", foreign.Key), nil, 2,
			"give --cert and --key; its log says why"},
		"gRPC at the port of HTTP": {with(check, with([]string{overHTTP}, cert...)...), nil, 2,
			"does not speak its gRPC; if it speaks HTTP, give --server https://" + overHTTP},
		"another name": {with(check, with([]string{overGRPC, "--server-name", "other.test"}, cert...)...),
			nil, 2, "other.test"},
		"http and an authority":       {with(check, "http://"+overHTTP, "--ca", own.CA), nil, 2, "is without TLS"},
		"a certificate without a key": {with(check, overGRPC, "--cert", own.Cert), nil, 2, "give both or neither"},
		"no such file":                {with(check, overGRPC, "--ca", "/nowhere/ca.crt"), nil, 1, "/nowhere/ca.crt"},
		"a token to another machine": {with(check, "192.0.2.1:1", "--token-file", token), nil, 2,
			"not sent to another machine"},
		"a token over HTTP": {with(top, "192.0.2.1:1", "--token-file", token), nil, 2,
			"not sent to another machine"},
		"load by certificate": {with([]string{"bench", "--mode", "unary", "--duration", "1ms", "--server",
			overGRPC}, cert...), nil, 1, "--print-rules"},
		"load by the client": {with([]string{"bench", "--mode", "client", "--duration", "1ms", "--server",
			overGRPC}, cert...), nil, 1, "--print-rules"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			status := Run(t.Context(), c.args, Streams{
				In: strings.NewReader(""), Out: &out, Err: &errs, Now: time.Now, Getenv: func(name string) string {
					return c.env[name]
				},
			})
			if status != c.status || !strings.Contains(errs.String(), c.err) || c.err == "" && errs.Len() > 0 ||
				strings.Contains(errs.String(), "secret") {
				t.Errorf("status %d, want %d with %q: %s%s", status, c.status, c.err, errs.String(), out.String())
			}
		})
	}
}

// with returns a list with more elements.
func with(list []string, more ...string) []string {
	return append(append([]string{}, list...), more...)
}
