package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
)

// fullCall is a call whose request the protobuf library decodes.
type fullCall struct {
	message proto.Message
	parts   weirwire.Parts
	hold    listen.Hold
	refused error // why it is not decoded, nil if it is
}

// readWire implements wireReader.
func (c *fullCall) readWire(text string) {
	c.hold.Bytes = len(text)
	var err error
	if c.parts, err = weirwire.CountParts(weirwire.Bytes(text)); err != nil || c.parts.TooMany() {
		c.refused = undecodable(err) // of too many parts permit tells
		return
	}
	c.refused = c.hold.Add(weightOf(len(text), 1, 0) + weightOfParts(c.parts))
	if c.refused == nil {
		c.refused = undecodable(weirwire.Unmarshal(weirwire.Bytes(text), c.message))
	}
}

// receive decodes the message of a call of a method that began at an instant. It returns with what
// the call ends, nil if it is to be answered.
func (c *fullCall) receive(s *service, name string, begin time.Time, decode func(any) error) error {
	if err := decode(c); err != nil {
		return err // there is no message, and gRPC has said why
	}
	err := c.refused
	if err == nil {
		err = s.permit(c.parts)
	}
	if err == nil {
		return nil
	}
	return s.end(name, begin, s.unread(&c.hold, err))
}

// encodedReply is a reply of which nothing but its bytes is kept.
type encodedReply struct {
	out mem.Buffer
	why string // what the audit says of it, if it is accounted
}

func (r encodedReply) wire() mem.BufferSlice { return mem.BufferSlice{r.out} }

// encode encodes a reply, whose room stays taken until it is written.
func (s *service) encode(m proto.Message, h *listen.Hold) (any, error) {
	out, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return encodedReply{out: s.answers.BufferOf(&out, h)}, nil
}

// unary serves a unary call.
type unary func(context.Context, func(any) error) (any, error)
