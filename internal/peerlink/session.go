package peerlink

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/internal/peer"
)

// farewellTimeout bounds the orderly end of a session: sending the reason, and waiting
// until the other side hangs up, which shows that everything has arrived.
const farewellTimeout = time.Second

// codeExpelled is the status of what a member answers to one that is expelled.
const codeExpelled = codes.Unauthenticated

var (
	errReplaced = errors.New("the other node has opened a new connection")
	errStalled  = errors.New("the other node does not read what is sent to it")
	errStopping = errors.New("the node is stopping")
	errExpelled = errors.New("the operators have expelled the member")
)

// channel is the gRPC stream of a session, at either end.
type channel interface {
	SendMsg(m any) error
	RecvMsg(m any) error
	// hangUp makes SendMsg and RecvMsg return, now and from then on.
	hangUp(reason error)
}

// session is an established link. One goroutine receives, the one that calls run, and
// another sends. They share only counters, so neither waits for the other: a node that
// cannot send still receives, and the acknowledgements that it receives let it send
// again.
type session struct {
	links   *Links
	frames  Frames
	channel channel
	other   peer.Instance
	name    string // of the other side, as its hello has it
	conn    *conn
	window  int32
	stall   time.Duration
	sends   *sent

	wake    chan struct{} // holds a token if there may be something to send
	unacked atomic.Int32  // frames sent for which an acknowledgement is expected
	owed    atomic.Uint32 // frames received that must be acknowledged
	drain   atomic.Bool   // end when there is nothing left to send

	ending chan struct{} // closed when the session must end
	sent   chan struct{} // closed when sending has ended
	heard  chan struct{} // closed when receiving has ended
	done   chan struct{} // closed when all has ended and Down was called
	once   sync.Once
	reason error // why it ends; written before ending is closed
	tell   bool  // whether to tell the other side the reason
}

func newSession(l *Links, ch channel, other peer.Instance) *session {
	return &session{
		links: l, frames: l.config.Frames, channel: ch, other: other,
		window: int32(l.config.Window), stall: l.config.StallTimeout,
		wake: make(chan struct{}, 1), ending: make(chan struct{}),
		sent: make(chan struct{}), heard: make(chan struct{}), done: make(chan struct{}), sends: new(sent),
	}
}

// sent is how much was sent to a member.
type sent struct{ frames, bytes atomic.Uint64 }

// notify reports that there may be something to send. It does not block.
func (s *session) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // a token is there already
	}
}

// end ends the session. If tell is set, the other side is told the reason. Only the
// first call has an effect.
func (s *session) end(reason error, tell bool) {
	s.once.Do(func() {
		s.reason, s.tell = reason, tell
		close(s.ending)
	})
}

// recheck ends the session if the other side is expelled or, if certificate is set, if its
// certificate would be refused now.
func (s *session) recheck(certificate bool) {
	c := &s.links.config
	if c.expelled(s.name) {
		s.end(errExpelled, true)
		return
	}
	if !certificate || c.Certificates == nil || s.conn.secure == nil {
		return
	}
	shown := s.conn.secure.ConnectionState().PeerCertificates
	if err := c.Certificates.StillMember(shown, c.ClusterName, s.name); err != nil {
		s.end(fmt.Errorf("its certificate is not accepted any more: %w", err), true)
	}
}

// run carries frames until the session ends, and returns why. When it returns, no frame
// of the session will be taken or delivered.
func (s *session) run() error {
	go s.send()
	go s.hangUpAtEnd()
	s.receive()
	<-s.sent
	s.channel.hangUp(s.reason)
	return s.reason
}

// hangUpAtEnd makes both loops end when the session ends.
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

// receive delivers frames until the stream ends. It always ends the session.
func (s *session) receive() {
	defer close(s.heard)
	defer s.links.catch(func(err error) { s.end(err, false) })
	m := new(message) // not reused after a panic
	for {
		if err := s.channel.RecvMsg(m); err != nil {
			s.end(err, false)
			break
		}
		if err := s.take(m); err != nil {
			s.end(err, m.end == "")
			break
		}
		s.links.codec.release(m)
	}
	// Further messages are ignored: only the end of the stream matters now.
	for s.tell && s.channel.RecvMsg(m) == nil {
		s.links.codec.release(m)
	}
	s.links.codec.release(m)
}

func (s *session) take(m *message) error {
	switch {
	case m.bad != nil:
		return fmt.Errorf("a message is not valid: %w", m.bad)
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
		return fmt.Errorf("a frame names %s as its sender", sender)
	}
	if !f.Relayed {
		// It has proved one name. By others it would be a member more for each.
		f.Known = slices.DeleteFunc(f.Known, func(k peer.Known) bool { return k.Instance == s.other && k.Name != s.name })
	}
	s.frames.Deliver(f)
	if m.ackWanted {
		s.owed.Add(1)
		s.notify()
	}
	return nil
}

// send sends frames and acknowledgements until the session ends.
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
		s.sends.bytes.Add(uint64(m.size))
		if m.frame != nil {
			s.sends.frames.Add(1)
		}
	}
	if s.tell {
		guard.Reset(farewellTimeout)
		_ = s.channel.SendMsg(&message{end: s.reason.Error()}) // best effort
	}
}

// endUnsent ends the session after a failed send. If the stream has ended, the receiver
// learns the reason, so endUnsent waits up to farewellTimeout for it.
func (s *session) endUnsent(err error) {
	t := time.NewTimer(farewellTimeout)
	defer t.Stop()
	select {
	case <-s.ending:
	case <-t.C:
		s.end(err, false)
	}
}

// next waits for something to send. It returns false when the session ends.
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
