package peerlink_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

// Attacks of someone who reaches the peer port and does not have the secret.

func withSecret(c *peerlink.Config) { c.Secret = []byte("the secret of the members") }

// TestARelayedHandshakeIsRefused puts an attacker between two nodes: one is told that
// the other is at the attacker's address, and the attacker relays unchanged. Neither
// node takes the attacker for the other.
func TestARelayedHandshakeIsRefused(t *testing.T) {
	a, b := start(t, 1, "", withSecret), start(t, 2, "", withSecret)
	between := newProxy(t, b.member.PeerAddr)
	moved := b.member
	moved.PeerAddr = between.Addr().String()
	quiet := a.member
	quiet.State = peer.Dead
	b.SetMembers([]peer.Member{quiet, b.member}) // it does not dial: a is where it says
	a.SetMembers([]peer.Member{a.member, moved})
	a.waitMore(t, "down "+b.self.String(), 3)
	if a.tally("up "+b.self.String())+b.tally("up "+a.self.String()) > 0 {
		t.Error("there is a link through somebody who only passes on what was said")
	}
	b.log.wait(t, "may stand in between")
	a.SetMembers([]peer.Member{a.member, b.member})
	a.waitUp(t, 2)
}

// TestAReplayedHandshakeIsRefused repeats a member's recorded handshake.
func TestAReplayedHandshakeIsRefused(t *testing.T) {
	tap := &tap{heard: make(chan *peerv1.Message, 2)}
	between := listen(t)
	server := grpc.NewServer()
	peerv1.RegisterLinksServer(server, tap)
	served := make(chan error, 1)
	go func() { served <- server.Serve(between) }()
	t.Cleanup(func() { server.Stop(); <-served })

	a := start(t, 1, "", withSecret)
	b := start(t, 2, "", func(c *peerlink.Config) {
		withSecret(c)
		tap.addr = c.Self.PeerAddr
		c.Self.PeerAddr = between.Addr().String() // it listens where a is to dial
	})
	_, tap.to = dialRaw(t, tap.addr)
	introduce(a, b)
	b.waitUp(t, 1)
	hello, proof := <-tap.heard, <-tap.heard
	ups := b.tally("up " + a.self.String())

	conn, err := grpc.NewClient(tap.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := peerv1.NewLinksClient(conn).Connect(ctx)
	must(t, err)
	must(t, s.Send(hello))
	if _, err := s.Recv(); err != nil {
		t.Fatalf("a hello is no secret, and answered with %v", err)
	}
	must(t, s.Send(proof))
	if _, err := s.Recv(); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("a proof that was overheard is answered with %v", err)
	}
	if got := b.tally("up " + a.self.String()); got != ups {
		t.Error("what was overheard is good for another link")
	}
}

// TestAReflectedProofIsRefused sends a node its own proof back.
func TestAReflectedProofIsRefused(t *testing.T) {
	n := expectStock(t, withSecret)
	_, s := dialRaw(t, n.member.PeerAddr)
	must(t, s.Send(&peerv1.Message{Hello: hello(n)}))
	m, err := s.Recv()
	must(t, err)
	if len(m.GetHello().GetProof()) == 0 {
		t.Fatal("the node proves nothing")
	}
	must(t, s.Send(&peerv1.Message{Proof: m.GetHello().GetProof()}))
	if _, err := s.Recv(); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("its own proof is answered with %v", err)
	}
	if n.tally("up "+stock.String()) != 0 {
		t.Error("its own proof is taken for a member's")
	}
}

// grown returns how much memory was allocated since the given number.
func allocated() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.TotalAlloc
}

// TestLittleIsReadBeforeTheProof sends a few bytes that announce much, and then many
// bytes, before any proof.
func TestLittleIsReadBeforeTheProof(t *testing.T) {
	n := expectStock(t, withSecret)
	many := &peerv1.Frame{
		Claims: &peerv1.Claims{Count: 1 << 16}, Answers: &peerv1.Answers{Count: 1 << 16},
		Announces: &peerv1.Announces{Count: 1 << 16},
		Batches:   &peerv1.Batches{Count: 1 << 16}, Entries: &peerv1.Entries{Count: 1 << 16},
		Replies: &peerv1.Replies{Count: 1 << 16},
		Acks:    &peerv1.Acks{Count: 1 << 16}, Checks: &peerv1.Checks{Count: 1 << 16},
		Refunds: &peerv1.Refunds{Count: 1 << 16},
		Revokes: &peerv1.Revokes{Count: 1 << 16}, Keys: &peerv1.Keys{Count: 1 << 16},
		Results: &peerv1.Results{Count: 1 << 16},
	}
	t.Logf("the frame has %d bytes", proto.Size(&peerv1.Message{Frame: many}))
	for name, first := range map[string][]*peerv1.Message{
		"at once":             {{Frame: many}},
		"in place of a proof": {{Hello: hello(n)}, {Frame: many}},
	} {
		_, s := dialRaw(t, n.member.PeerAddr)
		before := allocated()
		for _, m := range first {
			must(t, s.Send(m))
		}
		for _, err := s.Recv(); err == nil; _, err = s.Recv() {
		}
		if grew := allocated() - before; grew > 2<<20 {
			t.Errorf("%s: %d bytes were allocated", name, grew)
		}
	}
	// A message of 8 MiB is not buffered.
	_, s := dialRaw(t, n.member.PeerAddr)
	big := &peerv1.Message{Hello: hello(n)}
	big.Hello.Cluster = strings.Repeat("c", 8<<20)
	before := allocated()
	_ = s.Send(big) // it may be closed before all is sent
	if _, err := s.Recv(); err == nil {
		t.Error("a hello of 8 MiB is answered")
	}
	n.log.wait(t, "more than 4096 bytes before its hello")
	if grew := allocated() - before; grew > 28<<20 { // which the client itself takes
		t.Errorf("%d bytes were allocated for a hello of 8 MiB", grew)
	}
	// After the hello no more than the bound is read until there is a proof.
	_, s = dialRaw(t, n.member.PeerAddr)
	must(t, s.Send(&peerv1.Message{Hello: hello(n)}))
	_, err := s.Recv()
	must(t, err)
	_ = s.Send(&peerv1.Message{Proof: make([]byte, 8<<20)})
	if _, err := s.Recv(); err == nil {
		t.Error("a proof of 8 MiB is answered")
	}
}

// TestSilentConnectionsKeepNobodyOut fills the port with connections that send nothing,
// or not enough. Members still connect, again and again, and the silent connections are
// closed after a while.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	short := func(c *peerlink.Config) { withSecret(c); c.ConnectTimeout = 5 * time.Second }
	n := start(t, 1000, "", short)
	var silent []net.Conn
	defer func() {
		for _, c := range silent {
			_ = c.Close()
		}
	}()
	fill := func() {
		for i := range 1100 {
			c, err := net.Dial("tcp", n.member.PeerAddr)
			must(t, err)
			if i%3 == 1 {
				_, _ = io.WriteString(c, "PRI * HT")
			}
			if i%3 == 2 {
				_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			}
			silent = append(silent, c)
		}
	}
	all := []*node{n}
	known := []peer.Member{n.member}
	downs := make(map[peer.Instance]int) // told before it was up: a slow start
	for i := range 4 {
		fill()
		m := start(t, peer.Instance(i+1), "", short)
		all, known = append(all, m), append(known, m.member)
		known[i+1].PeerAddr = "" // so that it is the other that dials
		n.SetMembers(known)
		m.SetMembers([]peer.Member{n.member, m.member})
		for _, m := range all[1:] {
			n.waitUp(t, m.self)
			m.waitUp(t, n.self)
		}
		downs[m.self] = n.tally("down " + m.self.String())
	}
	n.log.wait(t, "too many connections wait")
	open := 0
	for _, c := range silent {
		must(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := c.Read(make([]byte, 64)); isTimeout(err) {
			open++
		}
	}
	if open > 256 {
		t.Errorf("%d silent connections are open, want 256 at most", open)
	}
	for _, c := range silent {
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Fatal("a silent connection stays open")
		}
	}
	for _, m := range all[1:] {
		if n.tally("down "+m.self.String()) > downs[m.self] {
			t.Errorf("%s was lost meanwhile", m.member.Name)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// TestAnEndedSessionIsNoConnectionForLong opens one session after another in place of
// the last, without a secret: the earlier connections are closed.
func TestAnEndedSessionIsNoConnectionForLong(t *testing.T) {
	n := expectStock(t, func(c *peerlink.Config) { c.MaxConnections = 2 })
	for range 20 {
		conn, err := grpc.NewClient(n.member.PeerAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must(t, err)
		defer conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s, err := peerv1.NewLinksClient(conn).Connect(ctx)
		must(t, err)
		ups := n.tally("up " + stock.String())
		must(t, s.Send(&peerv1.Message{Hello: hello(n)}))
		_, err = s.Recv()
		must(t, err)
		must(t, s.Send(&peerv1.Message{}))
		n.waitMore(t, "up "+stock.String(), ups)
	}
}

// tap relays and records what a dialling node sends until it has proved itself.
type tap struct {
	peerv1.UnimplementedLinksServer
	addr  string
	to    peerv1.Links_ConnectClient
	heard chan *peerv1.Message
}

// Connect implements the service of the peer port.
func (p *tap) Connect(near grpc.BidiStreamingServer[peerv1.Message, peerv1.Message]) error {
	for i := range 2 {
		m, err := near.Recv()
		if err != nil {
			return err
		}
		p.heard <- m
		if err := p.to.Send(m); err != nil {
			return err
		}
		if i > 0 {
			break
		}
		if m, err = p.to.Recv(); err != nil {
			return err
		}
		if err := near.Send(m); err != nil {
			return err
		}
	}
	<-near.Context().Done()
	return nil
}
