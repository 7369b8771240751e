package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
)

// Errors of a message for which there is no room. Nothing was decided.
const (
	// errRoom is returned while large messages use all the memory allowed for them.
	errRoom = roomError("the node has no memory left for large messages: retry in a second, or send smaller batches")
	// errRoomShare is returned while they use half of it, to clients of an address that
	// uses its share.
	errRoomShare = roomError("the node has little memory left for large messages, and your address has used its share, which includes answers that it has not read: read them, and retry in a second or send smaller batches")
)

// roomError is why there was no room for a message.
type roomError string

func (e roomError) Error() string { return string(e) }

// GRPCCode is for [overgrpc.Code].
func (roomError) GRPCCode() codes.Code { return codes.ResourceExhausted }

// RetryAfter is the wait that is suggested to clients whose message found no room.
func (roomError) RetryAfter() time.Duration { return time.Second }

// lacksRoom reports whether there was no room for a message.
func lacksRoom(err error) bool {
	_, ok := errors.AsType[roomError](err)
	return ok
}

// room bounds the memory of large messages of all connections, from decoding until their
// answers are written. A message for which there is no room is refused at once; there is
// no queue. While more than half of the room is used, an address that holds some of it
// gets no more than its share. room is safe for concurrent use.
type room struct {
	most int64

	mu   sync.Mutex
	used int64
	from map[netip.Prefix]int64 // the part of used of each origin that has one
}

// shareOfRoom is the part of the room that one address may use, as a divisor, while
// more than half of the room is used.
const shareOfRoom = 16

// The estimated bytes of memory of a message. Strings and buffers grow with its bytes;
// requests, decisions and replies with its checks; maps and limits with its parts.
const (
	weightOfByte      = 2
	weightOfCheck     = 1 << 10
	weightOfPart      = 256
	weightOfJSONCheck = 4 << 10
	weightOfJSON      = 6 // in addition for each byte of JSON, whose values are copied while it is parsed

	// freeWeight is the weight up to which a message, or the answer to one, is always
	// accepted, so that single checks pass while others use the room. The bounds of
	// connections and streams limit their number.
	freeWeight = 32 << 10
)

// weightOf estimates the memory of a protobuf message in bytes.
func weightOf(bytes, checks, parts int) int64 {
	return int64(bytes)*weightOfByte + int64(checks)*weightOfCheck + int64(parts)*weightOfPart
}

// take takes so many bytes more for an origin, or returns an error.
func (r *room) take(from netip.Prefix, more int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.from[from]
	switch {
	case r.used+more > r.most:
		return errRoom
	case from.IsValid() && has > 0 && r.used+more > r.most/2 && has+more > r.most/shareOfRoom:
		return errRoomShare
	}
	r.add(from, more)
	return nil
}

// give gives bytes back, or takes them without regard to the bound if more is negative.
func (r *room) give(from netip.Prefix, back int64) {
	if back == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(from, -back)
}

// add changes what an origin uses. The lock is held.
func (r *room) add(from netip.Prefix, more int64) {
	r.used += more
	if r.from == nil {
		r.from = make(map[netip.Prefix]int64)
	}
	if n := r.from[from] + more; n != 0 {
		r.from[from] = n
	} else {
		delete(r.from, from)
	}
}

// inUse returns how many bytes are used.
func (r *room) inUse() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// hold is the room that one message has taken. A nil hold takes none. One goroutine at
// a time may use it.
type hold struct {
	room   *room
	ctx    context.Context // of the call, if it came over gRPC
	stream uint32          // of the call, once it is known
	remote string          // the address of the client, if it came over HTTP
	from   netip.Prefix    // of the client; set when something is taken
	weight int64           // of the part of the message that was read
	taken  int64           // from the room
	bytes  int             // of the message, for the caller's budget
}

// size returns how many bytes the message has, 0 without one.
func (h *hold) size() int {
	if h == nil {
		return 0
	}
	return h.bytes
}

// add adds to the weight of the message. It returns errRoom or errRoomShare if there is
// not enough room.
func (h *hold) add(weight int64) error {
	if h == nil {
		return nil // a request of an operator
	}
	if h.weight += weight; h.weight <= freeWeight {
		return nil
	}
	h.find()
	more := h.weight - h.taken
	if err := h.room.take(h.from, more); err != nil {
		return err
	}
	h.taken += more
	return nil
}

// find sets the origin of the client.
func (h *hold) find() {
	if h.remote != "" {
		if at, err := netip.ParseAddrPort(h.remote); err == nil {
			h.from = listen.OriginOf(at.Addr())
		}
	} else if c := h.conn(); c != nil {
		h.from = listen.Origin(c.Conn.RemoteAddr())
	}
}

// conn returns the connection of a call over gRPC, nil if it is not known.
func (h *hold) conn() *watchedConn {
	if h.ctx == nil {
		return nil
	}
	p, ok := peer.FromContext(h.ctx)
	if !ok {
		return nil
	}
	a, ok := p.Addr.(connAddr)
	if !ok {
		return nil
	}
	return a.conn
}

// connAddr is the address of the client of a connection. It leads from a call to its
// connection.
type connAddr struct {
	net.Addr
	conn *watchedConn
}

// Shown implements [overgrpc.Shower].
func (a connAddr) Shown(ctx context.Context) (c frontend.Credentials, known bool) {
	if !a.conn.of.noted {
		return c, false
	}
	c.Authorization, _ = ctx.Value(shownKey{}).([]string)
	if by := a.conn.secured; by != nil {
		c.TLS, c.Known = by.state, &by.known
	}
	return c, true
}

// widen takes room for the answer before it is built, which repeats the keys of a check
// for each of its limits. The checks are decided, so it is taken without regard to the
// bound: messages that come next find less. A small message takes nothing.
func (h *hold) widen(limits int) {
	if h == nil || h.taken == 0 || limits < 2 {
		return
	}
	more := h.taken * int64(limits-1)
	h.room.give(h.from, -more)
	h.weight, h.taken = h.weight+more, h.taken+more
}

// answered replaces what the message has taken by the bytes of its answer, since nothing
// else is kept of it while the answer is written. Small answers to small messages take
// nothing.
func (h *hold) answered(bytes int) {
	if h.taken == 0 && bytes <= freeWeight {
		return
	}
	h.find()
	h.room.give(h.from, h.taken-int64(bytes))
	h.weight, h.taken = int64(bytes), int64(bytes)
}

// release gives the room back.
func (h *hold) release() {
	h.room.give(h.from, h.taken)
	h.weight, h.taken = 0, 0
}
