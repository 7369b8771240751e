package transport

import (
	"context"
	"errors"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// batch is the memory of one batch of checks: requests, decisions and errors. Batches
// are pooled, so an idle stream holds none.
type batch struct {
	requests  []limiter.Request
	decisions []limiter.Decision
	filler    weirwire.Filler // of requests

	// failed lists the requests that were not decided, ascending; errs has their
	// errors.
	failed []int
	errs   []error
}

// grow makes room for n requests and n decisions. They contain values of an earlier
// batch. It is called before requests are written, since none of them is alike then.
func (b *batch) grow(n int) {
	b.filler.Forget()
	if n > len(b.requests) {
		b.requests = make([]limiter.Request, n)
		b.decisions = append(b.decisions, make([]limiter.Decision, n-len(b.decisions))...)
	}
	b.failed, b.errs = b.failed[:0], b.errs[:0]
}

// fillColumns turns the n checks of a message, which [weirwire.ColumnsLen] has returned without an error,
// into requests. alike is what all of them have in common.
func (b *batch) fillColumns(m *weirv1.CheckColumns, n int, alike *limiter.Request) {
	if n > len(b.requests) {
		b.grow(n)
	}
	b.failed, b.errs = b.failed[:0], b.errs[:0]
	b.filler.Fill(b.requests[:n], m, alike)
}

// widest returns the largest number of limits that one of the first n decisions has.
func (b *batch) widest(n int) int {
	most := 0
	for i := range n {
		most = max(most, b.decisions[i].Len())
	}
	return most
}

// decide decides the first n requests, all at one instant. peeks says which are only peeked; nil: none is. An
// error concerns the whole batch: nothing was decided. Errors of single requests go to failed and errs.
func (b *batch) decide(ctx context.Context, by *frontend.Session, n int, peeks []bool) error {
	if n == 0 {
		return ctx.Err()
	}
	return b.note(by.Decide(ctx, b.requests[:n], b.decisions[:n], peeks))
}

// peek is decide for requests that are all peeked.
func (b *batch) peek(ctx context.Context, by *frontend.Session, n int) error {
	if n == 0 {
		return ctx.Err()
	}
	return b.note(by.Peek(ctx, b.requests[:n], b.decisions[:n]))
}

// note keeps the errors of single requests of a batch. It returns an error that concerns
// the whole batch.
func (b *batch) note(err error) error {
	if err == nil {
		return nil
	}
	some, ok := errors.AsType[*limiter.BatchError](err)
	if !ok {
		return err
	}
	b.failed, b.errs = append(b.failed, some.Index...), append(b.errs, some.Errs...)
	return nil
}
