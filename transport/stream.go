package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// CheckStream implements the service. One goroutine receives a message, decides its
// checks with one call and sends the reply. A check needs no goroutine, channel or
// allocation of its own.
func (s *service) CheckStream(stream grpc.BidiStreamingServer[weirv1.CheckColumns, weirv1.DecisionColumns]) error {
	by, err := s.identify(stream.Context()) // each message is identified again: tokens expire
	if err == nil {
		var end func()
		if end, err = by.OpenStream(); err == nil {
			defer end()
		}
	}
	if err != nil {
		s.audited.call(stream.Context(), ActionCheck, false, "", err)
		stream.SetTrailer(undecided())
		return s.end("CheckStream", s.begin(), err)
	}
	in := columnsMessage{service: s, hold: listen.Hold{Room: &s.room, Context: stream.Context()}}
	defer in.hold.Release() // after a panic
	for {
		err := stream.RecvMsg(&in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err = in.answer(stream); err != nil {
			return err
		}
	}
}

// columnsMessage is a message of a stream as it is received, and its reply as it is
// sent.
type columnsMessage struct {
	service *service
	turn    *turn // has the reply, from its decision until it is encoded
	columns weirv1.CheckColumns
	hold    listen.Hold
	refused error // why nothing but the id of columns was read; nil if all was
}

// readBytes implements bytesReader.
func (m *columnsMessage) readBytes(data []byte) {
	m.hold.Bytes = len(data)
	n, err := weirwire.CountColumns(data)
	if errors.Is(err, weirwire.ErrWire) {
		err = undecodable(err)
	}
	if m.refused = err; err == nil {
		m.refused = m.hold.Add(weightOf(len(data), n.Checks, n.Values))
	}
	if m.refused == nil {
		m.refused = undecodable(weirwire.Unmarshal(data, &m.columns))
		return
	}
	m.columns.Id = n.ID // the reply names it
}

// refuse returns why the message is not read, and whether that ends the stream: it does if the caller
// is not identified, as for any message, or if a reply would name no message.
func (m *columnsMessage) refuse(ctx context.Context) (ends bool, why error) {
	by, err := m.service.identify(ctx)
	if err != nil {
		return true, err
	}
	return errors.Is(m.refused, errUndecodable), spendUnread(&by, &m.hold, m.refused)
}

// answer decides the message and sends the reply.
func (m *columnsMessage) answer(stream grpc.ServerStream) error {
	s := m.service
	begin := s.begin()
	var refused error
	if m.refused != nil {
		var ends bool
		ends, refused = m.refuse(stream.Context())
		s.audited.call(stream.Context(), ActionCheck, false, "", refused)
		if ends {
			stream.SetTrailer(undecided())
			return s.end("CheckStream", begin, refused)
		}
	}
	t := s.turns.Get().(*turn) // dropped after a panic, in an unknown state
	if refused != nil {
		t.reply.Refuse(refused)
	} else if err := s.decideTraced(stream.Context(), t, &m.columns, &m.hold); err != nil {
		s.turns.Put(t)
		s.audited.call(stream.Context(), ActionCheck, false, "", err)
		// Where the time of the stream ended, an owner may have counted the message.
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			stream.SetTrailer(undecided())
		}
		return s.end("CheckStream", begin, err)
	}
	t.reply.Id, t.reply.View = m.columns.Id, s.view()
	if s.observer != nil {
		s.observer.Served("CheckStream", t.code().String(), time.Since(begin))
	}
	m.turn = t
	return stream.SendMsg(m)
}

// writeReply implements replyWriter. It gives the memory of the message and of
// its turn back, since SendMsg may wait for the client to read.
func (m *columnsMessage) writeReply() (mem.BufferSlice, error) {
	s, t := m.service, m.turn
	out, err := m.encode()
	if err != nil {
		// The message is in error, and not the stream with all that is in flight on it.
		id, view := t.reply.Id, t.reply.View
		t.reply.Refuse(internalError{fmt.Errorf("the reply cannot be encoded: %w", err)})
		t.reply.Id, t.reply.View = id, view
		out, err = m.encode()
	}
	// Nothing else refers to the turn, since the server has no tracing and no stats
	// handler.
	m.turn = nil
	s.turns.Put(t)
	m.columns.Reset() // an idle stream keeps no request in memory
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{s.answers.BufferOf(out, &m.hold)}, nil
}

// encode returns the reply in a buffer of the pool.
func (m *columnsMessage) encode() (*[]byte, error) {
	out := m.service.answers.Empty()
	var err error
	if *out, err = m.turn.reply.Append(*out); err != nil {
		m.service.answers.Put(out)
		return nil, err
	}
	return out, nil
}

// decideTraced is decideColumns with a span around it, below that of the stream's client.
func (s *service) decideTraced(ctx context.Context, t *turn, in *weirv1.CheckColumns, h *listen.Hold) error {
	if s.front.Tracer == nil {
		return s.decideColumns(ctx, t, in, h)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	ctx, _, end := s.front.Trace(ctx, "CheckStream", first(md, fieldParent), first(md, fieldState))
	if end == nil {
		return s.decideColumns(ctx, t, in, h)
	}
	code := codes.Internal // of a panic
	defer func() { end(code.String()) }()
	err := s.decideColumns(ctx, t, in, h)
	if code = t.code(); err != nil {
		code = status.Code(err)
	}
	return err
}

// decideColumns decides one message and writes the reply into t. An error ends the
// stream.
func (s *service) decideColumns(ctx context.Context, t *turn, in *weirv1.CheckColumns, h *listen.Hold) error {
	by, err := s.identify(ctx)
	if err != nil {
		return err // of the stream: none of its messages would be answered
	}
	n, err := weirwire.ColumnsLen(in)
	alike := weirwire.AlikeOf(in)
	if err == nil {
		err = s.mayRefund(in.HoldUs != 0)
	}
	if err == nil {
		err = by.Spend(n, h.Size())
	} else {
		err = spendUnread(&by, h, err)
	}
	if err == nil && n > 0 {
		err = admitColumns(&by, in, &alike)
	}
	if err != nil {
		s.audited.call(ctx, ActionCheck, false, "", err)
		t.reply.Refuse(err)
		return nil
	}
	t.fillColumns(in, n, &alike)
	if in.Peek {
		err = t.peek(ctx, &by, n)
	} else {
		err = t.decide(ctx, &by, n, nil)
	}
	if err != nil {
		return err
	}
	s.audited.part(ctx, nil, t.errs)
	t.reply.Fill(t.decisions[:n], t.failed, t.errs)
	if in.EveryLimit {
		h.Widen(t.widest(n))
		t.reply.FillEvery(s.decider, t.requests[:n], t.decisions[:n])
	}
	return nil
}

// admitColumns admits the checks of a message, of which alike is what they have in common: what is asked of the caller
// is the same for all. If one has an id, all are admitted as checks with one, since a rule may hold for it.
func admitColumns(by *frontend.Session, in *weirv1.CheckColumns, alike *limiter.Request) error {
	if len(in.Ids) > 0 {
		alike.ID = "of its own"
	}
	err := by.AdmitCheck(alike, in.Peek, false)
	alike.ID = "" // those that have none get none
	return err
}
