package listen

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
)

// TestWatchersKeepNobodyOut: connections on which someone watches have places of their own, in total and from one
// address, and give them back.
func TestWatchersKeepNobodyOut(t *testing.T) {
	l := &apartListener{Listener: nowhere{}, log: slog.New(slog.DiscardHandler)}
	from := netip.MustParsePrefix("203.0.113.9/32")
	var all []*apartConn
	for i := range maxWatchFrom + 1 {
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		c := &apartConn{Conn: near, of: l, from: from}
		if !l.enter(c) {
			t.Fatalf("connection %d has no place", i)
		}
		c.serve(true)
		all = append(all, c)
		if got := Watch(context.WithValue(t.Context(), apartKey{}, c)); got != (i < maxWatchFrom) {
			t.Errorf("watcher %d: %v", i, got)
		}
	}
	if len(l.open) != 1 || len(l.watch) != maxWatchFrom {
		t.Errorf("%d are open, and %d watched", len(l.open), len(l.watch))
	}
	for _, c := range all {
		c.Close()
	}
	if len(l.open)+len(l.watch) != 0 {
		t.Errorf("%d are open, and %d watched, after their end", len(l.open), len(l.watch))
	}
	if !Watch(t.Context()) {
		t.Error("a site of its own has no bound, and nobody may watch")
	}
}

// nowhere is a listener that only has an address.
type nowhere struct{ net.Listener }

func (nowhere) Addr() net.Addr { return &net.TCPAddr{} }
