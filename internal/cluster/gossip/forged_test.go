package gossip

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// packed returns a message of memberlist: its type, and an object whose fields are names
// and values in turn.
func packed(number byte, fields ...any) []byte {
	b := []byte{number, 0x80 | byte(len(fields)/2)}
	for _, f := range fields {
		switch v := f.(type) {
		case string:
			b = appendText(b, v)
		case []byte:
			b = appendText(b, string(v))
		case bool:
			b = append(b, map[bool]byte{false: 0xc2, true: 0xc3}[v])
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, 0xa0|byte(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(s))), s...)
}

func compound(messages ...[]byte) []byte {
	b := []byte{msgCompound, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	for _, m := range messages {
		b = append(b, m...)
	}
	return b
}

// invented is a member that does not exist, at a port that no process uses.
func invented(t testing.TB, name string) about {
	t.Helper()
	return about{cluster: "test", ring: 7, started: 1, Member: peer.Member{
		Name: name, Instance: peer.Instance(instances.Add(1)) + 1<<32, State: peer.Active, GossipAddr: "127.0.0.1:9",
	}}
}

func forgedAlive(t testing.TB, a about) []byte {
	t.Helper()
	meta, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(a.GossipAddr)
	return packed(msgAlive, "Incarnation", 1, "Node", a.Name, "Addr", at.Addr().AsSlice(), "Port", int(at.Port()),
		"Meta", meta, "Vsn", []byte{1, 5, 2, 0, 0, 0})
}

func forgedDead(name, from string) []byte {
	return packed(msgDead, "Incarnation", 1, "Node", name, "From", from)
}

// throw sends a node a datagram.
func throw(t testing.TB, n *node, packet []byte) {
	t.Helper()
	c, err := net.Dial("udp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(packet); err != nil {
		t.Fatal(err)
	}
}

// heardAfter waits until a node has processed all packets so far: it has then refused
// the one that is sent last.
func heardAfter(t testing.TB, n *node, packets ...[]byte) {
	t.Helper()
	for _, p := range packets {
		throw(t, n, p)
	}
	last := invented(t, fmt.Sprintf("last-%d", instances.Add(1)))
	last.cluster = "another"
	throw(t, n, forgedAlive(t, last))
	n.until("the last packet is heard of", func() bool { return strings.Contains(n.log.String(), last.Name) })
}

// One datagram with two hundred invented dead members, and a list of as many: a node
// whose links do not vouch for them remembers none and passes none on.
func TestInventedDead(t *testing.T) {
	for name, c := range map[string]struct {
		vouched func(peer.Known) bool
		dead    int
	}{
		"nobody is asked":    {nil, 400},
		"nobody vouches":     {func(peer.Known) bool { return false }, 0},
		"links vouch of one": {func(k peer.Known) bool { return k.Name == "list-7" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n, cfg := configure(t, "a")
			cfg.Vouched = c.vouched
			if err := n.open(cfg); err != nil {
				t.Fatal(err)
			}
			var live, end [][]byte
			var list []gone
			for i := range 200 {
				ghost := fmt.Sprintf("ghost-%d", i)
				live, end = append(live, forgedAlive(t, invented(t, ghost))), append(end, forgedDead(ghost, "b"))
				list = append(list, gone{about: invented(t, fmt.Sprintf("list-%d", i)), fate: dead, since: time.Now()})
			}
			heardAfter(t, n, compound(live[:100]...), compound(live[100:]...))
			n.until("the invented are live for a moment", func() bool { return len(n.Members()) == 201 })
			throw(t, n, compound(end...))
			n.until("none of the invented is live", func() bool {
				for _, m := range n.Members() {
					if m.Name != "a" && m.State != peer.Dead {
						return false
					}
				}
				return true
			})
			delegate{n.Gossip}.NotifyMsg(encodeGone(list, time.Now()))
			told, err := decodeGone(delegate{n.Gossip}.LocalState(false), time.Now())
			if got := len(n.Members()) - 1; got != c.dead || len(told) != c.dead || err != nil {
				t.Errorf("%d dead, and others are told of %d (%v), want %d", got, len(told), err, c.dead)
			}
		})
	}
}

// A forged departure changes nothing if links do not confirm it.
func TestForgedDeparture(t *testing.T) {
	for name, believe := range map[string]bool{"links know": true, "links know nothing": false} {
		t.Run(name, func(t *testing.T) {
			n, cfg := configure(t, "a")
			cfg.Vouched = func(k peer.Known) bool { return believe || !k.Gone }
			if err := n.open(cfg); err != nil {
				t.Fatal(err)
			}
			b := start(t, "b", n.addr)
			n.sees("a", "b")
			b.mu.Lock()
			self := b.self
			b.mu.Unlock()
			for _, f := range []fate{left, forgotten} {
				delegate{n.Gossip}.NotifyMsg(encodeGone([]gone{{about: self, fate: f, since: time.Now()}}, time.Now()))
			}
			if got, want := show(n.Members()), map[bool]string{true: "a", false: "a, b"}[believe]; got != want ||
				n.Left("b") != believe {
				t.Errorf("it sees %s, want %s; b has left: %v", got, want, n.Left("b"))
			}
		})
	}
}

// The number of invented names at a time is bounded, whether memberlist has them as live
// or as dead.
func TestInventedNamesHaveABound(t *testing.T) {
	r := newRoster("a")
	nobody := func(*gone) bool { return false }
	now := someday
	let := 0
	for i := range 4 * maxNames {
		name := fmt.Sprintf("ghost-%d", i)
		if r.strange(name, now) {
			continue
		}
		let++
		r.alive(run(name, 1))
		r.lost(name, now, nobody)
	}
	if let != maxNames || len(r.ghosts) != maxNames || len(r.gone) != 0 {
		t.Errorf("%d were let in, %d are remembered, %d of them as dead", let, len(r.ghosts), len(r.gone))
	}
	r.keep(departed("known", 1, dead))
	if r.strange("a", now) || r.strange("ghost-3", now) || r.strange("known", now) {
		t.Error("a name that was there before is strange")
	}
	if now = now.Add(keepGhost); r.strange("new", now) {
		t.Error("a minute later there is still no room")
	}
	r.expire(now, nobody)
	if len(r.ghosts)+len(r.gone) != 0 {
		t.Errorf("%d are remembered for ever", len(r.ghosts)+len(r.gone))
	}
}

// allocated returns how much a function makes the process allocate, in MB.
func allocated(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20)
}

// A few bytes that announce much are refused before anything is allocated for them.
// Without the guard the streams cost 117, 20 and 40 MB, and the packet 63.
func TestBombs(t *testing.T) {
	n := start(t, "a")
	long := packed(msgPing, "SeqNo", 1)
	long = append(long[:1], 0x81, 0xdb, 0xff, 0xff, 0xff, 0xff) // a name of 4 GB
	for name, b := range map[string][]byte{
		"states of nodes":  packed(msgPushPull, "Nodes", 1_000_000, "UserStateLen", 0, "Join", false),
		"a list":           packed(msgPushPull, "Nodes", 0, "UserStateLen", 20<<20, "Join", false),
		"a message":        packed(msgUser, "UserMsgLen", 20<<20),
		"compressed":       squeezed(t, make([]byte, 30<<20)),
		"states, squeezed": squeezed(t, packed(msgPushPull, "Nodes", 1_000_000, "UserStateLen", 0, "Join", false)),
		"no header":        append([]byte{msgPushPull}, 0x9f),
		"an endless name":  append([]byte{msgPushPull, 0x8f}, strings.Repeat("\xa3abc\x01", 40)...),
		"negative": append([]byte{msgPushPull, 0x81},
			append([]byte("\xa5Nodes"), 0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)...),
	} {
		t.Run(name, func(t *testing.T) {
			mb := allocated(func() {
				c, err := net.Dial("tcp", n.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
					t.Fatal(err)
				}
			})
			if mb > 5 {
				t.Errorf("%d bytes made it allocate %.0f MB", len(b), mb)
			}
		})
	}
	var many [][]byte
	for range 255 {
		many = append(many, long)
	}
	for name, packet := range map[string][]byte{"announces much": compound(many...),
		"compressed": squeezed(t, make([]byte, 20<<20)), "compressed within": compound(squeezed(t, make([]byte, 20<<20)))} {
		if mb := allocated(func() { heardAfter(t, n, packet) }); mb > 5 {
			t.Errorf("a packet of %d bytes that is %s made it allocate %.0f MB", len(packet), name, mb)
		}
	}
}

// squeezed returns a compressed message.
func squeezed(t testing.TB, message []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	if _, err := w.Write(message); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed(msgCompress, "Algo", 0, "Buf", b.Bytes())
}

// A node is refused if its metadata is longer than memberlist allows, or if it comes
// after too many invented ones.
func TestKeptOut(t *testing.T) {
	n := start(t, "a")
	a := invented(t, "b")
	meta, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	node := &memberlist.Node{Name: "b", Addr: net.IPv4(127, 0, 0, 1), Port: 9, Meta: meta}
	if err := (delegate{n.Gossip}).NotifyAlive(node); err != nil {
		t.Errorf("it is kept out: %v", err)
	}
	node.Meta = append(append(meta, 200, 0xff, 3), make([]byte, 511)...) // a field that is not known
	if err := (delegate{n.Gossip}).NotifyAlive(node); !errors.Is(err, ErrForeign) {
		t.Errorf("with %d bytes of metadata: %v", len(node.Meta), err)
	}
	node.Meta = meta
	n.Gossip.mu.Lock()
	for i := range maxNames {
		n.Gossip.roster.ghosts[fmt.Sprint(i)] = time.Now()
	}
	n.Gossip.mu.Unlock()
	if err := (delegate{n.Gossip}).NotifyAlive(node); !errors.Is(err, ErrFull) {
		t.Errorf("after %d ghosts: %v", maxNames, err)
	}
}

// No more is read of a stream than nodes may send.
func TestStreamsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		plain bool
		begin []byte
		want  int
	}{
		"encrypted":         {false, []byte{msgEncrypt, 0, 0, 0, 0, 1}, maxStream},
		"a view":            {true, packed(msgPushPull, "Nodes", 1, "UserStateLen", 1, "Join", true), maxStream},
		"a message":         {true, packed(msgUser, "UserMsgLen", 1), maxUserMessage + maxAnswer},
		"a ping":            {true, packed(msgPing, "SeqNo", 1), maxAnswer},
		"what is no gossip": {true, []byte("HTTP/1.1 200"), maxAnswer},
	} {
		s := &stream{Conn: endless{begin: io.MultiReader(bytes.NewReader(c.begin),
			bytes.NewReader(make([]byte, 2*maxStream)))}, plain: c.plain, left: maxStream}
		if n, err := io.Copy(io.Discard, s); n != int64(c.want) || !errors.Is(err, errStreamEnd) {
			t.Errorf("%s: %d bytes are read, and then %v; want %d", name, n, err, c.want)
		}
	}
}

// endless is a connection that sends something, and then more zeros than any node may.
type endless struct{ begin io.Reader }

func (e endless) Read(b []byte) (int, error) { return e.begin.Read(b) }

func (endless) Close() error                     { return nil }
func (endless) LocalAddr() net.Addr              { return nil }
func (endless) RemoteAddr() net.Addr             { return nil }
func (endless) Write(b []byte) (int, error)      { return len(b), nil }
func (endless) SetDeadline(time.Time) error      { return nil }
func (endless) SetReadDeadline(time.Time) error  { return nil }
func (endless) SetWriteDeadline(time.Time) error { return nil }

// The guard drops nothing that nodes send to each other.
func TestGuardDropsNothingOfNodes(t *testing.T) {
	t.Parallel()
	a := start(t, "a")
	b, c := start(t, "b", a.addr), start(t, "c", a.addr)
	all := []*node{a, b, c}
	for _, n := range all {
		n.sees("a", "b", "c")
	}
	if err := b.Update(peer.Member{State: peer.Leaving, PeerAddr: strings.Repeat("b", 300) + ":1"}); err != nil {
		t.Fatal(err)
	}
	a.sees("a", "b leaving", "c")
	if err := b.Leave(time.Second); err != nil {
		t.Fatal(err)
	}
	c.crash()
	a.sees("a", "c dead")
	if err := a.Forget("c"); err != nil {
		t.Fatal(err)
	}
	start(t, "d", a.addr).sees("a", "d")
	for _, n := range all {
		n.mu.Lock()
		if text := n.log.String(); strings.Contains(text, "was dropped") || strings.Contains(text, "is refused") {
			t.Errorf("%s refuses what another said:\n%s", n.cfg.Name, text)
		}
		n.mu.Unlock()
	}
}

// What streams have sent has a bound together: memberlist keeps all of it. At the bound the longest
// stream of the address that has sent most gives way, so others are heard.
func TestBytesOfStreamsHaveABound(t *testing.T) { synctest.Test(t, bytesOfStreamsHaveABound) }

func bytesOfStreamsHaveABound(t *testing.T) {
	log := newThrottledLog(slog.New(slog.DiscardHandler), time.Now)
	g := &guard{from: map[string]map[*stream]bool{}, log: log}
	closed := map[string]int{}
	at := func(host string) net.Conn {
		addr := &net.TCPAddr{IP: net.ParseIP(host), Port: 1}
		return g.admit(strangerAt{addr: addr, closed: func() { closed[host]++ }})
	}
	buf := make([]byte, 1<<20)
	honest := at("198.51.100.1")
	if n, err := honest.Read(buf); n != len(buf) || err != nil {
		t.Fatal(n, err)
	}
	var open []net.Conn
	for i := range maxStreams - 1 {
		host := fmt.Sprintf("192.0.2.%d", i%2)
		c := at(host)
		open = append(open, c)
		for range maxStream >> 20 {
			if n, err := c.Read(buf); n != len(buf) || err != nil {
				break
			}
		}
		if g.streamed > maxStreamed {
			t.Fatalf("%d bytes are kept of %d streams, want %d at most", g.streamed, g.open, maxStreamed)
		}
	}
	if n := closed["192.0.2.0"] + closed["192.0.2.1"]; n < maxStreams-1-maxStreamed/maxStream {
		t.Errorf("%d streams were closed", n)
	}
	if n, err := honest.Read(buf); n != len(buf) || err != nil || closed["198.51.100.1"] != 0 {
		t.Errorf("the stream of who has sent little was closed: %d, %v", n, err)
	}
	for _, c := range append(open, honest) {
		_ = c.Close()
	}
	if g.streamed != 0 || g.open != 0 {
		t.Errorf("%d bytes of %d streams remain", g.streamed, g.open)
	}
}

// Streams have a bound, and room comes back when they end. At the bound a stream of the
// address with the most gives way, and so another address always gets in.
func TestStreamsHaveABound(t *testing.T) { synctest.Test(t, streamsHaveABound) }

func streamsHaveABound(t *testing.T) {
	log := newThrottledLog(slog.New(slog.DiscardHandler), time.Now)
	g := &guard{from: map[string]map[*stream]bool{}, log: log}
	closed := map[string]int{}
	at := func(host string) net.Conn {
		addr := &net.TCPAddr{IP: net.ParseIP(host), Port: 1}
		return g.admit(strangerAt{addr: addr, closed: func() { closed[addressOf(addr)]++ }})
	}
	var open []net.Conn
	for range 100 {
		open = append(open, at("192.0.2.1"), at("192.0.2.2"))
	}
	for i := range 200 { // of one network
		open = append(open, at(fmt.Sprintf("2001:db8::%x", i)))
	}
	if g.open != maxStreams {
		t.Errorf("%d are open, want the bound, %d", g.open, maxStreams)
	}
	for _, site := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::/64"} {
		if n := len(g.from[site]); n < maxStreams/3 || n > maxStreams/3+1 {
			t.Errorf("%s has %d streams, want a third of them", site, n)
		}
	}
	honest := at("198.51.100.1")
	for i := range 1000 {
		open = append(open, at("192.0.2.1"), at(fmt.Sprintf("2001:db8::1:%x", i)))
	}
	if n := closed["198.51.100.1"]; n != 0 {
		t.Errorf("the stream of who has one was closed %d times", n)
	}
	if sum := closed["192.0.2.1"] + closed["192.0.2.2"] + closed["2001:db8::/64"]; sum != len(open)+1-maxStreams {
		t.Errorf("%d streams were closed, want %d", sum, len(open)+1-maxStreams)
	}
	for _, c := range append(open, honest) {
		_ = c.Close()
		_ = c.Close() // which counts once
	}
	if g.open != 0 || len(g.from) != 0 {
		t.Errorf("all have ended, and %d are open, from %d addresses", g.open, len(g.from))
	}
}

// A stream on which nothing comes is closed soon; one that has begun is memberlist's to
// bound.
func TestASilentStreamIsClosedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guard{from: map[string]map[*stream]bool{}}
		theirs, ours := net.Pipe()
		said := g.admit(ours)
		go theirs.Write([]byte{msgEncrypt})
		if _, err := said.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_, mute := net.Pipe()
		silent, began := g.admit(mute), time.Now()
		if _, err := silent.Read(make([]byte, 1)); err == nil {
			t.Error("it read something")
		}
		if took := time.Since(began); took != firstByteWithin {
			t.Errorf("the silent stream was closed after %v, want %v", took, firstByteWithin)
		}
		if err := said.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := said.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the stream that had begun ended with %v, want its deadline", err)
		}
		_ = said.Close()
		if g.open != 0 {
			t.Errorf("%d streams are open", g.open)
		}
	})
}

type strangerAt struct {
	net.Conn
	addr   net.Addr
	closed func()
}

func (s strangerAt) RemoteAddr() net.Addr { return s.addr }

// Read returns as much as is asked for, without an end.
func (s strangerAt) Read(b []byte) (int, error) { return len(b), nil }
func (s strangerAt) Close() error               { s.closed(); return nil }

// FuzzGuard shows that the guard ends on any input, and passes on only bytes of the
// input.
func FuzzGuard(f *testing.F) {
	f.Add(forgedAlive(f, invented(f, "a")))
	f.Add(compound(forgedDead("a", "b"), packed(msgPing, "SeqNo", 1, "Node", "a")))
	f.Add(packed(msgPushPull, "Nodes", 3, "UserStateLen", 10, "Join", true))
	f.Add([]byte{msgAlive, 0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		soundPacket(b)
		if rest, ok := skip(b, maxDepth); ok && len(rest) >= len(b) {
			t.Errorf("nothing was skipped of %x", b)
		}
		_, ok, enough := announced(b)
		if whole, okAll, enoughAll := announced(append(b[:len(b):len(b)], 1, 2, 3)); enough &&
			(whole == 0 && ok || ok != okAll || !enoughAll) {
			t.Errorf("%x is judged otherwise when more has come", b)
		}
	})
}
