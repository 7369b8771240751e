//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/ring"
)

// The numbers of gossip's messages.
const (
	gossipAlive    = 4
	gossipDead     = 5
	gossipPushPull = 6
	gossipCompound = 7
	gossipUser     = 8
)

// packed is a message of gossip: its number, and an object of fields, which are names and
// values in turn.
func packed(number byte, fields ...any) []byte {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(s))), s...)
	}
	b := []byte{number, 0x80 | byte(len(fields)/2)}
	for i, f := range fields {
		switch v := f.(type) {
		case string:
			if i%2 == 0 { // a name is short
				b = append(append(b, 0xa0|byte(len(v))), v...)
			} else {
				b = text(b, v)
			}
		case []byte:
			b = text(b, string(v))
		case bool:
			b = append(b, map[bool]byte{false: 0xc2, true: 0xc3}[v])
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
		}
	}
	return b
}

// compound is several messages in one datagram.
func compound(messages ...[]byte) []byte {
	b := []byte{gossipCompound, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	return append(b, bytes.Join(messages, nil)...)
}

// metadata is what a node gossips about itself.
func metadata(instance, started uint64, state byte) []byte {
	b := []byte("weir1")
	add := func(tag byte, value []byte) {
		b = append(b, tag)
		b = append(binary.AppendUvarint(b, uint64(len(value))), value...)
	}
	add(1, []byte("weir"))
	add(2, binary.AppendUvarint(nil, ring.ConfigHash()))
	add(3, binary.AppendUvarint(nil, instance))
	add(4, binary.AppendUvarint(nil, started))
	if state != 0 {
		add(5, []byte{state})
	}
	add(6, []byte("127.0.0.1:9"))
	return b
}

// forgedAlive has a member of some name be live, at an address.
func forgedAlive(name string, incarnation int, at string, meta []byte) []byte {
	a := netip.MustParseAddrPort(at)
	return packed(gossipAlive, "Incarnation", incarnation, "Node", name, "Addr", a.Addr().AsSlice(), "Port", int(a.Port()),
		"Meta", meta, "Vsn", []byte{1, 5, 2, 0, 0, 0})
}

// forgedDead has it be dead in the eyes of another, or have left, in its own.
func forgedDead(name, from string, incarnation int) []byte {
	return packed(gossipDead, "Incarnation", incarnation, "Node", name, "From", from)
}

// gone is a list of members that are dead (0), forgotten (1) or have left (2).
func gone(fate byte, addr string, meta []byte, names ...string) []byte {
	b := append([]byte{gossipUser}, "gone1"...)
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = append(b, fate, 0)
		for _, field := range []string{name, addr, string(meta)} {
			b = append(binary.AppendUvarint(b, uint64(len(field))), field...)
		}
	}
	return b
}

// forger sends nodes gossip that is not true.
type forger struct {
	all       []*seat
	conns     []net.Conn
	instances []uint64
	sent      int
	err       error
}

func newForger(t *testing.T, all []*seat) *forger {
	t.Helper()
	f := &forger{all: all}
	_, body := get(t, http.DefaultClient, "http://"+all[0].admin+"/v1/members")
	var list struct {
		Members []struct{ Name, Instance string }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Members) != len(all) {
		t.Fatalf("%v\n%s", err, body)
	}
	for i, s := range all {
		c, err := new(net.Dialer).DialContext(t.Context(), "udp", s.gossip)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		n, err := strconv.ParseUint(list.Members[i].Instance, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		f.conns, f.instances = append(f.conns, c), append(f.instances, n)
	}
	return f
}

// throw sends every node a datagram.
func (f *forger) throw(b []byte) {
	for _, c := range f.conns {
		if _, err := c.Write(b); err != nil {
			f.err = err
		}
		f.sent++
	}
}

// lie sends all nodes each kind of false message once: two hundred dead members, and
// each of the nodes as dead, gone, leaving, restarted, and moved.
func (f *forger) lie(round int) {
	started := uint64(time.Now().UnixMilli())
	var dead []string
	for i := range 200 {
		dead = append(dead, fmt.Sprintf("ghost-%d", i))
	}
	f.throw(gone(0, "127.0.0.1:9", metadata(1<<40, started, 1), dead...))
	for from := 0; from < 200; from += 50 {
		var live, end [][]byte
		for i := from; i < from+50; i++ {
			live = append(live, forgedAlive(fmt.Sprintf("other-%d", i), 1+round, "127.0.0.1:9",
				metadata(uint64(2<<40+i), started, 1)))
			end = append(end, forgedDead(fmt.Sprintf("other-%d", i), "node-1", 1+round))
		}
		f.throw(compound(live...))
		f.throw(compound(end...))
	}
	for i, s := range f.all {
		high := 1_000_000 * (round + 1)
		self := metadata(f.instances[i], started+1<<20, 1)
		f.throw(gone(2, s.gossip, self, s.name))
		f.throw(gone(1, s.gossip, self, s.name))
		f.throw(forgedDead(s.name, s.name, high))
		f.throw(forgedDead(s.name, "node-9", high+1))
		f.throw(forgedAlive(s.name, high+2, s.gossip, metadata(f.instances[i], started, 2)))
		f.throw(forgedAlive(s.name, high+3, s.gossip, metadata(uint64(3<<40+round), started, 1)))
		f.throw(forgedAlive(s.name, high+4, "127.0.0.1:9", metadata(uint64(3<<40+round), started, 1)))
	}
}

// lies repeats them until the test ends what it does meanwhile.
func (f *forger) lies(while func()) {
	over := make(chan struct{})
	var lying sync.WaitGroup
	lying.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for round := 0; ; round++ {
			f.lie(round)
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	})
	while()
	close(over)
	lying.Wait()
}

// allocated is how many bytes a node has taken from the system for its heap, in MB.
func (s *seat) allocated(t *testing.T) float64 {
	t.Helper()
	_, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics")
	_, value, _ := strings.Cut(body, "\ngo_memstats_alloc_bytes_total ")
	value, _, _ = strings.Cut(value, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatalf("%s does not tell what it has allocated: %v", s.name, err)
	}
	return n / (1 << 20)
}

// An attacker who reaches the gossip ports without a key sends false messages while
// every limit is tested. No node is evicted, no share of a limit shrinks, and no
// invented member counts. Afterwards members die, leave and are forgotten as usual.
func TestForgedGossip(t *testing.T) {
	all := seats(t, "--deadline", "3s", "--audit", "stderr")
	f := newForger(t, all)
	before, late := events(t, all, "takeover", "handoff", "recovered"), events(t, all, "late")
	for _, rounds := range []int{10, clusterLimit + 3} {
		f.lies(func() {
			var c counts
			c.times(t, rounds, newAsker(t, all), fmt.Sprintf("%d rounds, ", rounds))
			if wrong := c.besides(min(rounds, clusterLimit), clusterLimit); len(wrong) > 0 || c.policy > 0 {
				t.Errorf("%d answers of policies, and %v", c.policy, wrong)
			}
		})
		for _, s := range all {
			s.unmoved(t)
		}
		if f.err != nil || f.sent < 50 || t.Failed() {
			t.Fatalf("%d lies were told: %v", f.sent, f.err)
		}
	}
	// A node that stood still, for want of a processor, is taken for dead for a moment.
	if n := events(t, all, "takeover", "handoff", "recovered") - before; n != 0 && events(t, all, "late") == late {
		t.Errorf("%d partitions changed hands", n)
	}
	for _, s := range all { // of each kind of lie there is a line of the audit
		within(t, s, `","over":"peer","why":"gossip alone told of the member`, 1)
		within(t, s, `","over":"peer","why":"gossip alone told of the departure of the member`, 1)
	}
	settle(t, all) // gossip is right again
	decides(t, all, "after")

	all[2].kill(t)
	all[0].dead(t, 1)
	all[2].start(t)
	settle(t, all)
	all[1].signal(os.Interrupt)
	all[1].left(t)
	for _, s := range []*seat{all[0], all[2]} {
		s.settled(t, 2)
		s.dead(t, 0)
	}
}

// A killed member is dead and counts, until one node is told to forget it; then all
// nodes forget it. A member that leaves does not count.
func TestKilledAndForgotten(t *testing.T) {
	all := seats(t)
	all[2].kill(t)
	for _, s := range all[:2] {
		s.dead(t, 1)
	}
	all[0].forget(t, "node-3")
	for _, s := range all[:2] {
		s.dead(t, 0)
	}
	all[2].start(t)
	settle(t, all)
	all[1].signal(os.Interrupt)
	all[1].left(t)
	for _, s := range []*seat{all[0], all[2]} {
		s.settled(t, 2)
		s.dead(t, 0)
	}
}

// unmoved wants the node not to believe in dead members, and to have its share.
func (s *seat) unmoved(t *testing.T) {
	t.Helper()
	_, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics")
	if strings.Contains(body, "\nweir_members{state=\"dead\"} 0\n") && !strings.Contains(body, "\nweir_ring_share 0\n") {
		return
	}
	var lines []string
	for _, line := range strings.Split(body, "\n") {
		if strings.HasPrefix(line, "weir_members") || strings.HasPrefix(line, "weir_ring") {
			lines = append(lines, line)
		}
	}
	t.Errorf("%s believes what it was told:\n%s", s.name, strings.Join(lines, "\n"))
}

// A stream of forty bytes makes a node allocate nothing to speak of.
func TestGossipBombs(t *testing.T) {
	s := places(t, 1, clusterRules)[0]
	s.start(t)
	s.until(s.log, "the node is ready")
	bomb := packed(gossipPushPull, "Nodes", 1_000_000, "UserStateLen", 0, "Join", false)
	before := s.allocated(t)
	for range 5 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.gossip)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(bomb); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(soon))
		_, _ = new(bytes.Buffer).ReadFrom(c) // until the node ends it
		_ = c.Close()
	}
	if mb := s.allocated(t) - before; mb > 20 {
		t.Errorf("5 streams of %d bytes made it allocate %.0f MB", len(bomb), mb)
	}
}

// kill ends the node at once.
func (s *seat) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.done
}

// dead waits until the node sees so many dead members.
func (s *seat) dead(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	want := fmt.Sprintf("\nweir_members{state=\"dead\"} %d\n", n)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics"); strings.Contains(body, want) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, body := get(t, http.DefaultClient, "http://"+s.admin+"/v1/members")
			t.Fatalf("%s never saw %d dead members:\n%s\n%s", s.name, n, body, s.log)
		}
	}
}

// forget has a node forget a member.
func (s *seat) forget(t *testing.T, name string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.admin+"/v1/members/forget",
		strings.NewReader(`{"name":"`+name+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s does not forget %s: %s", s.name, name, resp.Status)
	}
}
