package listen

import (
	"context"
	"net/netip"

	"google.golang.org/grpc/peer"
)

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
	if err := h.Room.Take(h.from, more); err != nil {
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
	h.Room.Give(h.from, -more)
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
	h.Room.Give(h.from, h.taken-int64(bytes))
	h.weight, h.taken = int64(bytes), int64(bytes)
}

// Handled releases the hold of a message of a stream whose answers belong to no message. Once it was called on a
// stream, messages of that count as unread until they are handled, and not until as many answers have begun.
func (h *Hold) Handled() {
	h.Release()
	c := h.conn()
	if c == nil {
		return
	}
	id := streamID(h.Context)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		s.apart, s.handled = true, s.handled+1
		c.progress(s)
	}
}

// Release gives the room back.
func (h *Hold) Release() {
	h.Room.Give(h.from, h.taken)
	h.weight, h.taken = 0, 0
}
