package resp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/conns"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

// Observer receives every reply: its command, its code and how long it took since the
// command was read. Replies of one batch that are alike come together.
type Observer interface {
	ServedMany(method, code string, d time.Duration, n int)
}

// Options configures a [Server]. Only Decider is required.
type Options struct {
	// Config has the decider and the permissions. Its Access identifies callers by their certificate, or by the
	// password of AUTH, which is a bearer token. AllowRequestLimits allows commands that bring their own limit:
	// CL.THROTTLE and scripts. AllowReset allows WEIR.RESET, DEL and FLUSHDB. AllowRefunds allows reservations:
	// WEIR.CHECK with HOLD, WEIR.SETTLE, WEIR.CANCEL and WEIR.EXTEND. The Tracer traces checks that are decided
	// together, and each command that changes counters otherwise.
	Config frontend.Config
	// Idle is how long a connection may send nothing; default 15 minutes.
	Idle time.Duration
	// HandshakeFailed, if not nil, is called with the address of each client whose handshake
	// of TLS failed, and why.
	HandshakeFailed func(from, why string)
	// Observer, if not nil, receives every reply.
	Observer Observer
	// Guard records panics; nil: nothing does.
	Guard *guard.Guard
	// Logger; nil for none.
	Logger *slog.Logger
	// Version is what INFO tells.
	Version string
	// Now is the clock for what is remembered of flushes; default [time.Now].
	Now func() time.Time

	within time.Duration // for tests; default commandWithin
}

// Bounds of a connection.
const (
	defaultIdle = 15 * time.Minute
	// commandWithin is the time in which a command that has begun must be complete, and in
	// which a client must take its replies.
	commandWithin   = 10 * time.Second
	handshakeWithin = 5 * time.Second
	// loginPause is how long the reply to a wrong password waits, and maxLogins how many of
	// them a connection has.
	loginPause = time.Second
	maxLogins  = 3
	// maxLogging bounds the replies that wait for loginPause at a time; further ones end
	// their connections at once.
	maxLogging = 256
	// smallBuffer is the memory for what a client sends that each connection has. More is
	// taken while a command needs it, at most maxLarge for all connections together.
	smallBuffer = 4 << 10
	maxLarge    = 64 << 20
	maxToken    = 8 << 10
	// maxReplies is how many bytes of replies are kept before they are written.
	maxReplies = 16 << 10
)

// Server serves the Redis protocol. It is safe for concurrent use.
type Server struct {
	options Options
	front   *frontend.Frontend
	rates   rates
	flushes *flushes
	periods periods
	// anyWindow stands for those of a key, whatever its period is.
	anyWindow *limiter.Limit
	commands  map[string]*command
	batches   sync.Pool // of *batch
	replies   sync.Pool // of *[]byte, for what a connection keeps no longer

	large   listen.Room  // for buffers above smallBuffer, and transactions
	logging atomic.Int64 // replies that wait for loginPause
	ids     atomic.Int64

	conns conns.Server
}

// NewServer returns a server.
func NewServer(o Options) (*Server, error) {
	if o.Config.Decider == nil {
		return nil, errors.New("resp: Options.Config.Decider is nil: set it to a node")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	o.within = cmp.Or(o.within, commandWithin)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Server{options: o, large: listen.Room{Most: maxLarge}, front: frontend.New(o.Config, protocol()),
		commands: newCommands(), periods: newPeriods(o.Now)}
	var err error
	if s.flushes, err = newFlushes(s.front, o.Now); err == nil {
		s.anyWindow, err = limiter.NewLimit(window(time.Second).spec())
	}
	return s, err
}

// protocol returns what the protocol calls what may not be allowed.
func protocol() frontend.Protocol {
	return frontend.Protocol{
		Over: "redis", Limits: "limits that come with a command are", Resets: "resets are", Refunds: "reservations are",
	}
}

// Serve serves connections of a listener until [Server.Shutdown] is called, and then
// returns nil, or until the listener fails. It closes the listener, and may be called once.
func (s *Server) Serve(l net.Listener) error {
	return s.conns.Serve(l, func(ctx context.Context, n net.Conn) {
		c := &conn{of: s, Conn: n, id: s.ids.Add(1)}
		defer s.release(c)
		defer s.options.Guard.Recover(guard.RESP, nil)
		c.serve(ctx)
	})
}

// release takes back what a connection that has ended has of the memory for long commands.
func (s *Server) release(c *conn) {
	s.large.Give(listen.Origin(c.RemoteAddr()), int64(c.extra))
	if c.multi != nil {
		s.large.Give(listen.Origin(c.RemoteAddr()), c.multi.bytes)
	}
}

// Shutdown closes the listener and the connections, each after the commands that it has
// read are answered. When the context ends it closes the rest.
func (s *Server) Shutdown(ctx context.Context) error { return s.conns.Shutdown(ctx) }
