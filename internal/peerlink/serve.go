package peerlink

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	peerinfo "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

const (
	idleTimeout    = 10 * time.Second // after which a connection without a stream is closed
	maxHeaderBytes = 16 << 10
	maxStreams     = 2 // streams of one connection; a node opens one

	sideDialler = "dialler"
	sideDialled = "dialled"
)

// errStranger is the logged reason of a refusal for which names are not needed.
var errStranger = errors.New("the node is not known yet")

// accepted is the stream of a session at the dialled side. The gRPC handler waits until
// it is hung up, because its return ends the stream.
type accepted struct {
	grpc.ServerStream
	once   sync.Once
	hungUp chan struct{}
	reason error
}

func (a *accepted) hangUp(reason error) {
	a.once.Do(func() {
		a.reason = reason
		close(a.hungUp)
	})
}

// service implements the peer port's gRPC service: it is the accepting side of links.
type service struct {
	peerv1.UnimplementedLinksServer
	links *Links
}

func (l *Links) newServer() *grpc.Server {
	p := newPort(l.config)
	p.links, p.notice = l, notice(l.config.Self)
	p.refused = func(from net.Addr, reason string) {
		l.refusals.logOnce(slog.LevelWarn, "a connection to the peer port was refused", from, reason)
	}
	s := grpc.NewServer(
		grpc.Creds(newPortCredentials(p)),
		grpc.ForceServerCodecV2(l.codec),
		grpc.MaxRecvMsgSize(l.config.MaxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(p.within),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unimplemented, notice(l.config.Self))
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleTimeout, Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2, PermitWithoutStream: true}),
	)
	peerv1.RegisterLinksServer(s, &service{links: l})
	return s
}

// notice returns the text for clients at the wrong port of a node: what this port is, and which
// ports are for them.
func notice(self peer.Member) string {
	text := fmt.Sprintf("this is the peer port of the Weir node %q, which is for other nodes only", short(self.Name))
	if self.GRPCAddr != "" {
		text += "; gRPC is served on " + self.GRPCAddr
	}
	if self.HTTPAddr != "" {
		text += "; HTTP is served on " + self.HTTPAddr
	}
	return text
}

// Connect implements the service: it runs one link until it ends.
func (s *service) Connect(stream grpc.BidiStreamingServer[peerv1.Message, peerv1.Message]) error {
	l := s.links
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return status.Error(codes.Unavailable, errStopping.Error())
	}
	l.all.Add(1)
	l.mu.Unlock()
	a := &accepted{ServerStream: stream, hungUp: make(chan struct{})}
	go func() {
		defer l.all.Done()
		a.hangUp(s.welcomeSafely(a))
	}()
	<-a.hungUp
	return statusOf(a.reason)
}

// welcomeSafely is welcome; it returns a panic as an error.
func (s *service) welcomeSafely(a *accepted) (err error) {
	defer s.links.catch(func(defect error) { err = defect })
	return s.welcome(a)
}

// welcome exchanges hellos as the dialled side, runs the session to its end, and returns
// why it ended.
func (s *service) welcome(a *accepted) error {
	l := s.links
	late := time.AfterFunc(l.config.ConnectTimeout, func() {
		a.hangUp(status.Error(codes.DeadlineExceeded, "there was no hello in time"))
	})
	defer late.Stop()
	c := arrivalOf(a.Context())
	if c == nil {
		return status.Error(codes.Internal, "the connection did not come by the peer port")
	}
	theirs, err := s.receiveHello(a)
	if err != nil {
		s.refused(a, theirs, err)
		return err
	}
	if err := l.identify(c, theirs); err != nil {
		l.refusedTLS.Add(1)
		s.refused(a, theirs, err)
		return err
	}
	r, err := l.pin(peer.Instance(theirs.GetInstance()), theirs.GetName())
	if err != nil {
		s.refused(a, nil, err)
		return err
	}
	defer l.unpin(r)
	if err := r.admits(); err != nil {
		return err
	}
	mine := l.handshake.hello(peer.Member{})
	mine.Proof = l.handshake.prove(sideDialled, theirs, mine)
	c.greet()
	if err := a.SendMsg(&message{hello: mine}); err != nil {
		return err
	}
	proof, err := receive(a)
	if err == nil {
		err = l.handshake.verify(sideDialler, theirs, mine, proof.proof)
	}
	if err == nil {
		err = c.settle()
	}
	if err != nil {
		s.refused(a, theirs, err)
		return err
	}
	// It is also called before another session can take this one's place, so that the
	// new one does not find this connection still counted.
	retire := sync.OnceFunc(c.retire)
	defer retire()
	if !late.Stop() {
		return errors.New("the hello took too long")
	}
	return l.carry(r, theirs.GetName(), c, a, false, retire)
}

func (s *service) receiveHello(a *accepted) (*peerv1.Hello, error) {
	m, err := receive(a)
	if err != nil {
		return nil, err
	}
	if err := s.links.handshake.judge(m.hello); err != nil {
		return m.hello, err
	}
	return m.hello, s.links.handshake.judgeDialler(m.hello)
}

// receive receives a message before the hellos are done. Such a message has no frame.
func receive(a *accepted) (*message, error) {
	m := &message{early: true}
	if err := a.RecvMsg(m); err != nil {
		return nil, err
	}
	if m.bad != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the message makes no sense: %v", m.bad)
	}
	return m, nil
}

// refused logs why a connection was refused.
func (s *service) refused(a *accepted, theirs *peerv1.Hello, err error) {
	var from net.Addr
	if p, ok := peerinfo.FromContext(a.Context()); ok {
		from = p.Addr
	}
	s.refusedFrom(from, theirs, err)
}

func (s *service) refusedFrom(from net.Addr, theirs *peerv1.Hello, err error) {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return // the other side closed the connection
	}
	who, level := "a connection to the peer port", slog.LevelWarn
	if status.Code(err) == codes.PermissionDenied {
		// Usually the node is starting and gossip has not reported it yet. It tries
		// again.
		who, level, err = "a node that is no member here", slog.LevelInfo, errStranger
	}
	if theirs != nil {
		who = fmt.Sprintf("the node %q", cut(theirs.GetName(), maxShown))
	}
	s.links.refusals.logOnce(level, who+" was refused", from, reasonOf(err))
}

// statusOf returns the handler's result for the end of a session.
func statusOf(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case status.Code(err) != codes.Unknown:
		return err
	default:
		return status.Error(codes.Unavailable, err.Error())
	}
}
