package peerlink

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

// message is one message of a link, in either direction.
type message struct {
	hello     *peerv1.Hello
	proof     []byte
	acks      uint32
	ackWanted bool
	end       string
	frame     *peer.Frame // to be sent

	// early is set by who receives before the hellos are done: then no frame is taken,
	// nor anything larger than earlyBytes.
	early bool

	in  *inbox // the frame that came; nil if none did
	bad error  // what is wrong with a message that came
}

// codec turns messages into bytes and back. It satisfies encoding.CodecV2 and may
// be used by many goroutines. Buffers and the memory of frames are pooled, so
// that a link that is idle holds neither.
type codec struct {
	sections *sections
	most     int // bytes of a message
	buffers  bufferPool
	inboxes  sync.Pool // *inbox
	decoders sync.Pool // *decoder
}

func newCodec(most int) *codec {
	c := &codec{sections: newSections(), most: most}
	c.inboxes.New = func() any { return new(inbox) }
	c.decoders.New = func() any { return &decoder{sections: c.sections, names: make(map[string]string)} }
	return c
}

// Name implements encoding.CodecV2: it is protobuf, whoever looks at it.
func (c *codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2 for messages.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("a link sends no %T", v)
	}
	b := c.buffers.take()
	e := encoder{sections: c.sections, b: (*b)[:0]}
	e.message(m)
	*b = e.b
	if e.err == nil && len(e.b) > c.most {
		e.err = fmt.Errorf("a message of %d bytes is larger than a link takes: at most %d", len(e.b), c.most)
	}
	if e.err != nil {
		c.buffers.Put(b)
		return nil, e.err
	}
	return mem.BufferSlice{mem.NewBuffer(b, &c.buffers)}, nil
}

// Unmarshal implements encoding.CodecV2 for messages. What is wrong with the
// bytes goes to the message, so that it is told in our own words.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("a link receives no %T", v)
	}
	flat := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer flat.Free()
	d := c.decoders.Get().(*decoder)
	defer c.decoders.Put(d)
	m.bad = c.read(d, flat.ReadOnlyData(), m)
	return nil
}

// read reads a message.
func (c *codec) read(d *decoder, b []byte, m *message) error {
	*m = message{in: m.in, early: m.early}
	d.section, d.err = "the message", nil
	if m.early && len(b) > earlyBytes {
		d.fail("it has %d bytes, and at most %d may come before the hellos are done", len(b), earlyBytes)
	}
	var frame []byte
	var acks uint64
	var x field
	for d.next(&b, &x) {
		switch x.number {
		case 1:
			m.hello = d.hello(&x)
		case 2:
			if d.is(&x, protowire.BytesType) {
				m.proof = append([]byte(nil), x.data...)
			}
		case 3:
			d.uint(&x, &acks)
		case 4:
			d.bool(&x, &m.ackWanted)
		case 5:
			if d.is(&x, protowire.BytesType) {
				m.end = string(x.data[:min(len(x.data), maxReason)])
			}
		case 6:
			switch {
			case m.early:
				d.fail("a frame came before the hellos were done")
			case frame != nil:
				d.fail("the message has two frames")
			}
			if d.is(&x, protowire.BytesType) {
				frame = x.data
			}
		}
	}
	if acks > maxItems {
		d.fail("%d acknowledgements are more than there can be", acks)
	}
	m.acks = uint32(acks)
	if d.err != nil || frame == nil {
		c.release(m)
		return d.err
	}
	if m.in == nil {
		m.in = c.inboxes.Get().(*inbox)
	}
	return d.frame(frame, m.in)
}

// hello takes a hello; nil if it is none.
func (d *decoder) hello(x *field) *peerv1.Hello {
	if !d.is(x, protowire.BytesType) {
		return nil
	}
	h := new(peerv1.Hello)
	if err := proto.Unmarshal(x.data, h); err != nil {
		d.fail("the hello cannot be read: %w", err)
		return nil
	}
	return h
}

// release gives the memory of the frame that came back.
func (c *codec) release(m *message) {
	in := m.in
	m.in = nil
	if in == nil {
		return
	}
	// An unusually large frame, such as a snapshot, does not stay.
	f := &in.frame
	if len(in.words) > keepItems || max(cap(f.Entries), cap(f.Claims), cap(f.Answers), cap(f.Batches),
		cap(f.Keys), cap(f.Replies), cap(f.Results)) > keepItems {
		return
	}
	c.inboxes.Put(in)
}

// message appends a message.
func (e *encoder) message(m *message) {
	if m.hello != nil {
		mark := e.open(1)
		var err error
		if e.b, err = (proto.MarshalOptions{}).MarshalAppend(e.b, m.hello); err != nil {
			e.err = errors.Join(e.err, err)
		}
		e.close(mark, true)
	}
	e.text(2, string(m.proof))
	e.uint(3, uint64(m.acks))
	e.bool(4, m.ackWanted)
	e.text(5, m.end)
	if m.frame != nil {
		mark := e.open(6)
		e.frame(m.frame)
		e.close(mark, true)
	}
}

const (
	keepItems  = 1 << 13 // the most items of a frame whose memory is kept
	keepBuffer = 1 << 18 // the most bytes of a buffer that is
	maxReason  = 1 << 10 // bytes of the reason for an end
)

// bufferPool keeps buffers of whatever size, as messages are: it satisfies
// mem.BufferPool for those that gRPC gives back when they have been sent.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) take() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	// gRPC gives back only what is larger than a KiB.
	b := make([]byte, 0, 2<<10)
	return &b
}

// Get implements mem.BufferPool.
func (p *bufferPool) Get(length int) *[]byte {
	b := p.take()
	*b = resize(*b, length)
	return b
}

// Put implements mem.BufferPool.
func (p *bufferPool) Put(b *[]byte) {
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		p.pool.Put(b)
	}
}
