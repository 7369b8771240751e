package peerlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

// Windows of HTTP/2. Acknowledgements control the flow of a link, so these only bound
// what is sent without one.
const (
	streamWindow = 1 << 20
	connWindow   = 2 << 20

	keepaliveTime    = 10 * time.Second // the least that gRPC lets a client have
	keepaliveTimeout = 5 * time.Second
)

var (
	// errWasUp is wrapped by the reason of a session that had been established.
	errWasUp     = errors.New("the connection was up")
	errDismissed = errors.New("the node is not a member any more")
)

// checkAddr tells operators what to do about a member that is alive and cannot be
// connected to.
const checkAddr = "check where it listens for peers and what it advertises (--peer-addr, --advertise), and that " +
	"nothing between blocks the port"

// dialled is the stream of a session at the side that dialled.
type dialled struct {
	grpc.ClientStream
	cancel context.CancelFunc
}

func (d *dialled) hangUp(error) { d.cancel() }

// dial makes one attempt to connect to a remote, and runs the session until its end. The
// error wraps errWasUp if there was a session.
//
// Every attempt uses a connection of its own, so that a refusal is known at once. A gRPC
// client that reconnects by itself hides refusals, and chooses its own times to try
// again.
func (l *Links) dial(ctx context.Context, r *remote, to peer.Member) (err error) {
	defer l.catch(func(defect error) { err = defect })
	addr := to.PeerAddr
	limit, cancel := context.WithTimeout(ctx, l.config.ConnectTimeout)
	defer cancel()
	if l.config.expelled(to.Name) {
		return errExpelled
	}
	if addr == "" {
		return errors.New("it advertises no address for peers")
	}
	early, err := l.reach(limit, to)
	if err != nil {
		return err
	}
	defer func() { _ = early.Close() }() // in case gRPC never took it over
	client, err := l.newClient(addr, early)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is left to send

	// The stream outlives the limit, which is for the handshake only.
	streamCtx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	unlimit := context.AfterFunc(limit, hangUp)
	stream, err := client.NewStream(streamCtx, &peerv1.Links_ServiceDesc.Streams[0], peerv1.Links_Connect_FullMethodName,
		grpc.ForceCodecV2(l.codec), grpc.MaxCallRecvMsgSize(l.config.MaxMessageBytes))
	if err == nil {
		err = l.greet(stream, early, to)
	}
	if !unlimit() && err != nil && ctx.Err() == nil {
		return fmt.Errorf("it did not answer within %s: %w; if it runs, %s", l.config.ConnectTimeout, err, checkAddr)
	}
	if err != nil {
		return err
	}
	if err := l.carry(r, to.Name, early, &dialled{stream, hangUp}, true, func() {}); status.Code(err) != codes.Aborted {
		return fmt.Errorf("%w: %w", errWasUp, err)
	}
	return status.Error(codes.Aborted, "there is a connection already")
}

// reach connects to a member, with TLS if there are certificates.
func (l *Links) reach(ctx context.Context, to peer.Member) (*conn, error) {
	dial := func() (*conn, error) {
		raw, err := l.config.Dial(ctx, to.PeerAddr)
		if err != nil {
			return nil, fmt.Errorf("cannot connect: %w; if it runs, %s", err, checkAddr)
		}
		return newConn(raw, l.config.StallTimeout), nil
	}
	c, err := dial()
	if err != nil || l.config.Certificates == nil {
		return c, err
	}
	silent, err := l.secureTo(ctx, c, to)
	if err == nil {
		return c, nil
	}
	_ = c.Close()
	if silent && l.config.TLSOptional && ctx.Err() == nil {
		return dial() // it does not speak TLS
	}
	return nil, err
}

// newClient returns a gRPC client on an existing connection.
func (l *Links) newClient(addr string, raw *conn) (*grpc.ClientConn, error) {
	var once sync.Once
	take := func(context.Context, string) (net.Conn, error) {
		c, err := net.Conn(nil), errors.New("the connection broke")
		once.Do(func() { c, err = raw, nil })
		return c, err
	}
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(take),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(), // retries would keep a copy of everything sent
		grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	)
}

// greet exchanges hellos as the side that dialled. When it returns, frames may arrive.
func (l *Links) greet(stream grpc.ClientStream, c *conn, to peer.Member) error {
	g := &l.handshake
	mine := g.hello(to)
	if err := stream.SendMsg(&message{hello: mine}); err != nil {
		return causeOf(stream, err)
	}
	m := message{early: true}
	if err := stream.RecvMsg(&m); err != nil {
		return err
	}
	if m.bad != nil {
		return fmt.Errorf("its hello is not valid: %w", m.bad)
	}
	if err := g.judge(m.hello); err != nil {
		return err
	}
	if err := g.judgeDialled(m.hello, to); err != nil {
		return err
	}
	if err := g.verify(sideDialled, mine, m.hello, m.hello.GetProof()); err != nil {
		return err
	}
	c.admit()
	if err := stream.SendMsg(&message{proof: g.prove(sideDialler, mine, m.hello)}); err != nil {
		return causeOf(stream, err)
	}
	return nil
}

// causeOf returns why a stream to which nothing can be sent has ended; err if that is
// not known.
func causeOf(stream grpc.ClientStream, err error) error {
	var m message
	if cause := stream.RecvMsg(&m); cause != nil {
		return cause
	}
	return err
}
