package peerlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
)

// Waits between attempts to connect. The side that should not dial does so if no
// connection has come for grace: the other may have no route to it.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 500 * time.Millisecond
	deadFirst  = time.Second
	deadMost   = 5 * time.Second
	grace      = 200 * time.Millisecond
	settled    = time.Second // a session that lasts this long counts as a success
	// maxLogged bounds the kinds of failures that are logged once each.
	maxLogged = 4
	// strangerOften is how often in a row, for about two seconds, a member may answer
	// that this node is not a member before that is logged: news of a starting node
	// takes time to spread.
	strangerOften = 12
)

// remote is another instance, connected or to be connected to.
type remote struct {
	links    *Links
	instance peer.Instance

	live   atomic.Pointer[session] // the session that Wake notifies
	sends  sent                    // over all sessions
	events sync.Mutex              // held around Up and Down, so that they are called in order

	mu      sync.Mutex
	member  peer.Member
	wanted  bool          // it is a member
	met     bool          // there was a session
	keeping bool          // a goroutine keeps connecting to it
	dialing bool          // this node is dialling it
	session *session      // the attached session
	ours    bool          // this node dialled it
	since   time.Time     // when it was attached
	changed chan struct{} // holds a token if something above changed
	logged  []string      // kinds of failures logged since the last connection
	strange int           // refusals in a row because it did not know this node
	expels  bool          // it has refused this node as one that is expelled, and was not connected since
}

func newRemote(l *Links, i peer.Instance) *remote {
	return &remote{links: l, instance: i, changed: make(chan struct{}, 1)}
}

// dials reports whether this side should dial. The other side does so only if no
// connection comes.
func (r *remote) dials() bool { return r.links.config.Self.Instance < r.instance }

func (r *remote) change() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// describe returns the remote's name for logs and errors; mu is held.
func (r *remote) describe() string {
	if r.member.Name == "" {
		return "instance " + r.instance.String()
	}
	if r.member.PeerAddr == "" { // it has dialled this node, and nobody has told where it listens
		return fmt.Sprintf("node %q", r.member.Name)
	}
	return fmt.Sprintf("node %q at %s", r.member.Name, r.member.PeerAddr)
}

// attach makes s the session of this remote, and reports that it is up. An earlier
// session that gives way has ended completely when attach returns.
func (r *remote) attach(s *session, ours bool) error {
	for {
		r.mu.Lock()
		old := r.session
		if old == nil {
			r.session, r.ours, r.since, r.logged, r.strange, r.met = s, ours, r.links.now(), nil, 0, true
			r.expels = false
			if ours {
				r.dialing = false
			}
			r.mu.Unlock()
			break
		}
		keep := r.keeps(ours)
		r.mu.Unlock()
		if keep {
			return status.Error(codes.Aborted, "there is a connection already")
		}
		old.end(errReplaced, false)
		<-old.done
	}
	r.events.Lock()
	defer r.events.Unlock()
	r.live.Store(s)
	if err := r.links.up(r.instance); err != nil {
		s.end(err, false) // the session ends as soon as it begins
	}
	return nil
}

// keeps reports whether the attached session stays if another one comes; mu is held. If
// both sides dialled at once, the connection of the side that should dial wins.
// Otherwise a new connection that the other side dialled wins: it would not have dialled
// if its old one were alive.
func (r *remote) keeps(ours bool) bool {
	if ours {
		return true
	}
	return r.ours && r.dials() && r.links.now().Sub(r.since) < settled
}

// admits returns nil if the other side may open a session now.
func (r *remote) admits() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (r.dialing && r.dials()) || (r.session != nil && r.keeps(false)) {
		return status.Error(codes.Aborted, "this node is connecting to you")
	}
	return nil
}

// detach undoes attach when the session has ended.
func (r *remote) detach(s *session) {
	r.events.Lock()
	r.live.CompareAndSwap(s, nil)
	r.links.down(r.instance)
	r.events.Unlock()
	r.mu.Lock()
	r.session = nil
	r.mu.Unlock()
	close(s.done)
	r.change()
}

// failed reports a failed attempt to connect, unless there is a session by now.
func (r *remote) failed(err error) {
	collided := status.Code(err) == codes.Aborted
	r.events.Lock()
	if r.live.Load() == nil && !collided {
		r.links.down(r.instance)
	}
	r.events.Unlock()
	if collided {
		return
	}
	r.mu.Lock()
	text := reasonOf(err)
	kind := kindOf(text)
	r.expels = r.expels || status.Code(err) == codeExpelled
	if status.Code(err) == codes.PermissionDenied {
		r.strange++
	} else {
		r.strange = 0
	}
	news := len(r.logged) < maxLogged && !slices.Contains(r.logged, kind) && (r.strange == 0 || r.strange >= strangerOften)
	if news {
		r.logged = append(r.logged, kind)
	}
	what, name, addr := r.describe(), r.member.Name, r.member.PeerAddr
	r.mu.Unlock()
	if news {
		r.links.config.Logger.Warn("no connection to "+what+"; retrying, which is not logged again",
			"name", name, "instance", r.instance.String(), "addr", addr, "reason", text)
	}
}

// kindOf returns a reason without its digits: attempts of one kind differ by ports.
func kindOf(reason string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, reason)
}

// keep keeps connecting to the remote while it is a member.
func (r *remote) keep(ctx context.Context) {
	defer r.links.unpin(r)
	failures := 0
	for {
		to, ok := r.await(ctx, failures)
		if !ok {
			return
		}
		begin := r.links.now()
		err := r.links.dial(ctx, r, to)
		r.mu.Lock()
		r.dialing = false
		r.mu.Unlock()
		switch {
		case errors.Is(err, errWasUp) && r.links.now().Sub(begin) >= settled:
			failures = 0
		default:
			failures++
		}
		if !errors.Is(err, errWasUp) && ctx.Err() == nil {
			r.failed(err)
		}
	}
}

// await waits until it is time to dial, and returns the member to dial. ok is false if
// the remote is not a member any more. A member that was never connected waits for its
// turn among all of those.
func (r *remote) await(ctx context.Context, failures int) (to peer.Member, ok bool) {
	var turn time.Time // zero: none was asked for
	for {
		r.mu.Lock()
		if !r.wanted || ctx.Err() != nil {
			r.keeping = false
			r.mu.Unlock()
			return peer.Member{}, false
		}
		state, connected := r.member.State, r.session != nil
		r.mu.Unlock()
		wait := time.Hour // wait for a change
		switch {
		case connected:
		case turn.IsZero():
			wait = r.links.delay(failures, state, r.dials())
		default:
			wait = turn.Sub(r.links.now())
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-r.changed:
			t.Stop()
			continue
		}
		r.mu.Lock()
		ready := r.wanted && r.session == nil
		if now := r.links.now(); ready && !r.met && turn.IsZero() {
			turn = r.links.unmet.turn(now)
			ready = !turn.After(now)
		}
		if ready {
			r.dialing = true
			to = r.member
		}
		r.mu.Unlock()
		if ready && ctx.Err() == nil {
			return to, true
		}
	}
}

// delay returns the wait before an attempt after so many failed ones.
func (l *Links) delay(failures int, state peer.State, dials bool) time.Duration {
	first, most := retryFirst, retryMost
	if state == peer.Dead {
		first, most = deadFirst, deadMost
	}
	var d time.Duration
	switch {
	case failures > 1:
		d = min(first<<min(failures-2, 16), most)
	case state == peer.Dead:
		d = first
	}
	if d > 0 {
		// Random, so that nodes that lost a member at the same time do not all dial it
		// at once.
		d = d/2 + time.Duration(l.random()*float64(d/2))
	}
	if !dials {
		d = max(d, grace)
	}
	return d
}

// reasonOf returns the text of an error, of the other side or of this one.
func reasonOf(err error) string {
	if errors.Is(err, io.EOF) {
		return "the other node closed the connection"
	}
	s, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	switch text := s.Message(); {
	case s.Code() == codes.Unimplemented:
		return "what answers there is no peer port of a Weir node: " + text +
			"; check the address that it advertises for peers"
	case strings.Contains(text, "remote error: tls"):
		return "it refuses this node's certificate: " + text + "; its log says why"
	case strings.Contains(text, "reading server preface") &&
		(strings.Contains(text, "EOF") || strings.Contains(text, "reset by peer")):
		return "the connection ended before gRPC was spoken, as when the other node is ended: " + text +
			"; if that stays so, check the address that it advertises for peers, and whether it requires TLS (--peer-tls) and " +
			"this node has no certificate"
	case strings.Contains(text, "reading server preface"):
		return "what answers there does not speak gRPC, so it is no peer port of a Weir node: " + text +
			"; check the address that it advertises for peers, and whether it requires TLS (--peer-tls) and this node has no " +
			"certificate"
	default:
		return text
	}
}
