package load

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// The number of messages in flight on a stream: enough to keep a node busy while one
// travels, or more at a given rate. The second number also bounds the replies that
// wait.
const (
	streamDepth = 2
	openDepth   = 16
)

// columns sends columns on one stream, and opens a new one after that has broken. Its
// user waits after each failure, see pause, which bounds how often streams are opened.
type columns struct {
	wire
	opening sync.Mutex // guards pipe
	pipe    *pipe
}

// pipe is one stream. Replies arrive in the order of the messages.
type pipe struct {
	*wire
	stream grpc.BidiStreamingClient[weirv1.CheckColumns, weirv1.DecisionColumns]
	cancel context.CancelFunc

	sending sync.Mutex // held while sending, so that calls wait in the order of sending
	waiting chan *sentCall
	done    chan struct{} // closed when nothing is received any more
	err     error         // the reason; written before done is closed
}

type sentCall struct {
	*call
	answered chan error // has room for one
}

func openStream(ctx context.Context, w wire) (lane, error) {
	s := &columns{wire: w}
	if _, err := s.open(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return s, nil
}

// open returns the stream. It opens a new one, which ends with the context, if there is
// none or it has broken.
func (s *columns) open(ctx context.Context) (*pipe, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.pipe != nil {
		select {
		case <-s.pipe.done:
		default:
			return s.pipe, nil
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.api.CheckStream(ctx)
	if err != nil {
		cancel()
		return nil, s.failed(err)
	}
	s.pipe = &pipe{
		wire: &s.wire, stream: stream, cancel: cancel,
		waiting: make(chan *sentCall, openDepth), done: make(chan struct{}),
	}
	go s.pipe.receive()
	return s.pipe, nil
}

func (s *columns) close() error {
	s.pipe.cancel()
	<-s.pipe.done
	return s.wire.close()
}

func (s *columns) do(ctx context.Context, c *call) error {
	p, err := s.open(ctx)
	if err != nil {
		return err
	}
	return p.do(ctx, c)
}

// fillColumns turns a call into a message.
func fillColumns(m *weirv1.CheckColumns, c *call) {
	var r limiter.Request
	for _, n := range c.n {
		c.keys.request(&r, n)
		m.Keys = append(append(m.Keys, r.Path...), r.User...)
		m.PathLengths = append(m.PathLengths, uint32(len(r.Path)))
		m.UserLengths = append(m.UserLengths, uint32(len(r.User)))
	}
}

func (s *pipe) do(ctx context.Context, c *call) error {
	n := len(c.n)
	m := weirv1.CheckColumns{
		Keys: make([]byte, 0, 64*n), PathLengths: make([]uint32, 0, n), UserLengths: make([]uint32, 0, n),
	}
	fillColumns(&m, c)
	sent := &sentCall{c, make(chan error, 1)}
	s.sending.Lock()
	select {
	case s.waiting <- sent:
	case <-s.done:
		s.sending.Unlock()
		return s.err
	}
	err := s.stream.Send(&m)
	s.sending.Unlock()
	if err != nil {
		<-s.done // after which err has the reason
		return s.err
	}
	select {
	case err := <-sent.answered:
		return err
	case <-s.done:
	case <-ctx.Done():
		s.cancel()
		<-s.done // so that the call is no longer used elsewhere
	}
	select {
	case err := <-sent.answered:
		return err
	default:
		return s.err
	}
}

// receive reads replies until the stream ends.
func (s *pipe) receive() {
	defer close(s.done)
	for {
		m, err := s.stream.Recv()
		if err != nil {
			s.err = s.failed(err)
			return
		}
		select {
		case c := <-s.waiting:
			c.answered <- s.take(c.call, m)
		default:
			s.err = fmt.Errorf("node %s sent a reply without a request", s.server)
			s.cancel()
			return
		}
	}
}

func (s *pipe) take(c *call, m *weirv1.DecisionColumns) error {
	if e := m.GetError(); e != nil {
		return fmt.Errorf("node %s: %s", s.server, e.GetMessage())
	}
	if len(m.Flags) != len(c.n) || len(m.LimitRefs) != len(c.n) || len(m.Sources) != 0 && len(m.Sources) != len(c.n) {
		return fmt.Errorf("node %s answered %d checks of %d", s.server, len(m.Flags), len(c.n))
	}
	for _, e := range m.GetErrors() {
		c.why = e.GetMessage()
	}
	for i, flags := range m.Flags {
		if flags&byte(weirv1.DecisionFlag_DECISION_FLAG_ERROR) != 0 {
			continue
		}
		source, rule := limiter.SourceOwner, ""
		if len(m.Sources) > 0 {
			source = limiter.Source(m.Sources[i])
		}
		if ref := int(m.LimitRefs[i]); ref > 0 && ref <= len(m.Limits) {
			rule = m.Limits[ref-1].GetRule()
		}
		if err := c.take(i, flags&byte(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED) != 0, rule, source); err != nil {
			return err
		}
	}
	return nil
}
