package transport

import (
	"errors"
	"sync/atomic"
	"time"
)

// errRoom is returned while large messages use all the memory allowed for decoding.
// Nothing was decided.
var errRoom = errors.New("the node works on as many large messages as it has memory for: ask again in a second, or in smaller batches")

// retryRoom is the wait that is suggested to clients that got errRoom.
const retryRoom = time.Second

// room bounds the memory of large messages of all connections, from decoding until they
// are answered. A message for which there is no room is refused at once; there is no
// queue. room is safe for concurrent use.
type room struct {
	most int64
	used atomic.Int64
}

// The estimated bytes of memory of a message. Strings and buffers grow with its bytes;
// requests, decisions and replies with its checks; maps and limits with its parts.
const (
	weightOfByte      = 2
	weightOfCheck     = 1 << 10
	weightOfPart      = 256
	weightOfJSONCheck = 4 << 10
	weightOfJSON      = 6 // in addition for each byte of JSON, whose values are copied while it is parsed

	// freeWeight is the weight up to which a message is always accepted, so that single
	// checks pass while others use the room. The bounds of connections and streams
	// limit their number.
	freeWeight = 32 << 10
)

// weightOf estimates the memory of a protobuf message in bytes.
func weightOf(bytes, checks, parts int) int64 {
	return int64(bytes)*weightOfByte + int64(checks)*weightOfCheck + int64(parts)*weightOfPart
}

// hold is the room that one message has taken. A nil hold takes none. One goroutine at
// a time may use it.
type hold struct {
	room   *room
	weight int64 // of the part of the message that was read
	taken  int64 // from the room
}

// add adds to the weight of the message. It returns errRoom if there is not enough
// room.
func (h *hold) add(weight int64) error {
	if h == nil {
		return nil // a request of an operator
	}
	if h.weight += weight; h.weight <= freeWeight {
		return nil
	}
	more := h.weight - h.taken
	if h.room.used.Add(more) > h.room.most {
		h.room.used.Add(-more)
		return errRoom
	}
	h.taken += more
	return nil
}

// release gives the room back.
func (h *hold) release() {
	if h.taken > 0 {
		h.room.used.Add(-h.taken)
	}
	h.weight, h.taken = 0, 0
}
