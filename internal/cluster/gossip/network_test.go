package gossip

import (
	"bytes"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// A datagram costs what it is long, and not the longest that there could be. Each is kept as it came.
func TestSmallDatagramsAreCheap(t *testing.T) {
	n, err := listenOn(netip.MustParseAddrPort("127.0.0.1:0"), func(string, error) {})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", n.udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	send := func(b []byte) *memberlist.Packet {
		t.Helper()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		select {
		case p := <-n.PacketCh():
			return p
		case <-time.After(patience):
			t.Fatal("a datagram does not arrive")
			return nil
		}
	}
	if _, err := c.Write(nil); err != nil { // it is passed over
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), 60_000)
	first, second := send(long), send([]byte("yz"))
	if !bytes.Equal(first.Buf, long) || string(second.Buf) != "yz" || second.From.String() != c.LocalAddr().String() ||
		second.Timestamp.IsZero() {
		t.Errorf("%d bytes and %q came from %v at %v", len(first.Buf), second.Buf, second.From, second.Timestamp)
	}
	const datagrams = 500
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range datagrams {
		send([]byte{99})
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / datagrams; each > 8<<10 {
		t.Errorf("a datagram of a byte takes %d bytes", each)
	}
	if _, err := c.Write([]byte("nobody reads it")); err != nil {
		t.Fatal(err)
	}
	if err := n.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A node that listens on all addresses advertises one of the machine's, and that which was given before it.
func TestNetworkAdvertises(t *testing.T) {
	for _, c := range []struct{ bind, given, want string }{
		{"127.0.0.1:0", "", "127.0.0.1"}, {"127.0.0.1:0", "192.0.2.1", "192.0.2.1"},
		{"0.0.0.0:0", "2001:db8::1", "2001:db8::1"}, {"127.0.0.1:0", "x", ""}, {"0.0.0.0:0", "", "*"},
	} {
		n, err := listenOn(netip.MustParseAddrPort(c.bind), func(string, error) {})
		if err != nil {
			t.Fatal(err)
		}
		ip, port, err := n.FinalAdvertiseAddr(c.given, 7)
		switch {
		case c.want == "*": // what memberlist finds, if the machine has any
			if err == nil && (ip.IsUnspecified() || port != n.port()) {
				t.Errorf("%+v: %v:%d", c, ip, port)
			}
		case c.want == "" && err == nil, c.want != "" && (err != nil || ip.String() != c.want):
			t.Errorf("%+v: %v, %v", c, ip, err)
		case err == nil && c.given != "" && port != 7, err == nil && c.given == "" && port != n.port():
			t.Errorf("%+v: port %d", c, port)
		}
		if err := n.Shutdown(); err != nil {
			t.Error(err)
		}
	}
}
