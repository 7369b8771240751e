package listen

// gRPC queues an answer on its connection until the client takes it, and the messages of a
// stream, as many as its window lets come, until the handler reads them. So the room for an answer belongs
// to its stream. It is given back when the answer's buffer comes back to the pool, or when
// the stream or the connection ends, since gRPC does not return all buffers of these.
//
// So does an open call without a message: whoever opened it is not known yet. Small answers, unread messages
// and such calls take room as soon as their connection has more than freeOfConn of them.

const (
	// freeOfConn is how many bytes of small answers and of unread messages a connection
	// may leave without room. With it all connections of a listener, 16,384 by default,
	// have as much as the whole room, and those of an address a quarter of that.
	freeOfConn = 16 << 10
	// roomStep is the step in which a connection takes room for more, so that few
	// messages need the room's lock. It gives a step back when it has that much, less
	// freeOfConn/2, less to keep: one whose answers go to and fro at a bound does not
	// take and give at each.
	roomStep = 16 << 10
	// messageWeight is the memory of an unread message in bytes, or of its answer,
	// besides the data.
	messageWeight = 512
	// openWeight is the memory of a call without a message in bytes, with up to fewHeaders bytes of header fields.
	openWeight = 8 << 10
	fewHeaders = 1 << 10
)

// settle takes room for what is loose, or gives it back. It reports false if there is not
// enough room. The lock is held.
func (c *watchedConn) settle() bool {
	u := &c.unsent
	kept := u.loose - u.ending
	want, most := stepsOf(kept-freeOfConn), stepsOf(kept-freeOfConn/2)
	switch {
	case want > u.taken:
		if c.of.Room.Take(u.from, want-u.taken) != nil {
			return false
		}
		u.taken = want
	case u.taken > most:
		c.of.Room.Give(u.from, u.taken-most)
		u.taken = most
	}
	return true
}

// stepsOf returns the room that a connection takes for so many bytes: whole steps.
func stepsOf(bytes int64) int64 { return (max(0, bytes) + roomStep - 1) / roomStep * roomStep }

// loosen adds to what is loose of a stream. If there is no room for it, the stream of the
// connection with the most is reset. It reports false if the connection is to be closed,
// since there is no room while such a reset is still to come. The lock is held.
func (c *watchedConn) loosen(s *clientStream, more int64) bool {
	u := &c.unsent
	u.loose += more
	if s.ending {
		u.ending += more
	}
	if c.settle() || more <= 0 {
		return true
	}
	if len(c.reset) > 0 {
		return false
	}
	var most *clientStream
	at := uint32(0)
	for id, s := range c.streams {
		if !s.ending && (most == nil || s.loose() > most.loose()) {
			most, at = s, id
		}
	}
	if most != nil {
		c.end(at, most)
		c.settle()
	}
	return true
}

// opening counts the memory of an open call: its header fields if they are many, and what gRPC keeps of any call, until
// its only message is there. From then on its handler identifies the caller, and the bounds of messages hold. A stream
// that may have further messages can stay open for long, so it counts until it ends, and so does a call with an answer
// until its end is sent. It reports false if the connection is to be closed. The lock is held.
func (c *watchedConn) opening(s *clientStream) bool {
	weight := int64(0)
	if !s.last || s.out.begun > 0 || s.in.begun == 0 || s.in.begun == 1 && s.in.half() {
		weight = openWeight
	}
	if s.headers > fewHeaders {
		weight += int64(s.headers) * WeightOfByte
	}
	more := weight - s.opened
	if more == 0 {
		return true
	}
	s.opened = weight
	return c.loosen(s, more)
}

// drop gives back all that a stream has which ends. The lock is held.
func (c *watchedConn) drop(s *clientStream) {
	if s.large > 0 {
		c.of.Room.Give(c.unsent.from, s.large)
	}
	if n := s.loose(); n > 0 {
		c.loosen(s, -n)
	}
	s.gone = true
}

// unread adds a frame of messages that the handler may not have read: those after the
// first one without an answer. It reports false if the connection is to be closed. The
// lock is held.
func (c *watchedConn) unread(s *clientStream, bytes, begun int) bool {
	if s.in.begun <= s.done()+1 {
		return true
	}
	more := int64(bytes + frameWeight + begun*messageWeight)
	s.newer += more
	return c.loosen(s, more)
}

// answered takes note that all messages up to mark are done, and moves mark to the
// last one. What is counted is never less than what is unread. For a stream that always
// has unanswered messages it is at most what it sent since the mark before. The lock is
// held.
func (c *watchedConn) answered(s *clientStream) {
	less := s.older
	s.older, s.newer, s.mark = s.newer, 0, s.in.begun
	if s.done() == s.in.begun {
		less, s.older = less+s.older, 0
	}
	if less > 0 {
		c.loosen(s, -less)
	}
}
