package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Waits between attempts to reach a node, of the connection and of the stream.
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

// keepaliveParams are slower than nodes allow at most, which is every 10 s.
func keepaliveParams() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second}
}

// condition is whether a node can be asked.
type condition uint8

const (
	connecting condition = iota // for the first time, or anew after it could be asked
	up
	down // the last attempt failed
)

// node is one node and the stream to it. The client's lock guards it.
type node struct {
	client *Client
	index  int // that no other node of the client has
	addr   string
	conn   *grpc.ClientConn
	api    weirv1.LimiterClient
	// learned tells that it is not in the configuration, and end lets it go.
	learned bool
	end     context.CancelFunc

	condition condition
	why       error                   // it is down
	hangUp    context.CancelCauseFunc // ends the stream that there is; nil if there is none
	queue     []*batch                // to be sent, in order; only the last of a kind is open
	flight    []*batch                // sent and not answered, in order
	heard     time.Time               // when the last reply came
	wake      chan struct{}           // has a token when there may be something to send
}

// notify says that there may be something to send. It does not block.
func (n *node) notify() {
	select {
	case n.wake <- struct{}{}:
	default: // a token is there, and whoever takes it will look
	}
}

// keep has a stream to the node, again and again, until the context ends.
func (n *node) keep(ctx context.Context) {
	failures := 0
	for {
		worked, err := n.serve(ctx)
		if ctx.Err() != nil {
			n.client.mu.Lock()
			why := n.why // it is let go
			if n.client.closed {
				why = ErrClosed
			}
			n.client.mu.Unlock()
			n.fail(why)
			return
		}
		failures++
		if worked && !errors.Is(err, errSilent) {
			// It did its work until now: checks may wait for the next attempt, which is
			// made at once.
			failures = 0
			n.client.mu.Lock()
			n.condition = connecting
			n.client.mu.Unlock()
			continue
		}
		n.fail(err)
		wait := min(retryFirst<<min(failures-1, 16), retryMost)
		// Those that lost one node together do not come back to it together.
		t := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// serve has one stream to the node until it ends, and returns why it ended, and whether
// it worked until then: replies came, or the node, which nobody asked, ended it in good
// order, as it does when a stream is old. When it returns nothing is in flight.
func (n *node) serve(ctx context.Context) (worked bool, err error) {
	c := n.client
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A node that cannot be reached, or answers nothing, is given up.
	patience := time.AfterFunc(c.attempt, func() { cancel(errSilent) })
	defer patience.Stop()
	stream, err := n.api.CheckStream(ctx)
	if err != nil {
		return false, n.reason(ctx, err)
	}
	// That there is a stream says nothing of the node: it must answer a message
	// without checks first.
	var first weirv1.DecisionColumns
	err = stream.SendMsg(new(weirv1.CheckColumns))
	if err == nil || errors.Is(err, io.EOF) {
		err = stream.RecvMsg(&first)
	}
	if err != nil {
		return false, n.reason(ctx, err)
	}
	patience.Stop()
	began := time.Now()
	c.mu.Lock()
	n.condition, n.why, n.hangUp = up, nil, cancel
	c.mu.Unlock()
	c.told(n, first.GetView())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		n.send(ctx, stream)
	}()
	n.notify()
	replies, err := n.receive(stream)
	err = n.reason(ctx, err)
	cancel(nil)
	<-sent
	// The node says so where it has not looked at what it does not answer.
	undecided := len(stream.Trailer().Get(weirv1.TrailerUndecided)) > 0
	n.land(err, undecided)
	// One that ends every stream at once is not asked without pause.
	return replies > 0 || undecided && time.Since(began) >= retryMost, err
}

var (
	// errSilent is wrapped where a node does not answer.
	errSilent = errors.New("it does not answer")
	// errReply is wrapped where a node's reply makes no sense.
	errReply = errors.New("a reply makes no sense")
)

// reason names the node in the error of a stream.
func (n *node) reason(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		return fmt.Errorf("node %s: %w", n.addr, errSilent)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("node %s ended the stream", n.addr)
	case errors.Is(err, errReply):
		return fmt.Errorf("node %s: %w", n.addr, err)
	}
	return fmt.Errorf("node %s: %s", n.addr, status.Convert(err).Message())
}

// send sends what there is until the stream ends.
func (n *node) send(ctx context.Context, stream weirv1.Limiter_CheckStreamClient) {
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return
		}
		for {
			// Whoever can run and is about to ask goes first, so that it travels along;
			// where nobody can, this takes no time.
			runtime.Gosched()
			b := n.next()
			if b == nil {
				break
			}
			err := stream.SendMsg(&b.message)
			n.client.release(b)
			if err != nil {
				return // who receives learns why
			}
		}
	}
}

// next takes the next message to send, nil if there is none or enough are on their
// way.
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
	b.sent = time.Now()
	c.messages++
	b.message.Id, b.message.Rule, b.message.Peek, b.message.EveryLimit = c.messages, b.kind.rule, b.kind.peek, c.config.EveryLimit
	n.flight = append(n.flight, b)
	atomic.AddInt32(&b.refs, 1) // while it is sent
	return b
}

// receive takes replies until the stream ends.
func (n *node) receive(stream weirv1.Limiter_CheckStreamClient) (replies int, err error) {
	c := n.client
	for {
		m := new(weirv1.DecisionColumns)
		if err := stream.RecvMsg(m); err != nil {
			return replies, err
		}
		c.mu.Lock()
		if len(n.flight) == 0 || n.flight[0].message.Id != m.GetId() {
			c.mu.Unlock()
			return replies, fmt.Errorf("%w: it is to message %d, which is not the next", errReply, m.GetId())
		}
		n.heard = time.Now()
		b := n.flight[0]
		wanted := !b.finished
		b.reading = true // so that nobody else finishes it
		c.mu.Unlock()
		if wanted {
			if err := b.read(m, &c.names); err != nil {
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

// land ends what is in flight when the stream has ended. Nobody sends or receives
// any more.
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

// fail says that the node cannot be asked, and gives up what waits to be sent.
func (n *node) fail(why error) {
	c := n.client
	c.mu.Lock()
	n.condition, n.why = down, why
	queue := n.queue
	n.queue = nil
	c.mu.Unlock()
	c.settle(queue, undecided, why)
}

// late is called when a message has waited for as long as one node may take. One
// that was not sent is given up, to be sent elsewhere. One that was sent is not
// waited for any longer; and if the node answers nothing at all the stream is ended.
func (n *node) late(b *batch) {
	c := n.client
	c.mu.Lock()
	waits := slices.Index(n.queue, b)
	if b.finished || b.reading || waits < 0 && len(n.flight) == 0 {
		c.mu.Unlock()
		return
	}
	why := fmt.Errorf("node %s has not answered within %v", n.addr, c.attempt)
	if waits >= 0 {
		n.queue = slices.Delete(n.queue, waits, waits+1)
		c.mu.Unlock()
		c.settle([]*batch{b}, undecided, why)
		return
	}
	// A node that is only slow has answered something lately, or was not asked before.
	quiet := min(time.Since(n.flight[0].sent), time.Since(n.heard))
	if quiet >= c.attempt/2 && n.hangUp != nil {
		n.condition, n.why = down, why
		n.hangUp(errSilent)
	}
	b.fate, b.err = unknown, why
	woken := c.finish(b)
	c.mu.Unlock()
	if woken {
		close(b.done)
	}
}
