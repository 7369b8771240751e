package transport

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
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
	l := bound(q, 8, 2, slog.New(slog.NewTextHandler(&log, nil)))
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
	if b := l.(*boundedListener); b.open != 0 || len(b.from) != 0 {
		t.Errorf("%d connections are still counted, of %v", b.open, b.from)
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
