package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/weirlimit/weir/internal/waiting"
	"github.com/weirlimit/weir/limiter"
)

// Check decides a request, and charges it if it is allowed. A denial is a decision, not
// an error. [Client.CheckInto] does the same without allocating the decision.
//
// If a node certainly has not decided the check, because it is stopping or cannot be
// reached, another node is asked. If the connection breaks after the check was sent, or
// no answer comes in time, another node is asked once. The check is still counted only
// once, since the nodes remember its id: the id of the request, or else one that the client
// makes, see [Config.NoIDs]. It may be counted twice if one of the nodes runs a version
// without ids, or if a policy answered in place of Redis. Rules with "any" take no ids: a check by such a rule may be
// counted twice, unless the client knows the rules by the ring. Then it is not asked again, and the error wraps
// [ErrUnanswered].
func (c *Client) Check(ctx context.Context, r limiter.Request) (limiter.Decision, error) {
	var d limiter.Decision
	if err := c.ask(ctx, &r, &d, false); err != nil {
		return limiter.Decision{}, err
	}
	return d, nil
}

// Peek returns what Check would answer, and charges nothing.
func (c *Client) Peek(ctx context.Context, r limiter.Request) (limiter.Decision, error) {
	var d limiter.Decision
	if err := c.ask(ctx, &r, &d, true); err != nil {
		return limiter.Decision{}, err
	}
	return d, nil
}

// Allow checks a key against limits that need no rule at the nodes, as Allow of a node
// does: it is Check of the request {Path: key, Limits: limits}. The nodes must accept
// limits that come with a request (their flag --allow-request-limits); else the error
// wraps [ErrDenied]. Without limits it wraps [ErrInvalid].
func (c *Client) Allow(ctx context.Context, key string, limits ...*limiter.Limit) (limiter.Decision, error) {
	if len(limits) == 0 {
		return limiter.Decision{}, fmt.Errorf("%w: Allow of key %.100q has no limits: give at least one", ErrInvalid, key)
	}
	return c.Check(ctx, limiter.Request{Path: key, Limits: limits})
}

// Wait checks a request until it is allowed, as Wait of a node does. After a denial it
// waits for as long as the decision says, and up to a tenth longer (at most a minute), and
// asks again. If the decision names no time, it waits for 10 ms, doubled with each such denial up to a second.
// It gives up at once, with an error that wraps [limiter.ErrWait], if no wait helps or the
// context's deadline is too early. Other errors are those of Check, or the context's. The
// decision is the last one.
func (c *Client) Wait(ctx context.Context, r limiter.Request) (limiter.Decision, error) {
	var d limiter.Decision
	err := waiting.Until(ctx, &d, func() error { return c.ask(ctx, &r, &d, false) }, waiting.Sleep, rand.Float64)
	return d, err
}

// CheckInto is Check with the memory of the caller: it reads r and overwrites d. The client keeps neither. After an
// error d is a denial without a reason.
func (c *Client) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return c.askInto(ctx, r, d, false)
}

// PeekInto is Peek with the memory of the caller, as CheckInto.
func (c *Client) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return c.askInto(ctx, r, d, true)
}

func (c *Client) askInto(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	err := c.ask(ctx, r, d, peek)
	if err != nil {
		d.Refuse()
	}
	return err
}

// CheckBatch decides requests, as Check does. The decisions are in the order of the
// requests. Requests that go to the same node are decided one after the other; up to
// [Config.MaxMessage] of them travel in one message. Requests without a decision get a
// denied one without a reason, and are listed in the [*BatchError] that is returned.
// Any other error concerns the whole batch; if it is the context's, requests may have
// been counted.
func (c *Client) CheckBatch(ctx context.Context, rs []limiter.Request) ([]limiter.Decision, error) {
	ds := make([]limiter.Decision, len(rs))
	err := c.CheckBatchInto(ctx, rs, ds)
	if _, some := errors.AsType[*BatchError](err); err != nil && !some {
		return nil, err
	}
	return ds, err
}
