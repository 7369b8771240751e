package gossip

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// recorder is a transport that keeps a copy of each packet, and of each stream, that is
// sent.
type recorder struct {
	memberlist.NodeAwareTransport
	mu      sync.Mutex
	sent    [][]byte
	streams []*taped
}

// taped is a stream, with what was written.
type taped struct {
	net.Conn
	of   *recorder
	text []byte
}

func (c *taped) Write(b []byte) (int, error) {
	c.of.mu.Lock()
	c.text = append(c.text, b...)
	c.of.mu.Unlock()
	return c.Conn.Write(b)
}

func (r *recorder) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	c, err := r.NodeAwareTransport.DialAddressTimeout(a, timeout)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams = append(r.streams, &taped{Conn: c, of: r})
	return r.streams[len(r.streams)-1], nil
}

func (r *recorder) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	r.mu.Lock()
	r.sent = append(r.sent, bytes.Clone(b))
	r.mu.Unlock()
	return r.NodeAwareTransport.WriteToAddress(b, a)
}

// Encrypted messages that were recorded and are sent again, as they were or changed,
// change nothing: the member that sent them has left, and stays so. Changed ones are
// logged. Of those with another version each ended the node.
func TestReplayedAndAltered(t *testing.T) {
	a, cfg := configure(t, "a")
	cfg.Keys = [][]byte{key(1)}
	var told sync.Map
	cfg.Refused = func(from, why string) { told.Store(why, from) }
	if err := a.open(cfg); err != nil {
		t.Fatal(err)
	}
	var r recorder
	b, cfg := configure(t, "b", a.addr)
	cfg.Keys = [][]byte{key(1)}
	cfg.wrap = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		r.NodeAwareTransport = inner
		return &r
	}
	if err := b.open(cfg); err != nil {
		t.Fatal(err)
	}
	a.sees("a", "b")
	meta := cfg.Meta("")
	meta.RulesHash = 7
	if err := b.Update(meta); err != nil {
		t.Fatal(err)
	}
	a.until("it hears of b's rules", func() bool {
		return slices.ContainsFunc(a.members, func(m peer.Member) bool { return m.Name == "b" && m.RulesHash == 7 })
	})
	if err := b.Leave(patience); err != nil {
		t.Fatal(err)
	}
	b.crash()
	a.sees("a")
	a.mu.Lock()
	before := len(a.history)
	a.mu.Unlock()

	c, err := net.Dial("udp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.mu.Lock() // nothing is sent any more
	defer r.mu.Unlock()
	if len(r.sent) < 3 || len(r.streams) < 1 {
		t.Fatalf("b sent %d packets and %d streams, which are too few to tell anything", len(r.sent), len(r.streams))
	}
	for _, packet := range r.sent {
		for _, at := range []int{-1, 0, 1, 13, len(packet) / 2, len(packet) - 1} {
			again := bytes.Clone(packet)
			if at >= 0 {
				again[at] ^= 1
			}
			if _, err := c.Write(again); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, recorded := range r.streams {
		text := recorded.text
		for _, at := range []int{-1, 0, 1, 5, 6, len(text) / 2, len(text) - 1} {
			again := bytes.Clone(text)
			if at >= 0 {
				again[at] ^= 1
			}
			replay(t, a.addr, again)
		}
	}
	a.says("refused gossip that is encrypted with another key")
	a.says("a packet of gossip was dropped", "in a way that no node uses")
	for _, why := range []string{textKey, textPadded} { // which the log has by now
		if from, _ := told.Load(why); hostOf(fmt.Sprint(from)) != "127.0.0.1" {
			t.Errorf("%q was told of %v", why, from)
		}
	}

	late, cfg := configure(t, "late", a.addr)
	cfg.Keys = [][]byte{key(1)}
	if err := late.open(cfg); err != nil {
		t.Fatal(err)
	}
	a.sees("a", "late")
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.history[before:] {
		if strings.Contains(show(m), "b") {
			t.Errorf("b was a member again: %s", show(m))
		}
	}
}

// replay sends a stream, and reads until the node closes it.
func replay(t *testing.T, addr string, text []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatal(err)
	}
}
