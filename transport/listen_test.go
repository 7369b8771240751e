package transport

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
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
