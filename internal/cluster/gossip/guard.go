package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	// maxStreams is the most streams that others may have open to this node,
	// maxStreamsOf the most from one address. A stream ends within some seconds.
	maxStreams, maxStreamsOf = 256, 128
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
	errStreamEnd = errors.New("it is longer than anything that nodes exchange")
)

// guard is memberlist's transport. It drops malformed and oversized input, and bounds
// streams. It does not look into encrypted messages, since a node with a key is a
// member; their size and number are bounded too.
type guard struct {
	memberlist.NodeAwareTransport
	plain bool // messages are not encrypted
	log   *journal
	// panicked is [Config.Panicked].
	panicked func(any)
	packets  chan *memberlist.Packet
	streams  chan net.Conn
	done     chan struct{}
	wg       sync.WaitGroup

	mu   sync.Mutex
	open int
	from map[string]int // number of open streams by host
}

func newGuard(inner memberlist.NodeAwareTransport, plain bool, log *journal, panicked func(any)) *guard {
	g := &guard{
		NodeAwareTransport: inner, plain: plain, log: log, panicked: panicked, from: make(map[string]int),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), done: make(chan struct{}),
	}
	g.wg.Go(g.passPackets)
	g.wg.Go(g.passStreams)
	return g
}

// PacketCh implements memberlist.Transport.
func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }

// StreamCh implements memberlist.Transport.
func (g *guard) StreamCh() <-chan net.Conn { return g.streams }

// Shutdown implements memberlist.Transport. Memberlist goes on reading meanwhile.
func (g *guard) Shutdown() error {
	err := g.NodeAwareTransport.Shutdown()
	close(g.done)
	g.wg.Wait()
	return err
}

// DialTimeout implements memberlist.Transport.
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
	return &stream{Conn: c, plain: g.plain, panicked: g.panicked, left: maxStream, closed: func() {}}, nil
}

func (g *guard) passPackets() {
	for {
		select {
		case <-g.done:
			return
		case p := <-g.NodeAwareTransport.PacketCh():
			if g.plain && !g.sound(p.Buf) {
				g.log.say(slog.LevelDebug, "packet", "a packet that is no message of gossip was dropped", slog.String("from", p.From.String()))
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
	defer g.catch()
	return soundPacket(b)
}

func (g *guard) passStreams() {
	for {
		select {
		case <-g.done:
			return
		case c := <-g.NodeAwareTransport.StreamCh():
			s := g.admit(c)
			if s == nil {
				_ = c.Close() // it was never used
				g.log.say(slog.LevelWarn, "streams", "there are too many connections to the gossip port, and one more was closed", slog.String("from", c.RemoteAddr().String()))
				continue
			}
			select {
			case g.streams <- s:
			case <-g.done:
				_ = s.Close() // no one else will close it
				return
			}
		}
	}
}

// admit counts a stream and wraps it; nil if there are too many.
func (g *guard) admit(c net.Conn) net.Conn {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // without a host, all count together
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= maxStreams || g.from[host] >= maxStreamsOf {
		return nil
	}
	g.open++
	g.from[host]++
	return &stream{Conn: c, plain: g.plain, panicked: g.panicked, left: maxStream, closed: func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open--
		if g.from[host]--; g.from[host] == 0 {
			delete(g.from, host)
		}
	}}
}

// stream is a connection of which no more is read than a node may send.
type stream struct {
	net.Conn
	plain bool
	// panicked is [Config.Panicked].
	panicked func(any)
	begun    bool
	head     []byte // bytes read and not passed on yet
	left     int    // number of bytes that may still be read
	once     sync.Once
	closed   func()
}

// Close implements net.Conn.
func (s *stream) Close() error {
	s.once.Do(s.closed)
	return s.Conn.Close()
}

// Read implements net.Conn.
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
	n, err := s.Conn.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

// begin reads the header of a stream, and refuses the stream if it announces too much.
func (s *stream) begin() (err error) {
	defer s.catchErr(&err)
	b := make([]byte, 0, 128)
	for {
		n, failed := s.Conn.Read(b[len(b):cap(b)])
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
