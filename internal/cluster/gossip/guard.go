package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Input is bounded before memberlist sees it, because memberlist allocates as much as a
// message announces: 117 MB for 40 bytes, without these bounds.
const (
	// maxStates is the most states of nodes that an exchange of views may announce: live
	// nodes, and those of the last half minute.
	maxStates = 4 * MaxMembers
	// maxUserState and maxUserMessage bound lists of members that are gone, in bytes.
	maxUserState, maxUserMessage = 1 << 20, 64 << 10
	// maxStream is the most bytes that are read of a stream, maxAnswer the most of a
	// stream that carries no list.
	maxStream, maxAnswer = 4 << 20, 4 << 10
	// maxStreams is the most streams that others may have open to this node. A stream ends
	// within some seconds.
	maxStreams = 256
	// maxStreamed is the most bytes that were read of all of these together: memberlist keeps
	// them until a stream ends, and only then knows whether it is of a node. It is 256 KiB for each,
	// more than the views of a cluster take.
	maxStreamed = 64 << 20
	// firstByteWithin is the longest wait for the first byte of a stream. A node sends it
	// at once.
	firstByteWithin = 500 * time.Millisecond
)

// The types of memberlist's messages.
const (
	msgPing = iota
	msgIndirectPing
	msgAck
	msgSuspect
	msgAlive
	msgDead
	msgPushPull
	msgCompound
	msgUser
	msgCompress
	msgEncrypt // starts a stream, never a packet
	msgNack
	msgCRC
)

var (
	errAnnounced = errors.New("it announces more than a cluster has, and is not read")
	errPadded    = errors.New("it is encrypted in a way that no node uses")
	errStreamEnd = errors.New("it is longer than anything that nodes exchange")
)

// padded is the version of encryption that pads messages. Nodes use the next one. The
// version is not authenticated, and memberlist panics if the padding is wrong: so
// whoever has recorded one encrypted message could end a node by changing its version.
const padded = 0

// sealedHeader is the bytes of an encrypted stream up to its version: the type, and the
// length in four bytes.
const sealedHeader = 5

// guard is memberlist's transport. It drops malformed and oversized input, and bounds
// streams. It does not look into encrypted messages, since a node with a key is a
// member; their version, size and number are bounded too.
type guard struct {
	memberlist.NodeAwareTransport
	plain bool // messages are not encrypted
	log   *throttledLog
	// panicked is [Config.Panicked].
	panicked catcher
	sources  sources // of what packets say, if they are not encrypted
	packets  chan *memberlist.Packet
	streams  chan net.Conn
	done     chan struct{}
	wg       sync.WaitGroup

	mu       sync.Mutex
	open     int
	streamed int                         // bytes read of the open streams
	from     map[string]map[*stream]bool // open streams by address, see addressOf
	// dialled are the streams that this node has opened, by address.
	dialled map[string]int
}

func newGuard(inner memberlist.NodeAwareTransport, plain bool, log *throttledLog, panicked catcher) *guard {
	g := &guard{
		NodeAwareTransport: inner, plain: plain, log: log, panicked: panicked, from: make(map[string]map[*stream]bool),
		dialled: make(map[string]int),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), done: make(chan struct{}),
	}
	g.wg.Go(g.passPackets)
	g.wg.Go(g.passStreams)
	return g
}

func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }

func (g *guard) StreamCh() <-chan net.Conn { return g.streams }

// Shutdown implements memberlist.Transport. Memberlist goes on reading meanwhile.
func (g *guard) Shutdown() error {
	err := g.NodeAwareTransport.Shutdown()
	close(g.done)
	g.wg.Wait()
	return err
}

func (g *guard) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. Answers have the same
// bounds as input.
func (g *guard) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	c, err := g.NodeAwareTransport.DialAddressTimeout(a, timeout)
	if err != nil {
		return nil, err
	}
	return &stream{Conn: c, plain: g.plain, panicked: g.panicked, left: maxStream, closed: g.dial(a.Addr)}, nil
}

// dial counts a stream that this node has opened, until the function that it returns is called.
func (g *guard) dial(address string) (closed func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dialled[address]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.dialled[address]--; g.dialled[address] == 0 {
			delete(g.dialled, address)
		}
	}
}

func (g *guard) passPackets() {
	for {
		select {
		case <-g.done:
			return
		case p := <-g.NodeAwareTransport.PacketCh():
			if g.plain && !g.sound(p.Buf) {
				g.log.write(slog.LevelDebug, "packet", "a packet that is no message of gossip was dropped",
					slog.String("from", p.From.String()))
				continue
			}
			if g.plain && g.log.refused != nil {
				g.note(p.Buf, p.From.String(), time.Now())
			}
			if !g.plain && len(p.Buf) > 0 && p.Buf[0] == padded {
				g.log.refuse("padded packet", p.From.String(), textPadded)
				continue
			}
			select {
			case g.packets <- p:
			case <-g.done:
				return
			}
		}
	}
}

// sound reports whether a packet may be passed on.
func (g *guard) sound(b []byte) (ok bool) {
	defer g.panicked.catch()
	return soundPacket(b)
}

func (g *guard) passStreams() {
	for {
		select {
		case <-g.done:
			return
		case c := <-g.NodeAwareTransport.StreamCh():
			s := g.admit(c)
			select {
			case g.streams <- s:
			case <-g.done:
				_ = s.Close() // memberlist does not close it
				return
			}
		}
	}
}

// admit counts a stream. At the bound it closes a stream of the address that has the most,
// so that silent streams from one address do not keep other addresses out. An honest
// stream is open only for a moment.
func (g *guard) admit(c net.Conn) net.Conn {
	s := &stream{Conn: c, plain: g.plain, panicked: g.panicked, left: maxStream, address: addressOf(c.RemoteAddr())}
	s.closed, s.received = func() { g.leave(s) }, func(n int) { g.receive(s, n) }
	if evicted := g.enter(s); evicted != nil {
		_ = evicted.Close() // whatever comes of it, it is not counted any more
		g.log.write(slog.LevelWarn, "streams",
			"there are too many connections to the gossip port, and one of the address with the most was closed",
			slog.String("from", evicted.RemoteAddr().String()))
	}
	return s
}

// receive counts bytes that were read of a stream. At the bound it closes the stream with the
// most of the address with the most, so that nobody keeps others out by long streams.
func (g *guard) receive(s *stream, n int) {
	evicted := g.add(s, n)
	if evicted == nil {
		return
	}
	_ = evicted.Close() // as in admit
	g.log.write(slog.LevelWarn, "streamed",
		"connections to the gossip port have sent too much together, and one of the address with the most was closed",
		slog.String("from", evicted.RemoteAddr().String()))
}

// add counts bytes of a stream. Beyond the bound it removes a stream, and returns it.
func (g *guard) add(s *stream, n int) (evicted *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.from[s.address][s] {
		return nil // it is closed
	}
	s.bytes += n
	if g.streamed += n; g.streamed <= maxStreamed {
		return nil
	}
	most := 0
	for _, streams := range g.from {
		sum, longest := 0, (*stream)(nil)
		for one := range streams {
			if sum += one.bytes; longest == nil || one.bytes > longest.bytes {
				longest = one
			}
		}
		if sum > most {
			most, evicted = sum, longest
		}
	}
	g.remove(evicted)
	return evicted
}

// enter adds a stream to the open ones. At the bound it removes another, and returns it.
func (g *guard) enter(s *stream) (evicted *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= maxStreams {
		var most map[*stream]bool
		for _, streams := range g.from {
			if len(streams) > len(most) {
				most = streams
			}
		}
		for evicted = range most { // in no particular order
			break
		}
		g.remove(evicted)
	}
	if g.from[s.address] == nil {
		g.from[s.address] = make(map[*stream]bool)
	}
	g.from[s.address][s] = true
	g.open++
	s.late = time.AfterFunc(firstByteWithin, func() { _ = s.Close() }) // an error has no reader: the stream ends
	return evicted
}

// leave removes a stream from the open ones, unless that is done.
func (g *guard) leave(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(s)
}

// remove is leave; g.mu is held.
func (g *guard) remove(s *stream) {
	if !g.from[s.address][s] {
		return
	}
	s.late.Stop()
	g.open--
	g.streamed -= s.bytes
	if delete(g.from[s.address], s); len(g.from[s.address]) == 0 {
		delete(g.from, s.address)
	}
}

// addressOf returns the address by which streams are counted. For IPv6 it is the /64
// network, within which one host can have any number of addresses. It is "" for what is
// no address: those are counted together.
func addressOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	ip := at.Addr().Unmap().WithZone("")
	if network, err := ip.Prefix(64); err == nil && ip.Is6() {
		return network.String()
	}
	return ip.String()
}

// stream is a connection of which no more is read than a node may send.
type stream struct {
	net.Conn
	plain bool
	// panicked is [Config.Panicked].
	panicked catcher
	begun    bool
	head     []byte // bytes read and not passed on yet
	left     int    // number of bytes that may still be read
	passed   int    // bytes read, if messages are encrypted
	sealed   bool   // it begins as an encrypted stream does
	once     sync.Once
	closed   func()
	// received counts bytes that were read; nil if this node dialled.
	received func(n int)
	// address, bytes and late are those of the guard: by what it is counted, how much was
	// read of it, and what closes it if no byte comes. late is nil if this node dialled.
	address string
	bytes   int
	late    *time.Timer
}

func (s *stream) read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 && s.late != nil {
		s.late.Stop()
		s.received(n)
	}
	return n, err
}

func (s *stream) Close() error {
	s.once.Do(s.closed)
	return s.Conn.Close()
}

func (s *stream) Read(b []byte) (int, error) {
	if s.plain && !s.begun {
		if err := s.begin(); err != nil {
			return 0, err
		}
	}
	if len(s.head) > 0 {
		n := copy(b, s.head)
		s.head = s.head[n:]
		return n, nil
	}
	if s.left <= 0 {
		return 0, errStreamEnd
	}
	n, err := s.read(b[:min(len(b), s.left)])
	s.left -= n
	if !s.plain && !s.judgeSealed(b[:n]) {
		return 0, fmt.Errorf("a stream of gossip is refused: %w", errPadded)
	}
	return n, err
}

// begin reads the header of a stream, and refuses the stream if it announces too much.
func (s *stream) begin() (err error) {
	defer s.panicked.catchErr(&err)
	b := make([]byte, 0, 128)
	for {
		n, failed := s.read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(b) > 0 {
			left, ok, enough := announced(b)
			if !ok {
				return fmt.Errorf("a stream of gossip is refused: %w", errAnnounced)
			}
			if enough {
				s.begun, s.head, s.left = true, b, left-len(b)
				return nil
			}
		}
		if failed != nil {
			return failed
		}
		if len(b) == cap(b) {
			return fmt.Errorf("a stream of gossip is refused: %w", errAnnounced)
		}
	}
}

// judgeSealed reports whether the next bytes of a stream that should be encrypted may be
// passed on. A stream that is not encrypted is memberlist's to refuse.
func (s *stream) judgeSealed(b []byte) bool {
	if s.passed == 0 && len(b) > 0 {
		s.sealed = b[0] == msgEncrypt
	}
	at := sealedHeader - s.passed
	s.passed += len(b)
	return !s.sealed || at < 0 || at >= len(b) || b[at] != padded
}

// announced returns how many bytes a stream that begins with b may have. ok is false if
// the stream is refused. enough is false if more of the stream must be read to know.
func announced(b []byte) (most int, ok, enough bool) {
	switch b[0] {
	case msgPushPull:
		h, ok, enough := readHeader(b[1:], "Nodes", "UserStateLen")
		return maxStream, ok && h[0] <= maxStates && h[1] <= maxUserState, enough
	case msgUser:
		h, ok, enough := readHeader(b[1:], "UserMsgLen")
		return maxUserMessage + maxAnswer, ok && h[0] <= maxUserMessage, enough
	case msgCompress: // no node compresses, and a few bytes may expand to many
		return 0, false, true
	default:
		return maxAnswer, true, true
	}
}
