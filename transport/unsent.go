package transport

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// gRPC queues an answer on its connection until the client takes it. So the room for a
// large answer is given back when its buffer comes back to the pool, or when the
// connection is closed. gRPC does not return the buffers of a closed connection, nor of
// an answer that meets the end of its stream. The garbage collector finds the latter.

// unsent is the room of the answers of one connection that gRPC has and has not written.
// It is safe for concurrent use. The zero value has none.
type unsent struct {
	mu     sync.Mutex
	room   *room
	from   netip.Prefix
	bytes  int64
	closed bool
}

// keep takes over the room of an answer. It reports false if the connection is closed.
func (u *unsent) keep(h *hold) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.room, u.from = h.room, h.from
	u.bytes += h.taken
	h.weight, h.taken = 0, 0
	return true
}

// sent gives the room of an answer back.
func (u *unsent) sent(bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.bytes -= bytes
		u.room.give(u.from, bytes)
	}
}

// close gives all room back.
func (u *unsent) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed && u.bytes > 0 {
		u.room.give(u.from, u.bytes)
	}
	u.bytes, u.closed = 0, true
}

// answer is the room of one answer.
type answer struct {
	of    atomic.Pointer[unsent] // nil if the room was given back
	bytes int64
}

// release gives the room back, once.
func (a *answer) release() {
	if of := a.of.Swap(nil); of != nil {
		of.sent(a.bytes)
	}
}

// answerPool is the pool of the buffer of one answer. It gives the answer's room back,
// and is used again then.
type answerPool struct {
	*service
	answer *answer
}

// Get implements [mem.BufferPool].
func (p *answerPool) Get(length int) *[]byte { return p.buffers.Get(length) }

// Put implements [mem.BufferPool].
func (p *answerPool) Put(b *[]byte) {
	p.answer.release()
	p.buffers.Put(b)
	p.answers.Put(p)
}

// answerPool returns a pool for the buffer of one answer. The garbage collector gives
// the room back of one that it finds.
func (s *service) answerPool(of *unsent, bytes int64) *answerPool {
	p, ok := s.answers.Get().(*answerPool)
	if !ok {
		p = &answerPool{s, new(answer)}
		runtime.AddCleanup(p, (*answer).release, p.answer)
	}
	p.answer.bytes = bytes
	p.answer.of.Store(of)
	return p
}

// bufferOf returns an encoded answer as a buffer for gRPC, and leaves the room of the
// answer to its connection. The memory of the request must not be used any more.
func (s *service) bufferOf(out *[]byte, h *hold) mem.Buffer {
	return s.bufferTo(h.conn(), out, h)
}

// bufferTo is bufferOf for a client at a connection, nil if that is not known.
func (s *service) bufferTo(c *watchedConn, out *[]byte, h *hold) mem.Buffer {
	out = s.buffers.trim(out)
	n := cap(*out)
	if mem.IsBelowBufferPoolingThreshold(n) || h.taken == 0 && n <= freeWeight || c == nil {
		h.release()
		return mem.NewBuffer(out, &s.buffers)
	}
	h.answered(n)
	bytes := h.taken
	if !c.unsent.keep(h) {
		h.release()
		return mem.NewBuffer(out, &s.buffers)
	}
	return mem.NewBuffer(out, s.answerPool(&c.unsent, bytes))
}
