// Package loadgen has callers ask something at the same time, each one call after the other or all together at a given
// rate, and counts how long that took. What they ask and what must be true of the answers is the caller's.
package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrSilent is the cause of the end of contexts of calls that are not answered within [Plan.Grace].
var ErrSilent = errors.New("no answer came long after the end")

// Plan is when calls are made.
type Plan struct {
	// Rate is how many calls a second all callers make together. They are due at instants that do not depend on answers.
	// 0: each caller makes the next call when the last one was answered.
	Rate float64
	// Long is for how long calls begin.
	Long time.Duration
	// Least is how many calls each caller makes without a rate, however long they take.
	Least int
	// Pause, if not nil, is how long a caller waits before each call without a rate.
	Pause func(caller int) time.Duration
	// Grace is how long answers are awaited after Long, 0: as long as they take. There is no deadline, which
	// would be sent along and could end a call at the other side first.
	Grace time.Duration
	// Weight is how much one call counts in the Waits of a [Result], at least 1.
	Weight uint64
}

// Clock is the time since the start of a run.
type Clock struct{ start time.Time }

// Now returns the time since the start.
func (c Clock) Now() time.Duration { return time.Since(c.start) }

// Call makes a call that was due at a time after the start, and returns when it was answered. An error ends the run; a
// call that may fail keeps that to itself. Each caller has one, which is for one goroutine.
type Call func(ctx context.Context, c Clock, due time.Duration) (answered time.Duration, err error)

// Result is what a run was like.
type Result struct {
	// Spent is how long it took, from the start to the last answer.
	Spent time.Duration
	// Late has how much later than due calls began, and Unsent how long those waited until the end that did not
	// begin, as every caller was busy. Both are empty without a rate.
	Late, Unsent *Waits
}

// Run makes the callers ask. It returns the first error of one of them, and that of the context if it ends first. When
// one fails, the contexts of the others end.
func (p Plan) Run(ctx context.Context, callers []Call) (Result, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if p.Weight = max(p.Weight, 1); p.Grace > 0 {
		defer time.AfterFunc(p.Long+p.Grace, func() { end(ErrSilent) }).Stop()
	}
	r, clock := Result{Late: new(Waits), Unsent: new(Waits)}, Clock{time.Now()}
	var due chan time.Duration
	errs := make([]error, len(callers)+1)
	var asking sync.WaitGroup
	if p.Rate > 0 {
		next, stop, err := openSteps()
		if err != nil {
			return r, err
		}
		defer func() { _ = stop() }() // nothing was written
		due = make(chan time.Duration, backlog)
		asking.Go(func() {
			sent, err := p.pace(ctx, clock.start, next, due)
			p.unsent(sent, func(at time.Duration, n int64) { r.Unsent.Add(p.Long-at, uint64(n)*p.Weight) })
			errs[len(callers)] = err
		})
	}
	late, unsent := make([]*Waits, len(callers)), make([]*Waits, len(callers))
	for i, call := range callers {
		asking.Go(func() {
			if due == nil {
				errs[i] = p.ask(ctx, clock, i, call)
			} else {
				late[i], unsent[i], errs[i] = p.follow(ctx, clock, due, call)
			}
			if errs[i] != nil {
				end(nil) // the others need not continue
			}
		})
	}
	asking.Wait()
	r.Spent = clock.Now()
	for i := range callers {
		r.Late.Merge(late[i])
		r.Unsent.Merge(unsent[i])
	}
	return r, first(errs)
}

// ask makes a call as soon as the previous one was answered.
func (p *Plan) ask(ctx context.Context, clock Clock, caller int, call Call) (err error) {
	begin := clock.Now()
	for calls := 0; calls < p.Least || begin < p.Long; calls++ {
		if p.Pause != nil {
			if err := rest(ctx, p.Pause(caller)); err != nil {
				return err
			}
			begin = clock.Now()
		}
		if begin, err = call(ctx, clock, begin); err != nil {
			return err
		}
	}
	return nil
}

// follow makes calls when they are due.
func (p *Plan) follow(ctx context.Context, clock Clock, due <-chan time.Duration,
	call Call) (late, unsent *Waits, _ error) {
	late, unsent = new(Waits), new(Waits)
	for at := range due {
		now := clock.Now()
		if now >= p.Long {
			unsent.Add(p.Long-at, p.Weight)
			continue
		}
		late.Add(now-at, p.Weight)
		if _, err := call(ctx, clock, at); err != nil {
			return late, unsent, err
		}
	}
	return late, unsent, nil
}

// rest waits, or until the context ends.
func rest(ctx context.Context, long time.Duration) error {
	wait := time.NewTimer(long)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// first returns the first error other than that of a stopped caller.
func first(errs []error) error {
	var stopped error
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled):
			stopped = err
		default:
			return err
		}
	}
	return stopped
}

// Each calls a function for each of n, at most so many at a time, and returns the first error by number.
func Each(n, atOnce int, f func(i int) error) error {
	if atOnce < 1 {
		return fmt.Errorf("%d at a time are none", atOnce)
	}
	errs, room := make([]error, n), make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			errs[i] = f(i)
			<-room
		})
	}
	all.Wait()
	return first(errs)
}
