package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// seen is a decider that notes the client's certificate of calls over gRPC.
type seen struct {
	transport.Decider
	mu   sync.Mutex
	name string
}

func (s *seen) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			s.mu.Lock()
			s.name = info.State.VerifiedChains[0][0].Subject.CommonName
			s.mu.Unlock()
		}
	}
	return s.Decider.CheckInto(ctx, r, d)
}

// logs is a buffer that many may write.
type logs struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed at the next line
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// says waits for parts of what is logged after the first bytes.
func (l *logs) says(t *testing.T, after int, parts ...string) {
	t.Helper()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		l.mu.Lock()
		text := l.b.String()[after:]
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) }) {
			return
		}
		select {
		case <-more:
		case <-late.C:
			t.Errorf("%q are not all in %s", parts, text)
			return
		}
	}
}

// secured is a server with TLS, and what its clients need.
type secured struct {
	*server
	ca   *certstest.Authority
	pool *x509.CertPool
	seen *seen
	log  *logs
}

func newSecured(t *testing.T, auth tls.ClientAuthType, optional bool, change func(*transport.Options)) *secured {
	t.Helper()
	s := &secured{ca: certstest.New(t, "clients"), pool: x509.NewCertPool(), log: new(logs)}
	s.pool.AppendCertsFromPEM(s.ca.PEM)
	p := s.ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	store, err := certs.Open(certs.Config{What: "server", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA})
	if err != nil {
		t.Fatal(err)
	}
	s.server = newServer(t, fixed, func(o *transport.Options) {
		s.seen = &seen{Decider: o.Decider}
		o.Decider = s.seen
		o.TLS = &transport.TLS{Config: store.Server(auth, nil, nil), Optional: optional}
		o.Logger = slog.New(slog.NewTextHandler(s.log, nil))
		if change != nil {
			change(o)
		}
	})
	return s
}

// as returns the configuration of a client with a certificate; nil: with none.
func (s *secured) as(t *testing.T, by *certstest.Authority, l certstest.Leaf) *tls.Config {
	t.Helper()
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.pool}
	if by != nil {
		cert, key := by.Issue(t, l)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		// Certificates would be left out if the server does not name their authority.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}

// ask checks once over gRPC, and once over HTTP; without a configuration, without TLS.
func (s *secured) ask(t *testing.T, c *tls.Config, user string) (overGRPC, overHTTP error) {
	t.Helper()
	creds, url := insecure.NewCredentials(), s.url
	if c != nil {
		creds, url = credentials.NewTLS(c), "https://"+s.http
	}
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, overGRPC = weirv1.NewLimiterClient(conn).Check(ctx, &weirv1.CheckRequest{Path: "/a", User: user})
	via := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
	defer via.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/check?path=/a&user="+user, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, overHTTP := (&http.Client{Transport: via}).Do(r)
	if overHTTP == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			overHTTP = errors.New(answer.Status)
		}
	}
	return overGRPC, overHTTP
}

// remaining returns what is left of a user's three checks.
func (s *secured) remaining(t *testing.T, user string) int64 {
	t.Helper()
	var d limiter.Decision
	if err := s.node.PeekInto(t.Context(), &limiter.Request{Path: "/a", User: user}, &d); err != nil {
		t.Fatal(err)
	}
	return int64(d.Limit(0).Remaining)
}

// TestClientCertificates: who has no certificate that the server accepts is refused,
// nothing is counted, and the log says why, for both protocols.
func TestClientCertificates(t *testing.T) {
	s := newSecured(t, tls.RequireAndVerifyClientCert, false, nil)
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	past := s.as(t, s.ca, certstest.Leaf{Name: "shop"})
	past.MinVersion, past.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, x := range []struct {
		name   string
		config *tls.Config
		want   string // in the log; "" if it is served
	}{
		{"valid", s.as(t, s.ca, certstest.Leaf{Name: "shop"}), ""},
		{"none", s.as(t, nil, certstest.Leaf{}), "client didn't provide a certificate"},
		{"foreign", s.as(t, certstest.New(t, "clients"), certstest.Leaf{Name: "shop"}), "unknown authority"},
		{"expired", s.as(t, s.ca, certstest.Leaf{Name: "shop", Ends: time.Now().Add(-time.Minute)}), "expired"},
		{"a server's", s.as(t, s.ca, certstest.Leaf{Name: "shop", Usages: server}), "incompatible key usage"},
		{"an old version", past, "unsupported versions"},
		{"plaintext", nil, "first record does not look like a TLS handshake"},
	} {
		t.Run(x.name, func(t *testing.T) {
			user, before := strings.ReplaceAll(x.name, " ", "-"), len(s.log.String())
			user = strings.ReplaceAll(user, "'", "")
			g, h := s.ask(t, x.config, user)
			if x.want == "" {
				if g != nil || h != nil || s.remaining(t, user) != 1 || s.seen.name != "shop" {
					t.Errorf("%v; %v; %d left; the call came from %q", g, h, s.remaining(t, user), s.seen.name)
				}
				return
			}
			if g == nil || h == nil || s.remaining(t, user) != 3 {
				t.Errorf("%v; %v; %d left", g, h, s.remaining(t, user))
			}
			parts := []string{"protocol=gRPC", x.want}
			if x.config != nil { // net/http answers plaintext with 400, and logs that otherwise
				parts = append(parts, "protocol=HTTP")
			}
			s.log.says(t, before, parts...)
		})
	}
}

// TestOptionalTLS: both kinds of clients are served on the same listeners, and those with
// TLS are judged as ever.
func TestOptionalTLS(t *testing.T) {
	s := newSecured(t, tls.VerifyClientCertIfGiven, true, nil)
	for i, c := range []*tls.Config{nil, s.as(t, nil, certstest.Leaf{}), s.as(t, s.ca, certstest.Leaf{Name: "shop"})} {
		user := string(rune('a' + i))
		if g, h := s.ask(t, c, user); g != nil || h != nil || s.remaining(t, user) != 1 {
			t.Errorf("%d: %v; %v", i, g, h)
		}
	}
	if g, h := s.ask(t, s.as(t, certstest.New(t, "clients"), certstest.Leaf{Name: "shop"}), "foreign"); g == nil ||
		h == nil || s.remaining(t, "foreign") != 3 {
		t.Errorf("%v; %v", g, h)
	}
}

// TestSilentHandshakes: connections that begin no handshake count for the bound of their
// address, hold up no others, and are closed.
func TestSilentHandshakes(t *testing.T) {
	for _, optional := range []bool{false, true} {
		t.Run(map[bool]string{false: "required", true: "optional"}[optional], func(t *testing.T) {
			t.Parallel()
			s := newSecured(t, tls.NoClientCert, optional, func(o *transport.Options) { o.MaxConnectionsPerAddress = 3 })
			var silent []net.Conn
			for _, at := range []string{s.grpc, s.grpc, s.http, s.http} {
				silent = append(silent, reach(t, at))
			}
			if g, h := s.ask(t, s.as(t, nil, certstest.Leaf{}), "a"); g != nil || h != nil {
				t.Errorf("beside silent connections: %v; %v", g, h)
			}
			for _, at := range []string{s.grpc, s.http} {
				var extra []net.Conn
				for range 2 {
					extra = append(extra, reach(t, at))
				}
				if !strings.Contains(s.log.String(), "connection refused") && !ended(t, extra[1], 4*time.Second) {
					t.Errorf("%s takes more silent connections than from one address", at)
				}
			}
			for _, c := range silent {
				if !ended(t, c, 30*time.Second) {
					t.Errorf("%v is open without a handshake", c.RemoteAddr())
				}
			}
		})
	}
}

func reach(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ended reports whether the other side closes a connection in time.
func ended(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, c)
	var late net.Error
	return !errors.As(err, &late) || !late.Timeout()
}

// TestAdminTLS: the administration has TLS as clients do.
func TestAdminTLS(t *testing.T) {
	ca := certstest.New(t, "operators")
	p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	store, err := certs.Open(certs.Config{What: "administration", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA})
	if err != nil {
		t.Fatal(err)
	}
	s := &secured{ca: ca, pool: x509.NewCertPool()}
	s.pool.AppendCertsFromPEM(ca.PEM)
	get := func(at string, c *tls.Config) error {
		via := &http.Transport{TLSClientConfig: c}
		defer via.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/openapi.yaml", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		a, err := (&http.Client{Transport: via}).Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
		if a.StatusCode != http.StatusOK {
			return errors.New(a.Status)
		}
		return nil
	}
	for _, optional := range []bool{false, true} {
		a := serveApart(t,
			transport.NewAdmin(transport.AdminOptions{TLS: &transport.TLS{Config: store.Server(tls.RequireAndVerifyClientCert,
				nil, nil), Optional: optional}}))
		if err := get("https://"+a.http, s.as(t, ca, certstest.Leaf{Name: "ada"})); err != nil {
			t.Error(err)
		}
		if err := get("https://"+a.http, s.as(t, nil, certstest.Leaf{})); err == nil {
			t.Error("who has no certificate is served")
		}
		if err := get("http://"+a.http, nil); (err == nil) != optional {
			t.Errorf("optional %v, without TLS: %v", optional, err)
		}
		if !ended(t, reach(t, a.http), 30*time.Second) {
			t.Errorf("optional %v: a connection without a handshake stays open", optional)
		}
	}
}

// writes is a listener that notes the sizes of the writes of its connections.
type writes struct {
	net.Listener
	mu    sync.Mutex
	sizes []int
}

func (w *writes) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	return &writer{c, w}, err
}

type writer struct {
	net.Conn
	of *writes
}

func (c *writer) Write(p []byte) (int, error) {
	c.of.mu.Lock()
	c.of.sizes = append(c.of.sizes, len(p))
	c.of.mu.Unlock()
	return c.Conn.Write(p)
}

// An answer that is longer than a record of TLS is written at once, also the first one.
func TestALongAnswerIsOneWrite(t *testing.T) {
	var o transport.Options
	s := newSecured(t, tls.NoClientCert, false, func(given *transport.Options) { o = *given })
	again, err := transport.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &writes{Listener: l}
	served := make(chan error, 1)
	go func() { served <- again.Serve(w, nil) }()
	t.Cleanup(func() {
		if err := errors.Join(again.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	c, err := grpc.NewClient(l.Addr().String(),
		grpc.WithTransportCredentials(credentials.NewTLS(s.as(t, nil, certstest.Leaf{}))))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stream, err := weirv1.NewLimiterClient(c).CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	ask := &weirv1.CheckColumns{EveryLimit: true, Keys: bytes.Repeat([]byte("/towns"), n)}
	for range n {
		ask.PathLengths = append(ask.PathLengths, uint32(len("/towns")))
	}
	if err := stream.Send(ask); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if most := slices.Max(w.sizes); most <= 16<<10+256 {
		t.Errorf("the longest of the writes %v has one record", w.sizes)
	}
}
