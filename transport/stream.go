package transport

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// CheckStream implements the service. Everything is done in one goroutine: a
// message is received, decided by one call and answered, and no check costs a
// goroutine, a channel or an allocation.
func (s *service) CheckStream(stream grpc.BidiStreamingServer[weirv1.CheckColumns, weirv1.DecisionColumns]) error {
	in := columnsMessage{hold: hold{room: &s.room}}
	defer in.hold.release() // after a panic
	for {
		err := stream.RecvMsg(&in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = s.answerColumns(stream, &in)
		in.hold.release()
		if err != nil {
			return err
		}
		in.columns.Reset() // while it waits a stream keeps nothing
	}
}

// columnsMessage is a message of a stream as it is received.
type columnsMessage struct {
	columns weirv1.CheckColumns
	hold    hold
	refused error // why columns has nothing but its id; nil: it is read
}

// readBytes implements bytesReader.
func (m *columnsMessage) readBytes(data []byte) error {
	n, err := countColumns(data)
	if errors.Is(err, errWire) {
		return err
	}
	if m.refused = err; err == nil {
		m.refused = m.hold.add(weightOf(len(data), n.checks, n.values))
	}
	if m.refused == nil {
		return unmarshal(data, &m.columns)
	}
	m.columns.Id = n.id // the answer names it
	return nil
}

// answerColumns decides one message and sends the reply.
func (s *service) answerColumns(stream grpc.ServerStream, in *columnsMessage) error {
	begin := s.begin()
	t := s.turns.Get().(*turn)
	err := s.answerTurn(stream, in, t, begin)
	// SendMsg has made bytes of the reply when it returns, and nobody else looks
	// at it: the server has no tracing and no handler of statistics. After a panic it is
	// as nobody knows, and not used again.
	s.turns.Put(t)
	return err
}

// answerTurn decides one message in the memory of a turn and sends the reply.
func (s *service) answerTurn(stream grpc.ServerStream, in *columnsMessage, t *turn, begin time.Time) error {
	if in.refused != nil {
		t.refuse(in.refused)
	} else if err := s.decideColumns(stream.Context(), t, &in.columns); err != nil {
		stream.SetTrailer(undecided())
		return s.end("CheckStream", begin, err)
	}
	t.reply.Id, t.reply.View = in.columns.Id, s.view()
	if s.observer != nil {
		s.observer.Served("CheckStream", t.code().String(), time.Since(begin))
	}
	return stream.SendMsg(&t.reply)
}

// decideColumns decides one message into the turn's reply. An error ends the
// stream.
func (s *service) decideColumns(ctx context.Context, t *turn, in *weirv1.CheckColumns) error {
	n, err := t.fillColumns(in)
	if err != nil {
		t.refuse(err)
		return nil
	}
	if in.Peek {
		t.decideEach(ctx, s.decider, n, func(int) bool { return true })
	} else if err := t.decide(ctx, s.decider, n); err != nil {
		return err
	}
	t.fillReply(n)
	if in.EveryLimit {
		t.fillEvery(n, s.decider.KeyName)
	}
	return nil
}

// undecided says of a stream that ends that what was not answered was not decided.
func undecided() metadata.MD { return metadata.Pairs(weirv1.TrailerUndecided, "1") }

// fillCosts sets the costs of the first n requests.
func (b *batch) fillCosts(n int, m *weirv1.CheckColumns) {
	for i := range n {
		if i < len(m.Costs) {
			b.requests[i].Cost = limiter.Units(m.Costs[i])
		} else {
			b.requests[i].Cost = noCost()
		}
	}
}

// noCost leaves the cost to the rule.
func noCost() limiter.Cost { return limiter.Cost{} }
