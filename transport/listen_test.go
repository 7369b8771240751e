package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// queue is a listener whose connections come from given addresses.
type queue struct {
	net.Listener
	from []string
}

type remote struct {
	net.Conn
	from net.Addr
}

func (r *remote) RemoteAddr() net.Addr { return r.from }
func (r *remote) Close() error         { return nil }

func (q *queue) Accept() (net.Conn, error) {
	if len(q.from) == 0 {
		return nil, net.ErrClosed
	}
	next := q.from[0]
	q.from = q.from[1:]
	if ip := net.ParseIP(next); ip != nil {
		return &remote{from: &net.TCPAddr{IP: ip, Port: 4711}}, nil
	}
	return &remote{from: &net.UnixAddr{Name: next, Net: "unix"}}, nil
}

func (q *queue) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8081} }

// TestConnectionsPerAddress: the connections from one address, or one IPv6 /64 network,
// are bounded. Others are accepted until the listener is full. A closed connection
// makes room. Refusals are logged once a minute.
func TestConnectionsPerAddress(t *testing.T) {
	q := &queue{from: []string{
		"203.0.113.9", "203.0.113.9", "203.0.113.9", // one too many
		"::ffff:203.0.113.9",                        // the same address
		"203.0.113.8", "2001:db8::1", "2001:db8::2", // one network
		"2001:db8::3",               // one too many
		"2001:db8:0:1::1", "@", "@", // sockets have no address
		"203.0.113.7", // the listener is full
	}}
	var log bytes.Buffer
	l, seen := bound(q, 8, 2, slog.New(slog.NewTextHandler(&log, nil))), &seenConnections{refused: map[string]int{}}
	l.observer, l.name = seen, "here"
	var open []string
	conns := map[string][]net.Conn{}
	accept := func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			from := c.RemoteAddr().String()
			open, conns[from] = append(open, from), append(conns[from], c)
		}
	}
	accept()
	want := "203.0.113.9:4711 203.0.113.9:4711 203.0.113.8:4711 [2001:db8::1]:4711 [2001:db8::2]:4711 [2001:db8:0:1::1]:4711 @ @"
	if got := strings.Join(open, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := log.String(); strings.Count(got, "connection refused") != 1 || !strings.Contains(got, "from=203.0.113.9/32") || !strings.Contains(got, "--max-connections-per-ip") {
		t.Errorf("the log has\n%s", got)
	}
	for range 2 { // a connection that is closed twice makes room once
		conns["203.0.113.9:4711"][0].Close()
	}
	open, q.from = nil, []string{"203.0.113.9", "203.0.113.9"}
	if accept(); len(open) != 1 {
		t.Errorf("%d came in where one had gone", len(open))
	}
	for _, all := range conns {
		for _, c := range all {
			c.Close()
		}
	}
	if l.open != 0 || len(l.from) != 0 || seen.open != 0 || seen.most != 8 {
		t.Errorf("%d connections are still counted, of %v; %+v", l.open, l.from, seen)
	}
	if got := fmt.Sprint(seen.refused); got != "map[per_address:4 total:1]" {
		t.Error(got)
	}
}

// seenConnections is an observer.
type seenConnections struct {
	open, most int
	refused    map[string]int
}

func (*seenConnections) Served(string, string, time.Duration) {}

func (s *seenConnections) Connections(_ string, open int) { s.open, s.most = open, max(s.most, open) }

func (s *seenConnections) ConnectionRefused(_, reason string) { s.refused[reason]++ }

// TestReplacedConnections: at the bound of all connections a new one replaces the one
// that is idle for the longest time, of the address that has most of those with idle
// ones. It replaces none of an address that has no more than its own, and none with
// calls.
func TestReplacedConnections(t *testing.T) {
	var log bytes.Buffer
	b, seen := bound(&queue{}, 7, -1, slog.New(slog.NewTextHandler(&log, nil))), &seenConnections{refused: map[string]int{}}
	b.observer = seen
	now := time.Unix(1_800_000_000, 0)
	enter := func(from string) (c, replaced *boundedConn, ok bool) {
		now = now.Add(searchPause)
		c = &boundedConn{of: b, Conn: &remote{}, from: netip.MustParsePrefix(from + "/32")}
		replaced, ok = b.enter(c, now)
		return c, replaced, ok
	}
	conns := map[string][]*boundedConn{}
	for i, from := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2"} {
		c, _, _ := enter(from)
		c.rest(int64(100 - i))
		conns[from] = append(conns[from], c)
	}
	for _, c := range conns["192.0.2.1"] {
		c.work(1)
	}
	conns["192.0.2.2"][1].rest(5)
	if _, replaced, ok := enter("192.0.2.3"); !ok || replaced != conns["192.0.2.2"][1] {
		t.Errorf("the calls of the first address protect it: %v, %p of %p", ok, replaced, conns["192.0.2.2"])
	}
	conns["192.0.2.1"][2].rest(50)
	conns["192.0.2.1"][3].rest(40)
	if _, replaced, ok := enter("192.0.2.3"); !ok || replaced != conns["192.0.2.1"][3] {
		t.Errorf("the first address has most: %v, %p of %p", ok, replaced, conns["192.0.2.1"])
	}
	// Now the first address has three and the others two each.
	if _, replaced, ok := enter("192.0.2.2"); ok || replaced != nil {
		t.Errorf("one with as many afterwards takes the place of another: %v, %p", ok, replaced)
	}
	if got := fmt.Sprint(seen.refused); got != "map[replaced:2 total:1]" {
		t.Error(got)
	}
	if n := b.open; n != 7 || len(b.from[netip.MustParsePrefix("192.0.2.1/32")]) != 3 {
		t.Errorf("%d connections are counted, %v", n, b.from)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "connection closed for a new one") || !strings.Contains(got, "from=192.0.2.2/32") {
		t.Errorf("the log has\n%s", got)
	}
	for _, conns := range b.from {
		for c := range maps.Clone(conns) {
			_ = c.Close()
		}
	}
	if b.open != 0 || len(b.from) != 0 {
		t.Errorf("%d connections are left, %v", b.open, b.from)
	}
}

// TestCrowdedConnections: at the bound of all connections, of which none is idle, a new one
// replaces the least recently used one of the site with the most, if these are at least
// twice as many as its own.
func TestCrowdedConnections(t *testing.T) {
	b := bound(&queue{}, 9, -1, slog.New(slog.DiscardHandler))
	now := time.Unix(1_800_000_000, 0)
	enter := func(from string, used int64) (c, replaced *boundedConn, ok bool) {
		now = now.Add(searchPause)
		c = &boundedConn{of: b, Conn: &remote{}, from: originOf(netip.MustParseAddr(from))}
		c.work(used)
		replaced, ok = b.enter(c, now)
		return c, replaced, ok
	}
	var crowd []*boundedConn
	for i, from := range []string{"2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:2::2", "2001:db8:0:3::1", "2001:db8:0:4::1", "192.0.2.1", "192.0.2.1", "192.0.2.1"} {
		c, _, _ := enter(from, int64(100-i))
		crowd = append(crowd, c)
	}
	crowd[2].work(7)
	crowd[8].work(1) // of another site, which has fewer
	if _, replaced, ok := enter("192.0.2.2", 200); !ok || replaced != crowd[2] {
		t.Errorf("the site of 48 bits has most: %v, %p of %p", ok, replaced, crowd)
	}
	if _, replaced, ok := enter("192.0.2.2", 200); !ok || replaced != crowd[5] {
		t.Errorf("it has most again: %v, %p of %p", ok, replaced, crowd)
	}
	// Now it has four, and the others have three and two.
	for _, from := range []string{"192.0.2.2", "2001:db8:0:9::1", "192.0.2.1"} {
		if _, replaced, ok := enter(from, 200); ok || replaced != nil {
			t.Errorf("%s, which has at least half of the most, replaces another: %v, %p", from, ok, replaced)
		}
	}
	for _, conns := range b.from {
		for c := range maps.Clone(conns) {
			_ = c.Close()
		}
	}
	if b.open != 0 || len(b.from) != 0 || len(b.sites) != 0 {
		t.Errorf("%d connections are left, %v, %v", b.open, b.from, b.sites)
	}
}

// TestQuietStreamsAreIdle: a connection whose streams carry nothing may be replaced, so
// open streams do not keep other clients out. With the next message it may not.
func TestQuietStreamsAreIdle(t *testing.T) {
	s := newStalls(nil, &Options{ClientTimeout: 2 * time.Second, MaxStreams: 4, MaxDecodingBytes: 1 << 20}, new(room))
	b := bound(&queue{}, 2, -1, nil)
	inner := &boundedConn{of: b, Conn: &remote{}}
	c := &watchedConn{Conn: inner, of: s, bounded: inner, streams: map[uint32]*clientStream{}}
	s.conns[c] = struct{}{}
	asks := frameOf(frameData, 0, 1, messageOf(3, []byte("abc")))
	c.in.read(append(frameOf(frameHeaders, flagEndHeaders, 1, nil), asks...), inbound{c})
	answer := func() {
		c.out.read(frameOf(frameData, 0, 1, messageOf(2, []byte("ok"))), outbound{c})
	}
	is := func(want bool, when string) {
		t.Helper()
		if got := inner.idle.Load() > 0; got != want {
			t.Errorf("%s: idle is %v", when, got)
		}
	}
	s.tick()
	is(false, "a message is not answered")
	answer()
	s.tick()
	s.tick()
	is(false, "answered two ticks ago")
	s.tick()
	is(true, "answered three ticks ago")
	if at := inner.idle.Load(); at != 1+1 {
		t.Errorf("idle since tick %d, want 1", at-1)
	}
	c.in.read(asks, inbound{c})
	is(false, "the next message")
	answer()
	for range 3 {
		s.tick()
	}
	is(true, "answered three ticks ago, again")
	c.in.read(frameOf(frameHeaders, flagEndHeaders, 3, nil), inbound{c})
	is(false, "another stream")
}

// TestFewAddressesKeepNobodyOut: four addresses that have all connections of both public
// listeners keep no client of another address out. A connection with a call stays.
func TestFewAddressesKeepNobodyOut(t *testing.T) {
	by := &stub{decide: func(_ *limiter.Request, d *limiter.Decision) error { d.Allowed = true; return nil }}
	s, err := NewServer(Options{Decider: by, MaxConnections: 8, MaxConnectionsPerAddress: 2})
	if err != nil {
		t.Fatal(err)
	}
	var at [2]net.Listener
	for i := range at {
		if at[i], err = Listen(t.Context(), "--test-addr", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(at[0], at[1]); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(served.Wait)
	t.Cleanup(s.stop)
	api := func(from string) weirv1.LimiterClient {
		conn, err := grpc.NewClient("passthrough:///"+at[0].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialFrom(ctx, from, to) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return weirv1.NewLimiterClient(conn)
	}
	stream, err := api("127.0.0.2").CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(when string) {
		t.Helper()
		if err := stream.Send(&weirv1.CheckColumns{Costs: []int64{1}}); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || len(got.GetFlags()) != 1 {
			t.Errorf("the stream %s: %v, %v", when, got, err)
		}
	}
	ask("before")
	for i, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.4", "127.0.0.4", "127.0.0.5", "127.0.0.5", "127.0.0.2"} {
		for j, l := range at {
			if i == 7 && j == 0 {
				continue // the stream has the place
			}
			c, err := dialFrom(t.Context(), from, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			hello := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
			if j == 0 {
				hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string(frameOf(4, 0, 0, nil))
			}
			if _, err := io.WriteString(c, hello); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil { // it is served
				t.Fatal(err)
			}
		}
	}
	if got, err := api("127.0.0.1").Check(t.Context(), &weirv1.CheckRequest{User: "ada"}); err != nil || !got.Allowed {
		t.Errorf("gRPC: %v, %v", got, err)
	}
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at[1].Addr().String()+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	got, err := web.Do(r)
	if err != nil {
		t.Fatalf("HTTP: %v", err)
	}
	got.Body.Close()
	ask("afterwards")
}

// dialFrom dials from an address of this machine.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(ctx, "tcp", to)
}

// TestHalfHeadersApart: a header that does not end takes a place of a probe for a shorter
// time than one of a client may take.
func TestHalfHeadersApart(t *testing.T) {
	s, err := NewServer(Options{Decider: new(stub)})
	if err != nil {
		t.Fatal(err)
	}
	if got, client := s.Health().http.ReadHeaderTimeout, s.http.ReadHeaderTimeout; got <= 0 || got > client/2 {
		t.Errorf("a probe has %v for its header, a client %v", got, client)
	}
}

// TestApartConnections: at the bound of the listeners for probes and operators, in total
// and of one address, the connection that has waited longest is closed for a new one. One
// whose request is being answered stays; if all are, the new one is closed.
func TestApartConnections(t *testing.T) {
	var log bytes.Buffer
	q := &queue{}
	l := &apartListener{Listener: q, log: slog.New(slog.NewTextHandler(&log, nil))}
	accept := func(from ...string) (got []*apartConn) {
		q.from = from
		for {
			c, err := l.Accept()
			if err != nil {
				return got
			}
			got = append(got, c.(*apartConn))
		}
	}
	is := func(what string, want ...*apartConn) {
		t.Helper()
		if !slices.Equal(l.open, want) {
			t.Errorf("%s: other connections are open, or in another order", what)
		}
	}
	a := accept(slices.Repeat([]string{"203.0.113.9"}, maxApartFrom)...)
	b := accept("203.0.113.8")[0]
	is("below the bound", append(slices.Clone(a), b)...)
	a[0].serve(true)
	a[1].serve(true)
	a[1].serve(false) // and waits again, for the shortest time
	c := accept("203.0.113.9")[0]
	is("one address has as many as it may", a[0], a[3], a[4], a[5], a[6], a[7], b, a[1], c)
	if got := log.String(); strings.Count(got, "connection replaced") != 1 || !strings.Contains(got, "from=203.0.113.9/32") {
		t.Errorf("the log has\n%s", got)
	}
	for _, o := range slices.Clone(l.open) {
		o.serve(true)
	}
	if got := accept("203.0.113.9"); len(got) != 0 {
		t.Error("a connection is taken where all of its address are being answered")
	}
	for i := range maxApart - len(l.open) {
		accept(fmt.Sprintf("198.51.100.%d", i))
	}
	oldest := l.open[9]
	newest := accept("192.0.2.77")[0]
	if len(l.open) != maxApart || slices.Contains(l.open, oldest) || !slices.Contains(l.open, newest) {
		t.Errorf("of all addresses %d are open", len(l.open))
	}
	for _, o := range slices.Clone(l.open) {
		o.Close()
		o.Close()
	}
	if len(l.open) != 0 {
		t.Errorf("%d connections are still counted", len(l.open))
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the log has %d lines in a minute", n)
	}
}
