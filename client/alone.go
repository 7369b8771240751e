package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// alone makes a unary call to a node, and if that fails one more to another node,
// within the timeout.
func (c *Client) alone(ctx context.Context, call func(ctx context.Context, api weirv1.LimiterClient, o ...grpc.CallOption) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, ErrUnanswered)
	defer cancel()
	var tries tries
	for {
		c.mu.Lock()
		n, err := c.choose(&tries)
		c.mu.Unlock()
		if err != nil {
			return tries.because(err)
		}
		var (
			asked   peer.Peer // without an address: the call was not sent
			trailer metadata.MD
		)
		err = call(ctx, n.api, grpc.Peer(&asked), grpc.Trailer(&trailer))
		if err == nil {
			return nil
		}
		if ended := ctx.Err(); ended != nil {
			if errors.Is(context.Cause(ctx), ErrUnanswered) {
				return &nodeError{"node " + n.addr + " has not answered in time", ErrUnanswered}
			}
			return ended
		}
		s := status.Convert(err)
		fate, err := fateOf(uint32(s.Code()), s.Message())
		if fate == answered {
			return tries.because(err)
		}
		// The status alone does not show whether the node or the connection failed.
		said := asked.Addr == nil || len(trailer.Get(weirv1.TrailerUndecided)) > 0
		tries.note(n, err)
		tries.unknown = tries.unknown || fate == unknown || !said
		if tries.count > min(c.known(), 2)-1 {
			return tries.failed()
		}
	}
}

// askAlone checks a request that brings its own limits. Columns cannot carry limits.
func (c *Client) askAlone(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	if _, err := sizeOf(r); err != nil {
		return err
	}
	var m *weirv1.CheckResponse
	err := c.alone(ctx, func(ctx context.Context, api weirv1.LimiterClient, o ...grpc.CallOption) (err error) {
		m, err = api.Check(ctx, newCheckRequest(r, peek), o...)
		return err
	})
	if err != nil {
		return err
	}
	return c.tell(m, d)
}

// tell turns a response into a decision.
func (c *Client) tell(m *weirv1.CheckResponse, d *limiter.Decision) error {
	limits := make([]*named, len(m.GetLimits()))
	for i, l := range m.GetLimits() {
		var err error
		limits[i], err = c.names.of(&weirv1.LimitInfo{
			Rule: l.GetRule(), Name: l.GetName(), Algorithm: l.GetAlgorithm(), Limit: l.GetLimit(), Capacity: l.GetCapacity(),
			WindowUs: l.GetWindowUs(), Shadow: l.GetShadow(),
		})
		if err != nil {
			return &nodeError{err.Error(), ErrUnanswered}
		}
	}
	d.Clear()
	d.Allowed, d.Never, d.ShadowDenied = m.GetAllowed(), m.GetNever(), m.GetShadowDenied()
	d.Source = limiter.Source(m.GetSource())
	limiter.Grow(d, len(limits))
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
	limiter.Conclude(d)
	d.Rule = m.GetRule()
	return nil
}

// Reset deletes the counters of the keys of a request, with their blocks, and returns
// how many there were. The nodes must allow resets; else the error wraps [ErrDenied].
func (c *Client) Reset(ctx context.Context, r limiter.Request) (int, error) {
	if _, err := sizeOf(&r); err != nil {
		return 0, err
	}
	q := newCheckRequest(&r, false)
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

// newCheckRequest returns the message for a request whose cost is in range.
func newCheckRequest(r *limiter.Request, peek bool) *weirv1.CheckRequest {
	m := &weirv1.CheckRequest{
		Path: r.Path, Method: r.Method, User: r.User, Ip: r.IP, Group: r.Group, Attributes: r.Attributes, Rule: r.Rule, Peek: peek,
	}
	if n, err := r.Cost.Value(0); err == nil && r.Cost.Given() {
		m.Cost = new(int64(n))
	}
	for _, l := range r.Limits {
		s := l.Spec()
		limit := &weirv1.Limit{
			Name: s.Name, Algorithm: weirv1.Algorithm(s.Algorithm), Limit: s.Limit, WindowUs: s.Window.Microseconds(),
			Align: weirv1.Align(s.Align), SubWindows: int32(s.SubWindows), Coverage: weirv1.Coverage(s.Coverage),
			Rounding: weirv1.Rounding(s.Rounding), Burst: s.Burst, Drip: weirv1.Drip(s.Drip),
			CountRejected: weirv1.CountRejected(s.CountRejected), BlockUs: s.Block.Microseconds(),
			Calendar: weirv1.Calendar(s.Calendar), Zone: s.Zone, AnchorDay: int32(s.AnchorDay),
			WeekStart: weirv1.Weekday(s.WeekStart), AtMinutes: int32(s.At / time.Minute),
		}
		if s.Weight != nil {
			limit.Weight = new(int32(*s.Weight))
		}
		m.Limits = append(m.Limits, limit)
	}
	return m
}
