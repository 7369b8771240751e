package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// BatchError is returned by [Client.CheckBatch] and [Client.CheckBatchInto] if some of
// the requests have no decision. The others have one.
type BatchError = limiter.BatchError

// one is the progress of one request of a batch.
type one struct {
	ticket
	tries tries
	of    resolved
	size  int
	err   error
	wants bool // it still needs an answer
}

// CheckBatchInto is CheckBatch with the memory of the caller: it overwrites the
// decision with the index of each request. There must be as many decisions as requests,
// else the error wraps [ErrInvalid] and nothing was decided. After any error but a [*BatchError] all decisions are
// denials without a reason.
func (c *Client) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	err := c.checkBatch(ctx, rs, ds)
	if _, some := errors.AsType[*BatchError](err); err != nil && !some {
		for i := range ds {
			ds[i].Refuse()
		}
	}
	return err
}

func (c *Client) checkBatch(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	if len(rs) != len(ds) {
		return fmt.Errorf("%w: a batch of %d requests needs as many decisions, not %d", ErrInvalid, len(rs), len(ds))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	all := make([]one, len(rs))
	own := 0 // requests that bring their own limits
	for i := range all {
		o := &all[i]
		o.size, o.err = sizeOf(&rs[i])
		switch {
		case o.err != nil:
		case len(rs[i].Limits) > 0:
			own++
		default:
			o.of = c.resolve(&rs[i])
			o.wants = !o.of.lends || !c.leases.decide(&o.of, &rs[i], &ds[i])
			o.tries.owner, o.tries.id = o.of.owner(), c.identify(&rs[i], false)
			if !o.wants || !o.of.warm {
				o.of.forget(c)
			}
		}
	}
	if own > 0 {
		c.checkOwn(ctx, rs, ds, all)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for c.addAll(rs, all) {
		for i := range all {
			o := &all[i]
			if o.batch == nil {
				continue
			}
			if err := o.batch.wait(ctx); err != nil {
				c.forget(all)
				return err
			}
			o.take(c, &rs[i], &ds[i])
		}
	}
	return conclude(all, ds)
}

// checkOwn checks the requests that bring their own limits, in their order. Columns cannot
// carry limits, so these travel in calls by themselves, each with as many as a message may
// have. After a call that no node answers the others are not made.
func (c *Client) checkOwn(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, all []one) {
	var at []int // the requests of m
	m, size := new(weirv1.CheckBatchRequest), 0
	var unsent error // why further calls are not made
	send := func() {
		if unsent == nil {
			unsent = notAfter(c.checkSome(ctx, m, at, rs, ds, all))
		} else {
			for _, i := range at {
				all[i].err = unsent
			}
		}
		at, m, size = at[:0], new(weirv1.CheckBatchRequest), 0
	}
	for i := range rs {
		if len(rs[i].Limits) == 0 || all[i].err != nil {
			continue
		}
		q := c.newCheck(&rs[i], false)
		bytes := proto.Size(q)
		if len(at) > 0 && (len(at) == c.config.MaxMessage || size+bytes > MaxMessageBytes) {
			send()
		}
		at, m.Checks, size = append(at, i), append(m.Checks, q), size+bytes
	}
	if len(at) > 0 {
		send()
	}
}

// notAfter returns the error of checks that are not sent because a call before them ended with
// an error; nil if they can be sent.
func notAfter(err error) error {
	kind := ErrUnavailable
	switch {
	case err == nil, errors.Is(err, ErrInvalid), errors.Is(err, ErrDenied):
		return nil
	case errors.Is(err, ErrClosed):
		kind = ErrClosed
	}
	return fmt.Errorf("%w: the check was not sent, since one before it in the batch failed: %v", kind,
		err) //nolint:errorlint // it may wrap ErrUnanswered, and this one was not counted
}

// checkSome makes one call with the checks of the requests at these indices. It returns the
// error of the call as a whole.
func (c *Client) checkSome(ctx context.Context, m *weirv1.CheckBatchRequest, at []int, rs []limiter.Request,
	ds []limiter.Decision, all []one) error {
	var got *weirv1.CheckBatchResponse
	once := slices.ContainsFunc(at, func(i int) bool { return c.forgets(&rs[i], false) })
	err := c.aloneBy(ctx, nil, once, func(ctx context.Context, api weirv1.LimiterClient,
		o ...grpc.CallOption) (err error) {
		got, err = api.CheckBatch(ctx, m, o...)
		return err
	})
	if n := len(got.GetResults()); err == nil && n != len(at) {
		err = &nodeError{fmt.Sprintf("%v: it has %d answers to %d checks", errReply, n, len(at)), ErrUnanswered}
	}
	for j, i := range at {
		if err != nil {
			all[i].err = err
			continue
		}
		switch r := got.GetResults()[j]; {
		case r.GetError() != nil:
			_, all[i].err = fateOf(r.GetError().GetCode(), r.GetError().GetMessage(), 0)
		case r.GetDecision() == nil:
			all[i].err = &nodeError{"a node did not decide a check, and does not say why", ErrUnanswered}
		default:
			all[i].err = c.decode(r.GetDecision(), &ds[i])
		}
	}
	return err
}

// addAll adds all requests that still need an answer to messages, and reports whether
// there are any.
func (c *Client) addAll(rs []limiter.Request, all []one) (some bool) {
	asked := make(map[*node]bool)
	c.mu.Lock()
	for i := range all {
		o := &all[i]
		if !o.wants {
			continue
		}
		n, err := c.choose(&o.tries)
		if err == nil && c.pending >= c.config.MaxPending {
			err = ErrBusy
		}
		if err != nil {
			o.err, o.wants = o.tries.because(err), false
			continue
		}
		o.ticket = n.put(kind{rule: rs[i].Rule, ids: o.tries.id.ids}, &rs[i], o.size, &o.tries)
		asked[n], some = true, true
	}
	c.mu.Unlock()
	for n := range asked {
		n.notify()
	}
	return some
}

// take reads the answer to one request, or finds that it must be retried.
func (o *one) take(c *Client, r *limiter.Request, d *limiter.Decision) {
	fate, err := o.batch.got.decision(o.batch.place(o.index), r, d)
	o.wants = fate != answered && o.tries.again(c, o.batch, r, fate, err)
	switch {
	case fate == answered:
		if o.err = o.tries.because(err); err == nil && o.of.warm {
			c.leases.heard(&o.of, d)
		}
	case !o.wants:
		o.err = o.tries.failed()
	}
	if !o.wants {
		o.of.forget(c)
	}
	c.release(o.batch)
	o.batch = nil
}

// forget gives up all checks that are still awaited.
func (c *Client) forget(all []one) {
	for i := range all {
		if all[i].batch != nil {
			c.giveUp(all[i].ticket)
		}
	}
}

// conclude returns the errors of a batch, or nil if there are none.
func conclude(all []one, ds []limiter.Decision) error {
	var bad BatchError
	for i := range all {
		if err := all[i].err; err != nil {
			ds[i].Clear()
			ds[i].Allowed = false
			bad.Index, bad.Errs = append(bad.Index, i), append(bad.Errs, err)
		}
	}
	if len(bad.Errs) == 0 {
		return nil
	}
	return &bad
}
