package listen

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// Errors of a message for which there is no room. Nothing was decided.
const (
	// ErrRoom is returned while large messages use all the memory allowed for them.
	ErrRoom = roomError("the node has no memory left for large messages: retry in a second, or send smaller batches")
	// ErrRoomShare is returned while they use half of it, to clients of an address that
	// uses its share.
	ErrRoomShare = roomError("the node has little memory left for large messages, and your address has used its share, " +
		"which includes answers that it has not read: read them, and retry in a second or send smaller batches")
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

// Take takes so many bytes more for an origin, or returns [ErrRoom] or [ErrRoomShare].
func (r *Room) Take(from netip.Prefix, more int64) error {
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

// Give gives bytes back, or takes them without regard to the bound if there are fewer than none.
func (r *Room) Give(from netip.Prefix, back int64) {
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
