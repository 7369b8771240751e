package xds_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/internal/envoy/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is a management server that a test moves.
type manager struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	said chan *discovery.DiscoveryRequest
	say  chan *discovery.DiscoveryResponse // nil ends the stream
}

func (m *manager) StreamAggregatedResources(s grpc.BidiStreamingServer[discovery.DiscoveryRequest,
	discovery.DiscoveryResponse]) error {
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			m.said <- r
		}
	}()
	for {
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case r := <-m.say:
			if r == nil {
				return errors.New("the server restarts")
			}
			if err := s.Send(r); err != nil {
				return err
			}
		}
	}
}

// serve serves until the test ends, and returns the address.
func (m *manager) serve(t *testing.T, o ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(o...)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, m)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); running.Wait() })
	return l.Addr().String()
}

func newManager() *manager {
	return &manager{said: make(chan *discovery.DiscoveryRequest, 100), say: make(chan *discovery.DiscoveryResponse)}
}

// hears returns what the client says next.
func (m *manager) hears(t *testing.T) string {
	t.Helper()
	select {
	case r := <-m.said:
		text := fmt.Sprintf("%s version %q nonce %q", r.GetNode().GetId(), r.GetVersionInfo(), r.GetResponseNonce())
		if r.GetTypeUrl() != xds.TypeURL {
			t.Errorf("type %s", r.GetTypeUrl())
		}
		if e := r.GetErrorDetail(); e != nil {
			text += fmt.Sprintf(" refused %d: %s", e.GetCode(), e.GetMessage())
		}
		return text
	case <-time.After(20 * time.Second):
		t.Fatal("the client says nothing")
		return ""
	}
}

func (m *manager) is(t *testing.T, want string) {
	t.Helper()
	if got := m.hears(t); got != want {
		t.Errorf("the client said %s, want %s", got, want)
	}
}

func response(version, nonce string, resources ...string) *discovery.DiscoveryResponse {
	r := &discovery.DiscoveryResponse{TypeUrl: xds.TypeURL, VersionInfo: version, Nonce: nonce}
	for _, text := range resources {
		r.Resources = append(r.Resources, &anypb.Any{TypeUrl: xds.TypeURL, Value: []byte(text)})
	}
	return r
}

// applied is what is in force, and refuses what contains "bad".
type applied struct {
	mu    sync.Mutex
	force string
}

func (a *applied) apply(resources [][]byte) error {
	all := string(bytes.Join(resources, []byte(" ")))
	if strings.Contains(all, "bad") {
		return errors.New("edge: the limit is bad")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.force = all
	return nil
}

func (a *applied) is(t *testing.T, want string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.force != want {
		t.Errorf("%q is in force, want %q", a.force, want)
	}
}

// follow runs a client until the test ends.
func follow(t *testing.T, c xds.Config) {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	client, err := xds.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// Good, bad, good: each good configuration is acknowledged and comes into force, the bad one
// is refused with the reason, and what was in force stays.
func TestGoodBadGood(t *testing.T) {
	m, a := newManager(), new(applied)
	follow(t, xds.Config{Addr: m.serve(t), NodeID: "node-7", Apply: a.apply})
	m.is(t, `node-7 version "" nonce ""`)
	m.say <- response("1", "a", "one", "two")
	m.is(t, `node-7 version "1" nonce "a"`)
	a.is(t, "one two")
	m.say <- response("2", "b", "three", "bad")
	m.is(t, `node-7 version "1" nonce "b" refused 3: edge: the limit is bad`)
	a.is(t, "one two")
	m.say <- response("3", "c", "four")
	m.is(t, `node-7 version "3" nonce "c"`)
	a.is(t, "four")
	other := response("4", "d", "five")
	other.Resources[0].TypeUrl = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	m.say <- other
	m.is(t, `node-7 version "3" nonce "d" refused 3: a resource has the type `+
		`type.googleapis.com/envoy.config.cluster.v3.Cluster`)
	m.say <- &discovery.DiscoveryResponse{TypeUrl: "x", Nonce: "e"}
	m.is(t, `node-7 version "3" nonce "e" refused 3: the response has the type "x", not "`+xds.TypeURL+`"`)
	a.is(t, "four")
	m.say <- response("5", "f")
	m.is(t, `node-7 version "5" nonce "f"`)
	a.is(t, "") // the server has no configuration, and says so
}

// A reason is bounded, and valid UTF-8, or it could not be sent.
func TestReasonsAreBounded(t *testing.T) {
	m := newManager()
	follow(t, xds.Config{Addr: m.serve(t), Apply: func([][]byte) error {
		return errors.New(strings.Repeat("é\xff", 5000))
	}})
	m.is(t, `default version "" nonce ""`)
	m.say <- response("1", "a", "x")
	if got := m.hears(t); len(got) > 2100 || !strings.Contains(got, "refused 3: é") {
		t.Errorf("%d bytes: %.60q", len(got), got)
	}
}

// A response with too many resources, or with a version or a nonce that is too long, ends the
// stream, and what was in force stays. Nothing long comes into the log.
func TestHostileResponses(t *testing.T) {
	long := strings.Repeat("v", 1<<20)
	many := response("2", "b")
	for range 10_001 {
		many.Resources = append(many.Resources, new(anypb.Any))
	}
	for what, r := range map[string]*discovery.DiscoveryResponse{
		"the response has more than 10000 resources": many,
		"nonce of a response has more than 4096":     response("2", long, "two"),
		"version or the nonce of a response":         response(long, "b", "two"),
	} {
		m, a, log := newManager(), new(applied), new(lines)
		follow(t, xds.Config{Addr: m.serve(t), Apply: a.apply, Log: slog.New(slog.NewTextHandler(log, nil))})
		m.is(t, `default version "" nonce ""`)
		m.say <- response("1", "a", "one")
		m.is(t, `default version "1" nonce "a"`)
		m.say <- r
		m.is(t, `default version "1" nonce ""`) // of the next stream
		a.is(t, "one")
		if text := log.String(); !strings.Contains(text, what) || len(text) > 4096 {
			t.Errorf("%d bytes are logged: %.2000s", len(text), text)
		}
	}
}

// A reason in the log is bounded, as resources name it.
func TestLoggedReasonsAreBounded(t *testing.T) {
	m, log := newManager(), new(lines)
	follow(t, xds.Config{
		Addr: m.serve(t), Log: slog.New(slog.NewTextHandler(log, nil)),
		Apply: func([][]byte) error { return errors.New(strings.Repeat("x", 1<<20)) },
	})
	m.is(t, `default version "" nonce ""`)
	m.say <- response("1", "a", "x")
	m.hears(t)
	if text := log.String(); !strings.Contains(text, "was refused") || len(text) > 4096 {
		t.Errorf("%d bytes are logged", len(text))
	}
}

// A server that sends one response after the other is not answered at once, whether they are
// good or bad.
func TestResponsesAreSpaced(t *testing.T) {
	m, a := newManager(), new(applied)
	follow(t, xds.Config{Addr: m.serve(t), Apply: a.apply})
	m.is(t, `default version "" nonce ""`)
	begin := time.Now()
	for _, text := range []string{"one", "bad", "two"} {
		m.say <- response("1", "a", text)
		m.hears(t)
	}
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("three responses were answered within %v", took)
	}
}

// After the stream has ended the client comes again, with the version that it has.
func TestComesAgain(t *testing.T) {
	m, a := newManager(), new(applied)
	follow(t, xds.Config{Addr: m.serve(t), Apply: a.apply})
	m.is(t, `default version "" nonce ""`)
	m.say <- nil
	m.is(t, `default version "" nonce ""`)
	m.say <- response("1", "a", "one")
	m.is(t, `default version "1" nonce "a"`)
	m.say <- nil
	m.is(t, `default version "1" nonce ""`)
	a.is(t, "one")
	m.say <- response("2", "b", "two")
	m.is(t, `default version "2" nonce "b"`)
	a.is(t, "two")
}

// Both sides show certificates. A server of another authority, or with another name, is not
// asked.
func TestMutualTLS(t *testing.T) {
	ours, other := certstest.New(t, "ours"), certstest.New(t, "other")
	server := func(by *certstest.Authority, host string) (*manager, string) {
		files := by.Write(t, t.TempDir(), certstest.Leaf{Name: "server", Hosts: []string{host}})
		certstest.Replace(t, files.CA, ours.PEM) // of clients
		store, err := certs.Open(certs.Config{What: "server", CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA})
		if err != nil {
			t.Fatal(err)
		}
		m := newManager()
		return m, m.serve(t, grpc.Creds(credentials.NewTLS(store.Server(tls.RequireAndVerifyClientCert, []string{"h2"},
			nil))))
	}
	files := ours.Write(t, t.TempDir(), certstest.Leaf{Name: "node"})
	trust, err := certs.Open(certs.Config{What: "management server", CertFile: files.Cert, KeyFile: files.Key,
		CAFile: files.CA})
	if err != nil {
		t.Fatal(err)
	}
	m, addr := server(ours, "manager.test")
	a := new(applied)
	follow(t, xds.Config{Addr: addr, Certs: trust, ServerName: "manager.test", Apply: a.apply})
	m.is(t, `default version "" nonce ""`)
	m.say <- response("1", "a", "one")
	m.is(t, `default version "1" nonce "a"`)
	a.is(t, "one")
	for what, x := range map[string]struct {
		by         *certstest.Authority
		host, want string
	}{
		"another authority": {other, "manager.test", "unknown authority"},
		"another name":      {ours, "elsewhere.test", "manager.test"},
	} {
		m, addr := server(x.by, x.host)
		log := new(lines)
		follow(t, xds.Config{Addr: addr, Certs: trust, ServerName: "manager.test", Apply: a.apply,
			Log: slog.New(slog.NewTextHandler(log, nil))})
		log.wait(t, x.want)
		select {
		case r := <-m.said:
			t.Errorf("%s: the server heard %v", what, r)
		default:
		}
	}
}

// lines is a log that a test waits for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) wait(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		text := l.String()
		if strings.Contains(text, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log has no %q:\n%s", want, text)
		}
	}
}

func TestAddressIsChecked(t *testing.T) {
	if _, err := xds.New(xds.Config{Addr: "envoy-gateway"}); err == nil ||
		!strings.Contains(err.Error(), "give HOST:PORT") {
		t.Error(err)
	}
}
