package peerlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
)

// Links are the connections between this node and the others. It is safe for concurrent
// use.
type Links struct {
	config    Config
	handshake handshake
	codec     *codec
	server    *grpc.Server
	refusals  *refusalLog
	now       func() time.Time
	// refusedTLS counts connections that were refused for what they showed in TLS, or for
	// its absence.
	refusedTLS atomic.Uint64
	unmet      strangers // turns to dial members that were never connected

	ctx  context.Context // ends with the links
	stop context.CancelFunc
	all  sync.WaitGroup // counts sessions and attempts to connect

	// remotes is replaced as a whole, so that Wake takes no lock.
	remotes atomic.Pointer[map[peer.Instance]*remote]
	mu      sync.Mutex
	pins    map[*remote]int // users of remotes, besides their being members
	closed  bool

	randMu sync.Mutex
}

// New returns links without any connection. The error reports an invalid configuration.
func New(c Config) (*Links, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Links{
		config: c,
		handshake: handshake{self: c.Self, cluster: c.ClusterName, ring: c.RingConfig, secret: c.Secret,
			second: c.SecondSecret},
		codec: newCodec(c.MaxMessageBytes), refusals: newRefusalLog(c.Logger), now: time.Now,
		pins: make(map[*remote]int),
	}
	l.refusals.report = c.Refused
	l.remotes.Store(&map[peer.Instance]*remote{})
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.server = l.newServer()
	return l, nil
}

// RefusedTLS returns how many connections to this node were refused because of their
// certificate, or because they had none.
func (l *Links) RefusedTLS() uint64 { return l.refusedTLS.Load() }

// Serve accepts links from other nodes until [Links.Shutdown] or [Links.Close], and then
// returns nil. It closes the listener.
func (l *Links) Serve(listener net.Listener) error {
	err := l.server.Serve(listener)
	if err == nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serving peers on %s: %w", listener.Addr(), err)
}

// SetMembers sets the members to keep connections to: all of them except this node, with
// slower attempts to the dead. Connections that this node has opened to others are
// closed. Those that others have opened stay, because the others may know more.
func (l *Links) SetMembers(members []peer.Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	next := maps.Clone(*l.remotes.Load())
	named := make(map[peer.Instance]bool, len(members))
	for _, m := range members {
		if m.Instance == l.config.Self.Instance || m.Instance == 0 {
			continue
		}
		named[m.Instance] = true
		r := next[m.Instance]
		if r == nil {
			r = newRemote(l, m.Instance)
			next[m.Instance] = r
		}
		l.want(r, m)
	}
	for i, r := range next {
		if !named[i] {
			r.dismiss()
			if l.pins[r] == 0 {
				delete(next, i)
			}
		}
	}
	l.remotes.Store(&next)
}

// want makes a remote a member, or updates it; mu is held.
func (l *Links) want(r *remote, m peer.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted && r.member == m {
		return
	}
	r.member, r.wanted = m, true
	if !r.keeping {
		r.keeping = true
		l.pins[r]++
		l.all.Add(1)
		go func() {
			defer l.all.Done()
			defer l.catch(func(error) {})
			r.keep(l.ctx)
		}()
	}
	r.change()
}

// dismiss ends that a remote is a member.
func (r *remote) dismiss() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.wanted {
		return
	}
	r.wanted = false
	if r.session != nil && r.ours {
		r.session.end(errDismissed, true)
	}
	r.change()
}

// pin returns the remote of a member; the caller must unpin it. The error is for the
// other side, which claims to be that member.
func (l *Links) pin(i peer.Instance, name string) (*remote, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errStopping
	}
	if l.config.expelled(name) {
		return nil, status.Errorf(codeExpelled, "node %q refuses: the operators have expelled the member %q: let it in "+
			"again with weir members readmit", short(l.config.Self.Name), short(name))
	}
	r := (*l.remotes.Load())[i]
	if r == nil || !r.is(name) {
		return nil, status.Errorf(codes.PermissionDenied, "node %q, instance %s, is no member that %q knows, or not yet",
			short(name), i, short(l.config.Self.Name))
	}
	l.pins[r]++
	return r, nil
}

// is reports whether this remote is a member with that name.
func (r *remote) is(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted && r.member.Name == name
}

// unpin releases a remote. It is removed if it is not a member and has no other user.
func (l *Links) unpin(r *remote) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pins[r]--; l.pins[r] > 0 {
		return
	}
	delete(l.pins, r)
	r.mu.Lock()
	wanted := r.wanted
	r.mu.Unlock()
	if !wanted {
		next := maps.Clone(*l.remotes.Load())
		delete(next, r.instance)
		l.remotes.Store(&next)
	}
}

// Wake reports that there is a frame for a member. It never blocks and takes no lock. It
// does nothing for a member that is not connected.
func (l *Links) Wake(to peer.Instance) {
	if r := (*l.remotes.Load())[to]; r != nil {
		if s := r.live.Load(); s != nil {
			s.notify()
		}
	}
}

// Sent returns how many frames, and how many bytes with all messages, were sent to a member since it is known. Headers
// of connections and TLS are not counted.
func (l *Links) Sent(to peer.Instance) (frames, bytes uint64) {
	if r := (*l.remotes.Load())[to]; r != nil {
		return r.sends.frames.Load(), r.sends.bytes.Load()
	}
	return 0, 0
}

// carry runs a session from its attachment to its end, and returns why it ended. If the
// session could not be attached, it returns that error and calls nothing. name is the other side's,
// c the connection. It calls over when nothing of the session is left, before another one can take its place.
func (l *Links) carry(r *remote, name string, c *conn, ch channel, ours bool, over func()) error {
	s := newSession(l, ch, r.instance)
	s.conn, s.name, s.sends = c, name, &r.sends
	if err := r.attach(s, ours); err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // a panic is under way
			s.end(errDefect, false)
			ch.hangUp(errDefect)
			r.detach(s)
		}
	}()
	if l.ctx.Err() != nil {
		s.drain.Store(true)
	}
	log := l.config.Logger.With("instance", r.instance.String())
	r.mu.Lock()
	what := r.describe()
	r.mu.Unlock()
	log.Info("connected to "+what, "dialled", ours)
	s.recheck(true) // what is in force may have changed since the handshake
	err := s.run()
	over()
	ended = true
	r.detach(s)
	level := slog.LevelWarn
	if l.ctx.Err() != nil || errors.Is(err, errDismissed) || errors.Is(err, errReplaced) || errors.Is(err, errExpelled) {
		level = slog.LevelInfo
	}
	log.Log(l.ctx, level, "connection to "+what+" ended", "reason", reasonOf(err))
	return err
}

// Expels reports whether a member refused this node when it was last reached, because operators have expelled it.
func (l *Links) Expels(i peer.Instance) bool {
	r := (*l.remotes.Load())[i]
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expels
}

// Recheck judges all connections again, and ends those of members that are expelled and, if
// certificates is set, those whose certificate does not come from the authorities in force.
func (l *Links) Recheck(certificates bool) {
	for _, r := range *l.remotes.Load() {
		if s := r.live.Load(); s != nil {
			s.recheck(certificates)
		}
	}
}

// Shutdown sends all waiting frames, ends all connections and stops serving. If the
// context ends first, the rest is cut off and its error is returned. Afterwards the
// links have no goroutine left and call no method of Frames.
func (l *Links) Shutdown(ctx context.Context) error {
	l.begin()
	for _, r := range *l.remotes.Load() {
		if s := r.live.Load(); s != nil {
			s.drain.Store(true)
			s.notify()
		}
	}
	over := make(chan struct{})
	go func() {
		l.all.Wait()
		close(over)
	}()
	var err error
	select {
	case <-over:
	case <-ctx.Done():
		err = fmt.Errorf("peerlink: connections were cut off because the time for stopping had ended: %w", ctx.Err())
	}
	l.Close()
	<-over
	return err
}

// Close ends all connections and stops serving at once.
func (l *Links) Close() {
	l.begin()
	for _, r := range *l.remotes.Load() {
		if s := r.live.Load(); s != nil {
			s.end(errStopping, false)
			s.channel.hangUp(errStopping) // even if it is in its farewell
		}
	}
	l.server.Stop()
	l.all.Wait()
}

// begin begins the end: no more dialling, and no more sessions.
func (l *Links) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.stop()
}

// random returns a number in [0, 1).
func (l *Links) random() float64 {
	l.randMu.Lock()
	defer l.randMu.Unlock()
	return l.config.Rand.Float64()
}
