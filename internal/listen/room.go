package listen

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
)

// Errors of a message for which there is no room. Nothing was decided.
const (
	// ErrRoom is returned while large messages use all the memory allowed for them.
	ErrRoom = roomError("the node has no memory left for large messages: retry in a second, or send smaller batches")
	// ErrRoomShare is returned while they use half of it, to clients of an address that
	// uses its share.
	ErrRoomShare = roomError("the node has little memory left for large messages, and your address has used its share, which includes answers that it has not read: read them, and retry in a second or send smaller batches")
)

// roomError is why there was no room for a message.
type roomError string

func (e roomError) Error() string { return string(e) }

// GRPCCode is for [overgrpc.Code].
func (roomError) GRPCCode() codes.Code { return codes.ResourceExhausted }

// RetryAfter is the wait that is suggested to clients whose message found no room.
func (roomError) RetryAfter() time.Duration { return time.Second }

// LacksRoom reports whether there was no room for a message.
func LacksRoom(err error) bool {
	_, ok := errors.AsType[roomError](err)
	return ok
}

// Room bounds the memory of large messages of all connections, from decoding until their
// answers are written. A message for which there is no room is refused at once; there is
// no queue. While more than half of the room is used, an address that holds some of it
// gets no more than its share. It is safe for concurrent use.
type Room struct {
	Most int64

	mu   sync.Mutex
	used int64
	from map[netip.Prefix]int64 // the part of used of each origin that has one
}

// shareOfRoom is the part of the room that one address may use, as a divisor, while
// more than half of the room is used.
const shareOfRoom = 16

// WeightOfByte is how much memory a byte of a message, or of header fields, is estimated to take.
const WeightOfByte = 2

// FreeWeight is the weight up to which a message, or the answer to one, is always
// accepted, so that single checks pass while others use the room. The bounds of
// connections and streams limit their number.
const FreeWeight = 32 << 10

// take takes so many bytes more for an origin, or returns an error.
func (r *Room) take(from netip.Prefix, more int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.from[from]
	switch {
	case r.used+more > r.Most:
		return ErrRoom
	case from.IsValid() && has > 0 && r.used+more > r.Most/2 && has+more > r.Most/shareOfRoom:
		return ErrRoomShare
	}
	r.add(from, more)
	return nil
}

// give gives bytes back, or takes them without regard to the bound if more is negative.
func (r *Room) give(from netip.Prefix, back int64) {
	if back == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(from, -back)
}

// add changes what an origin uses. The lock is held.
func (r *Room) add(from netip.Prefix, more int64) {
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

// InUse returns how many bytes are used.
func (r *Room) InUse() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// Hold is the room that one message has taken. A nil Hold takes none. One goroutine at
// a time may use it.
type Hold struct {
	Room    *Room
	Context context.Context // of the call, if it came over gRPC
	Remote  string          // the address of the client, if it came over HTTP
	Bytes   int             // of the message, for the caller's budget

	stream uint32       // of the call, once it is known
	from   netip.Prefix // of the client; set when something is taken
	weight int64        // of the part of the message that was read
	taken  int64        // from the room
}

// Clear forgets the call and the message, so that the hold is of the next one.
func (h *Hold) Clear() { h.Context, h.stream, h.Bytes = nil, 0, 0 }

// Weight returns the estimated memory of the part of the message that was read, in bytes.
func (h *Hold) Weight() int64 { return h.weight }

// Size returns how many bytes the message has, 0 without one.
func (h *Hold) Size() int {
	if h == nil {
		return 0
	}
	return h.Bytes
}

// Add adds to the weight of the message. It returns ErrRoom or ErrRoomShare if there is
// not enough room.
func (h *Hold) Add(weight int64) error {
	if h == nil {
		return nil // a request of an operator
	}
	if h.weight += weight; h.weight <= FreeWeight {
		return nil
	}
	h.find()
	more := h.weight - h.taken
	if err := h.Room.take(h.from, more); err != nil {
		return err
	}
	h.taken += more
	return nil
}

// find sets the origin of the client.
func (h *Hold) find() {
	if h.Remote != "" {
		if at, err := netip.ParseAddrPort(h.Remote); err == nil {
			h.from = OriginOf(at.Addr())
		}
	} else if c := h.conn(); c != nil {
		h.from = Origin(c.Conn.RemoteAddr())
	}
}

// conn returns the connection of a call over gRPC, nil if it is not known.
func (h *Hold) conn() *watchedConn {
	if h.Context == nil {
		return nil
	}
	p, ok := peer.FromContext(h.Context)
	if !ok {
		return nil
	}
	a, ok := p.Addr.(connAddr)
	if !ok {
		return nil
	}
	return a.conn
}

// Widen takes room for the answer before it is built, which repeats the keys of a check
// for each of its limits. The checks are decided, so it is taken without regard to the
// bound: messages that come next find less. A small message takes nothing.
func (h *Hold) Widen(limits int) {
	if h == nil || h.taken == 0 || limits < 2 {
		return
	}
	more := h.taken * int64(limits-1)
	h.Room.give(h.from, -more)
	h.weight, h.taken = h.weight+more, h.taken+more
}

// Answered replaces what the message has taken by the bytes of its answer, since nothing
// else is kept of it while the answer is written. Small answers to small messages take
// nothing.
func (h *Hold) Answered(bytes int) {
	if h.taken == 0 && bytes <= FreeWeight {
		return
	}
	h.find()
	h.Room.give(h.from, h.taken-int64(bytes))
	h.weight, h.taken = int64(bytes), int64(bytes)
}

// Release gives the room back.
func (h *Hold) Release() {
	h.Room.give(h.from, h.taken)
	h.weight, h.taken = 0, 0
}
