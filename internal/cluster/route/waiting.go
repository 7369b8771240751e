package route

import (
	"context"
	"sync/atomic"
)

// Waiting is a caller that waits for one or more checks.
type Waiting struct {
	c    chan struct{}
	open atomic.Int32 // number of undecided checks
	// Decided must be called once for each check that was expected and is decided. The
	// last call ends the wait.
	Decided func()
}

func newWaiting() any {
	w := &Waiting{c: make(chan struct{}, 1)}
	w.Decided = func() {
		if w.open.Add(-1) == 0 {
			w.c <- struct{}{}
		}
	}
	return w
}

// abandon stops waiting for the undecided checks and returns their indices. It waits for
// those that are decided and about to report.
func (w *Waiting) abandon(calls []*Call) (undecided []int) {
	for i, o := range calls {
		if o != nil && o.Abandon() {
			undecided = append(undecided, i)
		}
	}
	if n := int32(len(undecided)); n == 0 || w.open.Add(-n) > 0 {
		<-w.c // the others are decided and about to call Decided
	}
	return undecided
}

// NewWaiting returns a caller that waits for one check. [Waiting.End] must follow.
func (c *Router) NewWaiting() *Waiting {
	w := c.waiting.Get().(*Waiting)
	w.open.Store(1)
	return w
}

// Expect makes the caller wait for n more checks, or for fewer if n is negative.
func (w *Waiting) Expect(n int32) { w.open.Add(n) }

// End returns a caller that waits no more; it must not be used any longer.
func (c *Router) End(w *Waiting) { c.waiting.Put(w) }

// One waits for the only check, o. If ctx ends before, One returns the error of ctx: the
// check may have been charged, its answer is not written any more, and its charge must
// not be reused.
func (w *Waiting) One(ctx context.Context, o *Call) error {
	if ctx.Done() == nil {
		<-w.c
		return nil
	}
	select {
	case <-w.c:
	case <-ctx.Done():
		if o.Abandon() {
			return ctx.Err() // Decided will not be called any more
		}
		<-w.c // it is decided, and Decided is about to be called
	}
	return nil
}

// All waits for all checks, and ends the count of the caller itself. calls has the calls
// under way, by index of their checks. If ctx ends before, All returns the indices of the
// undecided checks in ascending order.
func (w *Waiting) All(ctx context.Context, calls []*Call) (undecided []int) {
	if w.open.Add(-1) == 0 {
		return nil
	}
	select {
	case <-w.c:
	case <-ctx.Done():
		undecided = w.abandon(calls)
	}
	return undecided
}
