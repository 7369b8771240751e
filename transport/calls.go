package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
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

// full returns the gRPC method of a name whose message the protobuf library decodes: do answers it.
func full[T any, M interface {
	*T
	proto.Message
}, R proto.Message](s *service, name string, do func(context.Context, M) (R, error)) unary {
	return func(ctx context.Context, decode func(any) error) (any, error) {
		m := M(new(T))
		c := fullCall{message: m, hold: listen.Hold{Room: &s.room, Context: ctx}}
		defer c.hold.Release()
		if err := c.receive(s, name, s.begin(), decode); err != nil {
			return nil, err
		}
		begin := s.begin()
		out, err := do(ctx, m)
		if err = s.end(name, begin, err); err != nil {
			return nil, err
		}
		return s.encode(out, &c.hold)
	}
}

// aboutOne is a message about one request.
type aboutOne interface {
	proto.Message
	weirwire.Asked
}

// admit turns a message into a request, except its cost, charges the caller's budget for it, and admits it.
func (s *service) admit(ctx context.Context, r *limiter.Request, m aboutOne, a Action) (frontend.Session, error) {
	by, err := s.identify(ctx)
	if err == nil {
		err = by.Spend(1, proto.Size(m))
	}
	if err == nil {
		err = s.fillRequest(r, m)
	}
	if err == nil {
		err = by.Admit(r, a)
	}
	return by, err
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
	reply := encodedReply{out: s.answers.BufferOf(&out, h)}
	if reset, ok := m.(*weirv1.ResetResponse); ok {
		reply.why = frontend.WhyReset(int(reset.GetCounters()))
	}
	return reply, nil
}

// unary serves a unary call.
type unary func(context.Context, func(any) error) (any, error)
