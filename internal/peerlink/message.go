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
	frame     *peer.Frame // frame to send

	// early is set by the receiver until the hellos are done: no frame is accepted then,
	// and no message larger than earlyBytes.
	early bool

	size int // of a message that was encoded, in bytes

	in  *inbox // frame received; nil if none was
	bad error  // error in a received message
}

// codec encodes and decodes messages. It implements encoding.CodecV2 and is safe for
// concurrent use. Buffers and frames are pooled, so an idle link holds none.
type codec struct {
	sections *sections
	most     int // bound of a message in bytes
	buffers  bufferPool
	inboxes  sync.Pool // *inbox
	decoders sync.Pool // *decoder
}

func newCodec(most int) *codec {
	c := &codec{sections: newSections(), most: most}
	c.inboxes.New = func() any { return new(inbox) }
	c.decoders.New = func() any { return &decoder{sections: c.sections, in: reader{names: make(map[string]string)}} }
	return c
}

// Name implements encoding.CodecV2. On the wire the messages are protobuf.
func (c *codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2 for messages.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("a link cannot send a %T", v)
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
	m.size = len(e.b)
	return mem.BufferSlice{mem.NewBuffer(b, &c.buffers)}, nil
}

// Unmarshal implements encoding.CodecV2 for messages. Errors in the bytes are stored in
// the message, so that the receiver reports them in its own words.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("a link cannot receive a %T", v)
	}
	flat := data.MaterializeToBuffer(&c.buffers) // gRPC clears a MB for each of more than 32 KiB
	defer flat.Free()
	d := c.decoders.Get().(*decoder)
	defer c.decoders.Put(d)
	m.bad = c.read(d, flat.ReadOnlyData(), m)
	return nil
}

func (c *codec) read(d *decoder, b []byte, m *message) error {
	*m = message{in: m.in, early: m.early}
	d.in.section, d.in.err = "the message", nil
	if m.early && len(b) > earlyBytes {
		d.in.fail("it has %d bytes, and at most %d may come before the hellos are done", len(b), earlyBytes)
	}
	var frame []byte
	var acks uint64
	var x field
	for d.in.next(&b, &x) {
		switch x.number {
		case 1:
			m.hello = d.hello(&x)
		case 2:
			if d.in.is(&x, protowire.BytesType) {
				m.proof = append([]byte(nil), x.data...)
			}
		case 3:
			d.in.uint(&x, &acks)
		case 4:
			d.in.bool(&x, &m.ackWanted)
		case 5:
			if d.in.is(&x, protowire.BytesType) {
				m.end = string(x.data[:min(len(x.data), maxReason)])
			}
		case 6:
			switch {
			case m.early:
				d.in.fail("a frame came before the hellos were done")
			case frame != nil:
				d.in.fail("the message has two frames")
			}
			if d.in.is(&x, protowire.BytesType) {
				frame = x.data
			}
		}
	}
	if acks > maxItems {
		d.in.fail("%d acknowledgements are more than there can be", acks)
	}
	m.acks = uint32(acks)
	if d.in.err != nil || frame == nil {
		c.release(m)
		return d.in.err
	}
	if m.in == nil {
		m.in = c.inboxes.Get().(*inbox)
	}
	return d.frame(frame, m.in)
}

// hello reads a hello; nil if there is an error.
func (d *decoder) hello(x *field) *peerv1.Hello {
	if !d.in.is(x, protowire.BytesType) {
		return nil
	}
	h := new(peerv1.Hello)
	if err := proto.Unmarshal(x.data, h); err != nil {
		d.in.fail("the hello cannot be read: %w", err)
		return nil
	}
	return h
}

// release returns the memory of a received frame to the pool.
func (c *codec) release(m *message) {
	in := m.in
	m.in = nil
	if in == nil {
		return
	}
	// The memory of an unusually large frame, such as a snapshot, is not kept.
	f := &in.frame
	if len(in.words) > keepItems || max(cap(f.Entries), cap(f.Claims), cap(f.Answers), cap(f.Batches), cap(f.IDs),
		cap(f.Keys), cap(f.Replies), cap(f.Results)) > keepItems {
		return
	}
	c.inboxes.Put(in)
}

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
	keepItems  = 1 << 13 // most items of a frame whose memory is kept
	keepBuffer = 1 << 18 // most bytes of a buffer that is kept
	maxReason  = 1 << 10 // most bytes of the reason for an end
)

// bufferPool keeps buffers of any size, like messages. It implements mem.BufferPool:
// gRPC returns buffers to it after sending.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) take() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	// gRPC returns only buffers larger than a KiB.
	return new(make([]byte, 0, 2<<10))
}

func (p *bufferPool) Get(length int) *[]byte {
	b := p.take()
	*b = resize(*b, length)
	return b
}

func (p *bufferPool) Put(b *[]byte) {
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		p.pool.Put(b)
	}
}
