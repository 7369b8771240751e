package listen

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// gRPC waits as long as the connection lives for the rest of a message, and for a
// client to read its answers. So the HTTP/2 frames of each connection are watched. If
// the client of a stream takes too long for its next step, the stream is reset, as if
// the client had cancelled it. Other streams of the connection continue; behind a proxy
// they may belong to other clients. A connection on which nothing moves is closed.

// Watcher watches the connections of a listener over which gRPC is spoken.
type Watcher struct {
	net.Listener
	WatchOptions
	patience int64 // in ticks

	now    atomic.Int64 // ticks that have passed
	half   atomic.Int64 // bytes of incomplete messages
	ending atomic.Int64 // the part of half whose streams are to be reset

	relieving sync.Mutex // held while streams are chosen to be given up

	mu    sync.Mutex
	conns map[*watchedConn]struct{}
}

const (
	// stallTick is the interval at which connections are examined.
	stallTick = time.Second
	// resetPatience is how long, in ticks, a client may take to reach the end of a frame,
	// where a reset can be inserted. Until then the server keeps the stream's memory.
	resetPatience = 2
	// leastRead is how many bytes of answers a client must read within its patience, or
	// all that it had asked for.
	leastRead = 16 << 10
	// frameWeight is the memory of a frame in bytes, besides its data.
	frameWeight = 64
)

// WatchOptions configures a [Watcher].
type WatchOptions struct {
	// Room is for what clients do not read.
	Room *Room
	// Secured: connections may have TLS, see [ServerTLS].
	Secured bool
	// Noted: [NoteShown] is called for each call.
	Noted bool
	// Patience is how long a client may take for its next step.
	Patience time.Duration
	// Streams are the most open streams of a connection.
	Streams int
	// Most is how many bytes of incomplete messages there may be. Above it the largest are given up.
	Most int64
}

// all returns the open connections.
func (s *Watcher) all() []*watchedConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

type watchedConn struct {
	net.Conn
	of      *Watcher
	bounded *boundedConn // what is under Conn, if its listener is bounded
	secured *securedConn // Conn, if it may have TLS

	writing atomic.Int64 // 1 + the tick in which the present Write began; 0: no Write is under way
	outMu   sync.Mutex   // held while something is written
	out     frames

	resets atomic.Bool // reset is not empty; saves Read a lock

	mu      sync.Mutex // guards the fields below
	in      frames
	streams map[uint32]*clientStream // the open ones
	free    []*clientStream          // for reuse
	reset   []uint32                 // streams to be reset towards the server
	asked   int64                    // the tick since which reset is not empty
	tell    []uint32                 // streams to be reset towards the client, after the server
	woken   bool                     // the read deadline was set to wake Read
	closed  bool
	greedy  bool // it is to be closed, since there is no room for what it sends

	unsent unsent
}

// clientStream is the state of one stream.
type clientStream struct {
	in, out messages
	since   int64 // the tick since which the client owes the next step, if it does
	half    int   // memory of an incomplete message; 0: there is none
	frames  int   // number of frames of that message
	sent    int   // bytes of the present answer since then
	ending  bool  // it is to be reset; until the server is told, it keeps its memory
	gone    bool  // it has ended, with answers that gRPC has

	last    bool  // its client will send no further message
	headers int   // bytes of its header fields, as they were sent
	opened  int64 // what counts as loose of them, and of a stream without a message

	mark         int   // when so many messages are done, there is progress
	apart        bool  // its answers belong to no message, see [Hold.Handled]
	handled      int   // messages that were, then
	older, newer int64 // unread messages: those up to mark, and after it
	large, small int64 // bytes of answers that gRPC has: those with room of their own, and others
	answers      int   // number of these
}

// done returns how many messages are answered, or handled.
func (s *clientStream) done() int {
	if s.apart {
		return s.handled
	}
	return s.out.begun
}

// owed reports whether a message has begun and is not done, or no message has come
// yet.
func (s *clientStream) owed() bool {
	return s.in.begun == 0 || s.in.begun > s.done() || s.out.left > 0
}

// loose returns how many bytes a stream has of small answers, of unread messages and of what opened it.
func (s *clientStream) loose() int64 { return s.small + s.older + s.newer + s.opened }

// unsent is the memory that one connection keeps busy while its client does not read. The
// lock of the connection guards it.
type unsent struct {
	from   netip.Prefix
	loose  int64 // bytes of small answers, of unread messages and of calls that were only opened
	taken  int64 // room for the part of loose that is above freeOfConn, in whole steps
	ending int64 // the part of loose whose streams are to be reset
}

// wake ends a Read that waits, if there is a reset for it to return. The lock is held.
func (c *watchedConn) wake() {
	if len(c.reset) > 0 && c.in.between() {
		c.woken = true
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // on a closed connection Read fails anyway
	}
}

// stuck reports whether a reset waits for the end of a frame.
func (c *watchedConn) stuck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.reset) > 0 && !c.in.between()
}

// eachHalf calls f with each stream that has an incomplete message and is not to be
// reset. f may end the stream.
func (c *watchedConn) eachHalf(f func(id uint32, s *clientStream)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.streams {
		if s.half > 0 && !s.ending {
			f(id, s)
		}
	}
	c.wake()
}

// end lets Read reset a stream. The server keeps what it has of a message until then,
// so that stays counted. The lock is held.
func (c *watchedConn) end(id uint32, s *clientStream) {
	if len(c.reset) == 0 {
		c.asked = c.of.now.Load()
	}
	c.reset = append(c.reset, id)
	c.resets.Store(true)
	s.ending = true
	c.unsent.ending += s.loose()
	c.of.ending.Add(int64(s.half))
}
