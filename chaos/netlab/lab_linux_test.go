package netlab

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// lab returns a lab of three nodes, where the machine can have one; in CI it must.
func lab(t *testing.T) *Lab {
	t.Helper()
	if err := Usable(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to make a lab: %v", err)
		}
		t.Skip(err)
	}
	l, err := New(t.Context(), 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// echo answers datagrams on a port of node i.
func echo(t *testing.T, l *Lab, i int, port string) {
	t.Helper()
	var c net.PacketConn
	err := l.Node(i).Do(func() (err error) {
		c, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", net.JoinHostPort(l.PeerHost(i), port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if _, err := c.WriteTo(buf[:n], from); err != nil {
				return
			}
		}
	}()
}

// asker has node i send datagrams to another's port.
func asker(t *testing.T, l *Lab, i, to int, port string) net.Conn {
	t.Helper()
	c, err := l.Node(i).Dial(t.Context(), "udp", net.JoinHostPort(l.PeerHost(to), port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// answered sends a datagram, and returns how long its echo took; ok is false if
// none came within the time given.
func answered(t *testing.T, c net.Conn, within time.Duration) (took time.Duration, ok bool) {
	t.Helper()
	start := time.Now()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(start.Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if _, err := c.Read(buf); err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return 0, false
	}
	return time.Since(start), true
}

const (
	patience = 10 * time.Second // for what must come
	silence  = 300 * time.Millisecond
)

func TestLabCarriesDelaysAndCuts(t *testing.T) {
	l := lab(t)
	echo(t, l, 1, "7000")
	echo(t, l, 1, "7001")
	c, other := asker(t, l, 0, 1, "7000"), asker(t, l, 0, 1, "7001")
	if _, ok := answered(t, c, patience); !ok {
		t.Fatal("a whole link carries nothing")
	}
	before := l.Counts(0, 1)
	l.Set(0, 1, Link{Delay: 60 * time.Millisecond})
	if took, ok := answered(t, c, patience); !ok || took < 60*time.Millisecond {
		t.Errorf("answered %v after %v, want no sooner than the delay of 60 ms", ok, took)
	}
	if did := l.Counts(0, 1).Since(before); did.Carried == 0 || did.Dropped > 0 ||
		did.Held < time.Duration(did.Carried)*60*time.Millisecond {
		t.Errorf("the switch counted %+v of frames that are 60 ms late", did)
	}
	before = l.Counts(0, 1)
	l.Set(0, 1, Link{Blocked: []uint16{7000}})
	if _, ok := answered(t, c, silence); ok {
		t.Error("a blocked port is reached")
	}
	if did := l.Counts(0, 1).Since(before); did.Dropped == 0 {
		t.Errorf("the switch counted %+v, and a port is blocked", did)
	}
	if _, ok := answered(t, other, patience); !ok {
		t.Error("a port beside the blocked one is not reached")
	}
	l.Set(0, 1, Link{})
	l.Set(1, 0, Link{Cut: true}) // one way
	if _, ok := answered(t, c, silence); ok {
		t.Error("an answer came over a link that is cut")
	}
	l.Heal()
	if _, ok := answered(t, c, patience); !ok {
		t.Error("a healed link carries nothing")
	}
}

func TestLabHasNoWayOut(t *testing.T) {
	l := lab(t)
	for what, n := range map[string]*Namespace{"a node": l.Node(0), "the clients": l.Clients()} {
		if c, err := n.Dial(t.Context(), "udp", "192.0.2.1:53"); err == nil {
			_ = c.Close()
			t.Errorf("%s has a route out of the lab", what)
		}
	}
	// The clients' way to a node is another than the peers'.
	l.Set(0, 1, Link{Cut: true})
	l.Set(1, 0, Link{Cut: true})
	var c net.PacketConn
	if err := l.Node(1).Do(func() (err error) {
		c, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", net.JoinHostPort(l.ClientHost(1), "7002"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client, err := l.Clients().Dial(t.Context(), "udp", net.JoinHostPort(l.ClientHost(1), "7002"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadFrom(make([]byte, 100)); err != nil {
		t.Errorf("a client does not reach a node that is cut off from its peers: %v", err)
	}
}
