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

// Links are the connections between this node and the others. All methods may be
// called from many goroutines.
type Links struct {
	config  Config
	greeter greeter
	codec   *codec
	server  *grpc.Server
	notices *notices
	now     func() time.Time

	ctx  context.Context // ends with the links
	stop context.CancelFunc
	all  sync.WaitGroup // sessions and attempts

	// remotes is replaced as a whole, so that Wake takes no lock.
	remotes atomic.Pointer[map[peer.Instance]*remote]
	mu      sync.Mutex
	pins    map[*remote]int // who still needs them, besides their being wanted
	closed  bool

	randMu sync.Mutex
}

// New makes links to nobody yet. The error says what is wrong with the
// configuration.
func New(c Config) (*Links, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Links{
		config:  c,
		greeter: greeter{self: c.Self, cluster: c.ClusterName, ring: c.RingConfig, secret: c.Secret},
		codec:   newCodec(c.MaxMessageBytes), notices: newNotices(c.Logger), now: time.Now,
		pins: make(map[*remote]int),
	}
	l.remotes.Store(&map[peer.Instance]*remote{})
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.server = l.newServer()
	return l, nil
}

// Serve accepts links from other nodes until [Links.Shutdown] or [Links.Close],
// and then returns nil. It closes the listener.
func (l *Links) Serve(listener net.Listener) error {
	err := l.server.Serve(listener)
	if err == nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serving peers on %s: %w", listener.Addr(), err)
}

// SetMembers says to whom connections are to be kept: to all of these but this
// node, to the dead ones with slower attempts. Connections to others that this
// node has opened are closed; those that others opened stay as long as they
// like, for they may know more.
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

// want makes a remote a member, or tells it what changed; mu is held.
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

// dismiss makes a remote none that is wanted.
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

// pin returns the remote of a member for who unpins it later. The error is for who says
// that it is that member.
func (l *Links) pin(i peer.Instance, name string) (*remote, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errStopping
	}
	r := (*l.remotes.Load())[i]
	if r == nil || !r.is(name) {
		return nil, status.Errorf(codes.PermissionDenied, "node %q, instance %s, is no member that %q knows, or not yet",
			short(name), i, short(l.config.Self.Name))
	}
	l.pins[r]++
	return r, nil
}

// is reports whether this is a member, by that name.
func (r *remote) is(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted && r.member.Name == name
}

// unpin gives a remote back. Nobody needs one that is no member and unpinned.
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

// Wake says that there is something to take for a member. It never blocks and
// takes no lock; of somebody who is not connected it does nothing.
func (l *Links) Wake(to peer.Instance) {
	if r := (*l.remotes.Load())[to]; r != nil {
		if s := r.live.Load(); s != nil {
			s.notify()
		}
	}
}

// carry runs a session from its attachment to its end, and returns why it ended;
// if it could not be attached, the error does not wrap errWasUp. It calls over when
// nothing of the session is left, before another one can take its place.
func (l *Links) carry(r *remote, ch channel, ours bool, over func()) error {
	s := newSession(l, ch, r.instance)
	if err := r.attach(s, ours); err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // something panics
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
	err := s.run()
	over()
	ended = true
	r.detach(s)
	level := slog.LevelWarn
	if l.ctx.Err() != nil || errors.Is(err, errDismissed) || errors.Is(err, errReplaced) {
		level = slog.LevelInfo
	}
	log.Log(l.ctx, level, "connection to "+what+" ended", "reason", reasonOf(err))
	return err
}

// Shutdown sends what there is to send, ends all connections and stops serving.
// If the context ends before, the rest is cut off and its error returned.
// Afterwards no goroutine of the links is left, and nothing of Frames is called.
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
		err = fmt.Errorf("peerlink: connections were cut off at the end of the time for stopping: %w", ctx.Err())
	}
	l.Close()
	<-over
	return err
}

// Close ends everything at once.
func (l *Links) Close() {
	l.begin()
	for _, r := range *l.remotes.Load() {
		if s := r.live.Load(); s != nil {
			s.end(errStopping, false)
			s.channel.hangUp(errStopping) // if it is taking its leave
		}
	}
	l.server.Stop()
	l.all.Wait()
}

// begin begins the end: nobody is dialled or let in any more.
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
