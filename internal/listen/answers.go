package listen

import (
	"context"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// answerPool is the pool of the buffer of one answer. It gives the answer's room back,
// and is used again then. The lock of the connection guards what follows Answers.
type answerPool struct {
	*Answers
	conn   *watchedConn
	stream *clientStream
	bytes  int64
	large  bool // it has room of its own
}

func (p *answerPool) Get(length int) *[]byte { return p.Buffers.Get(length) }

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
		c.of.Room.Give(c.unsent.from, p.bytes)
		return
	}
	s.small -= p.bytes
	c.loosen(s, -p.bytes)
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
