package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/waiting"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Bounds of the wait between attempts to reach a node, for its connection and for its
// stream.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

func connectParams() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: retryFirst, Multiplier: 2, Jitter: 0.5, MaxDelay: retryMost},
		MinConnectTimeout: time.Second,
	}
}

// keepaliveParams returns an interval longer than the 10 s that nodes require at least.
func keepaliveParams() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second}
}

// condition states whether a node can be asked.
type condition uint8

const (
	connecting condition = iota // for the first time, or again after it was up
	up
	down // the last attempt failed
)

// node is one node and the stream to it. The client's lock guards it.
type node struct {
	client *Client
	index  int // unique among the nodes of the client
	addr   string
	conn   *grpc.ClientConn
	api    weirv1.LimiterClient // on conn
	// renewed reports that conn is newer than the present stream, which is to end.
	renewed bool
	// learned reports that the node comes from the ring and not from Config.Addrs. end
	// stops it.
	learned bool
	end     context.CancelFunc
	refuses refusal

	condition condition
	why       error                   // why it is down; nil if it is not
	hangUp    context.CancelCauseFunc // ends the present stream; nil if there is none
	queue     []*batch                // to be sent, in order; only the last of a kind is open
	flight    []*batch                // sent and not answered, in order
	heard     time.Time               // when the last reply came
	wake      chan struct{}           // has a token when there may be something to send
}

// notify signals that there may be something to send. It does not block.
func (n *node) notify() {
	select {
	case n.wake <- struct{}{}:
	default: // a token is there already, and the sender will look
	}
}

// keep opens a stream to the node, and opens it again whenever it ends, until the
// context ends.
func (n *node) keep(ctx context.Context) {
	failures := 0
	for {
		worked, err := n.serveSafely(ctx)
		if ctx.Err() != nil {
			n.client.mu.Lock()
			why := cmp.Or(n.why, errLetGo)
			if n.client.closed {
				why = ErrClosed
			}
			n.client.mu.Unlock()
			n.fail(why)
			return
		}
		failures++
		if worked && !errors.Is(err, errSilent) {
			// The node worked until now, so checks may wait for the next attempt, which
			// follows at once.
			failures = 0
			n.client.mu.Lock()
			n.condition = connecting
			n.client.mu.Unlock()
			continue
		}
		n.fail(err)
		wait := min(retryFirst<<min(failures-1, 16), retryMost)
		// The jitter spreads the clients that lost the same node.
		_ = waiting.Sleep(ctx, wait/2+rand.N(wait/2))
	}
}

// serveSafely is serve; it returns a panic as an error. What is in flight then is
// settled as unknown.
func (n *node) serveSafely(ctx context.Context) (worked bool, err error) {
	defer catch(func(defect error) {
		worked, err = false, defect
		n.land(defect, false)
	})
	return n.serve(ctx)
}

// serve runs one stream to the node until it ends. It returns why the stream ended, and
// whether it worked until then: either replies came, or the node ended it in an orderly
// way while no message was in doubt, as it does with an old stream. Nothing is in
// flight when serve returns.
func (n *node) serve(ctx context.Context) (worked bool, err error) {
	c := n.client
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Give up on a node that cannot be reached or does not answer.
	patience := time.AfterFunc(c.attempt, func() { cancel(errSilent) })
	defer patience.Stop()
	stream, err := n.begin().CheckStream(ctx)
	if err != nil {
		return false, n.reason(ctx, err)
	}
	// A stream alone does not show that the node works: it must first answer a message
	// without checks.
	var first weirv1.DecisionColumns
	err = stream.SendMsg(new(weirv1.CheckColumns))
	if err == nil || errors.Is(err, io.EOF) {
		err = stream.RecvMsg(&first)
	}
	if err != nil {
		return false, n.reason(ctx, err)
	}
	patience.Stop()
	began := c.config.now()
	if !n.rise(ctx, cancel) {
		return false, n.reason(ctx, ctx.Err())
	}
	c.told(n, first.GetView())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer catch(func(defect error) { cancel(defect) })
		if n.send(ctx, stream) {
			n.finish(ctx, stream, cancel)
		}
	}()
	ended := sync.OnceFunc(func() {
		cancel(nil)
		<-sent
	})
	defer ended() // also after a panic: nobody sends when the messages in flight are settled
	n.notify()
	replies, err := n.receive(stream)
	err = n.reason(ctx, err)
	ended()
	// The trailer states that the node has not decided the messages that it did not
	// answer.
	undecided := len(stream.Trailer().Get(weirv1.TrailerUndecided)) > 0
	n.land(err, undecided)
	// A node that ends every stream at once must not be retried without a pause.
	return replies > 0 || n.moves() || undecided && c.config.now().Sub(began) >= retryMost, err
}

// rise marks the node as up, unless the stream is to end already: whoever has let the node go has marked it as down.
func (n *node) rise(ctx context.Context, hangUp context.CancelCauseFunc) bool {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	n.condition, n.why, n.hangUp = up, nil, hangUp
	return true
}

// finish ends a stream whose node has a newer connection: the node answers what is in
// flight, and then ends it too. If it does not, the stream is given up.
func (n *node) finish(ctx context.Context, stream weirv1.Limiter_CheckStreamClient, giveUp context.CancelCauseFunc) {
	if stream.CloseSend() != nil {
		return // receive returns the reason
	}
	t := time.NewTimer(n.client.config.Timeout)
	defer t.Stop()
	select {
	case <-t.C:
		giveUp(nil)
	case <-ctx.Done():
	}
}

var (
	// errLetGo is why nodes are down that the client does not ask any more.
	errLetGo  = errors.New("the node is not a member any more")
	errSilent = errors.New("it does not answer")
	// errReply is wrapped if a node's reply is not valid.
	errReply = errors.New("a reply is not valid")
)

// reason names the node in the error of a stream.
func (n *node) reason(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errDefect):
		return fmt.Errorf("node %s: %w", n.addr, cause)
	case n.client.over():
		return fmt.Errorf("node %s: %w", n.addr, ErrClosed)
	case errors.Is(cause, errSilent):
		return fmt.Errorf("node %s: %w", n.addr, cause)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("node %s ended the stream", n.addr)
	case errors.Is(err, errReply):
		return fmt.Errorf("node %s: %w", n.addr, err)
	}
	return fmt.Errorf("node %s: %s", n.addr, status.Convert(err).Message())
}

// send sends queued messages until the stream ends, or until there is a newer connection,
// which it reports.
func (n *node) send(ctx context.Context, stream weirv1.Limiter_CheckStreamClient) (moves bool) {
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return false
		}
		if n.moves() {
			return true
		}
		for {
			// Goroutines that are ready to run may add their checks to the message
			// first. If there are none, this takes no time.
			runtime.Gosched()
			b := n.next()
			if b == nil {
				break
			}
			err := stream.SendMsg(&b.message)
			n.client.release(b)
			if err != nil {
				return false // receive returns the reason
			}
		}
	}
}

// next takes the next message to send. It returns nil if there is none, or if as many
// as Config.Window are in flight.
func (n *node) next() *batch {
	c := n.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(n.queue) == 0 || len(n.flight) >= c.config.Window {
		return nil
	}
	b := n.queue[0]
	n.queue = slices.Delete(n.queue, 0, 1)
	b.open = false
	b.shrink()
	b.sent = time.Now()
	c.messages++
	b.message.Id, b.message.Rule, b.message.Peek, b.message.EveryLimit = c.messages, b.kind.rule, b.kind.peek,
		c.config.EveryLimit
	b.message.IdTtlUs, b.message.IdsOptional = b.kind.ids.ttl.Microseconds(), b.kind.ids.optional
	b.message.HoldUs = b.kind.ids.hold.Microseconds()
	n.flight = append(n.flight, b)
	atomic.AddInt32(&b.refs, 1) // while it is sent
	return b
}

// receive reads replies until the stream ends.
func (n *node) receive(stream weirv1.Limiter_CheckStreamClient) (replies int, err error) {
	c := n.client
	for {
		m := new(weirv1.DecisionColumns)
		if err := stream.RecvMsg(m); err != nil {
			return replies, err
		}
		b, wanted, err := n.answered(m.GetId())
		if err != nil {
			return replies, err
		}
		if wanted {
			if err := b.got.read(m, b.n, &c.names); err != nil {
				return replies, err
			}
		}
		replies++
		c.told(n, m.GetView())
		c.mu.Lock()
		n.flight = slices.Delete(n.flight, 0, 1)
		more, woken := len(n.queue) > 0, c.finish(b)
		c.mu.Unlock()
		if woken {
			close(b.done)
		}
		c.release(b)
		if more {
			n.notify()
		}
	}
}

// answered returns the message that a reply with an id is to, and whether somebody waits
// for it. Until it is finished, late does not finish it.
func (n *node) answered(id uint64) (b *batch, wanted bool, err error) {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	if len(n.flight) == 0 || n.flight[0].message.Id != id {
		return nil, false, fmt.Errorf("%w: it answers message %d, which is not the next one", errReply, id)
	}
	n.heard = time.Now()
	b = n.flight[0]
	wanted = !b.finished
	b.reading = true
	return b, wanted, nil
}

// land ends the messages in flight after the stream has ended. Nothing is sent or
// received meanwhile. untouched states that the node has decided none of them.
func (n *node) land(why error, untouched bool) {
	c := n.client
	c.mu.Lock()
	flight := n.flight
	n.flight, n.hangUp = nil, nil
	c.mu.Unlock()
	if untouched {
		c.settle(flight, undecided, why)
	} else {
		c.settle(flight, unknown, why)
	}
}

// fail marks the node as down and ends the queued messages, which were not sent.
func (n *node) fail(why error) {
	c := n.client
	c.mu.Lock()
	n.condition, n.why = down, why
	queue := n.queue
	n.queue = nil
	c.mu.Unlock()
	c.settle(queue, undecided, why)
}

// late is called when a message has waited as long as one node may take. If it was not
// sent yet, it is ended as undecided, so that its checks are retried at another node.
// If it was sent, and the node has answered nothing for as long, it is ended as unknown, and so is the stream.
// A node answers in the order of the messages, and one that waits for others may need the time of a policy for each. So
// a message that is behind others is waited for until nothing was heard for so long, or its checks' timeout is over.
func (n *node) late(b *batch) {
	defer catch(func(defect error) { n.client.abandon(b, defect) })
	woken, unsent := n.overdue(b)
	switch {
	case unsent != nil:
		n.client.settle([]*batch{b}, undecided, unsent)
	case woken:
		close(b.done)
	}
}

// overdue is the part of late under the lock. woken means that the message has ended, and
// that the caller must close done. unsent is why a message that was not sent yet must be
// ended; nil for others.
func (n *node) overdue(b *batch) (woken bool, unsent error) {
	c := n.client
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := slices.Index(n.queue, b)
	if b.finished || b.reading || waits < 0 && len(n.flight) == 0 {
		return false, nil
	}
	why := fmt.Errorf("node %s has not answered within %v", n.addr, c.attempt)
	if waits >= 0 {
		n.queue = slices.Delete(n.queue, waits, waits+1)
		return false, why
	}
	quiet := min(time.Since(n.flight[0].sent), time.Since(n.heard)) // it may have been idle before this message
	if rest := min(c.attempt-quiet, c.config.Timeout-time.Since(b.begun)); rest > 0 {
		b.timer.Reset(rest)
		return false, nil
	}
	if quiet >= c.attempt && n.hangUp != nil {
		n.condition, n.why = down, why
		n.hangUp(errSilent)
	}
	b.got.fate, b.got.err = unknown, why
	return c.finish(b), nil
}
