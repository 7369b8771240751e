package peerlink

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
)

// Codec encodes and decodes frames with the code and the bounds of a link. It is for
// users that carry frames without a link, such as a simulator. It is safe for concurrent
// use.
type Codec struct{ codec *codec }

// NewCodec returns a codec with the bounds of a link in its default configuration.
func NewCodec() *Codec { return &Codec{newCodec(maxMessage)} }

// Append appends a frame to b, as one message of a link. The error names the bound that
// the frame exceeds; b is then returned unchanged.
func (c *Codec) Append(b []byte, f *peer.Frame) ([]byte, error) {
	e := encoder{sections: c.codec.sections, b: b}
	e.message(&message{frame: f})
	if e.err == nil && len(e.b)-len(b) > c.codec.most {
		e.err = fmt.Errorf("a message of %d bytes is larger than a link takes: at most %d", len(e.b)-len(b), c.codec.most)
	}
	if e.err != nil {
		return b, e.err
	}
	return e.b, nil
}

// Read decodes a frame and calls take with it. The frame, and all that it refers to,
// must not be used after take returns. If a link would refuse b, Read returns an error
// and does not call take.
func (c *Codec) Read(b []byte, take func(f *peer.Frame)) error {
	d := c.codec.decoders.Get().(*decoder)
	defer c.codec.decoders.Put(d)
	var m message
	defer c.codec.release(&m)
	if err := c.codec.read(d, b, &m); err != nil {
		return err
	}
	if m.in == nil {
		return errors.New("the message has no frame")
	}
	take(&m.in.frame)
	return nil
}
