package listen

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
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
	want := "203.0.113.9:4711 203.0.113.9:4711 203.0.113.8:4711 [2001:db8::1]:4711 [2001:db8::2]:4711 " +
		"[2001:db8:0:1::1]:4711 @ @"
	if got := strings.Join(open, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := log.String(); strings.Count(got, "connection refused") != 1 ||
		!strings.Contains(got, "from=203.0.113.9/32") || !strings.Contains(got, "--max-connections-per-ip") {
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

func (s *seenConnections) Connections(_ string, open int) { s.open, s.most = open, max(s.most, open) }

func (s *seenConnections) ConnectionRefused(_, reason string) { s.refused[reason]++ }

// TestReplacedConnections: at the bound of all connections a new one replaces the one
// that is idle for the longest time, of the address that has most of those with idle
// ones. It replaces none of an address that has no more than its own, and none with
// calls.
func TestReplacedConnections(t *testing.T) {
	var log bytes.Buffer
	b, seen := bound(&queue{}, 7, -1, slog.New(slog.NewTextHandler(&log, nil))),
		&seenConnections{refused: map[string]int{}}
	b.observer = seen
	now := time.Unix(1_800_000_000, 0)
	enter := func(from string) (c, replaced *boundedConn, ok bool) {
		now = now.Add(searchPause)
		c = &boundedConn{of: b, Conn: &remote{}, from: netip.MustParsePrefix(from + "/32")}
		replaced, ok = b.enter(c, now)
		return c, replaced, ok
	}
	conns := map[string][]*boundedConn{}
	for i, from := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2",
		"192.0.2.2"} {
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
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "connection closed for a new one") ||
		!strings.Contains(got, "from=192.0.2.2/32") {
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
		c = &boundedConn{of: b, Conn: &remote{}, from: OriginOf(netip.MustParseAddr(from))}
		c.work(used)
		replaced, ok = b.enter(c, now)
		return c, replaced, ok
	}
	var crowd []*boundedConn
	for i, from := range []string{"2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:2::2",
		"2001:db8:0:3::1", "2001:db8:0:4::1", "192.0.2.1", "192.0.2.1", "192.0.2.1"} {
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
	if got := log.String(); strings.Count(got, "connection replaced") != 1 ||
		!strings.Contains(got, "from=203.0.113.9/32") {
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

// Where few files may be open, few connections are taken.
func TestConnectionsWithinFiles(t *testing.T) {
	for files, want := range map[int]int{1<<31 - 1: 16384, 1 << 20: 16384, 4096: 1888, 1024: 352, 100: 16} {
		if got := ConnectionsWithin(files); got != want {
			t.Errorf("with %d files: %d connections, want %d", files, got, want)
		}
	}
}
