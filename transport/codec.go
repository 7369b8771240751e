package transport

import (
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that this one rests on
	"google.golang.org/grpc/mem"

	"github.com/weirlimit/weir/internal/guard"
)

// wireReader is a message that reads itself. The text is the message's to keep.
type wireReader interface {
	readWire(text string) error
}

// bytesReader is a message that reads itself and keeps nothing of the bytes.
type bytesReader interface {
	readBytes(data []byte) error
}

// wireWriter is a message that writes itself, once.
type wireWriter interface {
	wire() mem.BufferSlice
}

// codec is the codec of protobuf, in which the messages of the hot paths read and
// write themselves: the same bytes, without memory for each check of a message.
type codec struct {
	encoding.CodecV2
	guard *guard.Guard
}

// forceCodec returns the option that makes a server speak by codec.
func forceCodec(g *guard.Guard) grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto"), g})
}

// Marshal implements [encoding.CodecV2]. No handler is around it any more: a panic ends
// the call here.
func (c codec) Marshal(v any) (out mem.BufferSlice, err error) {
	defer c.guard.Recover(guard.GRPC, func(e error) { out, err = nil, e })
	if w, ok := v.(wireWriter); ok {
		return w.wire(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(wireReader)
	if !ok {
		if b, ok := v.(bytesReader); ok {
			buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
			defer buf.Free()
			return b.readBytes(buf.ReadOnlyData())
		}
		return c.CodecV2.Unmarshal(data, v)
	}
	if len(data) == 1 {
		return r.readWire(string(data[0].ReadOnlyData()))
	}
	var b strings.Builder
	b.Grow(data.Len())
	for _, part := range data {
		b.Write(part.ReadOnlyData())
	}
	return r.readWire(b.String())
}

// bufferPool keeps the buffers of large replies, which gRPC gives back when they
// are sent; small ones it does not. The zero value is empty.
type bufferPool struct{ pool sync.Pool }

// Get implements [mem.BufferPool]: a buffer of that length.
func (p *bufferPool) Get(length int) *[]byte {
	b := p.empty()
	if cap(*b) < length {
		*b = make([]byte, length)
	}
	*b = (*b)[:length]
	return b
}

// Put implements [mem.BufferPool].
func (p *bufferPool) Put(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		p.pool.Put(b)
	}
}

// maxKeptBuffer is how large a buffer may be that is used again.
const maxKeptBuffer = 1 << 20

// empty returns a buffer of length 0.
func (p *bufferPool) empty() *[]byte {
	b, _ := p.pool.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	*b = (*b)[:0]
	return b
}
