package transport

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that this one builds on
	"google.golang.org/grpc/mem"

	"github.com/weirlimit/weir/internal/guard"
)

// wireReader is a message with its own decoder, which may keep parts of text. The message knows
// why it could not be decoded: gRPC would answer an error before the caller is identified.
type wireReader interface {
	readWire(text string)
}

// bytesReader is a wireReader that keeps no part of data.
type bytesReader interface {
	readBytes(data []byte)
}

// wireWriter is a message with its own encoder, which may be called once. Nothing else
// of the message is kept while gRPC waits for the client to read it.
type wireWriter interface {
	wire() mem.BufferSlice
}

// replyWriter is a wireWriter whose encoding may fail.
type replyWriter interface {
	writeReply() (mem.BufferSlice, error)
}

// codec is the protobuf codec, except that the messages of the hot paths encode and
// decode themselves: to the same bytes, without an allocation for each check.
type codec struct {
	encoding.CodecV2
	guard *guard.Guard
}

// forceCodec returns the option that makes a server use codec.
func forceCodec(g *guard.Guard) grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto"), g})
}

// Marshal implements [encoding.CodecV2]. It runs outside all handlers, so it recovers
// from panics itself; a panic ends the call.
func (c codec) Marshal(v any) (out mem.BufferSlice, err error) {
	defer c.guard.Recover(guard.GRPC, func(e error) { out, err = nil, e })
	if w, ok := v.(wireWriter); ok {
		return w.wire(), nil
	}
	if w, ok := v.(replyWriter); ok {
		return w.writeReply()
	}
	if w, ok := v.(WireReply); ok {
		return mem.BufferSlice{mem.SliceBuffer(w.MarshalWire())}, nil
	}
	return c.CodecV2.Marshal(v)
}

// maxUncounted is the size in bytes of the largest message whose memory takes no room: a
// call of health or reflection, which also come back in the answer.
const maxUncounted = 4 << 10

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(wireReader)
	if !ok {
		var read func([]byte) error
		switch m := v.(type) {
		case bytesReader:
			read = func(data []byte) error {
				m.readBytes(data)
				return nil
			}
		case WireMessage:
			read = m.UnmarshalWire
		}
		if read != nil {
			buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
			defer buf.Free()
			return read(buf.ReadOnlyData())
		}
		if n := data.Len(); n > maxUncounted {
			return fmt.Errorf("a message of %d bytes: health and reflection take at most %d", n, maxUncounted)
		}
		return c.CodecV2.Unmarshal(data, v)
	}
	if len(data) == 1 {
		r.readWire(string(data[0].ReadOnlyData()))
		return nil
	}
	var b strings.Builder
	b.Grow(data.Len())
	for _, part := range data {
		b.Write(part.ReadOnlyData())
	}
	r.readWire(b.String())
	return nil
}
