package peerlink

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/peer"
)

// farewellTimeout bounds how long a session that ends in good order may take: to
// send the reason, and to see the other side hang up, which is how one knows
// that everything has arrived.
const farewellTimeout = time.Second

var (
	errReplaced = errors.New("the other node has opened a new connection")
	errStalled  = errors.New("the other node takes nothing of what is sent to it")
	errStopping = errors.New("the node is stopping")
)

// channel is the stream below a session, at either end.
type channel interface {
	SendMsg(m any) error
	RecvMsg(m any) error
	// hangUp makes both of the others return, now and from now on.
	hangUp(reason error)
}

// session is a link while it stands: one goroutine that receives, the one that
// calls run, and one that sends. They share counters and nothing else, so
// neither ever waits for the other: a node that cannot send goes on receiving,
// and the acknowledgements that it gets are what makes it send again.
type session struct {
	links   *Links
	frames  Frames
	codec   *codec
	channel channel
	other   peer.Instance
	window  int32
	stall   time.Duration

	wake    chan struct{} // has a token when there may be something to send
	unacked atomic.Int32  // frames that we want acknowledged
	owed    atomic.Uint32 // frames that we have to acknowledge
	drain   atomic.Bool   // end when there is nothing more to send

	ending chan struct{} // closed when it is to end
	sent   chan struct{} // closed when nothing is sent any more
	heard  chan struct{} // closed when nothing is received any more
	done   chan struct{} // closed when all is over, and Down was called
	once   sync.Once
	reason error // why it ends; written before ending is closed
	tell   bool  // and whether the other side is to be told
}

func newSession(l *Links, ch channel, other peer.Instance) *session {
	return &session{
		links: l, frames: l.config.Frames, codec: l.codec, channel: ch, other: other,
		window: int32(l.config.Window), stall: l.config.StallTimeout,
		wake: make(chan struct{}, 1), ending: make(chan struct{}),
		sent: make(chan struct{}), heard: make(chan struct{}), done: make(chan struct{}),
	}
}

// notify says that there may be something to send. It does not block.
func (s *session) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // a token is there, and whoever takes it will look
	}
}

// end ends the session, for a reason that may be told to the other side.
func (s *session) end(reason error, tell bool) {
	s.once.Do(func() {
		s.reason, s.tell = reason, tell
		close(s.ending)
	})
}

// run carries frames until the session ends, and returns why. When it returns
// nothing of the session is left: no frame will be taken or delivered.
func (s *session) run() error {
	go s.send()
	go s.hangUpAtEnd()
	s.receive()
	<-s.sent
	s.channel.hangUp(s.reason)
	return s.reason
}

// hangUpAtEnd ends what the two loops wait for.
func (s *session) hangUpAtEnd() {
	<-s.ending
	if s.tell {
		t := time.NewTimer(farewellTimeout)
		defer t.Stop()
		select {
		case <-s.heard:
		case <-t.C:
		}
	}
	s.channel.hangUp(s.reason)
}

// receive delivers what comes until nothing does. Its last step is to end the
// session, whatever ended it.
func (s *session) receive() {
	defer close(s.heard)
	defer s.links.catch(func(err error) { s.end(err, false) })
	m := new(message) // which is dropped where there is a panic
	for {
		if err := s.channel.RecvMsg(m); err != nil {
			s.end(err, false)
			break
		}
		if err := s.take(m); err != nil {
			s.end(err, m.end == "")
			break
		}
		s.codec.release(m)
	}
	// What still comes is not looked at: it only matters when it ends.
	for s.tell && s.channel.RecvMsg(m) == nil {
		s.codec.release(m)
	}
	s.codec.release(m)
}

// take handles one message.
func (s *session) take(m *message) error {
	switch {
	case m.bad != nil:
		return fmt.Errorf("a message makes no sense: %w", m.bad)
	case m.end != "":
		return fmt.Errorf("the other node ended the connection: %s", m.end)
	case m.hello != nil:
		return errors.New("there was a second hello")
	}
	if m.acks > 0 {
		if s.unacked.Add(-int32(m.acks)) < 0 {
			return errors.New("more frames were acknowledged than were sent")
		}
		s.notify()
	}
	if m.in == nil {
		return nil
	}
	f := &m.in.frame
	sender := f.From
	if f.Relayed {
		sender = f.Via
	}
	if sender != s.other {
		return fmt.Errorf("a frame says that %s sent it", sender)
	}
	s.frames.Deliver(f)
	if m.ackWanted {
		s.owed.Add(1)
		s.notify()
	}
	return nil
}

// send sends what there is until the session ends.
func (s *session) send() {
	defer close(s.sent)
	defer s.links.catch(func(err error) { s.end(err, false) })
	guard := time.AfterFunc(time.Hour, func() {
		s.end(errStalled, false)
		s.channel.hangUp(errStalled)
	})
	defer guard.Stop()
	guard.Stop()
	var m message
	for s.next(&m) {
		guard.Reset(s.stall)
		err := s.channel.SendMsg(&m)
		guard.Stop()
		if m.frame != nil {
			s.frames.Release(m.frame)
		}
		if err != nil {
			s.endUnsent(err)
			return
		}
	}
	if s.tell {
		guard.Reset(farewellTimeout)
		_ = s.channel.SendMsg(&message{end: s.reason.Error()}) // a courtesy
	}
}

// endUnsent ends the session because something could not be sent. Of a stream
// that has ended the receiver learns why, so it may speak first.
func (s *session) endUnsent(err error) {
	t := time.NewTimer(farewellTimeout)
	defer t.Stop()
	select {
	case <-s.ending:
	case <-t.C:
		s.end(err, false)
	}
}

// next waits for something to send; false when the session ends.
func (s *session) next(m *message) bool {
	for {
		select {
		case <-s.ending:
			return false
		default:
		}
		*m = message{acks: s.owed.Swap(0)}
		m.frame = s.frames.Take(s.other, s.unacked.Load() < s.window)
		if m.frame != nil {
			if len(m.frame.Checks)+len(m.frame.Refunds) > 0 {
				m.ackWanted = true
				s.unacked.Add(1)
			}
			return true
		}
		if m.acks > 0 {
			return true
		}
		if s.drain.Load() {
			s.end(errStopping, true)
			return false
		}
		select {
		case <-s.wake:
		case <-s.ending:
		}
	}
}
