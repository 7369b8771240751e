package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// errGivenUp ends a message whose callers have all given up before it was sent.
var errGivenUp = errors.New("no caller waits for the answer any more")

// giveUp is called instead of reading the answer to a check, when its caller's context has ended. A check that was not
// sent yet is taken out of its message, and charges nothing.
func (c *Client) giveUp(t ticket) {
	b := t.batch
	c.mu.Lock()
	at := -1
	if !b.finished {
		at = slices.Index(b.node.queue, b)
	}
	empty := false
	if at >= 0 {
		b.gone = append(b.gone, t.index)
		b.waits--
		c.pending--
		if empty = b.waits == 0; empty {
			b.node.queue = slices.Delete(b.node.queue, at, at+1)
		}
	}
	c.mu.Unlock()
	if empty {
		c.settle([]*batch{b}, undecided, errGivenUp)
	}
	c.release(b)
}

// behind waits until no check of an id is under way on a stream. A call about the reservation of that check could
// overtake it otherwise, and find none. Each message ends within the time of one attempt.
func (c *Client) behind(ctx context.Context, id string) error {
	for {
		c.mu.Lock()
		b := c.underWay[id]
		if b == nil {
			c.mu.Unlock()
			return nil
		}
		done := b.done
		c.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrUnanswered) {
				return fmt.Errorf("%w: the check of the same id is still under way", ErrUnavailable)
			}
			return ctx.Err()
		}
	}
}

// note registers a message as the one with the check of an id. The lock is held.
func (c *Client) note(id string, b *batch) {
	if c.underWay == nil {
		c.underWay = make(map[string]*batch)
	}
	c.underWay[id] = b
	b.named = append(b.named, id)
}

// ended is called when a message has ended. The lock is held.
func (c *Client) ended(b *batch) {
	for _, id := range b.named {
		if c.underWay[id] == b { // else a later message has a check of the same id
			delete(c.underWay, id)
		}
	}
}

// shrink leaves out of a message, which is about to be sent, the checks whose callers have given up.
func (b *batch) shrink() {
	if len(b.gone) == 0 {
		return
	}
	slices.Sort(b.gone)
	m := &b.message
	lengths := []*[]uint32{&m.PathLengths, &m.UserLengths, &m.IpLengths, &m.GroupLengths, &m.MethodLengths}
	for _, a := range m.Attributes {
		lengths = append(lengths, &a.Lengths)
	}
	m.Keys = b.strings(m.Keys, lengths...)
	m.Ids = b.strings(m.Ids, &m.IdLengths)
	for _, column := range append(lengths, &m.IdLengths) {
		*column = rest(b, *column)
	}
	m.Costs = rest(b, m.Costs)
	m.RuleCosts = slices.DeleteFunc(m.RuleCosts, func(i uint32) bool { return b.left(int(i)) })
	for at, i := range m.RuleCosts {
		m.RuleCosts[at] = uint32(b.place(int(i)))
	}
	b.n -= len(b.gone)
}

// left reports whether the caller of the check that was added as number i has given up.
func (b *batch) left(i int) bool {
	_, gone := slices.BinarySearch(b.gone, i)
	return gone
}

// place returns where in the message the check is that was added as number i.
func (b *batch) place(i int) int {
	before, _ := slices.BinarySearch(b.gone, i)
	return i - before
}

// rest returns a column, which may be empty, without the checks that are gone.
func rest[T any](b *batch, column []T) []T {
	out := column[:0]
	for i, v := range column {
		if !b.left(i) {
			out = append(out, v)
		}
	}
	return out
}

// strings returns the strings of all checks, whose lengths are in these columns, without those of the checks that are
// gone.
func (b *batch) strings(all []byte, lengths ...*[]uint32) []byte {
	out, from := all[:0], 0
	for i := range b.n {
		to := from
		for _, column := range lengths {
			if len(*column) > 0 {
				to += int((*column)[i])
			}
		}
		if !b.left(i) {
			out = append(out, all[from:to]...)
		}
		from = to
	}
	return out
}
