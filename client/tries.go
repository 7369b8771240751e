package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/limiter"
)

type tries struct {
	owner   *node // of its first counter; nil: not known
	id      identified
	count   int
	begun   time.Time
	at      [MaxAddrs / 64]uint64 // a bit for each node that was tried
	unknown bool                  // an earlier attempt may have counted it
	err     error                 // of the last attempt, with the text of those before
}

// ask has nodes decide a request of a size.
func (t *tries) ask(ctx context.Context, c *Client, r *limiter.Request, d *limiter.Decision, peek bool, size int,
	of *resolved) error {
	for {
		at, err := c.add(kind{r.Rule, peek, t.id.ids}, r, size, t)
		if err != nil {
			return err
		}
		if err := at.batch.wait(ctx); err != nil {
			c.giveUp(at)
			return err
		}
		fate, err := at.batch.got.decision(at.batch.place(at.index), r, d)
		again := fate != answered && t.again(c, at.batch, r, fate, err)
		c.release(at.batch)
		switch {
		case fate == answered:
			if err == nil && of.warm {
				c.leases.heard(of, d)
			}
			return t.because(err)
		case !again:
			return t.failed()
		}
	}
}

func (t *tries) tried(n *node) bool { return t.at[n.index/64]&(1<<(n.index%64)) != 0 }

func (t *tries) note(n *node, err error) {
	t.count++
	t.at[n.index/64] |= 1 << (n.index % 64)
	if t.err != nil && t.count <= maxNamed && t.err.Error() != err.Error() {
		kind := err
		if errors.Is(t.err, limiter.ErrBudget) {
			kind = t.err // what another node lacks is no reason to let the request pass
		}
		err = &severalError{t.err.Error() + "; " + err.Error(), kind}
	}
	t.err = err
}

// maxNamed is how many nodes an error names at most.
const maxNamed = 8

// severalError has the text of the errors of several nodes, and is of the kind of one of them.
type severalError struct {
	text string
	kind error
}

func (e *severalError) Error() string { return e.text }
func (e *severalError) Unwrap() error { return e.kind }

// again records a failed attempt of a check and reports whether another one may be made.
func (t *tries) again(c *Client, b *batch, r *limiter.Request, f fate, err error) bool {
	if t.count == 0 {
		t.begun = b.begun
	}
	t.note(b.node, err)
	may := t.count <= c.known() && time.Since(t.begun) <= c.again
	if f == unknown {
		may = may && !t.unknown && !c.forgets(r, b.kind.peek)
		t.unknown = true
	}
	return may
}

// forgets reports whether nodes are known not to remember a check. Rules with "any" take no ids, so what is sent again
// by one of them is charged again.
func (c *Client) forgets(r *limiter.Request, peek bool) bool {
	known := c.ring.Load()
	return !peek && known != nil && (r.ID == "" || r.IDOptional) && known.set.Alternatives(r) != nil
}

// known returns the number of known nodes. The caller does not hold the lock.
func (c *Client) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.nodes)
}

// failed returns the error of a check that is not retried.
func (t *tries) failed() error {
	switch {
	case t.unknown:
		return t.because(t.err)
	case errors.Is(t.err, ErrClosed):
		return ErrClosed
	case errors.Is(t.err, ErrUnavailable):
		return t.err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, t.err)
}

// because returns the error that a check ends with, for that of its last attempt. If an
// attempt may have counted the check, the error wraps ErrUnanswered, and none of those
// that promise that nothing was counted. A settlement is known by its last attempt.
func (t *tries) because(err error) error {
	switch {
	case err == nil, !t.unknown, errors.Is(err, ErrUnanswered), errors.Is(err, ErrSettled), errors.Is(err, ErrRaised),
		errors.Is(err, ErrCosts):
		return err
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrBusy), errors.Is(err, ErrInvalid), errors.Is(err, ErrDenied):
		return &nodeError{ErrUnanswered.Error() + ": " + err.Error(), ErrUnanswered}
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// unavailable returns the error of a check for which no node is left, with the reason of each
// node. The lock is held.
func (c *Client) unavailable() error {
	err := c.nodes[0].why
	for _, n := range c.nodes[1:min(len(c.nodes), maxNamed)] {
		err = &severalError{err.Error() + "; " + n.why.Error(), n.why}
	}
	if more := len(c.nodes) - maxNamed; more > 0 {
		err = &severalError{fmt.Sprintf("%s; and %d more nodes", err, more), err}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
