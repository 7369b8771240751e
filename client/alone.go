package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// alone makes a unary call to a node, and if that fails one more to another node, within
// the timeout. The first one is waited for as long as one node may take, if there is
// another.
func (c *Client) alone(ctx context.Context, call unary) error {
	return c.aloneBy(ctx, nil, false, call)
}

// aloneBy is alone, and asks a node first if it is up, unless it is nil. once states that the call must not be made
// again if it may have been carried out.
func (c *Client) aloneBy(ctx context.Context, first *node, once bool, call unary) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, ErrUnanswered)
	defer cancel()
	tries := tries{owner: first}
	for {
		c.mu.Lock()
		n, err := c.choose(&tries)
		within := c.config.Timeout
		if err == nil && tries.count == 0 && c.hasOther(n) {
			within = c.attempt
		}
		c.mu.Unlock()
		if err != nil {
			return tries.because(err)
		}
		fate, err := c.call(ctx, n, within, call)
		switch {
		case fate == answered:
			return tries.because(err)
		case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrUnanswered):
			return ctx.Err()
		}
		tries.note(n, err)
		tries.unknown = tries.unknown || fate == unknown
		if ctx.Err() != nil || once && tries.unknown || tries.count > min(c.known(), 2)-1 {
			return tries.failed()
		}
	}
}

// unary is a unary call to a node.
type unary func(ctx context.Context, api weirv1.LimiterClient, o ...grpc.CallOption) error

// hasOther reports whether there is a node that can be asked besides n. The lock is held.
func (c *Client) hasOther(n *node) bool {
	return slices.ContainsFunc(c.nodes, func(o *node) bool { return o != n && o.condition != down })
}

// call makes a unary call to a node and waits for it. The error is nil if the call has
// succeeded.
func (c *Client) call(ctx context.Context, n *node, within time.Duration, call unary) (fate, error) {
	var (
		asked   peer.Peer // without an address: the call was not sent
		trailer metadata.MD
	)
	if within < c.config.Timeout { // else that is the bound of ctx already
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	err := call(ctx, n.latest(), grpc.Peer(&asked), grpc.Trailer(&trailer))
	if err == nil {
		return answered, nil
	}
	s := status.Convert(err)
	f, err := fateOf(uint32(s.Code()), s.Message(), retryOf(s))
	if f == answered {
		return f, err
	}
	// The status alone does not show whether the node or the connection failed.
	switch {
	case asked.Addr == nil:
		f = undecided
	case len(trailer.Get(weirv1.TrailerUndecided)) == 0:
		f = unknown
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		err = ErrClosed // Close has ended the connection
	case ctx.Err() != nil && f == undecided:
		err = fmt.Errorf("node %s could not be reached in time", n.addr)
	case ctx.Err() != nil:
		err = fmt.Errorf("node %s has not answered in time", n.addr)
	}
	return f, err
}

// retryOf returns how long a node wants a call to wait until it is made again, 0 if it does not say so.
func retryOf(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			return r.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// askAlone checks a request that brings its own limits. Columns cannot carry limits.
func (c *Client) askAlone(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	if err := sendable(r); err != nil {
		return err
	}
	return c.askUnary(ctx, r, c.newCheck(r, peek), d)
}

// askUnary makes the check of a request by a call of its own.
func (c *Client) askUnary(ctx context.Context, r *limiter.Request, q *weirv1.CheckRequest, d *limiter.Decision) error {
	var m *weirv1.CheckResponse
	err := c.aloneBy(ctx, nil, c.forgets(r, q.GetPeek()), func(ctx context.Context, api weirv1.LimiterClient,
		o ...grpc.CallOption) (err error) {
		m, err = api.Check(ctx, q, o...)
		return err
	})
	if err != nil {
		return err
	}
	return c.decode(m, d)
}

// decode turns a response into a decision.
func (c *Client) decode(m *weirv1.CheckResponse, d *limiter.Decision) error {
	limits := make([]*named, len(m.GetLimits()))
	for i, l := range m.GetLimits() {
		var err error
		limits[i], err = c.names.of(&weirv1.LimitInfo{
			Rule: l.GetRule(), Name: l.GetName(), Algorithm: l.GetAlgorithm(), Limit: l.GetLimit(), Capacity: l.GetCapacity(),
			WindowUs: l.GetWindowUs(), Shadow: l.GetShadow(), Calendar: l.GetCalendar(),
		})
		if err == nil {
			err = checkUnits([]uint64{l.GetRemaining(), l.GetCost(), l.GetInForce()})
		}
		if err != nil {
			return &nodeError{err.Error(), ErrUnanswered}
		}
	}
	d.Clear()
	d.Allowed, d.Never, d.ShadowDenied = m.GetAllowed(), m.GetNever(), m.GetShadowDenied()
	d.Source, d.Repeated, d.Overridden = limiter.Source(m.GetSource()), m.GetRepeated(), m.GetOverridden()
	d.Grow(len(limits))
	key := -1
	for i, l := range m.GetLimits() {
		if i == 0 || m.GetLimits()[i-1].GetRule() != l.GetRule() || m.GetLimits()[i-1].GetKeyIndex() != l.GetKeyIndex() {
			key++
		}
		*d.Limit(i) = limiter.LimitDecision{
			Rule: limits[i].rule, Limit: limits[i].limit, Key: key, KeyIndex: uint8(l.GetKeyIndex()),
			Allowed: l.GetAllowed(), Never: l.GetNever(), Blocked: l.GetBlocked(), Overflow: l.GetOverflow(),
			Owner: l.GetOwner(), InForce: l.GetInForce(), Cost: l.GetCost(), Remaining: l.GetRemaining(),
			ResetAfter: limiter.Tick(l.GetResetAfterUs()).Duration(), RetryAfter: limiter.Tick(l.GetRetryAfterUs()).Duration(),
		}
	}
	arith.Conclude(d)
	d.Rule, d.Receipt = m.GetRule(), limiter.SealedReceipt(m.GetReceipt())
	d.SetRemarks(limiter.Remarks{DrawnBy: m.GetDrawnBy(), ZoneDefault: m.GetZoneDefault(),
		Deny: denialOf(m.GetDenyStatus(), m.GetDenyReason())})
	return nil
}

// Reset deletes the counters of the keys of a request, with their blocks, and returns
// how many there were. The nodes must allow resets; else the error wraps [ErrDenied].
func (c *Client) Reset(ctx context.Context, r limiter.Request) (int, error) {
	if err := sendable(&r); err != nil {
		return 0, err
	}
	q := weirwire.NewCheckRequest(&r, false)
	var m *weirv1.ResetResponse
	err := c.alone(ctx, func(ctx context.Context, api weirv1.LimiterClient, o ...grpc.CallOption) (err error) {
		m, err = api.Reset(ctx, &weirv1.ResetRequest{
			Path: q.GetPath(), Method: q.GetMethod(), User: q.GetUser(), Ip: q.GetIp(), Group: q.GetGroup(),
			Attributes: q.GetAttributes(), Rule: q.GetRule(), Limits: q.GetLimits(),
		}, o...)
		return err
	})
	return int(m.GetCounters()), err
}

// newCheck returns the message for a check whose cost is in range, with an id.
func (c *Client) newCheck(r *limiter.Request, peek bool) *weirv1.CheckRequest {
	m := weirwire.NewCheckRequest(r, peek)
	if id := c.identify(r, peek); id.has {
		m.Id, m.IdTtlUs, m.IdOptional = string(id.own[:]), id.ids.ttl.Microseconds(), true
	}
	return m
}
