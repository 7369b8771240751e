package client

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/limiter"
)

// BatchError is returned by [Client.CheckBatch] and [Client.CheckBatchInto] if some of
// the requests have no decision. The others have one.
type BatchError = limiter.BatchError

// one is the progress of one request of a batch.
type one struct {
	ticket
	tries tries
	size  int
	err   error
	wants bool // it still needs an answer
}

// CheckBatchInto is CheckBatch with the memory of the caller: it overwrites the
// decision with the index of each request. There must be as many decisions as requests,
// else the error wraps [ErrInvalid] and nothing was decided.
func (c *Client) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	if len(rs) != len(ds) {
		return fmt.Errorf("%w: a batch of %d requests needs as many decisions, not %d", ErrInvalid, len(rs), len(ds))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	all := make([]one, len(rs))
	for i := range all {
		o := &all[i]
		if len(rs[i].Limits) > 0 {
			o.err = c.askAlone(ctx, &rs[i], &ds[i], false)
			continue
		}
		o.size, o.err = sizeOf(&rs[i])
		o.wants = o.err == nil
		if o.wants {
			o.tries.owner = c.owner(&rs[i])
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
		o.batch = n.tail(kind{rule: rs[i].Rule}, &rs[i], o.size)
		o.index = o.batch.add(&rs[i], o.size)
		c.pending++
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
	fate, err := o.batch.decision(o.index, r, d)
	o.wants = fate != answered && o.tries.again(c, o.batch, fate, err)
	switch {
	case fate == answered:
		o.err = o.tries.because(err)
	case !o.wants:
		o.err = o.tries.failed()
	}
	c.release(o.batch)
	o.batch = nil
}

// forget drops the references to all messages that are still awaited.
func (c *Client) forget(all []one) {
	for i := range all {
		if b := all[i].batch; b != nil {
			c.release(b)
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
