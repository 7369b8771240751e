package transport

import (
	"errors"
	"sync/atomic"
	"time"
)

// errRoom says that the server decodes as much as it may at a time. Nothing was
// decided.
var errRoom = errors.New("the node works on as many large messages as it has memory for: ask again in a second, or in smaller batches")

// retryRoom is how long those are told to wait who found no room.
const retryRoom = time.Second

// room bounds the memory that large messages take, from when they are decoded until
// they are answered, in all connections together. Nobody waits for room: what finds
// none is refused. It is safe for concurrent use.
type room struct {
	most int64
	used atomic.Int64
}

// What a message takes, by estimate: strings and buffers by its bytes, the request, the
// decision and its part of the reply by its checks, maps and limits by its parts.
const (
	weightOfByte      = 2
	weightOfCheck     = 1 << 10
	weightOfPart      = 256
	weightOfJSONCheck = 4 << 10
	weightOfJSON      = 6 // more for each byte of JSON, whose values are copied as they are taken apart

	// freeWeight is the weight up to which a message needs no room: single checks must
	// pass while others fill it. Connections and streams bound how many there are.
	freeWeight = 32 << 10
)

// weightOf estimates what a message of protobuf takes.
func weightOf(bytes, checks, parts int) int64 {
	return int64(bytes)*weightOfByte + int64(checks)*weightOfCheck + int64(parts)*weightOfPart
}

// hold is the room of one message. A nil hold is not counted. It is for one goroutine at
// a time.
type hold struct {
	room   *room
	weight int64 // of the message, as far as it is known
	taken  int64 // of the room
}

// add adds to the weight of the message. The error is errRoom.
func (h *hold) add(weight int64) error {
	if h == nil {
		return nil // of an operator's
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
