package listen

import (
	"context"
	"net/netip"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

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

// unsent is the memory that one connection keeps busy while its client does not read. The
// lock of the connection guards it.
type unsent struct {
	from   netip.Prefix
	loose  int64 // bytes of small answers, of unread messages and of calls that were only opened
	taken  int64 // room for the part of loose that is above freeOfConn, in whole steps
	ending int64 // the part of loose whose streams are to be reset
}

// settle takes room for what is loose, or gives it back. It reports false if there is not
// enough room. The lock is held.
func (c *watchedConn) settle() bool {
	u := &c.unsent
	kept := u.loose - u.ending
	want, most := stepsOf(kept-freeOfConn), stepsOf(kept-freeOfConn/2)
	switch {
	case want > u.taken:
		if c.of.Room.take(u.from, want-u.taken) != nil {
			return false
		}
		u.taken = want
	case u.taken > most:
		c.of.Room.give(u.from, u.taken-most)
		u.taken = most
	}
	return true
}

// stepsOf returns the room that a connection takes for so many bytes: whole steps.
func stepsOf(bytes int64) int64 { return (max(0, bytes) + roomStep - 1) / roomStep * roomStep }

// answerPool is the pool of the buffer of one answer. It gives the answer's room back,
// and is used again then. The lock of the connection guards what follows Answers.
type answerPool struct {
	*Answers
	conn   *watchedConn
	stream *clientStream
	bytes  int64
	large  bool // it has room of its own
}

// Get implements [mem.BufferPool].
func (p *answerPool) Get(length int) *[]byte { return p.Buffers.Get(length) }

// Put implements [mem.BufferPool].
func (p *answerPool) Put(b *[]byte) {
	p.conn.sent(p)
	p.conn, p.stream = nil, nil
	p.Buffers.Put(b)
	p.pools.Put(p)
}

// keep leaves an answer to a stream, and with it the room of a large one. It returns nil
// if the stream has ended.
func (c *watchedConn) keep(s *Answers, id uint32, h *Hold, bytes int) *answerPool {
	p, ok := s.pools.Get().(*answerPool)
	if !ok {
		p = &answerPool{Answers: s}
	}
	c.mu.Lock()
	stream := c.streams[id]
	if stream == nil {
		c.mu.Unlock()
		s.pools.Put(p)
		return nil
	}
	p.conn, p.stream, p.bytes, p.large = c, stream, int64(bytes), h.taken > 0
	within := true
	if p.large {
		stream.large += p.bytes
		h.weight, h.taken = 0, 0
	} else {
		stream.small += p.bytes
		within = c.loosen(stream, p.bytes)
	}
	stream.answers++
	c.wake()
	c.mu.Unlock()
	if !within {
		_ = c.Close() // gRPC gets an error
	}
	return p
}

// sent takes note that gRPC has returned the buffer of an answer.
func (c *watchedConn) sent(p *answerPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := p.stream
	if s.gone { // all of it was given back
		return
	}
	s.answers--
	if p.large {
		s.large -= p.bytes
		c.of.Room.give(c.unsent.from, p.bytes)
		return
	}
	s.small -= p.bytes
	c.loosen(s, -p.bytes)
}

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

// loose returns how many bytes a stream has of small answers, of unread messages and of what opened it.
func (s *clientStream) loose() int64 { return s.small + s.older + s.newer + s.opened }

// open adds a frame of header fields to a stream, if it is known. The lock is held.
func (c inbound) open(id uint32, size int) {
	if s := c.streams[id]; s != nil {
		if s.headers += size; !c.opening(s) {
			c.greedy = true
		}
	}
}

// opening counts the memory of an open call: its header fields if they are many, and what gRPC keeps of any call, until
// its first message is there. From then on its handler identifies the caller, and the bounds of messages hold. It
// reports false if the connection is to be closed. The lock is held.
func (c *watchedConn) opening(s *clientStream) bool {
	weight := int64(0)
	if s.in.begun == 0 || s.in.begun == 1 && s.in.half() {
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
		c.of.Room.give(c.unsent.from, s.large)
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
	if s.in.begun <= s.out.begun+1 {
		return true
	}
	more := int64(bytes + frameWeight + begun*messageWeight)
	s.newer += more
	return c.loosen(s, more)
}

// answered takes note that all messages up to mark are answered, and moves mark to the
// last one. What is counted is never less than what is unread. For a stream that always
// has unanswered messages it is at most what it sent since the mark before. The lock is
// held.
func (c *watchedConn) answered(s *clientStream) {
	less := s.older
	s.older, s.newer, s.mark = s.newer, 0, s.in.begun
	if s.out.begun == s.in.begun {
		less, s.older = less+s.older, 0
	}
	if less > 0 {
		c.loosen(s, -less)
	}
}

// streamID returns the number of the stream of a call, 0 if that is not known. gRPC does
// not publish it; TestRoomOfUnwritten fails if it is no longer there.
func streamID(ctx context.Context) uint32 {
	v := reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx))
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0
	}
	id := v.Elem().FieldByName("id")
	if !id.IsValid() || id.Kind() != reflect.Uint32 {
		return 0
	}
	return uint32(id.Uint())
}

// Answers are the buffers of encoded answers. The zero value has none.
type Answers struct {
	Buffers
	pools sync.Pool // of *answerPool
}

// BufferOf returns an encoded answer as a buffer for gRPC, and leaves the room of the
// answer to its stream. The memory of the request must not be used any more.
func (s *Answers) BufferOf(out *[]byte, h *Hold) mem.Buffer {
	out = s.trim(out)
	n := cap(*out)
	c := h.conn()
	if mem.IsBelowBufferPoolingThreshold(n) || c == nil {
		h.Release()
		return mem.NewBuffer(out, &s.Buffers)
	}
	if h.stream == 0 {
		h.stream = streamID(h.Context)
	}
	h.Answered(n)
	p := c.keep(s, h.stream, h, n)
	if p == nil {
		h.Release()
		return mem.NewBuffer(out, &s.Buffers)
	}
	return mem.NewBuffer(out, p)
}
