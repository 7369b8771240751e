package peerlink_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// alive checks that a node still accepts links.
func alive(t *testing.T, n *node) {
	t.Helper()
	other := start(t, 1<<40, "", nil)
	introduce(n, other) // and nobody else
	n.waitUp(t, other.self)
	got := 0
	n.wait(t, "nothing", func() bool { got = len(n.got); return true })
	other.waitUp(t, n.self)
	other.send(n.self, checks(1, 1))
	n.wait(t, "a check", func() bool { return len(n.got) > got })
}

func withPublicPorts(c *peerlink.Config) {
	c.Self.GRPCAddr, c.Self.HTTPAddr = "10.0.0.1:8081", "10.0.0.1:8080"
}

func TestMessageOf20MB(t *testing.T) {
	generous := func(c *peerlink.Config) { c.MaxMessageBytes, c.StallTimeout = 64<<20, time.Minute }
	for name, ids := range map[string][2]peer.Instance{
		"to who was dialled": {1, 2},
		"to who dialled":     {2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t, ids[0], "", generous), start(t, ids[1], "", nil)
			defer func() {
				if t.Failed() {
					t.Logf("the log of who sent:\n%s", a.log)
				}
			}()
			introduce(a, b)
			a.waitUp(t, b.self)
			b.waitUp(t, a.self)
			downs := a.tally("down " + b.self.String())
			a.send(b.self, large(1, 20_000_000))
			a.waitMore(t, "down "+b.self.String(), downs)
			b.wait(t, "down", func() bool { return b.count("down "+a.self.String()) > 0 })
			a.waitUp(t, b.self)
			b.waitUp(t, a.self)
			a.send(b.self, checks(1, 1))
			b.wait(t, "a check", func() bool { return len(b.got) == 1 && len(b.got[0].Checks) == 1 })
			b.log.wait(t, "larger than max")
		})
	}
}

func TestFrameTooLargeToSend(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	a.send(2, large(1, 20_000_000))
	a.waitMore(t, "down "+b.self.String(), 0)
	a.waitUp(t, 2)
	a.log.wait(t, "is larger than a link takes")
}

func TestGarbageOnThePort(t *testing.T) {
	n := start(t, 1, "", withPublicPorts)
	for _, garbage := range []string{"\x00\x01\x02\x03", "hello\n", strings.Repeat("x", 1<<20),
		"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", "PRI * HT"} {
		c, err := net.Dial("tcp", n.member.PeerAddr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, garbage) // it may be closed before all is written
		if garbage == "PRI * HT" {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("garbage is answered with %v", err)
		}
		_ = c.Close()
	}
	if n := strings.Count(n.log.String(), "does not speak gRPC"); n != 1 {
		t.Errorf("that somebody does not speak gRPC is logged %d times, not once", n)
	}
	alive(t, n)
}

func TestHTTPOnThePort(t *testing.T) {
	n := start(t, 1, "", withPublicPorts)
	r, err := http.Get("http://" + n.member.PeerAddr + "/v1/check?path=/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(body); r.StatusCode != http.StatusBadRequest || !strings.Contains(text, "peer port") ||
		!strings.Contains(text, "HTTP is served on 10.0.0.1:8080") {
		t.Errorf("the answer is %d: %s", r.StatusCode, text)
	}
	http.DefaultClient.CloseIdleConnections()
}

// dialRaw returns a stream of the peer service over stock gRPC.
func dialRaw(t *testing.T, addr string) (grpc.ClientConnInterface, peerv1.Links_ConnectClient) {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() { cancel(); _ = c.Close() })
	s, err := peerv1.NewLinksClient(c).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestPublicClientOnThePort(t *testing.T) {
	n := start(t, 1, "", withPublicPorts)
	c, _ := dialRaw(t, n.member.PeerAddr)
	_, err := weirv1.NewLimiterClient(c).Check(context.Background(), &weirv1.CheckRequest{Path: "/"})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "gRPC is served on 10.0.0.1:8081") {
		t.Errorf("the answer is %v", err)
	}
}

// stock is a member that tests play over stock gRPC. Its instance is the smaller one, so
// nodes leave dialling to it.
const stock peer.Instance = 99

// expectStock starts a node that knows stock.
func expectStock(t *testing.T, change func(*peerlink.Config)) *node {
	t.Helper()
	n := start(t, 1000, "", change)
	n.SetMembers([]peer.Member{{Name: "stock", Instance: stock, State: peer.Dead}})
	return n
}

// hello returns the hello of a node that is expected.
func hello(to *node) *peerv1.Hello {
	return &peerv1.Hello{
		Wire: peerlink.Wire, Cluster: "test", RingConfig: 7, Name: "stock", Instance: uint64(stock), Nonce: make([]byte, 16),
		Expected: uint64(to.self), ExpectedName: to.member.Name, ExpectedAddress: to.member.PeerAddr,
	}
}

// TestStockProtobufLinksUp establishes a link with the code generated from peer.proto,
// over stock gRPC.
func TestStockProtobufLinksUp(t *testing.T) {
	n := expectStock(t, nil)
	_, s := dialRaw(t, n.member.PeerAddr)
	must(t, s.Send(&peerv1.Message{Hello: hello(n)}))
	m, err := s.Recv()
	if err != nil || m.GetHello().GetInstance() != 1000 || m.GetHello().GetName() != "node-1000" {
		t.Fatalf("the hello is %v, %v", m, err)
	}
	must(t, s.Send(&peerv1.Message{}))
	n.waitUp(t, stock)
	must(t, s.Send(&peerv1.Message{AckWanted: true, Frame: &peerv1.Frame{
		From: 99, To: 1000, Rules: []*peerv1.Rule{{Id: 1}},
		Checks: &peerv1.Checks{Count: 1, Keys: []byte{1}}, Keys: &peerv1.Keys{Count: 1, His: []uint64{5}},
	}}))
	if m, err = s.Recv(); err != nil || m.GetAcks() != 1 {
		t.Fatalf("the acknowledgement is %v, %v", m, err)
	}
	n.wait(t, "the check", func() bool { return len(n.got) == 1 && n.got[0].Keys[0].Hi == 5 })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNonsenseOnAStream sends invalid messages before and after the hellos: each ends
// the stream with its reason, and nothing else.
func TestNonsenseOnAStream(t *testing.T) {
	n := expectStock(t, func(c *peerlink.Config) { c.ConnectTimeout = 500 * time.Millisecond })
	good := &peerv1.Message{Hello: hello(n)}
	bad := func(change func(*peerv1.Hello)) *peerv1.Message {
		h := hello(n)
		change(h)
		return &peerv1.Message{Hello: h}
	}
	for name, test := range map[string]struct {
		send []*peerv1.Message
		want string
	}{
		"nothing":          {nil, "there was no hello in time"},
		"no hello":         {[]*peerv1.Message{{Acks: 1}}, "the first message is no hello"},
		"no nonce":         {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Nonce = nil })}, "no nonce"},
		"no instance":      {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Instance = 0 })}, "no instance"},
		"our own instance": {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Instance = 1000 })}, "this node itself"},
		"another expected": {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Expected = 5 })}, "does not run here"},
		"a long cluster": {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Cluster = strings.Repeat("c", 3000) })},
			"(3000 bytes)"},
		"a frame at once": {[]*peerv1.Message{{Hello: hello(n), Frame: &peerv1.Frame{}}},
			"a frame came before the hellos were done"},
		"a frame, no proof": {[]*peerv1.Message{good, {Frame: &peerv1.Frame{}}},
			"a frame came before the hellos were done"},
		"nobody in particular": {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Expected = 0 })}, "names no instance"},
		"another name": {[]*peerv1.Message{bad(func(h *peerv1.Hello) {
			h.ExpectedName = "x"
		})}, `node "x" does not run here`},
		"another address": {[]*peerv1.Message{bad(func(h *peerv1.Hello) {
			h.ExpectedAddress = "x:1"
		})}, `the other dialled "x:1"`},
		"no member":         {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Instance = 5 })}, "is no member that"},
		"no member's name":  {[]*peerv1.Message{bad(func(h *peerv1.Hello) { h.Name = "x" })}, "is no member that"},
		"only a hello":      {[]*peerv1.Message{good}, "there was no hello in time"},
		"a proof":           {[]*peerv1.Message{good, {Proof: []byte("p")}}, "this node has no secret"},
		"a second hello":    {[]*peerv1.Message{good, {}, good}, "there was a second hello"},
		"too many acks":     {[]*peerv1.Message{good, {}, {Acks: 1}}, "more frames were acknowledged"},
		"far too many acks": {[]*peerv1.Message{good, {}, {Acks: 1 << 31}}, "more than there can be"},
		"somebody's frame": {[]*peerv1.Message{good, {}, {Frame: &peerv1.Frame{From: 98}}},
			"names 0000000000000062 as its sender"},
		"somebody's relay": {[]*peerv1.Message{good, {}, {Frame: &peerv1.Frame{From: 98, Relayed: true, Via: 97}}},
			"as its sender"},
		"keys that miss": {[]*peerv1.Message{good, {},
			{Frame: &peerv1.Frame{Checks: &peerv1.Checks{Count: 1, Keys: []byte{3}}}}}, "have 3 keys"},
		"four billion items": {[]*peerv1.Message{good, {}, {Frame: &peerv1.Frame{Acks: &peerv1.Acks{Count: 1<<32 - 1}}}},
			"more than a link takes"},
		"an end": {[]*peerv1.Message{good, {}, {End: "enough"}}, "enough"},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := dialRaw(t, n.member.PeerAddr)
			for _, m := range test.send {
				if s.Send(m) != nil {
					break // it has ended
				}
			}
			for {
				if _, err := s.Recv(); err != nil {
					if !strings.Contains(err.Error(), test.want) {
						t.Errorf("the stream ends with %v, which does not say %q", err, test.want)
					}
					return
				}
			}
		})
	}
	alive(t, n)
}

func TestBoundOfConnections(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	n := start(t, 3, "", func(c *peerlink.Config) { c.MaxConnections = 1 })
	introduce(n, a)
	n.waitUp(t, 1)
	introduce(n, a, b) // b is the smaller, so it dials
	b.log.wait(t, "there are 1 connections already")
	if n.tally("up "+b.self.String()) != 0 {
		t.Error("a connection above the bound is up")
	}
	n.log.wait(t, "there are 1 connections already")
}

// TestDialsAPublicPort makes a member advertise a port that is not a peer port.
func TestDialsAPublicPort(t *testing.T) {
	public := grpc.NewServer()
	listener := listen(t)
	served := make(chan error, 1)
	go func() { served <- public.Serve(listener) }()
	defer func() { public.Stop(); <-served }()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	silent := listen(t)
	defer silent.Close()

	for name, test := range map[string]struct{ addr, want string }{
		"gRPC":    {listener.Addr().String(), "no peer port of a Weir node"},
		"HTTP":    {web.Listener.Addr().String(), "does not speak gRPC"},
		"silence": {silent.Addr().String(), "did not answer within 500ms"},
		"nowhere": {"", "advertises no address"},
		"no name": {"weir.invalid:1", "cannot connect"},
		"nobody": {"127.0.0.1:1",
			"connection refused; if it runs, check where it listens for peers and " +
				"what it advertises (--peer-addr, --advertise)"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, 1, "", func(c *peerlink.Config) { c.ConnectTimeout = 500 * time.Millisecond })
			n.SetMembers([]peer.Member{{Name: "wrong", Instance: 2, State: peer.Active, PeerAddr: test.addr}})
			n.waitMore(t, "down "+peer.Instance(2).String(), 1)
			if text := n.log.String(); strings.Count(text, test.want) != 1 {
				t.Errorf("the log does not say %q once:\n%s", test.want, text)
			}
		})
	}
}
